"""Linear attention with a decay: chunks, steps and masks against a loop over pairs in float64; laws of its gates."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from attention.formulas import attend
from attention.layers import in_chunks
from configs import attention_of, model_of
from torch import Tensor
from torch.nn import functional as F

from seq2seq_attn.attention import kernel_attention
from seq2seq_attn.attention.decay.gate import GateDecay
from seq2seq_attn.errors import UserError
from seq2seq_attn.position.rotary import RotaryPosition

pytestmark = pytest.mark.usefixtures("double")

B, HEADS, WIDTH = 2, 3, 12
LONG = kernel_attention.CHUNK + 7
DECAYS = ("gate", "fixed")
CASES = [(23, 1), (23, 4), (23, 23), (LONG, kernel_attention.CHUNK)]  # positions and length of a chunk


def layer(decay: str = "gate", *overrides: str, preset: str = "gated_linear", key_dim: int = WIDTH) -> Any:
    """A layer with gates from nearly closed to nearly open, but within their limits."""
    sizes = {"query_dim": WIDTH, "key_dim": key_dim, "value_dim": key_dim}
    attention = attention_of(
        preset, f"attention/decay={decay}", f"attention.num_heads={HEADS}", *overrides, **sizes
    ).eval()
    if decay == "gate":
        attention.decay.project.weight.data *= 2
    return attention


def same(found: Tensor, expected: Tensor, atol: float = 1e-12) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=atol)


def scattered_mask(length: int) -> Tensor:
    """All tokens of the first sentence, and some of the second: hidden in front, between and at the end."""
    visible = torch.rand(length, generator=torch.Generator().manual_seed(1)) > 0.4
    visible[:2] = visible[-3:] = False
    visible[length // 2] = True
    return torch.stack([torch.ones(length, dtype=torch.bool), visible])


def formula(attention: Any, query: Tensor, keys: Tensor, mask: Tensor | None, causal: bool) -> tuple[Tensor, Tensor]:
    """Context and weights, pair by pair from each query outwards: the product of the gates that were passed."""
    (batch, source, _), target = keys.shape, query.shape[1]
    mask = torch.ones(batch, source, dtype=torch.bool) if mask is None else mask
    masks = mask[:, None].expand(-1, target, -1) if mask.dim() == 2 else mask
    if isinstance(attention.decay, GateDecay):
        gates = (keys @ attention.decay.project.weight.T + attention.decay.project.bias).sigmoid()
        share = 1 - gates
    else:
        gates = (1 - 2.0 ** -(5 + torch.arange(HEADS))).expand(batch, source, -1)
        share = torch.ones_like(gates)
    phi = [
        F.elu(project(x).unflatten(-1, (HEADS, -1))) + 1
        for project, x in ((attention.project_query, query), (attention.project_key, keys))
    ]
    values = attention.project_values(keys).unflatten(-1, (HEADS, -1))
    rows, contexts = [], []
    for i in range(target):
        weights: list[Any] = [torch.zeros(batch, HEADS) for _ in range(source)]
        backward, forward = list(range(min(i, source - 1), -1, -1)), list(range(i + 1, source))
        for walk, gate_first in ((backward, False), ([] if causal else forward, True)):
            product = torch.ones(batch, HEADS)
            for j in walk:
                visible = masks[:, i, j, None]
                kept = torch.where(visible, gates[:, j], 1.0)
                product = product * kept if gate_first else product
                weights[j] = visible * product * share[:, j] * (phi[0][:, i] * phi[1][:, j]).sum(-1)
                product = product if gate_first else product * kept
        row = torch.stack(weights, -1)
        total = row.sum(-1, keepdim=True)
        rows.append(row / torch.where(total == 0, 1.0, total))
        contexts.append(torch.einsum("bhs,bshw->bhw", rows[-1], values).flatten(1))
    return attention.project_output(torch.stack(contexts, 1)), torch.stack(rows, 2)


@pytest.mark.parametrize(("length", "chunk"), CASES)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("decay", DECAYS)
def test_chunks_and_all_pairs_equal_the_formula_values_and_gradients(
    decay: str, causal: bool, length: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_attention, "CHUNK", chunk)
    attention, x = layer(decay), torch.randn(B, length, WIDTH, requires_grad=True)
    upstream, inputs = torch.randn(B, length, WIDTH), [x, *attention.parameters()]
    for mask in (scattered_mask(length), None)[: 1 if length == LONG else 2]:
        expected, weights = formula(attention, x, x, mask, causal)
        theirs = torch.autograd.grad((expected * upstream).sum(), inputs)
        for need_weights in (False, True):
            found = attention.attend_self(x, mask, causal=causal, need_weights=need_weights)
            same(found.context, expected)
            ours = torch.autograd.grad((found.context * upstream).sum(), inputs)
            for mine, other in zip(ours, theirs, strict=True):
                same(mine, other, 1e-10)
        same(found.weights, weights)
        if mask is not None:
            assert (found.weights.mT[1, :, ~mask[1]] == 0).all()


@pytest.mark.parametrize(("target", "source"), [(9, 23), (23, 9), (7, 1), (LONG, 19), (19, LONG)])
@pytest.mark.parametrize("decay", DECAYS)
def test_attention_to_another_sequence_equals_the_formula_at_once_in_parts_and_by_steps(
    decay: str, target: int, source: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if max(target, source) < LONG:
        monkeypatch.setattr(kernel_attention, "CHUNK", 4)
    attention = layer(decay, key_dim=5)
    query, keys = torch.randn(B, target, WIDTH), torch.randn(B, source, 5)
    for mask in (scattered_mask(source), None)[: 1 if LONG in (target, source) else 2]:
        expected, weights = formula(attention, query, keys, mask, causal=False)
        memory = attention.prepare(keys, mask=mask)
        found = attention(query, memory, need_weights=True)
        same(found.context, expected)
        same(found.weights, weights)
        for cuts in ([target], [3, target - 3], [1] * target):
            starts = [sum(cuts[:n]) for n in range(len(cuts))]
            parts = [attention(part, memory, start=t) for t, part in zip(starts, query.split(cuts, 1), strict=True)]
            same(torch.cat([part.context for part in parts], 1), expected)


@pytest.mark.parametrize("causal", [True, False])
def test_hypotheses_of_one_position_equal_queries_of_their_own(causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_attention, "CHUNK", 4)
    attention, keys, queries = layer(), torch.randn(B, 11, WIDTH), torch.randn(3 * B, 1, WIDTH)
    memory = attention.prepare(keys, mask=scattered_mask(11))
    repeated = memory.select(torch.arange(B).repeat_interleave(3))
    for start in (0, 3, 4, 7, 10, 11, 30):
        shared = attention(queries, memory, start=start, causal=causal)
        same(shared.context, attention(queries, repeated, start=start, causal=causal).context)
        dense = attention(queries, memory, start=start, causal=causal, need_weights=True)
        same(shared.context, dense.context)


@pytest.mark.parametrize("causal", [True, False])
def test_a_hidden_token_is_as_one_that_is_not_there(causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_attention, "CHUNK", 4)
    attention, x = layer(), torch.randn(1, 23, WIDTH)
    visible = scattered_mask(23)[1]
    for need_weights in (False, True):
        found = attention.attend_self(x, visible[None], causal=causal, need_weights=need_weights).context
        alone = attention.attend_self(x[:, visible], causal=causal).context
        same(found[:, visible], alone)


def test_a_mask_for_each_query_hides_tokens_from_its_own_row_alone() -> None:
    attention, query, keys = layer(key_dim=5), torch.randn(B, 7, WIDTH), torch.randn(B, 9, 5)
    mask = torch.rand(B, 7, 9) > 0.4
    expected, weights = formula(attention, query, keys, mask, causal=False)
    found = attention(query, attention.prepare(keys, mask=mask), need_weights=True)
    same(found.context, expected)
    same(found.weights, weights)
    sentence = scattered_mask(9)
    of_rows = attention(query, attention.prepare(keys, mask=sentence[:, None].expand(-1, 7, -1))).context
    same(of_rows, attention(query, attention.prepare(keys, mask=sentence)).context)


@pytest.mark.parametrize("cuts", [[1] * 23, [9, 1, 1, 12], [2, 21], [23]])
@pytest.mark.parametrize("decay", DECAYS)
def test_parts_of_any_length_after_a_past_equal_all_at_once(
    decay: str, cuts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_attention, "CHUNK", 4)
    attention, x, mask = layer(decay), torch.randn(B, 23, WIDTH), scattered_mask(23)
    expected, past, found, sizes = attention.attend_self(x, mask, causal=True).context, None, [], set()
    for part, visible in zip(x.split(cuts, 1), mask.split(cuts, 1), strict=True):
        attended = attention.attend_self(part, visible, past=past, causal=True)
        past = attended.memory
        found.append(attended.context)
        sizes.add(past.total.shape)
    same(torch.cat(found, 1), expected)
    assert len(sizes) == 1


def test_a_part_that_is_not_causal_sees_its_past_and_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_attention, "CHUNK", 4)
    attention, x = layer(), torch.randn(B, 23, WIDTH)
    past = attention.attend_self(x[:, :9]).memory
    same(attention.attend_self(x[:, 9:], past=past).context, attention.attend_self(x).context[:, 9:])


def test_a_search_that_selects_and_branches_its_memory_equals_all_at_once() -> None:
    attention, x = layer(), torch.randn(B, 80, WIDTH)
    rows, past = torch.tensor([1, 0, 1]), None
    expected = attention.attend_self(x[rows], causal=True).context[:, -1:]
    for step in range(80):
        if step == 40:
            past = past.select(torch.tensor([1, 0])).branch(torch.tensor([0, 1, 0]))
            x = x[rows]
        attended = attention.attend_self(x[:, step : step + 1], past=past, causal=True)
        past = attended.memory
        assert past.keys.shape[2] == 1
    same(attended.context, expected)


def test_all_hypotheses_of_a_past_see_it_decayed_until_its_last_position() -> None:
    attention, x = layer(), torch.randn(B, 5, WIDTH)
    branched = attention.attend_self(x, causal=True).memory.branch(torch.tensor([1, 0]))
    query = torch.randn(B, 1, WIDTH)
    expected = attention(query, attention.prepare(x[[1, 0]]), start=4, causal=True).context
    same(attention(query, branched, start=4, causal=True).context, expected)
    same(attention(query, branched, start=4).context, expected)


def test_a_query_within_a_decayed_past_is_refused() -> None:
    attention, x = layer(), torch.randn(B, 5, WIDTH)
    memory = attention.attend_self(x[:, 3:], past=attention.attend_self(x[:, :3]).memory).memory
    for start, query in ((2, x[:, :1]), (1, x[:, :2])):
        with pytest.raises(
            UserError,
            match=rf"^the query at position {start} is one of the 3 positions of which .* the decayed sum; attend from",
        ):
            attention(query, memory, start=start)
    assert attention(x[:, :1], memory, start=3).context.isfinite().all()


def test_it_is_the_recurrence_of_the_paper() -> None:
    """Peng et al. 2021, eq. 7, and the quotient of eq. 6."""
    attention, x = layer(), torch.randn(B, 13, WIDTH)
    gates = (x @ attention.decay.project.weight.T + attention.decay.project.bias).sigmoid()
    q, k = (F.elu(p(x).unflatten(-1, (HEADS, -1))) + 1 for p in (attention.project_query, attention.project_key))
    v = attention.project_values(x).unflatten(-1, (HEADS, -1))
    s, z, contexts = torch.zeros(B, HEADS, 4, 4), torch.zeros(B, HEADS, 4), []
    for t in range(13):
        f = gates[:, t, :, None]
        s = f[..., None] * s + (1 - f)[..., None] * k[:, t, :, :, None] * v[:, t, :, None]
        z = f * z + (1 - f) * k[:, t]
        quotient = (q[:, t, :, None] @ s)[:, :, 0] / (q[:, t] * z).sum(-1, keepdim=True)
        contexts.append(quotient.flatten(1))
    same(attention.attend_self(x, causal=True).context, attention.project_output(torch.stack(contexts, 1)))


@pytest.mark.parametrize("causal", [True, False])
def test_weights_by_hand(causal: bool) -> None:
    attention, x = layer(), torch.randn(1, 3, WIDTH)
    attention.project_query.weight.data.zero_()  # all features are 1
    attention.project_key.weight.data.zero_()
    logits = torch.tensor([math.log(gate / (1 - gate)) for gate in (0.9, 0.5, 0.25)])
    attention.decay.project.weight.data = torch.linalg.lstsq(x[0], logits[:, None]).solution.mT.repeat(HEADS, 1)
    attention.decay.project.bias.data.zero_()
    weights = attention.attend_self(x, causal=causal, need_weights=True).weights
    # a key adds 1 - f: 1/10, 1/2 and 3/4; of it remain 1/2 from 0 to 1, 1/4 from 1 to 2 and 1/8 from 0 to 2
    rows = torch.tensor([[0.1, 0.25, 0.75 / 8], [0.05, 0.5, 0.75 / 4], [0.0125, 0.125, 0.75]])
    rows = rows.tril() if causal else rows
    same(weights[0], (rows / rows.sum(-1, keepdim=True)).expand(HEADS, -1, -1))


def test_fixed_decays_by_hand() -> None:
    log_decay, factor = layer("fixed").decay(torch.randn(B, 4, WIDTH))
    same(log_decay.exp(), torch.tensor([31 / 32, 63 / 64, 127 / 128])[:, None].expand(B, -1, 4))
    assert factor is None
    assert not list(layer("fixed").decay.parameters())


def test_open_gates_give_linear_attention_and_closed_ones_the_own_value() -> None:
    attention, x = layer(), torch.randn(B, LONG, WIDTH)
    linear = attention_of("linear", f"attention.num_heads={HEADS}", query_dim=WIDTH, key_dim=WIDTH, value_dim=WIDTH)
    linear.load_state_dict({k: v for k, v in attention.state_dict().items() if not k.startswith("decay.")})
    attention.decay.project.weight.data.zero_()
    for causal in (True, False):
        attention.decay.project.bias.data.fill_(40.0)
        expected = linear.attend_self(x, causal=causal).context
        same(attention.attend_self(x, causal=causal).context, expected, 1e-3)
        attention.decay.project.bias.data.fill_(-40.0)
        own = attention.project_output(attention.project_values(x))
        same(attention.attend_self(x, causal=causal).context, own, 1e-4)


def test_a_logit_beyond_15_counts_as_15() -> None:
    decay = GateDecay(key_dim=3, num_heads=2, initial_gate=0.5)
    decay.project.weight.data.zero_()
    decay.project.bias.data.copy_(torch.tensor([-1e3, 16.0]))
    log_gates, shares = (x[0, :, 0] for x in decay(torch.ones(1, 1, 3)))
    same(log_gates, torch.tensor([-15.0, 15.0]).sigmoid().log(), 1e-12)
    same(shares, torch.tensor([15.0, -15.0]).sigmoid(), 1e-12)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("bias", [-1e3, -20.0, 20.0, 1e3])
def test_gates_near_0_and_1_give_finite_contexts_and_gradients_in_float32(bias: float, causal: bool) -> None:
    attention = layer().float()
    attention.decay.project.bias.data.fill_(bias)
    x = (torch.randn(B, LONG, WIDTH) * torch.logspace(-3, 3, LONG)[:, None]).float().requires_grad_()
    for need_weights in (False, True):
        found = attention.attend_self(x, scattered_mask(LONG), causal=causal, need_weights=need_weights).context
        assert found.isfinite().all()
        for gradient in torch.autograd.grad(found.square().sum(), [x, *attention.parameters()]):
            assert gradient.isfinite().all()


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("bias", [-15.0, -8.0])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_features_of_0_under_gates_near_0_give_finite_gradients_in_float32(
    bias: float, seed: int, causal: bool
) -> None:
    """Where relu features make the weight of a query's own key 0, the others have decayed to nearly 0."""
    torch.manual_seed(seed)
    attention = layer(preset="cosformer").float()
    attention.decay.project.bias.data.fill_(bias)
    attention.decay.project.weight.data.zero_()
    x = torch.randn(8, 40, WIDTH, dtype=torch.float32, requires_grad=True)
    for need_weights in (False, True):
        found = attention.attend_self(x, causal=causal, need_weights=need_weights).context
        for gradient in torch.autograd.grad(found.square().sum(), [x, *attention.parameters()]):
            assert gradient.isfinite().all()


