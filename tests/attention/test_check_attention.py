"""`check_attention`: all presets keep the laws, and an attention that breaks one is refused by its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from configs import attentions_at_once, options
from torch import Tensor, nn

from seq2seq_attn.attention import check_attention
from seq2seq_attn.attention.gate.gate import Gate
from seq2seq_attn.attention.kernel_attention import KernelAttention
from seq2seq_attn.attention.normalizer.normalizer import Normalized, Normalizer
from seq2seq_attn.attention.pattern.pattern import Pattern
from seq2seq_attn.attention.score.scaled_dot import ScaledDotScore
from seq2seq_attn.attention.state import Attended, Memory
from seq2seq_attn.errors import UserError
from seq2seq_attn.nn.masked import masked_softmax

SOME = ("multihead", "linear", "gated_delta", "local_p", "talking_heads", "luong_dot")
HIDDEN = {"a hidden key changes nothing", "a hidden key weighs exactly 0", "padding and other sentences change nothing"}
BLIND = "a query that sees no key has a context of zeros and finite gradients"
SEARCH = "hypotheses and chosen sentences change nothing"
AHEAD, STEPS = "a causal position sees none after it", "one step at a time equals all at once"
GRADIENTS, STATE, FASTER = (
    "every parameter gets a gradient",
    "the state round-trips",
    "the faster ways equal backend=dense",
)
SUMS, ASKING, TYPE = (
    "weights sum to 1, or sums_to_one is False",
    "asking for weights changes nothing",
    "the context has the type of the query",
)


class SeesAll(Normalizer):
    """Forgets the mask."""

    def forward(self, scores: Tensor, allowed: Tensor | None) -> Normalized:
        return Normalized(scores.softmax(-1))


class NotANumber(Normalizer):
    """A softmax over nothing."""

    def forward(self, scores: Tensor, allowed: Tensor | None) -> Normalized:
        return Normalized((scores if allowed is None else scores.masked_fill(~allowed, -torch.inf)).softmax(-1))


class MeansOfBatch(ScaledDotScore):
    """Lets the sentences of a batch change one another."""

    def prepare_query(self, query: Tensor) -> Any:
        return super().prepare_query(query - query.mean((0, 1)))


class Idle(Normalizer):
    """Has a parameter that nothing reads, and a number that its state lacks."""

    def __init__(self) -> None:
        super().__init__()
        self.idle = nn.Parameter(torch.zeros(2))
        self.factor = torch.rand(()).item()

    def forward(self, scores: Tensor, allowed: Tensor | None) -> Normalized:
        return Normalized(self.factor * masked_softmax(scores, allowed))


class Broken(ScaledDotScore):
    """Fails."""

    def prepare_keys(self, keys: Tensor) -> Any:
        raise ValueError("no keys today")


class CountsRows(ScaledDotScore):
    """Takes the number of a row for its position."""

    def forward(self, query: Any, keys: Any, positions: Any) -> Tensor:
        scores = super().forward(query, keys, positions)
        rows = torch.arange(scores.shape[2])[:, None]
        return scores - 0.3 * (rows - torch.arange(scores.shape[3])).abs()


class OneTensor(ScaledDotScore):
    """Prepares keys that are no tuple."""

    def prepare_keys(self, keys: Tensor) -> Any:
        return super().prepare_keys(keys)[0]


class Sums(Gate):
    """Adds up the contexts of the queries until each."""

    def forward(self, query: Tensor, context: Tensor) -> Tensor:
        return context.cumsum(1)


class Narrow(Pattern):
    """Reads fewer keys in a step than it allows."""

    def allowed(self, query: Tensor, key: Tensor) -> Tensor:
        return (query[..., :, None] - key[..., None, :]).abs() <= 3

    def window(self, position: int, source: int, causal: bool) -> slice:
        return slice(max(0, position - 1), min(source, position + 2))


class ListsHidden(Pattern):
    """Selects the last key that a query may see; its list forgets the mask."""

    selects, listed_from = True, 200

    def select(self, query: Tensor, keys: Tensor, visible: Tensor | None, own: Tensor | None) -> Tensor:
        key = torch.arange(keys.shape[2])
        seen = torch.ones(1, 1, 1, len(key), dtype=torch.bool) if visible is None else visible
        last = key.where(seen, -1).amax(-1, keepdim=True)
        return (key == last).expand(*query.shape[:3], -1)

    def list_selected(
        self, query: Tensor, keys: Tensor, mask: Tensor | None, own: Tensor | None, *, causal: bool
    ) -> Tensor:
        last = own if own is not None and causal else torch.full(query.shape[2:3], keys.shape[2] - 1)
        return last[:, None].expand(*query.shape[:3], 1)


class Apart(ScaledDotScore):
    """Takes the positions for those of all pairs."""

    def forward(self, query: Any, keys: Any, positions: Any) -> Tensor:
        scores = super().forward(query, keys, positions)
        return scores - 0.1 * (positions.query[:, None] - positions.key).abs()


class LostWhereLong(ScaledDotScore):
    """Has no numbers for long sequences."""

    def forward(self, query: Any, keys: Any, positions: Any) -> Tensor:
        scores = super().forward(query, keys, positions)
        return scores if scores.shape[-1] < 100 else scores * torch.nan


class Few(ScaledDotScore):
    """Has a table of few positions, and a parameter that is not trained."""

    def __init__(self, **sizes: Any) -> None:
        super().__init__(**sizes)
        self.max_length = 12
        self.table = nn.Parameter(torch.rand(self.max_length), requires_grad=False)

    def forward(self, query: Any, keys: Any, positions: Any) -> Tensor:
        return super().forward(query, keys, positions) * self.table[positions.key].unsqueeze(-2)


class Single(Normalizer):
    """Computes in float32."""

    def forward(self, scores: Tensor, allowed: Tensor | None) -> Normalized:
        return Normalized(masked_softmax(scores.float(), allowed).to(scores.dtype))


class OneSided(KernelAttention):
    """Ignores lengths, has another context where weights are asked for, and returns it in float32."""

    def attend_self(self, x: Tensor, mask: Any = None, *, need_weights: bool = False, **others: Any) -> Attended:
        attended = super().attend_self(x, mask, need_weights=need_weights, **others | {"valid_length": None})
        return attended._replace(context=(attended.context * (2 if need_weights else 1)).float())


class Closed(Gate):
    """Lets nothing pass at first, so that nothing else has a gradient in the first update."""

    def __init__(self) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.zeros(()))

    def forward(self, query: Tensor, context: Tensor) -> Tensor:
        return context * self.alpha.tanh()


CLASSES = {
    "gate": {"closed": Closed, "sums": Sums},
    "normalizer": {"sees_all": SeesAll, "not_a_number": NotANumber, "idle": Idle, "single": Single},
    "pattern": {"narrow": Narrow, "lists_hidden": ListsHidden},
    "score": {
        "means_of_batch": MeansOfBatch,
        "broken": Broken,
        "counts_rows": CountsRows,
        "one_tensor": OneTensor,
        "apart": Apart,
        "lost_where_long": LostWhereLong,
        "few": Few,
    },
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The YAML files of the classes above."""
    folder = tmp_path_factory.mktemp("conf")
    for group, classes in CLASSES.items():
        (folder / "attention" / group).mkdir(parents=True)
        for name, kind in classes.items():
            file = folder / "attention" / group / f"{name}.yaml"
            file.write_text(f"_target_: {__name__}.{kind.__name__}\n_partial_: true\n", encoding="utf-8")
    one_sided = f"defaults: [linear, _self_]\n_target_: {__name__}.OneSided\n"
    (folder / "attention" / "one_sided.yaml").write_text(one_sided, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    "preset", [one if one in SOME else pytest.param(one, marks=pytest.mark.slow) for one in options("attention")]
)
def test_every_preset_keeps_all_laws(preset: str) -> None:
    found = check_attention(preset, query_dim=8, key_dim=8)
    assert found.keys() >= HIDDEN | {BLIND, GRADIENTS, STATE}
    if preset in attentions_at_once():
        found = check_attention(preset, dim=32)
        assert found.keys() >= HIDDEN | {BLIND, GRADIENTS, STATE, AHEAD, STEPS}
    assert max(found.values()) < 1e-9


