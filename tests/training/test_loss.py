"""The loss against its definition."""

from __future__ import annotations

from itertools import accumulate

import pytest
import torch

from seq2seq_attn.nn import linear
from seq2seq_attn.training import loss
from seq2seq_attn.training.loss import CHUNK, label_smoothed_cross_entropy


@pytest.mark.parametrize("rows", [1, 255, 256, 257, 601])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-6)])
def test_loss_is_cross_entropy_against_the_smoothed_reference(
    dtype: torch.dtype, tolerance: float, smoothing: float, rows: int
) -> None:
    vocabulary, dim = 11, 7
    exact = [torch.randn(s, dtype=torch.float64) for s in ((rows, dim), (vocabulary, dim), (vocabulary,))]
    hidden, weight, bias = (x.clone().requires_grad_() for x in exact)
    target = torch.randint(vocabulary, (rows,))
    logits = hidden @ weight.T + bias
    probabilities = logits.exp() / logits.exp().sum(-1, keepdim=True)
    wanted = torch.full((rows, vocabulary), smoothing / vocabulary, dtype=torch.float64)
    wanted[torch.arange(rows), target] += 1 - smoothing
    by_token = -(wanted * probabilities.log()).sum(-1)
    expected = by_token.sum()

    ours = [x.to(dtype).requires_grad_() for x in exact]
    loss = label_smoothed_cross_entropy(*ours, target, smoothing)
    nll = -probabilities[torch.arange(rows), target].log().sum()
    for found, correct in ((loss.smoothed, expected), (loss.nll, nll)):
        assert abs(found.double() - correct) <= tolerance * abs(correct)
    torch.testing.assert_close(loss.loss_by_token.double(), by_token.detach(), rtol=10 * tolerance, atol=tolerance)
    assert not loss.nll.requires_grad
    assert not loss.loss_by_token.requires_grad
    found = torch.autograd.grad(3 * loss.smoothed, ours)
    for ours_grad, correct in zip(found, torch.autograd.grad(3 * expected, (hidden, weight, bias)), strict=True):
        assert (ours_grad.double() - correct).abs().max() <= tolerance * correct.abs().max()
    assert loss.tokens == rows
    assert loss.correct is None
    counted = label_smoothed_cross_entropy(*ours, target, smoothing, count_correct=True)
    assert counted.correct == (probabilities.argmax(-1) == target).sum()
    assert torch.equal(torch.stack(counted[:2]), torch.stack(loss[:2]))


def test_a_token_counts_as_correct_where_it_is_ranked_first() -> None:
    layer = torch.eye(3), torch.tensor([0.0, 0.0, 0.5])
    hidden = torch.tensor([[2.0, 1.0, 0.0], [0.0, 0.4, 0.0], [0.0, 0.6, 0.0], [1.0, 0.0, 0.0]])
    target = torch.tensor([0, 1, 1, 2])  # first; beaten by the bias; first; beaten
    assert label_smoothed_cross_entropy(hidden, *layer, target, 0.1, count_correct=True).correct == 2