@pytest.mark.slow
@pytest.mark.parametrize("causal", [True, False])
def test_sums_over_thousands_of_tokens_stay_as_exact_as_float32(causal: bool) -> None:
    """Logarithms of nearly closed gates add up to -14 * 1,700, and those between the last keys and a query to -1."""
    attention, x = layer(), torch.randn(1, 2000, WIDTH)
    attention.decay.project.weight.data[:, 0] = 1.0
    attention.decay.project.weight.data[:, 1:] = 0.0
    attention.decay.project.bias.data.zero_()
    x[..., 0] = torch.where(torch.arange(2000) % kernel_attention.CHUNK < 54, -14.0, 1.5)
    expected = attention.attend_self(x, causal=causal).context
    attention.float()
    single = x.float()
    found = [attention.attend_self(single, causal=causal, need_weights=n).context for n in (False, True)]
    if causal:
        past = attention.attend_self(single[:, :1980], causal=True).memory
        found.append(attention.attend_self(single[:, 1980:], past=past, causal=True).context)
    for context in found:
        exact = expected[:, -context.shape[1] :]
        assert ((context - exact).abs().max() / exact.abs().max()) < 2e-6


@pytest.mark.parametrize("decay", DECAYS)
def test_sums_are_float32_under_autocast_also_after_several_tokens(decay: str) -> None:
    attention, x = layer(decay).float(), torch.randn(B, 200, WIDTH, dtype=torch.float32)
    expected = attention.attend_self(x, causal=True).context
    with torch.autocast("cpu", torch.bfloat16):
        past = attention.attend_self(x[:, :150], causal=True).memory
        found = attention.attend_self(x[:, 150:], past=past, causal=True)
        assert found.memory.branch(torch.tensor([1])).before.dtype == torch.float32
    assert {y.dtype for y in (past.log_decay, past.total, found.memory.before)} == {torch.float32}
    assert ((found.context - expected[:, 150:]).abs().max() / expected.abs().max()) < 5e-2


