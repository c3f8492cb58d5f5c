"""Checks of the laws that every attention obeys, for attentions with parts of your own."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import product
from typing import Any, final

import torch
from jaxtyping import Bool
from torch import Tensor

from seq2seq_attn.attention.build import build_attention
from seq2seq_attn.attention.self_attention import SelfAttention
from seq2seq_attn.attention.state import Attended
from seq2seq_attn.errors import UserError, one_line

BATCH, LENGTH, REAL = 2, 9, 5  # sentences, their length, and the tokens of the second before its padding
LONG = 250  # positions, which faster ways serve; fewer, if a table of the layer has fewer
LIMITS = ("fused_from", "blocks_from", "listed_from", "buckets_from")  # lengths from which a pattern has a faster way
NEVER = sys.maxsize
TURNED = torch.tensor([1, 0])  # the sentences in another order
LEAST_GRADIENT = 1e-9
SINGLE = 1e-5  # a larger difference is not the rounding of float32
STEP = 0.1  # of every parameter, in an update


def check_attention(preset: str, *overrides: str, tolerance: float = 1e-9, **options: Any) -> dict[str, float]:
    """Build an attention in float64 and check the laws that the decoders and the search rely on.

    With the options `output_bias` and `qkv_bias` two of them cannot hold: a query that sees no key has the bias of the
    output, and softmax gives the bias of the keys no gradient. Check a part without them.

    >>> sorted(check_attention("multihead", dim=8, num_heads=2))[:2]
    ['a hidden key changes nothing', 'a hidden key weighs exactly 0']

    Args:
        overrides, options: as `build_attention` takes them.
        tolerance: the largest difference that may be rounding.

    Returns:
        the largest difference of each law.

    Raises:
        UserError: naming all laws that are broken; and as `build_attention`.
    """
    found, broken = {}, []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        laws = Checked(lambda: build_attention(preset, *overrides, **options), options).laws()
        for name, law in laws.items():
            try:
                found[name] = law()
            except Exception as error:  # of a class of the user's
                kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
                broken.append(f"{name}: {kind}{one_line(error)}")
                continue
            if not found[name] <= tolerance:  # NaN is not
                broken.append(f"{name}: the largest difference is {found[name]:.3g}")
    if broken:
        why = "; ".join(broken)
        if any(tolerance < one <= SINGLE for one in found.values()):
            why += f"; a part that computes in float32 differs by its rounding, which tolerance={SINGLE} allows"
        raise UserError(f"attention '{preset}' breaks {len(broken)} of {len(laws)} laws; {why}")
    return found


@final
class Checked:
    """A layer and its laws, each of which returns its largest difference.

    Args:
        build: makes the layer.
        widths: `dim`, or `query_dim`, `key_dim` and `value_dim`.
    """

    def __init__(self, build: Callable[[], Any], widths: dict[str, Any]) -> None:
        self.build = build
        self.layer = build().double().eval()
        self.is_self = isinstance(self.layer, SelfAttention)
        named: dict[str, Any] = {"value_dim": widths.get("key_dim")} | widths
        names = ("dim",) if self.is_self else ("query_dim", "key_dim", "value_dim")
        self.widths: list[int] = [named[name] for name in names]

    def laws(self) -> dict[str, Callable[[], float]]:
        """Return the laws that apply, by name."""
        laws = {
            "a hidden key changes nothing": self.hidden_keys,
            "a hidden key weighs exactly 0": self.hidden_weights,
            "weights sum to 1, or sums_to_one is False": self.sums,
            "asking for weights changes nothing": self.with_weights,
            "the context has the type of the query": self.same_type,
            "padding and other sentences change nothing": self.alone,
            "a query that sees no key has a context of zeros and finite gradients": self.blind,
            "every parameter gets a gradient": self.gradients,
            "the state round-trips": self.state,
        }
        if self.is_self:
            laws["a causal position sees none after it"] = self.look_ahead
        laws["one step at a time equals all at once"] = self.steps if self.is_self else self.cross_steps
        if not self.is_self:
            laws["hypotheses and chosen sentences change nothing"] = self.hypotheses
        if hasattr(self.layer.attention, "backend"):
            laws["the faster ways equal backend=dense"] = self.backends
        return laws

    def inputs(self, length: int = LENGTH) -> list[Tensor]:
        return [torch.randn(BATCH, length, width, dtype=torch.float64) for width in self.widths]

    def attend(self, inputs: list[Tensor], mask: Bool[Tensor, "*batch source"] | None = None, **asked: Any) -> Attended:
        if self.is_self:
            return self.layer(inputs[0], mask, **asked)  # type: ignore[no-any-return]
        return self.layer(*inputs, mask, **asked)  # type: ignore[no-any-return]

    @property
    def padding(self) -> Bool[Tensor, "batch source"]:
        return torch.arange(LENGTH) < torch.tensor([[LENGTH], [REAL]])

    def real(self, context: Tensor) -> Tensor:
        """Return the second sentence's contexts, without those of padding."""
        return context[1, :REAL] if self.is_self else context[1]

    def hidden_keys(self) -> float:
        inputs = self.inputs()
        before = self.attend(inputs, self.padding).context
        for keys in inputs if self.is_self else inputs[1:]:
            keys[1, REAL:] = 100 * torch.randn_like(keys[1, REAL:])
        hidden = (self.attend(inputs, self.padding), self.attend(inputs, valid_length=torch.tensor([LENGTH, REAL])))
        return largest([difference(self.real(attended.context), self.real(before)) for attended in hidden])

    def hidden_weights(self) -> float:
        weights = self.attend(self.inputs(), self.padding, need_weights=True).weights
        return 0.0 if weights is None or not weights[1, :, :, REAL:].any() else math.inf

    def sums(self) -> float:
        attended = self.attend(self.inputs(), self.padding, need_weights=True)
        expected = attended._replace(sums_to_one=False).distribution
        if attended.weights is None or expected is None or not attended.sums_to_one:
            return 0.0
        return difference(*(self.real(weights.transpose(1, 2)) for weights in (attended.weights, expected)))

    def with_weights(self) -> float:
        inputs = self.inputs()
        contexts = [self.attend(inputs, self.padding, need_weights=asked).context for asked in (True, False)]
        return difference(*map(self.real, contexts))

    def same_type(self) -> float:
        found = self.attend(self.inputs(), self.padding).context.dtype
        if found != torch.float64:
            raise UserError(f"{found}, not {torch.float64}")
        return 0.0

    def alone(self) -> float:
        inputs = self.inputs()
        together = self.attend(inputs, self.padding).context
        cut = [x[1:, :REAL] if self.is_self or number else x[1:] for number, x in enumerate(inputs)]
        return difference(self.real(together), self.attend(cut).context[0])

    def blind(self) -> float:
        inputs = [x.requires_grad_() for x in self.inputs()]
        mask = torch.ones(BATCH, LENGTH, LENGTH, dtype=torch.bool)
        mask[:, 2] = False
        context = self.attend(inputs, mask).context
        found = torch.autograd.grad(context.square().sum(), inputs, allow_unused=True)
        finite = all(gradient is None or gradient.isfinite().all() for gradient in found)
        return difference(context[:, 2], torch.zeros_like(context[:, 2])) if finite else math.nan

    def gradients(self) -> float:
        layer = self.build().double().train()
        without = {name: one for name, one in layer.named_parameters() if one.requires_grad}
        for _ in range(2):  # a factor that begins as 0 hides the others in the first update
            attended = layer(*self.inputs(), self.padding)
            loss = (attended.context - torch.randn_like(attended.context)).square().sum()
            if attended.log_prob is not None:  # what is drawn passes no gradient on: the draw's own terms do
                loss = loss + (attended.log_prob + attended.entropy).sum()
            if not loss.requires_grad:
                break
            layer.zero_grad()
            loss.backward()
            without = {name: one for name, one in without.items() if not has_gradient(one)}
            with torch.no_grad():
                for parameter in layer.parameters():
                    if parameter.grad is not None:
                        parameter -= STEP * parameter.grad.sign()
        if without:
            raise UserError(f"none for {', '.join(without)}")
        return 0.0

    def state(self) -> float:
        inputs = self.inputs()
        torch.manual_seed(1)  # so that it begins with other numbers
        other = self.build().double().eval()
        other.load_state_dict(self.layer.state_dict())
        return difference(other(*inputs, self.padding).context, self.attend(inputs, self.padding).context)

    def look_ahead(self) -> float:
        (x,) = self.inputs()
        before = self.attend([x], causal=True).context
        changed = torch.cat([x[:, :REAL], torch.randn_like(x[:, REAL:])], 1)
        return difference(self.attend([changed], causal=True).context[:, :REAL], before[:, :REAL])

    def steps(self) -> float:
        (x,) = self.inputs()
        past, contexts, order = None, [], torch.arange(BATCH)
        for at in range(LENGTH):
            if past is not None and at == REAL:  # as a search does with its hypotheses
                past, order = past.branch(TURNED), TURNED
            attended = self.attend([x[order, at : at + 1]], causal=True, past=past)
            past = attended.memory
            contexts.append(attended.context[order])
        return difference(torch.cat(contexts, 1), self.attend([x], causal=True).context)

    def cross_steps(self) -> float:
        query, keys, values = self.inputs()
        attention = self.layer.attention
        memory = attention.prepare(keys, values, self.padding)
        history, contexts = None, []
        for at in range(LENGTH):
            attended = attention(query[:, at : at + 1], memory, start=at, history=history)
            history = attended.history
            contexts.append(attended.context)
        return difference(torch.cat(contexts, 1), attention(query, memory).context)

    def hypotheses(self) -> float:
        """Compare several hypotheses of a sentence with each alone, and chosen sentences of a memory with all."""
        query, keys, values = self.inputs()
        attention = self.layer.attention
        memory = attention.prepare(keys, values, self.padding)
        chosen = attention(query[TURNED], memory.select(TURNED)).context
        differences = [difference(chosen[TURNED], attention(query, memory).context)]
        first = attention.first_history(memory)
        of_pairs = None if first is None else first.select(torch.arange(BATCH).repeat_interleave(2))
        for at in range(LENGTH):
            pair = query[:, [at, LENGTH - 1 - at]]
            rows = pair.flatten(0, 1).unsqueeze(1)
            together = attention(rows, memory, start=at, history=of_pairs).context
            alone = [attention(one, memory, start=at).context for one in pair.split(1, 1)]
            differences.append(difference(together.reshape(BATCH, 2, -1), torch.cat(alone, 1)))
        return largest(differences)

    def backends(self) -> float:
        differences = []
        limits = [getattr(one, "max_length", None) or LONG for one in self.layer.modules()]
        for length in (LENGTH, min(LONG, *limits)):
            inputs = [x.requires_grad_() for x in self.inputs(length)]
            padding = torch.arange(length) < torch.tensor([[length], [length // 2]])
            orders = ({"causal": False}, {"causal": True}) if self.is_self else ({},)
            for asked, mask in product(orders, (None, padding)):
                expected = self.with_gradients(inputs, mask, "dense", **asked)
                for way in faster_ways(getattr(self.layer.attention, "pattern", None)):
                    with way:
                        found = self.with_gradients(inputs, mask, self.layer.attention.backend, **asked)
                    differences += [difference(*both) for both in zip(found, expected, strict=True)]
        return largest(differences)

    def with_gradients(
        self, inputs: list[Tensor], mask: Bool[Tensor, "batch source"] | None, backend: str, **asked: Any
    ) -> list[Tensor]:
        """Return the contexts of real tokens that a backend computes, and the gradients of the inputs that have one."""
        with changed(self.layer.attention, backend=backend):
            context = self.attend(inputs, mask, **asked).context
        if self.is_self and mask is not None:  # nothing reads the contexts of padding
            context = context.masked_fill(~mask.unsqueeze(-1), 0.0)
        gradients = torch.autograd.grad(context.sin().sum(), inputs, allow_unused=True)
        return [context, *(x for x in gradients if x is not None)]


def faster_ways(pattern: Any) -> list[AbstractContextManager[None]]:
    """Return contexts in which the lengths are those of the layer, and in which each way of the pattern begins at 1."""
    limits = [name for name in LIMITS if getattr(pattern, name, NEVER) < NEVER]
    alone = [changed(pattern, **dict.fromkeys(limits, NEVER) | {name: 1}) for name in limits]
    return [nullcontext(), *alone]


@contextmanager
def changed(of: Any, **attributes: Any) -> Iterator[None]:
    """Change attributes for a while."""
    before = {name: getattr(of, name) for name in attributes}
    vars(of).update(attributes)
    try:
        yield
    finally:
        vars(of).update(before)


def has_gradient(parameter: Tensor) -> bool:
    return parameter.grad is not None and bool((parameter.grad.abs() > LEAST_GRADIENT).any())


def largest(differences: list[float]) -> float:
    """Return the largest number; NaN where one is NaN, which Python's `max` may pass over."""
    return float(torch.tensor(differences, dtype=torch.float64).max())


def difference(found: Tensor, expected: Tensor) -> float:
    """Return the largest difference; NaN where one is NaN."""
    return float((found - expected).detach().abs().max())
