"""The heads of Raganato et al. 2020: weights by hand, and what a head without a position does."""

from __future__ import annotations

import pytest
import torch
from attention.formulas import attend
from configs import attention_of
from torch import Tensor

from seq2seq_attn.attention.score.fixed import FIXED_HEADS
from seq2seq_attn.errors import UserError

SIZES = {"query_dim": 24, "key_dim": 24, "value_dim": 24}


def weights_of(x: Tensor, mask: Tensor | None = None, causal: bool = False) -> dict[str, Tensor]:
    """Weights by head, (batch, target, source)."""
    attention = attention_of("fixed_patterns", **SIZES)
    weights = attention.attend_self(x, mask, causal=causal, need_weights=True).weights
    return dict(zip((*FIXED_HEADS, "learned"), weights.unbind(1), strict=True))


def row(*weights: float) -> Tensor:
    return torch.tensor(weights) / max(sum(weights), 1.0)


def test_weights_of_a_sentence_of_five_by_hand() -> None:
    head = {name: weights[0] for name, weights in weights_of(torch.randn(1, 5, 24)).items()}
    zeros = row(0, 0, 0, 0, 0)
    expected = {
        "current": torch.eye(5),
        "previous": torch.eye(5).roll(-1, 1).tril(-1),
        "next": torch.eye(5).roll(1, 1).triu(1),
        "left": torch.stack([zeros, zeros, row(1, 0, 0, 0, 0), row(1, 8, 0, 0, 0), row(1, 8, 27, 0, 0)]),
        "right": torch.stack([row(0, 0, 27, 8, 1), row(0, 0, 0, 8, 1), row(0, 0, 0, 0, 1), zeros, zeros]),
        "end": row(1, 8, 27, 64, 125).expand(5, -1),
        "start": row(125, 64, 27, 8, 1).expand(5, -1),
    }
    assert tuple(expected) == FIXED_HEADS
    for name, weights in expected.items():
        torch.testing.assert_close(head[name], weights, msg=name)
    assert (head["learned"] > 0).all()
    assert head["previous"][3].tolist() == [0, 0, 1, 0, 0]
    assert head["next"][3].tolist() == [0, 0, 0, 0, 1]


def test_the_end_is_that_of_the_sentence_and_not_of_its_padding() -> None:
    mask = torch.arange(5) < torch.tensor([[3], [5]])
    head = weights_of(torch.randn(2, 5, 24), mask)
    torch.testing.assert_close(head["end"][0, 1], row(1, 8, 27, 0, 0))
    torch.testing.assert_close(head["start"][0, 1], row(27, 8, 1, 0, 0))
    torch.testing.assert_close(head["right"][0, 0], row(0, 0, 1, 0, 0))
    assert head["next"][0, 2].tolist() == [0, 0, 0, 0, 0]


def test_a_causal_token_is_the_end_of_what_it_sees() -> None:
    head = {name: weights[0] for name, weights in weights_of(torch.randn(1, 5, 24), causal=True).items()}
    torch.testing.assert_close(head["end"][2], row(1, 8, 27, 0, 0))
    torch.testing.assert_close(head["start"][2], row(27, 8, 1, 0, 0))
    torch.testing.assert_close(head["left"][4], row(1, 8, 27, 0, 0))
    assert (head["next"] == 0).all()
    assert (head["right"] == 0).all()


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("heads", [8, 11])
def test_equals_its_formula_values_and_gradients(heads: int, causal: bool) -> None:
    dim = 3 * heads
    options = (f"attention.num_heads={heads}", "attention.qkv_bias=true")
    attention = attention_of("fixed_patterns", *options, query_dim=dim, key_dim=dim, value_dim=dim)
    for parameter in attention.parameters():
        torch.nn.init.normal_(parameter)
    x = torch.randn(2, 7, dim, requires_grad=True)
    mask = torch.arange(7) < torch.tensor([[7], [4]])
    expected, expected_weights = attend(attention, x, x, x, mask, causal)
    found = attention.attend_self(x, mask, causal=causal, need_weights=True)
    torch.testing.assert_close(found.weights, expected_weights, rtol=0, atol=1e-12)
    torch.testing.assert_close(found.context, expected, rtol=0, atol=1e-11)
    upstream = torch.randn_like(expected)
    of = [x, *attention.parameters()]
    for ours, theirs in zip(
        torch.autograd.grad((found.context * upstream).sum(), of),
        torch.autograd.grad((expected * upstream).sum(), of),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)


