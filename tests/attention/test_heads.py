"""Heads of any width and number: exact forms of others, shared keys and values, what is projected and what is not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from attention.layers import by_blocks
from configs import attention_of, built, composed
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq_attn.attention.build import build_attention, in_full, no_relative
from seq2seq_attn.errors import UserError

pytestmark = pytest.mark.usefixtures("double")

B, N, DIM = 3, 7, 24
MASK = torch.arange(N) < torch.tensor([[7], [4], [1]])


class VisionTransformerAttention(nn.Module):
    """`Attention` of Vision Transformers with its defaults: one qkv layer without a bias, and a projection with one."""

    def __init__(
        self,
        dim: int,
        num_heads: int = 8,
        qkv_bias: bool = False,
        qk_scale: float | None = None,
        attn_drop: float = 0.0,
        proj_drop: float = 0.0,
    ) -> None:
        super().__init__()
        self.num_heads, self.scale = num_heads, qk_scale or (dim // num_heads) ** -0.5
        self.qkv, self.attn_drop = nn.Linear(dim, dim * 3, bias=qkv_bias), nn.Dropout(attn_drop)
        self.proj, self.proj_drop = nn.Linear(dim, dim), nn.Dropout(proj_drop)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(2, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        weights = self.attn_drop((q @ k.transpose(-2, -1) * self.scale).softmax(dim=-1))
        return self.proj_drop(self.proj((weights @ v).transpose(1, 2).flatten(2)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("options", "overrides"),
    [
        ({}, []),
        ({"num_heads": 3}, ["num_heads=3"]),
        ({"qkv_bias": True}, ["qkv_bias=true"]),
        ({"qk_scale": 0.3}, ["qk_scale=0.3"]),
        # Both draw the weights' mask, then the output's, where ours computes the weights.
        ({"attn_drop": 0.4, "proj_drop": 0.2}, ["dropout=0.4", "projection_dropout=0.2", "backend=dense"]),
    ],
    ids=str,
)
def test_the_attention_of_vision_transformers_with_each_of_its_options(
    options: dict[str, Any], overrides: list[str], dtype: torch.dtype
) -> None:
    expected = VisionTransformerAttention(DIM, **options).to(dtype)
    layer = build_attention("multihead", "num_heads=8", "output_bias=true", *overrides, dim=DIM).to(dtype)
    attention = layer.attention
    linears = [attention.score.project_query, attention.score.project_key, attention.project_values]
    for name, parameter in expected.qkv.named_parameters():
        for linear, part in zip(linears, parameter.data.chunk(3), strict=True):
            linear.get_parameter(name).data = part
    attention.project_output[0].load_state_dict(expected.proj.state_dict())
    assert sum(p.numel() for p in layer.parameters()) == sum(p.numel() for p in expected.parameters())
    x = torch.randn(B, N, DIM, dtype=dtype)
    torch.manual_seed(7)
    trained = layer(x).context
    torch.manual_seed(7)
    torch.testing.assert_close(trained, expected(x), rtol=0, atol=1e-6)
    torch.testing.assert_close(layer.eval()(x).context, expected.eval()(x), rtol=0, atol=1e-6)


def test_the_attention_of_su_with_heads_of_a_free_width_and_no_projected_output() -> None:
    """Attention(nb_head, size_per_head) of kexue.fm/archives/4765: WQ, WK, WV, the heads side by side, V_len."""
    nb_head, size_per_head = 5, 6  # 30 wide, of 24
    wq, wk, wv = (torch.randn(DIM, nb_head * size_per_head) for _ in range(3))
    x = torch.randn(B, N, DIM)
    q, k, v = ((x @ w).view(B, N, nb_head, size_per_head).permute(0, 2, 1, 3) for w in (wq, wk, wv))
    scores = q @ k.permute(0, 1, 3, 2) / size_per_head**0.5
    weights = (scores - (1 - MASK[:, None, None].double()) * 1e12).softmax(-1)
    expected = (weights @ v).permute(0, 2, 1, 3).reshape(B, N, nb_head * size_per_head)

    options = [f"num_heads={nb_head}", f"head_dim={size_per_head}", "project_output=false"]
    layer = build_attention("multihead", *options, query_dim=DIM, key_dim=DIM)
    attention = layer.attention
    attention.score.project_query.weight.data, attention.score.project_key.weight.data = wq.T, wk.T
    attention.project_values.weight.data = wv.T
    assert attention.project_output is None
    assert layer.context_dim == nb_head * size_per_head
    torch.testing.assert_close(layer(x, x, mask=MASK).context, expected, rtol=0, atol=1e-6)


def test_an_output_is_projected_where_the_values_are_not() -> None:
    attention = attention_of(
        "bahdanau", "attention.project_output=true", "attention.num_heads=2", query_dim=6, key_dim=5, value_dim=10
    )
    assert attention.project_values is None
    assert attention.project_output[0].weight.shape == (6, 10)
    assert attention.context_dim == 6


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("preset", ["multihead", "local", "sparsemax", "differential"])
@pytest.mark.parametrize("kv_heads", [1, 2])
def test_shared_heads_equal_as_many_equal_heads(preset: str, kv_heads: int, causal: bool) -> None:
    heads, sets = 4, 2 if preset == "differential" else 1
    score = ["score=scaled_dot", "project_values=true"]
    shared = by_blocks(build_attention(preset, f"num_kv_heads={kv_heads}", *score, dim=DIM, num_heads=heads))
    alone = build_attention(preset, *score, dim=DIM, num_heads=heads)
    alone.load_state_dict({name: repeated(p, name, heads // kv_heads, kv_heads * sets) for name, p in items(shared)})
    x = torch.randn(B, N, DIM)
    found = shared(x, MASK, causal=causal)
    assert found.memory.values.shape[1] == kv_heads
    assert [key.shape[1] for key in found.memory.keys] == [kv_heads * sets]
    expected = alone(x, MASK, causal=causal).context
    torch.testing.assert_close(found.context[MASK], expected[MASK], rtol=0, atol=1e-12)


def items(layer: nn.Module) -> list[tuple[str, Tensor]]:
    return list(layer.state_dict().items())


def repeated(parameter: Tensor, name: str, times: int, heads: int) -> Tensor:
    """A projection of keys or values with each of its heads several times."""
    if name.endswith("project_values.weight"):
        heads = len(parameter) // (DIM // 4)
    elif not name.endswith("project_key.weight"):
        return parameter
    return parameter.view(heads, -1, DIM).repeat_interleave(times, 0).flatten(0, 1)


@pytest.mark.parametrize("preset", ["multi_query", "local"])
def test_keys_and_values_that_are_shared_are_not_copied(preset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    product = F.scaled_dot_product_attention

    def record(query: Tensor, keys: Tensor, values: Tensor, **options: Any) -> Tensor:
        seen.append((query.shape[1], keys.shape[1], values.shape[1]))
        return product(query, keys, values, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", record)
    layer, x = build_attention(preset, "num_kv_heads=1", dim=DIM, num_heads=4).eval(), torch.randn(B, N, DIM)
    past = layer(x, causal=True).memory
    layer(x[:, :1], past=past, causal=True)
    layer(x, MASK, causal=True)
    assert seen == [(4, 1, 1)] * 3


@pytest.mark.parametrize("position", ["rotary", "alibi", "relative", "t5", "kerple", "fire"])
@pytest.mark.parametrize(
    "overrides",
    [
        ["attention.num_kv_heads=2", "attention.head_dim=10"],
        ["attention/mix=talking_heads"],
        ["attention/mix=differential", "attention.num_kv_heads=1", "attention.head_dim=12"],
        ["attention/gate=sigmoid", "attention.head_dim=2"],
    ],
    ids=" ".join,
)
def test_relative_positions_step_by_step_equal_all_at_once(position: str, overrides: list[str]) -> None:
    values = ["position.values=false"] if position == "relative" and "attention/mix=differential" in overrides else []
    relative = built(composed(f"position={position}", *values).position)(dim=DIM).relative
    sizes = {"query_dim": DIM, "key_dim": DIM, "value_dim": DIM}
    attention = attention_of("multihead", "attention.num_heads=4", *overrides, **sizes, relative=relative).eval()
    for parameter in attention.parameters():
        nn.init.normal_(parameter, std=0.3)
    x, past, steps = torch.randn(B, N, DIM), None, []
    with torch.no_grad():
        expected = attention.attend_self(x, causal=True, need_weights=True).context
        for t in range(N):
            found = attention.attend_self(x[:, t : t + 1], past=past, causal=True)
            past = found.memory
            steps.append(found.context)
        torch.testing.assert_close(attention.attend_self(x, causal=True).context, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(torch.cat(steps, 1), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("position", ["rotary", "alibi", "relative", "t5", "kerple", "fire"])
def test_hypotheses_at_one_position_have_that_position(position: str) -> None:
    relative = built(composed(f"position={position}").position)(dim=DIM).relative
    sizes = {"query_dim": DIM, "key_dim": DIM, "value_dim": DIM}
    attention = attention_of("multihead", "attention.num_heads=4", **sizes, relative=relative).eval()
    memory, queries = attention.prepare(torch.randn(B, N, DIM)), torch.randn(3 * B, 1, DIM)
    own = memory.select(torch.arange(B).repeat_interleave(3))
    for start in (0, 4, N - 1):
        found = attention(queries, memory, start=start, causal=True).context
        expected = attention(queries, own, start=start, causal=True).context
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


OF_SCALED_DOT = "leave it null, or use attention/score=scaled_dot"

REFUSED = [
    (
        "multihead",
        ["num_heads=4", "num_kv_heads=3"],
        "attention.num_kv_heads=3 does not divide attention.num_heads=4; use a number of heads that does",
    ),
    ("multihead", ["num_heads=4", "num_kv_heads=0"], "attention.num_kv_heads=0 leaves no head; use 1 or more"),
    ("multihead", ["num_heads=0"], "attention.num_heads=0 leaves no head; use 1 or more"),
    ("linear", ["num_heads=0"], "attention.num_heads=0 leaves no head; use 1 or more"),
    (
        "bahdanau",
        ["head_dim=4"],
        "AdditiveScore takes no attention.head_dim=4; leave it null, or use attention/score=scaled_dot",
    ),
    (
        "bahdanau",
        ["num_kv_heads=1"],
        "AdditiveScore takes no attention.num_kv_heads=1; leave it null, or use attention/score=scaled_dot",
    ),
    (
        "synthesizer_random_dense",
        ["head_dim=4"],
        f"SynthesizerRandomScore or SynthesizerDenseScore takes no attention.head_dim=4; {OF_SCALED_DOT}",
    ),
    (
        "differential",
        ["num_heads=8"],
        "DifferentialMix cuts each head of queries and keys into 2, which attention.num_heads=8 heads of 24 numbers "
        "together do not allow; change attention.num_heads, attention.head_dim or the model's width",
    ),
    (
        "multihead",
        ["num_heads=5", "head_dim=6", "project_output=false"],
        "the heads of self-attention are 30 wide together, and its input is 24; set attention.project_output=true, or "
        "give attention.head_dim and attention.num_heads that multiply to 24",
    ),
]


@pytest.mark.parametrize(("preset", "overrides", "sentence"), REFUSED)
def test_heads_that_do_not_go_together_are_refused(preset: str, overrides: list[str], sentence: str) -> None:
    sizes = {"query_dim": DIM, "key_dim": DIM, "value_dim": DIM}
    with pytest.raises(UserError) as caught:
        attention_of(preset, *map(in_full, overrides), **sizes, relative=no_relative)
    assert str(caught.value) == sentence


UNUSED = [
    (
        "bahdanau",
        ["projection_dropout=0.1"],
        "attention.projection_dropout=0.1 needs a projection of the output, which this layer does not have; set "
        "attention.project_output=true, or leave the option out",
    ),
    (
        "multihead",
        ["output_bias=true", "project_output=false"],
        "attention.output_bias=true needs a projection of the output, which this layer does not have; set "
        "attention.project_output=true, or leave the option out",
    ),
    (
        "luong_dot",
        ["qkv_bias=true"],
        "DotScore takes no attention.qkv_bias=true, and the values are not projected; use attention/score=scaled_dot "
        "or attention.project_values=true, or leave the option out",
    ),
    (
        "luong_dot",
        ["qkv_bias=true", "score=soft_cap", "attention/score@attention.score.score=general"],
        "SoftCapScore takes no attention.qkv_bias=true, and the values are not projected; use "
        "attention/score=scaled_dot or attention.project_values=true, or leave the option out",
    ),
    (
        "linear",
        ["projection_dropout=0.1", "project_values=false"],
        "attention.projection_dropout=0.1 needs a projection of the output, which this layer does not have; set "
        "attention.project_values=true, or leave the option out",
    ),
]


@pytest.mark.parametrize(("preset", "overrides", "sentence"), UNUSED)
def test_an_option_of_a_projection_that_a_layer_lacks_is_refused(
    preset: str, overrides: list[str], sentence: str
) -> None:
    with pytest.raises(UserError) as caught:
        build_attention(preset, *overrides, dim=DIM)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("preset", "overrides"),
    [
        ("bahdanau", ["projection_dropout=0.1", "output_bias=true", "project_output=true"]),
        ("luong_dot", ["qkv_bias=true", "project_values=true"]),
        ("luong_dot", ["qkv_bias=true", "project_output=true"]),  # whose bias is as qkv_bias
        ("luong_dot", ["qkv_bias=true", "score=cosine"]),
        ("luong_dot", ["qkv_bias=true", "score=soft_cap", "attention/score@attention.score.score=scaled_dot"]),
        ("bahdanau", ["output_bias=false"]),
    ],
)
def test_an_option_of_a_projection_that_a_layer_has_is_taken(preset: str, overrides: list[str]) -> None:
    build_attention(preset, *overrides, dim=DIM)


def test_relative_values_of_another_width_than_the_keys_are_refused() -> None:
    relative = built(composed("position=relative").position)(dim=DIM).relative
    sizes = {"query_dim": DIM, "key_dim": DIM, "value_dim": DIM}
    with pytest.raises(UserError, match=r"values of width 6 and keys of width 3; set position.values=false$"):
        attention_of("differential", "attention.num_heads=4", **sizes, relative=relative)


def test_a_token_near_zero_has_no_boundless_gradient_by_its_cosines() -> None:
    attention = attention_of("cosine", "attention.num_heads=2", query_dim=DIM, key_dim=DIM, value_dim=DIM).eval()
    x = torch.randn(B, N, DIM)
    x[:, 3] *= 1e-10
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(attention.attend_self(x, causal=True).context.sin().sum(), x)
    assert gradient[:, 3].abs().max() < 1e8