@pytest.mark.parametrize("decay", DECAYS)
@pytest.mark.parametrize("preset", ["linear", "performer", "cosformer"])
def test_every_feature_map_takes_every_decay(preset: str, decay: str) -> None:
    attention, x = layer(decay, preset=preset), torch.randn(B, 7, WIDTH)
    mask = torch.arange(7) < torch.tensor([[7], [4]])
    for causal in (True, False):
        expected, weights = attend(attention, x, x, x, mask, causal=causal)
        found = attention.attend_self(x, mask, causal=causal, need_weights=True)
        same(found.context, expected)
        same(found.weights, weights)
        same(attention.attend_self(x, mask, causal=causal).context, expected)


def test_a_gated_performer_takes_rotary_positions_step_by_step_as_all_at_once() -> None:
    sizes = {"query_dim": WIDTH, "key_dim": WIDTH, "value_dim": WIDTH}
    rotary = RotaryPosition(dim=WIDTH, base=100.0).relative
    attention = attention_of("performer", "attention/decay=gate", "attention.num_heads=3", relative=rotary, **sizes)
    x = torch.randn(B, 9, WIDTH)
    same(in_chunks(attention, x, 1), attention.attend_self(x, causal=True).context)


def test_before_training_gates_are_around_the_initial_one() -> None:
    decay = layer("gate", "attention.decay.initial_gate=0.75").decay
    torch.testing.assert_close(decay.project.bias.sigmoid(), torch.full((HEADS,), 0.75))


def test_a_transformer_has_gates_in_each_layer() -> None:
    model = model_of("model=transformer", "attention=gated_linear", "position=none")
    gates = [layer.attention.decay.project for layer in model.encoder.layers]
    gates += [layer.self_attention.decay.project for layer in model.decoder.layers]
    assert len({id(gate) for gate in gates}) == len(gates)


@pytest.mark.parametrize("gate", [0.0, 1.0, -0.5, 1e-8, 0.9999999])
def test_a_gate_that_is_none_is_refused(gate: float) -> None:
    sentence = rf"^attention\.decay\.initial_gate={gate}.* must be between 0\.000001 and 0\.999999; use 0\.9$"
    with pytest.raises(UserError, match=sentence):
        layer("gate", f"attention.decay.initial_gate={gate}")