@pytest.mark.usefixtures("double")
def test_one_step_at_a_time_equals_all_at_once() -> None:
    attention, x = attention_of("fixed_patterns", **SIZES), torch.randn(2, 7, 24)
    memory, steps = None, []
    for t in range(7):
        attended = attention.attend_self(x[:, t : t + 1], past=memory, causal=True)
        memory = attended.memory
        steps.append(attended.context)
    expected = attention.attend_self(x, causal=True).context
    torch.testing.assert_close(torch.cat(steps, 1), expected, rtol=0, atol=1e-12)


@pytest.mark.usefixtures("double")
def test_positions_of_a_source_are_those_of_the_target_in_cross_attention() -> None:
    attention = attention_of("fixed_patterns", query_dim=24, key_dim=5, value_dim=16)
    memory = attention.prepare(torch.randn(1, 4, 5), torch.randn(1, 4, 16))
    weights = attention(torch.randn(1, 1, 24), memory, start=3, need_weights=True).weights[0, :, 0]
    assert weights[0].tolist() == [0, 0, 0, 1]
    assert weights[1].tolist() == [0, 0, 1, 0]
    torch.testing.assert_close(weights[3], row(1, 8, 0, 0))
    torch.testing.assert_close(weights[6], row(64, 27, 8, 1))


def test_half_precision_keeps_the_weights_of_a_long_sentence() -> None:
    attention, x = attention_of("fixed_patterns", **SIZES), torch.randn(1, 300, 24)
    expected = attention.attend_self(x, need_weights=True).weights[:, :7]
    found = attention.bfloat16().attend_self(x.bfloat16(), need_weights=True).weights[:, :7]
    assert found.dtype == torch.bfloat16
    assert ((found - expected).abs().amax(-1) <= 2**-8 * expected.amax(-1)).all()


def test_sentences_without_a_token_give_zeros_and_finite_gradients() -> None:
    attention, x = attention_of("fixed_patterns", **SIZES), torch.randn(2, 3, 24, requires_grad=True)
    mask = torch.tensor([[True] * 3, [False] * 3])
    attended = attention.attend_self(x, mask, need_weights=True)
    assert (attended.weights[1] == 0).all()
    attended.context.square().sum().backward()
    for tensor in (x, *attention.parameters()):
        assert tensor.grad is not None
        assert tensor.grad.isfinite().all()


def test_only_the_learned_heads_have_projections() -> None:
    options = ("attention.num_heads=10", "attention.qkv_bias=true")
    score = attention_of("fixed_patterns", *options, query_dim=70, key_dim=11, value_dim=70).score
    shapes = {name: tuple(p.shape) for name, p in score.named_parameters()}
    assert shapes == {
        "project_query.weight": (21, 70),
        "project_query.bias": (21,),
        "project_key.weight": (21, 11),
        "project_key.bias": (21,),
    }


def test_a_scale_is_taken_in_position_of_the_root_of_the_width() -> None:
    attention, scaled = (
        attention_of("fixed_patterns", f"attention.qk_scale={scale}", **SIZES) for scale in ("null", "3.0")
    )
    x = torch.randn(1, 2, 24)
    scaled.load_state_dict(attention.state_dict())
    ours, theirs = (a.score.prepare_query(x)[0] for a in (scaled, attention))
    torch.testing.assert_close(ours, theirs * 3.0 * 3**0.5)


def test_fixed_heads_that_leave_none_to_learn_are_refused() -> None:
    sentence = "^fixed score has 7 fixed heads and learns the others, got attention.num_heads=7; take 8 or more$"
    with pytest.raises(UserError, match=sentence):
        attention_of("fixed_patterns", "attention.num_heads=7", query_dim=21, key_dim=21, value_dim=21)
