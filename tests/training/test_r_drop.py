"""R-Drop against its definition, the whole matrix of logits at once."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from configs import model_of
from torch import Tensor

from seq2seq_attn.batch import Batch
from seq2seq_attn.data.collate import collate_pairs
from seq2seq_attn.training.loss import label_smoothed_cross_entropy
from seq2seq_attn.training.r_drop import r_drop_cross_entropy, symmetric_divergence, twice
from seq2seq_attn.training.translation_module import TranslationModule

VOCABULARY, DIM = 11, 7


def drawn(pairs: int) -> tuple[list[Tensor], Tensor]:
    """Hidden states of two readings and the output layer; what each half is to say."""
    sizes = ((2 * pairs, DIM), (VOCABULARY, DIM), (VOCABULARY,))
    return [torch.randn(s, dtype=torch.float64) for s in sizes], torch.randint(VOCABULARY, (pairs,)).repeat(2)


@pytest.mark.parametrize("pairs", [1, 127, 128, 129, 301])
@pytest.mark.parametrize("alpha", [0.0, 5.0])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 3e-6)])
def test_loss_is_that_of_both_readings_and_half_of_alpha_times_both_divergences(
    dtype: torch.dtype, tolerance: float, alpha: float, pairs: int
) -> None:
    exact, target = drawn(pairs)
    hidden, weight, bias = (x.clone().requires_grad_() for x in exact)
    probabilities = (hidden @ weight.T + bias).softmax(-1)
    wanted = torch.full((2 * pairs, VOCABULARY), 0.1 / VOCABULARY, dtype=torch.float64)
    wanted[torch.arange(2 * pairs), target] += 0.9
    p, q = probabilities[:pairs], probabilities[pairs:]
    divergences = (p * (p / q).log()).sum(-1) + (q * (q / p).log()).sum(-1)
    by_token = -(wanted * probabilities.log()).sum(-1)
    expected = by_token.sum() + alpha / 2 * divergences.sum()

    ours = [x.to(dtype).requires_grad_() for x in exact]
    loss = r_drop_cross_entropy(*ours, target, 0.1, alpha)
    assert abs(loss.smoothed.double() - expected) <= tolerance * expected
    found = torch.autograd.grad(3 * loss.smoothed, ours)
    for grad, correct in zip(found, torch.autograd.grad(3 * expected, (hidden, weight, bias)), strict=True):
        assert (grad.double() - correct).abs().max() <= tolerance * correct.abs().max()
    nll = -probabilities[torch.arange(2 * pairs), target].log()
    torch.testing.assert_close(loss.token_nll.double(), nll, rtol=tolerance, atol=tolerance)
    by_token = by_token + alpha / 2 * divergences.repeat(2)  # a draw of either reading changes all of it
    torch.testing.assert_close(loss.loss_by_token.double(), by_token, rtol=tolerance, atol=10 * tolerance)
    assert loss.tokens == 2 * pairs
    assert not loss.nll.requires_grad
    assert not loss.loss_by_token.requires_grad


def test_the_divergence_of_a_worked_pair_is_the_same_both_ways() -> None:
    p, q = torch.tensor([[0.5, 0.25, 0.25]]).log(), torch.tensor([[0.25, 0.5, 0.25]]).log()
    # KL(p, q) = 1/2 log 2 - 1/4 log 2, and so is KL(q, p)
    for pair in ((p, q), (q, p)):
        assert symmetric_divergence(*pair)[0].item() == pytest.approx(0.5 * torch.tensor(2.0).log().item())
    nothing, gradients = symmetric_divergence(p, p)
    assert nothing == 0
    assert all((gradient == 0).all() for gradient in gradients)


def test_readings_that_agree_cost_what_one_does_twice() -> None:
    (hidden, weight, bias), target = drawn(13)
    hidden[13:] = hidden[:13]
    once = label_smoothed_cross_entropy(hidden[:13], weight, bias, target[:13], 0.1)
    both = r_drop_cross_entropy(hidden, weight, bias, target, 0.1, 5.0)
    torch.testing.assert_close(both.smoothed, 2 * once.smoothed, rtol=1e-12, atol=0)


def test_half_precision_keeps_wide_sums() -> None:
    exact, target = drawn(5)
    ours = [x.bfloat16().requires_grad_() for x in exact]
    loss = r_drop_cross_entropy(*ours, target, 0.1, 5.0)
    assert loss.smoothed.dtype == torch.float32
    loss.smoothed.backward()
    assert [x.grad is not None and x.grad.dtype for x in ours] == [torch.bfloat16] * 3


def test_a_batch_read_twice_has_its_rows_again_in_their_order() -> None:
    batch = collate_pairs([[5, 6, 7], [8]], [[9], [4, 6]], [3, 1], pad_id=0, bos_id=2, eos_id=3)
    doubled = twice(batch)
    assert len(doubled) == 4
    assert doubled.index.tolist() == [3, 1, 3, 1]
    assert doubled.source[2:].tolist() == batch.source.tolist() == doubled.source[:2].tolist()
    said = doubled.target_output[doubled.target_mask]
    assert said[: len(said) // 2].tolist() == said[len(said) // 2 :].tolist() == [9, 3, 4, 6, 3]


@pytest.mark.usefixtures("double")
def test_a_training_step_reads_with_two_dropouts_and_a_validation_once() -> None:
    batch = collate_pairs([[5, 6, 7], [8]], [[9], [4, 6]], [3, 1], pad_id=0, bos_id=2, eos_id=3)
    model = model_of("model.dropout=0.4", source_vocab_size=11, target_vocab_size=11)
    module = SimpleNamespace(model=model, label_smoothing=0.1, r_drop_alpha=5.0, training=True)
    torch.manual_seed(7)
    found, _ = TranslationModule.loss(module, twice(batch))
    torch.manual_seed(7)
    p, q = model.logits(model(*readings(twice(batch))).hidden).softmax(-1).chunk(2)
    mask, said = batch.target_mask, batch.target_output
    assert (p[mask] - q[mask]).abs().max() > 1e-3
    expected = 2.5 * ((p - q) * (p / q).log()).sum(-1)[mask].sum()  # KL(p, q) + KL(q, p), halved
    for reading in (p.log(), q.log()):
        nll = -reading.gather(-1, said[..., None])[..., 0]
        expected = expected + (0.9 * nll - 0.1 * reading.mean(-1))[mask].sum()
    torch.testing.assert_close(found.smoothed, expected, rtol=1e-12, atol=0)

    module.training = model.eval().training
    once, _ = TranslationModule.loss(module, batch)
    log_probs = model.logits(model(*readings(batch)).hidden).log_softmax(-1)
    nll = -log_probs.gather(-1, said[..., None])[..., 0]
    torch.testing.assert_close(once.nll, nll[mask].sum(), rtol=1e-12, atol=0)


def readings(batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    return batch.source, batch.source_mask, batch.target_input


def test_a_second_derivative_is_refused_and_not_taken_for_zero() -> None:
    exact, target = drawn(5)
    ours = [x.requires_grad_() for x in exact]
    loss = r_drop_cross_entropy(*ours, target, 0.1, 5.0)
    for one in (loss.smoothed.square(), loss.smoothed):
        with pytest.raises(RuntimeError, match="differentiate twice"):
            torch.autograd.grad(one, ours[0], create_graph=True)