def test_a_tied_matrix_gets_both_gradients() -> None:
    embedding = torch.nn.Embedding(11, 7).double()
    tokens, target = torch.tensor([1, 2, 3]), torch.tensor([4, 5, 6])
    bias = torch.zeros(11, dtype=torch.float64)
    ours = label_smoothed_cross_entropy(embedding(tokens).tanh(), embedding.weight, bias, target, 0.1).smoothed
    logits = embedding(tokens).tanh() @ embedding.weight.T
    plain = torch.nn.functional.cross_entropy(logits, target, label_smoothing=0.1, reduction="sum")
    for a, b in zip(*(torch.autograd.grad(x, embedding.weight) for x in (ours, plain)), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize("faster", [True, False])
def test_the_loss_is_the_same_by_onednn_and_by_mkl(faster: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "onednn_is_faster", lambda: faster)
    monkeypatch.setattr(linear, "MIN_PRODUCTS", 0)
    exact = [torch.randn(s, dtype=torch.float64) / 4 for s in ((2 * CHUNK + 77, 24), (1701, 24), (1701,))]
    target = torch.randint(1701, (len(exact[0]),))
    hidden, weight, bias = (x.clone().requires_grad_() for x in exact)
    logits = hidden @ weight.T + bias
    expected = torch.nn.functional.cross_entropy(logits, target, label_smoothing=0.1, reduction="sum")
    ours = [x.float().requires_grad_() for x in exact]
    loss = label_smoothed_cross_entropy(*ours, target, 0.1)
    assert loss.smoothed.item() == pytest.approx(expected.item(), rel=1e-6)
    found = torch.autograd.grad(loss.smoothed, ours)
    for ours_grad, correct in zip(found, torch.autograd.grad(expected, (hidden, weight, bias)), strict=True):
        assert (ours_grad.double() - correct).abs().max() <= 2e-6 * correct.abs().max()


def test_half_precision_keeps_wide_sums() -> None:
    hidden, weight, bias = (torch.randn(s).bfloat16().requires_grad_() for s in ((5, 3), (7, 3), (7,)))
    target = torch.randint(7, (5,))
    found = label_smoothed_cross_entropy(hidden, weight, bias, target, 0.1)
    assert found.smoothed.dtype == torch.float32
    found.smoothed.backward()
    assert hidden.grad.dtype == torch.bfloat16
    plain = torch.nn.functional.cross_entropy(
        hidden.float() @ weight.float().T + bias.float(), target, label_smoothing=0.1, reduction="sum"
    )
    assert found.smoothed.item() == pytest.approx(plain.item(), rel=1e-2)


def test_half_precision_loses_no_chunk_of_a_gradient() -> None:
    """Each chunk adds the same, of which a sum in bfloat16 would soon take nothing more."""
    chunks = 600
    hidden, weight, bias = torch.ones(chunks * CHUNK, 1), torch.zeros(3, 1), torch.zeros(3)
    layer = [x.bfloat16().requires_grad_() for x in (hidden, weight, bias)]
    label_smoothed_cross_entropy(*layer, torch.zeros(len(hidden), dtype=torch.int64), 0.0).smoothed.backward()
    expected = torch.tensor([-2 / 3, 1 / 3, 1 / 3]) * len(hidden)
    torch.testing.assert_close(layer[2].grad.float(), expected, rtol=1e-2, atol=0.0)
    torch.testing.assert_close(layer[1].grad.float()[:, 0], expected, rtol=1e-2, atol=0.0)


def test_no_gradient_is_taken_where_none_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, weight, bias = (torch.randn(s).requires_grad_() for s in ((5, 3), (7, 3), (7,)))
    given = hidden, weight, bias, torch.randint(7, (5,)), 0.1
    expected = label_smoothed_cross_entropy(*given)
    monkeypatch.setattr(loss, "accumulate", None)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert torch.equal(label_smoothed_cross_entropy(*given).smoothed, expected.smoothed.detach())


def test_no_more_than_one_chunk_of_logits_is_ever_there() -> None:
    vocabulary, dim, chunks = 5003, 3, 4
    hidden = torch.randn(chunks * CHUNK, dim, requires_grad=True)
    weight, bias = torch.randn(vocabulary, dim), torch.randn(vocabulary)
    target = torch.randint(vocabulary, (len(hidden),))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        label_smoothed_cross_entropy(hidden, weight, bias, target, 0.1)
    changes = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    held = list(accumulate(e.nbytes() for e in sorted(changes, key=lambda e: e.start_ns())))
    assert 1 <= max(held) / (CHUNK * vocabulary * 4) < 1.2


def test_a_second_derivative_is_refused_and_not_taken_for_zero() -> None:
    hidden, weight, bias = (torch.randn(s, requires_grad=True) for s in ((5, 3), (7, 3), (7,)))
    loss = label_smoothed_cross_entropy(hidden, weight, bias, torch.randint(7, (5,)), 0.1)
    for one in (loss.smoothed.square(), loss.smoothed):
        with pytest.raises(RuntimeError, match="differentiate twice"):
            torch.autograd.grad(one, hidden, create_graph=True)
