"""The term that hard attention adds to the loss: by hand, and in a model its expectation over all draws."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
import torch
from configs import compose_train, model_of
from torch import Tensor
from torch.nn import functional as F

from seq2seq_attn.attention.normalizer import hard
from seq2seq_attn.data.collate import collate_pairs
from seq2seq_attn.training import translation_module
from seq2seq_attn.training.build import build
from seq2seq_attn.training.r_drop import twice
from seq2seq_attn.training.reinforce import Reinforce, drawn_loss, sum_by_sentence
from seq2seq_attn.training.translation_module import TranslationModule

REWARD, PIECES = torch.tensor([-6.0, -2.0, -4.0]), torch.tensor([3, 1, 2])
LOG_PROB, ENTROPY = torch.tensor([-1.0, -0.5, -3.0]), torch.tensor([0.25, 0.5, 1.0])
NONE = torch.zeros(3)


def started(momentum: float = 0.75) -> Reinforce:
    """Its running mean is that of one batch: -2 nats a token."""
    reinforce = Reinforce(momentum=momentum)
    reinforce(REWARD, PIECES, NONE, NONE)
    return reinforce


def test_the_first_batch_starts_the_mean_and_gives_its_entropy_only() -> None:
    found = Reinforce(momentum=0.75)(REWARD, PIECES, LOG_PROB, ENTROPY)
    assert found.item() == -1.75


def test_the_term_by_hand() -> None:
    # Baselines are -2 nats a token: -6, -2, -4; advantages 1, 0, -2.
    found = started()(REWARD + torch.tensor([1.0, 0.0, -2.0]), PIECES, LOG_PROB, ENTROPY)
    assert found.item() == pytest.approx(-(1 * -1.0 + -2 * -3.0) - 1.75)


def test_a_long_sentence_is_not_blamed_for_its_length() -> None:
    # Every token is as likely as the mean, whatever the sentence's length: nothing is learned.
    tokens = torch.tensor([2, 31, 5])
    assert started()(-2.0 * tokens, tokens, LOG_PROB, NONE).item() == 0


def test_the_mean_is_of_tokens_and_older_batches_count_less() -> None:
    reinforce = started(momentum=0.75)
    reinforce(torch.tensor([-20.0]), torch.tensor([4]), torch.zeros(1), torch.zeros(1))
    # Sums of reward -12 and -20, of tokens 6 and 4; each batch counts 3/4 of the next.
    mean = (0.75 * -12 - 20) / (0.75 * 6 + 4)
    found = reinforce.eval()(torch.zeros(1), torch.tensor([1]), torch.ones(1), torch.zeros(1))
    assert found.item() == pytest.approx(mean)


def test_a_batch_meets_the_mean_of_the_batches_before() -> None:
    first, second = started(), started()
    far = REWARD - 100
    expected = -((far - REWARD) * LOG_PROB).sum()
    assert first(far, PIECES, LOG_PROB, NONE).item() == pytest.approx(expected.item())
    assert second.eval()(far, PIECES, LOG_PROB, NONE).item() == pytest.approx(expected.item())


def test_evaluation_leaves_the_mean() -> None:
    reinforce = started().eval()
    before = {name: buffer.clone() for name, buffer in reinforce.state_dict().items()}
    reinforce(REWARD - 100, PIECES, LOG_PROB, ENTROPY)
    assert all(torch.equal(reinforce.state_dict()[name], buffer) for name, buffer in before.items())


def test_a_run_that_is_resumed_goes_on_from_its_mean() -> None:
    one, other = started(), Reinforce(momentum=0.75)
    other.load_state_dict(one.state_dict())
    for batch in (1.0, 2.0, 3.0):
        ours, theirs = (r(batch * REWARD, PIECES, LOG_PROB, ENTROPY) for r in (one, other))
        assert torch.equal(ours, theirs)


def test_gradients_reach_the_draws_and_not_the_reward() -> None:
    reward, log_prob, entropy = (x.clone().requires_grad_() for x in (REWARD, LOG_PROB, ENTROPY))
    started()(reward + torch.tensor([1.0, 0.0, -2.0]), PIECES, log_prob, entropy).backward()
    assert reward.grad is None
    assert log_prob.grad.tolist() == [-1.0, 0.0, 2.0]
    assert entropy.grad.tolist() == [-1.0, -1.0, -1.0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_the_mean_stays_in_its_own_precision(dtype: torch.dtype) -> None:
    reinforce = Reinforce(momentum=0.5)
    given: list[Tensor] = [x.to(dtype) for x in (REWARD, LOG_PROB, ENTROPY)]
    for _ in range(2):
        found = reinforce(given[0], PIECES, *given[1:])
    assert found.item() == -1.75
    assert reinforce.running_reward.dtype == reinforce.running_tokens.dtype == torch.float32
    assert (reinforce.running_reward / reinforce.running_tokens).item() == -2


def training_loss(logits: Tensor, target: Tensor, smoothing: float, alpha: float) -> Tensor:
    """Of one sentence, or of two readings of it, as the papers write it."""
    loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), label_smoothing=smoothing, reduction="sum")
    if alpha == 0:
        return loss
    p, q = logits.log_softmax(-1)
    return loss + alpha / 2 * ((p.exp() - q.exp()) * (p - q)).sum()


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize(("alpha", "target"), [(0.0, [9]), (5.0, [])], ids=["plain", "r_drop"])
def test_the_expected_gradient_of_a_model_is_that_of_its_expected_loss(
    monkeypatch: pytest.MonkeyPatch, alpha: float, target: list[int], smoothing: float
) -> None:
    weights = [
        f"attention.normalizer.{x}" for x in ("log_prob_weight=1.0", "entropy_weight=0.0", "soft_probability=0.0")
    ]
    certain = [f"model.{part}dropout=0.0" for part in ("", "encoder.", "decoder.")]
    model = model_of("attention=hard", *weights, *certain)
    module = SimpleNamespace(model=model, label_smoothing=smoothing, r_drop_alpha=alpha, training=True)
    reinforce = Reinforce(momentum=0.9).eval()
    reinforce.running_tokens += 1
    reinforce.running_reward -= 1.7
    batch = collate_pairs([[5, 6]], [target], [0], pad_id=0, bos_id=2, eos_id=3)  # with the end, three positions
    batch = twice(batch) if alpha > 0 else batch
    parameters = list(model.train().parameters())
    steps, readings = batch.target_output.shape[1], len(batch)
    expected_loss, total = torch.zeros(()), torch.zeros(())
    found = [torch.zeros_like(x) for x in parameters]
    for positions in itertools.product(range(3), repeat=steps * readings):
        draws = iter(1e6 * F.one_hot(torch.tensor(positions), 3).double().view(steps, readings, 1, 1, 3))
        monkeypatch.setattr(hard, "gumbel_noise", lambda scores, draws=draws: next(draws))
        loss, decoded = TranslationModule.loss(module, batch)
        term = drawn_loss(reinforce, batch, loss.loss_by_token, decoded)
        chance = decoded.log_prob.sum().exp()
        exact = training_loss(model.logits(decoded.hidden), batch.target_output, smoothing, alpha)
        torch.testing.assert_close(loss.smoothed, exact, rtol=1e-12, atol=0)
        expected_loss, total = expected_loss + chance * exact, total + chance.detach()
        gradients = torch.autograd.grad(loss.smoothed + term, parameters, retain_graph=True, allow_unused=True)
        for sum_, gradient in zip(found, gradients, strict=True):
            sum_ += 0 if gradient is None else chance.detach() * gradient
    torch.testing.assert_close(total, torch.ones(()))
    expected = torch.autograd.grad(expected_loss, parameters, allow_unused=True)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, torch.zeros_like(ours) if theirs is None else theirs, rtol=0, atol=1e-12)
    scores = dict(zip((name for name, _ in model.named_parameters()), expected, strict=True))
    assert any((x != 0).any() for name, x in scores.items() if ".attention.score." in name and x is not None)


def test_draws_of_both_sides_are_summed_over_real_tokens_alone() -> None:
    batch = collate_pairs([[5, 6], [7]], [[8], [9, 10, 11]], [0, 1], pad_id=0, bos_id=2, eos_id=3)
    source, target = torch.ones(batch.source.shape), torch.full(batch.target_output.shape, 10.0)
    assert sum_by_sentence(batch, None, source).tolist() == [3, 2]
    assert sum_by_sentence(batch, target, None).tolist() == [20, 40]
    assert sum_by_sentence(batch, target, source).tolist() == [23, 42]
    assert sum_by_sentence(batch, None, None) is None


@pytest.mark.parametrize("accumulated", [1, 2])
def test_the_term_is_divided_by_the_tokens_of_an_update_as_the_loss_is(
    accumulated: int, monkeypatch: pytest.MonkeyPatch, pairs: list[str]
) -> None:
    given = ["data=parallel", "tokenizer.vocab_size=40", "recipe=none", "attention=hard", "paths.run_dir=none"]
    given += ["metric=[]", "callback=[]", *(f"choices.{name}=null" for name in ("attention", "model", "data"))]
    module, data = build(compose_train(*given, *pairs))
    batch, logged = next(iter(data.train_dataloader())), {}
    monkeypatch.setattr(TranslationModule, "trainer", SimpleNamespace(accumulate_grad_batches=accumulated))
    monkeypatch.setattr(module, "log", lambda name, value, **_: logged.update({name: float(value)}))
    monkeypatch.setattr(translation_module, "drawn_loss", lambda *_: torch.tensor(7.0))
    found, tokens = module.training_step(batch, 0).item(), int(batch.target_mask.sum())
    assert module.reinforce.momentum == 0.9  # of the paper
    assert found == pytest.approx((logged["train/loss"] + 7.0 / tokens) * accumulated)  # Lightning divides by it