@pytest.mark.parametrize(
    ("part", "laws"),
    [
        ("normalizer=sees_all", {*HIDDEN, BLIND, AHEAD, STEPS}),
        ("normalizer=not_a_number", {BLIND}),
        ("score=means_of_batch", HIDDEN - {"a hidden key weighs exactly 0"} | {AHEAD, STEPS}),
        ("normalizer=idle", {GRADIENTS, STATE, SUMS}),
        ("pattern=lists_hidden", {GRADIENTS, FASTER}),  # a weight of 1 gives queries and keys none
    ],
)
def test_an_attention_that_breaks_laws_is_refused_by_their_names(part: str, laws: set[str], folder: Path) -> None:
    with pytest.raises(UserError, match=rf"^attention 'multihead' breaks {len(laws)} of 12 laws; ") as refused:
        check_attention("multihead", part, dim=8, num_heads=2, config_dir=folder)
    named = {
        name
        for name in {*HIDDEN, BLIND, AHEAD, STEPS, GRADIENTS, STATE, FASTER, SUMS, ASKING, TYPE}
        if f"{name}: " in str(refused.value)
    }
    assert named == laws


@pytest.mark.parametrize(
    ("part", "laws"),
    [
        ("score=counts_rows", {STEPS, SEARCH}),
        ("gate=sums", {STEPS, SEARCH}),
        ("pattern=narrow", {STEPS}),
        ("score=one_tensor", {STEPS, SEARCH}),
    ],
)
def test_a_cross_attention_takes_steps_and_hypotheses(part: str, laws: set[str], folder: Path) -> None:
    with pytest.raises(UserError) as refused:
        check_attention("multihead", part, query_dim=8, key_dim=8, num_heads=2, config_dir=folder)
    assert {law for law in (STEPS, SEARCH) if f"{law}: " in str(refused.value)} == laws


