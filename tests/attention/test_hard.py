"""Hard attention: what is drawn, how often, and that the scores learn the gradient of the expected loss."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from configs import CONF, attention_of, built
from omegaconf import OmegaConf
from torch import Tensor
from torch.nn import functional as F

from seq2seq_attn.attention.normalizer import hard, hard_gumbel
from seq2seq_attn.errors import UserError
from seq2seq_attn.training.reinforce import Reinforce

OPTIONS = ["hard", "hard_gumbel"]
DTYPES = [torch.bfloat16, torch.float32, torch.float64]
CERTAIN = 1e6  # noise that outweighs every score


def normalizer_of(option: str, **arguments: float) -> Any:
    """In training; `hard` always draws and weighs its terms by 1, unless asked otherwise."""
    plain = {"log_prob_weight": 1.0, "entropy_weight": 1.0, "soft_probability": 0.0} if option == "hard" else {}
    return built(OmegaConf.load(CONF / f"attention/normalizer/{option}.yaml"))(**plain | arguments).train()


def one_hot(positions: Any, keys: int) -> Tensor:
    return F.one_hot(torch.as_tensor(positions), keys).to(torch.get_default_dtype())


def draw(monkeypatch: pytest.MonkeyPatch, positions: list[int], soft: list[bool]) -> None:
    """Make the next rows draw these positions, or take the softmax."""
    monkeypatch.setattr(hard, "gumbel_noise", lambda scores: CERTAIN * one_hot([positions], scores.shape[-1]))
    monkeypatch.setattr(torch, "rand_like", lambda rows: 1 - torch.tensor([soft], dtype=rows.dtype))


def reward_of(weights: Tensor, values: Tensor, matrix: Tensor) -> Tensor:
    """A log-likelihood that the choices of both queries change together: (batch,)."""
    context = weights @ values  # (batch, target, width)
    return F.logsigmoid(torch.einsum("bi,ij,bj->b", context[:, 0], matrix, context[:, 1]))


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("soft_probability", [0.0, 0.3])
@pytest.mark.parametrize("baseline", [0.0, -1.7])
def test_the_expected_gradient_is_the_gradient_of_the_expected_loss(
    monkeypatch: pytest.MonkeyPatch, baseline: float, soft_probability: float
) -> None:
    scores, values = torch.randn(1, 2, 3).requires_grad_(), torch.randn(3, 2).requires_grad_()
    matrix = torch.randn(2, 2).requires_grad_()
    leaves = (scores, values, matrix)
    normalizer = normalizer_of("hard", entropy_weight=0.3, soft_probability=soft_probability)
    reinforce = Reinforce(momentum=0.9).eval()
    reinforce.running_tokens += 1
    reinforce.running_reward += baseline
    probabilities = scores.softmax(-1)[0]
    expected_loss = 0.3 * (probabilities * probabilities.log()).sum()
    expected_gradients = [torch.zeros_like(leaf) for leaf in leaves]
    total = torch.zeros(())
    # A row is soft, or draws one of three positions: all pairs of rows, each with its probability.
    for rows in itertools.product([None, 0, 1, 2] if soft_probability else [0, 1, 2], repeat=2):
        chance, weights = torch.ones(()), []
        for query, position in enumerate(rows):
            soft = position is None
            chance = chance * (soft_probability if soft else 1 - soft_probability)
            chance = chance if soft else chance * probabilities[query, position]
            weights.append(probabilities[query] if soft else one_hot(position, 3))
        expected_loss = expected_loss - (chance * reward_of(torch.stack(weights)[None], values, matrix)).sum()

        draw(monkeypatch, [position or 0 for position in rows], [position is None for position in rows])
        found = normalizer(scores, None)
        reward = reward_of(found.weights, values, matrix)
        loss = -reward.sum() + reinforce(reward, torch.tensor([1]), found.log_prob.sum(-1), found.entropy.sum(-1))
        for sum_, gradient in zip(expected_gradients, torch.autograd.grad(loss, leaves), strict=True):
            sum_ += chance.detach() * gradient
        total += chance.detach()
    torch.testing.assert_close(total, torch.ones(()))
    for found_gradient, gradient in zip(expected_gradients, torch.autograd.grad(expected_loss, leaves), strict=True):
        torch.testing.assert_close(found_gradient, gradient, rtol=0, atol=1e-12)
        assert (gradient != 0).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("option", OPTIONS)
def test_positions_are_drawn_as_often_as_they_are_probable_and_hidden_ones_never(
    option: str, dtype: torch.dtype
) -> None:
    scores, allowed = torch.tensor([0.0, 9.0, 1.0, 2.0], dtype=dtype), torch.tensor([True, False, True, True])
    draws = 20011
    weights = normalizer_of(option)(scores.expand(draws, 4), allowed.expand(1, 4)).weights
    expected = torch.tensor([1, 0, math.e, math.e**2]) / (1 + math.e + math.e**2)
    often = weights.double().mean(0)
    assert often[1] == 0
    assert ((often - expected).abs() <= 4 * (expected * (1 - expected) / draws).sqrt()).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("option", OPTIONS)
def test_training_weights_are_exactly_one_position(option: str, dtype: torch.dtype) -> None:
    scores, allowed = torch.randn(2, 3, 101, 7).to(dtype).requires_grad_(), torch.rand(2, 1, 101, 7) > 0.4
    allowed[..., 0] = True
    weights = normalizer_of(option)(scores, allowed).weights
    assert weights.dtype == dtype
    assert weights.unique().tolist() == [0.0, 1.0]
    assert (weights.sum(-1) == 1).all()
    assert (weights[~allowed.expand_as(weights)] == 0).all()


@pytest.mark.parametrize("option", OPTIONS)
def test_draws_come_from_the_generator_that_the_batch_seeds(option: str) -> None:
    normalizer, scores = normalizer_of(option), torch.randn(2, 3, 5, 7)
    found = []
    for seed in (3, 3, 5):
        torch.manual_seed(seed)
        found.append(normalizer(scores, None).weights)
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("option", OPTIONS)
def test_evaluation_takes_the_best_position_and_of_equals_the_first(option: str, dtype: torch.dtype) -> None:
    scores = torch.tensor([[1.0, 3.0, 2.0, 3.0], [5.0, 5.0, 5.0, 5.0], [9.0, 1.0, 2.0, 2.0]], dtype=dtype)
    allowed = torch.tensor([[True] * 4, [True] * 4, [False, True, True, True]])
    found = normalizer_of(option).eval()(scores, allowed)
    assert found.weights.argmax(-1).tolist() == [1, 0, 2]
    assert found.weights.sum(-1).tolist() == [1.0, 1.0, 1.0]
    assert found.log_prob is None
    assert found.entropy is None


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("option", OPTIONS)
def test_a_row_that_sees_nothing_gives_zeros_and_finite_gradients(option: str, dtype: torch.dtype) -> None:
    scores = torch.randn(2, 3, 5, 7).to(dtype).requires_grad_()
    allowed = torch.rand(2, 1, 5, 7) > 0.4
    allowed[:, :, 2] = False
    for soft_probability in [0.0, 1.0] if option == "hard" else [None]:
        arguments = {} if soft_probability is None else {"soft_probability": soft_probability}
        found = normalizer_of(option, **arguments)(scores, allowed)
        assert (found.weights[:, :, 2] == 0).all()
        loss = (found.weights * torch.randn(7)).float().sum()
        if option == "hard":
            assert (found.log_prob[:, :, 2] == 0).all()
            assert (found.entropy[:, :, 2] == 0).all()
            loss = loss + found.log_prob.sum() + found.entropy.sum()
        (gradient,) = torch.autograd.grad(loss, scores)
        assert gradient.isfinite().all()
        assert (gradient[~allowed.expand_as(gradient)] == 0).all()
        assert (gradient[:, :, 3] != 0).any()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_log_probability_and_entropy_are_those_of_the_softmax_times_their_weights(
    dtype: torch.dtype, tolerance: float
) -> None:
    scores, allowed = torch.randn(2, 3, 5, 7, dtype=dtype), torch.rand(2, 1, 5, 7) > 0.4
    allowed[..., 0] = True
    found = normalizer_of("hard", log_prob_weight=0.5, entropy_weight=3.0)(scores, allowed)
    for batch, head, target in itertools.product(range(2), range(3), range(5)):
        seen = allowed[batch, 0, target]
        exp = scores[batch, head, target, seen].double().exp()
        chances = (exp / exp.sum()).tolist()
        drawn = found.weights[batch, head, target, seen].argmax()
        expected = 0.5 * math.log(chances[drawn]), -3.0 * sum(p * math.log(p) for p in chances)
        for number, correct in zip((found.log_prob, found.entropy), expected, strict=True):
            assert number[batch, head, target].item() == pytest.approx(correct, abs=tolerance)


def test_log_probability_and_entropy_stay_wide_in_half_precision() -> None:
    scores = torch.randn(2, 3, 5, 7).bfloat16()
    found = normalizer_of("hard")(scores, None)
    assert found.log_prob.dtype == found.entropy.dtype == torch.float32
    chosen = found.weights.float() * scores.float().log_softmax(-1)
    torch.testing.assert_close(found.log_prob, chosen.sum(-1))
    torch.testing.assert_close(found.entropy, torch.special.entr(scores.float().softmax(-1)).sum(-1))


def test_a_drawn_position_has_no_gradient() -> None:
    scores = torch.randn(2, 3, 5, 7).requires_grad_()
    found = normalizer_of("hard")(scores, None)
    assert not found.weights.requires_grad
    assert found.log_prob.requires_grad
    assert not normalizer_of("hard").eval()(scores, None).weights.requires_grad


def test_always_soft_is_soft_attention_in_training_and_one_position_in_evaluation() -> None:
    scores, allowed = torch.randn(2, 3, 5, 7), torch.arange(7) < 5
    normalizer = normalizer_of("hard", soft_probability=1.0)
    found = normalizer(scores, allowed.expand(1, 1, 1, 7))
    torch.testing.assert_close(found.weights[..., :5], scores[..., :5].softmax(-1))
    assert (found.log_prob == 0).all()
    assert normalizer.eval()(scores, None).weights.unique().tolist() == [0.0, 1.0]


def test_rows_are_soft_as_often_as_asked_each_by_itself() -> None:
    scores = torch.zeros(97, 2, 101, 3)
    weights = normalizer_of("hard", soft_probability=0.3)(scores, None).weights
    soft = (weights.amax(-1) < 1).double()
    for dims in [(0, 1, 2), (0, 2)]:
        assert ((soft.mean(dims) - 0.3).abs() < 0.02).all()
    assert 0.2 < soft.mean((0, 1)).min() < 0.3 < soft.mean((1, 2)).max() < 0.5


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-6), (torch.bfloat16, 1e-2)]
)
@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_gumbel_gradient_is_that_of_the_soft_weights(
    monkeypatch: pytest.MonkeyPatch, temperature: float, dtype: torch.dtype, tolerance: float
) -> None:
    scores = torch.randn(2, 3, 5, 7, dtype=torch.float64).to(dtype).requires_grad_()
    allowed, noise = torch.arange(7) < 5, torch.randn(2, 3, 5, 7, dtype=torch.float64)
    upstream = torch.randn(2, 3, 5, 7, dtype=torch.float64).to(dtype)
    monkeypatch.setattr(hard_gumbel, "gumbel_noise", lambda scores: noise.to(scores.dtype))
    found = normalizer_of("hard_gumbel", temperature=temperature)(scores, allowed.expand(1, 1, 1, 7))
    assert torch.equal(found.weights.argmax(-1), (scores.double() + noise)[..., :5].argmax(-1))
    exact = scores.detach().double().requires_grad_()
    soft = ((exact + noise)[..., :5] / temperature).softmax(-1)
    (gradient,) = torch.autograd.grad((found.weights * upstream).sum(), scores)
    (expected,) = torch.autograd.grad((soft * upstream[..., :5].double()).sum(), exact)
    torch.testing.assert_close(gradient.double(), expected, rtol=0, atol=tolerance)
    assert found.log_prob is None
    assert found.entropy is None


@pytest.mark.usefixtures("double")
def test_every_parameter_of_a_hard_attention_learns_by_its_terms() -> None:
    attention = attention_of("hard", "attention.num_heads=3", query_dim=6, key_dim=9, value_dim=15).train()
    query, keys, values = torch.randn(2, 5, 6), torch.randn(2, 7, 9), torch.randn(2, 7, 15)
    mask = torch.arange(7) < torch.tensor([[7], [4]])
    found = attention(query, attention.prepare(keys, values, mask), need_weights=True)
    assert found.log_prob.shape == found.entropy.shape == (2, 5)
    assert (found.weights[1, ..., 4:] == 0).all()
    surrogate = Reinforce(momentum=0.9)
    surrogate.running_tokens += 1
    loss = surrogate(torch.randn(2), torch.tensor([5, 5]), found.log_prob.sum(1), found.entropy.sum(1))
    loss.backward()
    assert dict(attention.named_parameters())
    for name, parameter in attention.named_parameters():
        assert parameter.grad.isfinite().all(), name
        assert (parameter.grad != 0).any(), name


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("option", OPTIONS)
def test_a_masked_neighbour_changes_no_evaluation(option: str) -> None:
    attention = attention_of("hard", f"attention/normalizer={option}", query_dim=6, key_dim=9, value_dim=15).eval()
    query, keys = torch.randn(2, 5, 6), torch.randn(2, 7, 9)
    values, mask = torch.randn(2, 7, 15), torch.arange(7) < torch.tensor([[7], [4]])
    together = attention(query, attention.prepare(keys, values, mask)).context
    alone = attention(query[1:], attention.prepare(keys[1:, :4], values[1:, :4])).context
    assert torch.equal(together[1:], alone)


@pytest.mark.parametrize("probability", [-0.1, 1.5])
def test_a_share_of_soft_rows_that_is_no_probability_is_refused(probability: float) -> None:
    sentence = rf"^attention.normalizer.soft_probability={probability} is no probability; take one from 0 to 1$"
    with pytest.raises(UserError, match=sentence):
        normalizer_of("hard", soft_probability=probability)


@pytest.mark.parametrize("temperature", [0.0, -1.0])
def test_a_temperature_that_is_not_above_zero_is_refused(temperature: float) -> None:
    sentence = rf"^attention.normalizer.temperature={temperature} is not above 0; take one that is, such as 1.0$"
    with pytest.raises(UserError, match=sentence):
        normalizer_of("hard_gumbel", temperature=temperature)
