"""Parts that no preset has: an inner product that hides positions itself, and a pattern with blocks that reweighs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple, final

import pytest
import torch
from configs import attention_factory
from torch import Tensor, nn
from torch.nn import functional

from seq2seq_attn.attention import Attention
from seq2seq_attn.attention.backend import blocks
from seq2seq_attn.attention.block import Block
from seq2seq_attn.attention.gate.gate import Gate
from seq2seq_attn.attention.normalizer.softmax import SoftmaxNormalizer
from seq2seq_attn.attention.packed_projection import pack, pack_source
from seq2seq_attn.attention.pattern.full import FullPattern
from seq2seq_attn.attention.pattern.local import LocalPattern
from seq2seq_attn.attention.pattern.pattern import Pattern
from seq2seq_attn.attention.score.additive import AdditiveScore
from seq2seq_attn.attention.score.dot import DotScore
from seq2seq_attn.attention.score.scaled_dot import ScaledDotScore
from seq2seq_attn.attention.score.score import Score
from seq2seq_attn.attention.state import QueryKeyPositions
from seq2seq_attn.errors import UserError, class_mistake
from seq2seq_attn.factory import build_part
from seq2seq_attn.nn.heads import split_heads

pytestmark = pytest.mark.usefixtures("double")
B, N, WIDTH, HEADS = 2, 13, 6, 2


@final
class HidingScore(Score):
    """The inner product; the first head hides a query's own position from it, the second its neighbours."""

    inner_product: ClassVar[bool] = True

    def prepare_query(self, query: Tensor) -> tuple[Tensor]:
        return (split_heads(query, HEADS),)

    def prepare_keys(self, keys: Tensor) -> tuple[Tensor]:
        return (split_heads(keys, HEADS),)

    def forward(self, query: tuple[Tensor, ...], keys: tuple[Tensor, ...], positions: QueryKeyPositions) -> Tensor:
        return query[0] @ keys[0].mT

    def visible(self, positions: QueryKeyPositions) -> Tensor:
        distance = (positions.key.unsqueeze(-2) - positions.query.unsqueeze(-1)).abs()
        return torch.stack([distance != 0, distance != 1], -3).unsqueeze(0)


@final
class FadingPattern(Pattern):
    """`local`, with weights divided by 1 + the distance."""

    reweighs: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self.local = local()
        self.fused_from = self.blocks_from = 1

    def allowed(self, centre: Tensor, key_position: Tensor) -> Tensor:
        return self.local.allowed(centre, key_position)

    def window(self, position: int, source: int, causal: bool) -> slice | None:
        return self.local.window(position, source, causal)

    def block_groups(self, target: int, source: int, causal: bool) -> Sequence[Sequence[Block]]:
        return self.local.block_groups(target, source, causal)

    def reweigh(self, weights: Tensor, centre: Tensor, key_position: Tensor) -> Tensor:
        return weights / (1 + (key_position - centre[..., None]).abs())[:, None]


def local() -> LocalPattern:
    """With blocks from the shortest sentence on."""
    pattern = LocalPattern(k=2, length_ratio=1.0)
    pattern.fused_from = pattern.blocks_from = 1
    return pattern


def attending(score: Any, pattern: Any) -> Attention:
    return Attention(
        query_dim=WIDTH,
        key_dim=WIDTH,
        value_dim=WIDTH,
        layer=0,
        score=score,
        pattern=pattern,
        normalizer=partial(SoftmaxNormalizer),
        num_heads=HEADS,
        project_values=False,
        dropout=0.0,
        projection_dropout=0.0,
        qkv_bias=False,
        qk_scale=None,
        backend="auto",
    ).eval()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("score", "pattern"),
    [(HidingScore, FullPattern), (HidingScore, local), (DotScore, FadingPattern), (AdditiveScore, FadingPattern)],
)
def test_every_backend_hides_and_reweighs(score: Any, pattern: Any, causal: bool) -> None:
    options = {"hidden_dim": WIDTH} if score is AdditiveScore else {}
    layer, x = attending(partial(score, **options), partial(pattern)), torch.randn(B, N, WIDTH)
    memory = layer.prepare(x)

    def contexts() -> tuple[Tensor, Tensor]:
        steps = [layer(x[:, t : t + 1], memory, start=t, causal=causal).context for t in range(N)]
        return layer.attend_self(x, causal=causal).context, torch.cat(steps, 1)

    found = contexts()
    layer.backend = "dense"
    for ours, expected in zip(found, contexts(), strict=True):
        torch.testing.assert_close(ours, expected, rtol=0, atol=1e-12)