def test_every_way_of_a_pattern_is_taken_however_long_its_sequences_must_be(folder: Path) -> None:
    check_attention("multihead", "score=apart", dim=8, num_heads=2, config_dir=folder)
    for pattern in ("local", "sparse"):
        with pytest.raises(UserError, match=rf"breaks 1 of 12 laws; {FASTER}: "):
            check_attention("multihead", "score=apart", f"pattern={pattern}", dim=8, num_heads=2, config_dir=folder)


def test_what_is_no_number_breaks_a_law_wherever_it_is(folder: Path) -> None:
    for widths in ({"dim": 8}, {"query_dim": 8, "key_dim": 8}):
        with pytest.raises(UserError, match=rf"breaks 1 of 12 laws; {FASTER}: the largest difference is nan$"):
            check_attention("multihead", "score=lost_where_long", **widths, num_heads=2, config_dir=folder)


def test_steps_go_on_in_a_branch_of_the_past(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Memory, "branch", lambda memory, rows: memory)  # as of hypotheses that keep their order
    with pytest.raises(UserError, match=rf"breaks 1 of 12 laws; {STEPS}: the largest difference is"):
        check_attention("multihead", dim=8, num_heads=2)


def test_a_factor_that_begins_as_0_breaks_no_law(folder: Path) -> None:
    found = check_attention("multihead", "gate=closed", dim=8, num_heads=2, config_dir=folder)
    assert found[GRADIENTS] == 0


def test_an_error_of_a_class_is_the_reason_of_every_law(folder: Path) -> None:
    with pytest.raises(UserError, match=r"^attention 'bahdanau' breaks 12 of 12 laws; .*: ValueError: no keys today; "):
        check_attention("bahdanau", "score=broken", query_dim=8, key_dim=6, config_dir=folder)


def test_a_layer_of_ones_own_keeps_lengths_types_and_one_context(folder: Path) -> None:
    with pytest.raises(UserError) as refused:
        check_attention("one_sided", dim=8, num_heads=2, config_dir=folder)
    for law in ("a hidden key changes nothing", ASKING, f"{TYPE}: torch.float32, not torch.float64"):
        assert law in str(refused.value)


def test_few_positions_and_what_is_not_trained_break_no_law_and_float32_needs_a_tolerance(folder: Path) -> None:
    parts, options = ("score=few", "normalizer=single"), {"dim": 8, "num_heads": 2, "config_dir": folder}
    with pytest.raises(UserError, match=r"; a part that computes in float32 .*, which tolerance=1e-05 allows$"):
        check_attention("multihead", *parts, **options)
    assert 1e-9 < max(check_attention("multihead", *parts, tolerance=1e-5, **options).values()) < 1e-6