class Drawing(DotScore):
    """Drops scores, as a score with a dropout of its own does; its tiles are computed once more for the gradient."""

    def forward(self, query: tuple[Tensor, ...], keys: tuple[Tensor, ...], positions: QueryKeyPositions) -> Tensor:
        return functional.dropout(super().forward(query, keys, positions), 0.5)


def test_a_score_of_ones_own_may_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "MAX_TILE_NUMBERS", 40)
    layer = attending(partial(Drawing), partial(local))
    x = torch.randn(B, N, WIDTH, requires_grad=True)
    direction, step = torch.randn_like(x), 1e-6

    def loss(at: Tensor) -> Tensor:
        torch.manual_seed(3)
        return layer.attend_self(at).context.sin().sum()

    ahead, behind = (loss(x.detach() + sign * step * direction) for sign in (1, -1))
    (gradient,) = torch.autograd.grad(loss(x), x)
    assert (gradient * direction).sum().item() == pytest.approx(((ahead - behind) / (2 * step)).item(), rel=1e-6)


def test_another_forward_is_no_inner_product_unless_it_says_so() -> None:
    class Other(DotScore):
        def forward(self, query: Any, keys: Any, positions: Any) -> Tensor:
            return super().forward(query, keys, positions) / 2

    class Same(Other):
        inner_product: ClassVar[bool] = True

        def forward(self, query: Any, keys: Any, positions: Any) -> Tensor:
            return 2 * super().forward(query, keys, positions)

    class Inherits(DotScore):
        pass

    kinds = DotScore, Other, Same, Inherits
    assert [kind.inner_product for kind in kinds] == [True, False, True, True]


def test_another_preparation_is_not_packed() -> None:
    class Other(ScaledDotScore):
        def prepare_query(self, query: Tensor) -> Any:
            return super().prepare_query(query - query.mean(1, keepdim=True))

    sizes: Any = {"query_dim": WIDTH, "key_dim": WIDTH, "num_heads": HEADS, "bias": False}
    sizes |= dict.fromkeys(("num_kv_heads", "head_dim", "scale"))
    values = nn.Linear(WIDTH, WIDTH)
    assert pack(ScaledDotScore(**sizes), values) is not None
    assert pack(Other(**sizes), values) is None
    assert pack_source(Other(**sizes), values) is None


class PassesOn(ScaledDotScore):
    """Passes what it does not name to its base."""

    def __init__(self, *, sharpness: float = 2.0, **others: Any) -> None:
        super().__init__(**others)
        self.sharpness = sharpness


def test_a_constructor_may_pass_the_sizes_on_to_its_base() -> None:
    sizes = {"query_dim": WIDTH, "key_dim": WIDTH, "num_heads": HEADS, "num_kv_heads": None, "head_dim": None}
    score = build_part(partial(PassesOn, sharpness=3.0), **sizes, bias=True, scale=None, unknown=3)
    assert (score.sharpness, score.num_heads) == (3.0, HEADS)


class Sizes(NamedTuple):
    """A part that is made by `__new__`."""

    num_heads: int
    k: int = 1


class Fixes(ScaledDotScore):
    """Gives its base what the model gives it, too."""

    def __init__(self, **others: Any) -> None:
        super().__init__(num_kv_heads=None, **others)


def test_a_part_without_init_gets_its_sizes_and_a_size_that_is_given_twice_is_named() -> None:
    assert build_part(partial(Sizes, k=3), num_heads=2, query_dim=8) == (2, 3)
    with pytest.raises(TypeError) as twice:
        build_part(partial(Fixes), query_dim=4, key_dim=4, num_heads=2, num_kv_heads=None, head_dim=None)
    assert str(class_mistake(str(twice.value))).endswith(
        "gets num_kv_heads from its class and from the model; name num_kv_heads in the class's __init__"
    )


class NotInitialised(Pattern):
    def __init__(self) -> None:
        self.k = 3


class NotInitialisedModule(Gate):
    def __init__(self, dim: int = 3) -> None:
        self.linear = nn.Linear(dim, dim)

    def forward(self, context: Any, query: Any) -> Any:
        return context


class OfWrongShape(Pattern):
    def allowed(self, centre: Any, key_position: Any) -> Any:
        return key_position != centre


class OfNumbers(Pattern):
    def allowed(self, centre: Any, key_position: Any) -> Any:
        return (key_position != centre[..., None]).float()


class OneTensorOfKeys(ScaledDotScore):
    def prepare_keys(self, keys: Tensor) -> Any:
        return super().prepare_keys(keys)[0]


class OneTensorOfQueries(ScaledDotScore):
    def prepare_query(self, query: Tensor) -> Any:
        return super().prepare_query(query)[0]


class WithoutHeads(ScaledDotScore):
    def forward(self, query: Any, keys: Any, positions: Any) -> Tensor:
        return super().forward(query, keys, positions).sum(1)


class WithoutName(SoftmaxNormalizer):
    is_softmax: ClassVar[bool] = False

    def forward(self, scores: Tensor, allowed: Tensor | None) -> Any:
        return super().forward(scores, allowed).weights


@pytest.mark.parametrize(
    ("part", "kind", "sentence"),
    [
        ("score", OneTensorOfKeys, "prepares a tensor, and prepare_query and prepare_keys must each return a tuple"),
        ("score", OneTensorOfQueries, "prepares a tensor, and prepare_query and prepare_keys must each return a tuple"),
        ("score", WithoutHeads, r"returns scores of shape \(2, 5, 5\), and must return them as"),
        ("normalizer", WithoutName, r"returns a tensor; return Normalized\(weights\)"),
    ],
)
def test_a_part_that_returns_a_tensor_of_another_kind_is_named(part: str, kind: Any, sentence: str) -> None:
    sizes = {"query_dim": 8, "key_dim": 8, "value_dim": 8, "layer": 0, "num_heads": 2}
    factory = attention_factory("multihead")
    chosen = partial(kind, **(factory.keywords["score"].keywords if part == "score" else {}))
    attention = factory(**sizes, **{part: chosen})
    with pytest.raises(UserError, match=f"^{kind.__name__} {sentence}"):
        attention.attend_self(torch.randn(2, 5, 8))


@pytest.mark.parametrize("kind", [NotInitialised, NotInitialisedModule])
def test_a_part_that_does_not_initialise_its_base_is_named(kind: Any) -> None:
    with pytest.raises(UserError, match=f"^{kind.__name__}.__init__ does not call super"):
        build_part(partial(kind))


@pytest.mark.parametrize("kind", [OfWrongShape, OfNumbers])
def test_a_pattern_that_allows_what_is_no_pair_is_named(kind: Any) -> None:
    attention = attention_factory("multihead")(query_dim=8, key_dim=8, value_dim=8, layer=0, pattern=partial(kind))
    with pytest.raises(UserError, match=rf"^{kind.__name__}.allowed returns torch\.\w+ of shape .*, and must return"):
        attention(torch.randn(2, 5, 8), attention.prepare(torch.randn(2, 5, 8)))
