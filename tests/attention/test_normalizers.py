"""The sparse normalizers by hand, against bisection and as laws; what is hidden at every dtype."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from attention.normalizer_formulas import NORMALIZERS
from configs import CONF, attention_of, built, options
from omegaconf import OmegaConf
from torch import Tensor

from seq2seq_attn.attention.build import reads_history

SPARSE = {"sparsemax": 1.0, "entmax15": 2.0}  # how far below the best a score weighs nothing
ROWWISE = [option for option in options("attention/normalizer") if not reads_history(option, "attention/normalizer")]
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def normalizer_of(option: str) -> Any:
    return built(OmegaConf.load(CONF / f"attention/normalizer/{option}.yaml"))().eval()


def mask_with_a_blind_row(*shape: int) -> Tensor:
    """True in most positions; every row sees something, but for the last, which sees nothing."""
    mask = torch.rand(shape) > 0.4
    mask[..., 0] = True
    mask[..., -1, :] = False
    return mask


@pytest.mark.parametrize(
    ("option", "scores", "weights"),
    [
        # Support 2: tau = (0.5 + 0.3 - 1) / 2 = -0.1.
        ("sparsemax", [0.5, -1.0, 0.3], [0.6, 0.0, 0.4]),
        ("sparsemax", [7.0, 8.0, 3.0], [0.0, 1.0, 0.0]),
        ("sparsemax", [5.0, 5.0, 5.0, 5.0], [0.25] * 4),
        # Halves 0.8, 0.6, -0.2: tau = 0, since 0.64 + 0.36 = 1.
        ("entmax15", [1.6, -0.4, 1.2], [0.64, 0.0, 0.36]),
        ("entmax15", [6.0, 8.0, 3.0], [0.0, 1.0, 0.0]),
        ("entmax15", [5.0, 5.0, 5.0, 5.0], [0.25] * 4),
    ],
)
def test_sparse_weights_by_hand(option: str, scores: list[float], weights: list[float]) -> None:
    found = normalizer_of(option)(torch.tensor([scores]), None).weights
    torch.testing.assert_close(found, torch.tensor([weights]))
    assert ((found == 0) == (torch.tensor([weights]) == 0)).all()


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("option", [option for option in ROWWISE if "hard" not in option])
def test_weights_and_gradients_equal_the_formula_of_what_is_seen(option: str, scale: float) -> None:
    scores, allowed = (scale * torch.randn(3, 5, 7)).requires_grad_(), mask_with_a_blind_row(3, 5, 7)
    normalizer, upstream = normalizer_of(option), torch.randn(3, 5, 7)
    expected = torch.zeros(3, 5, 7)
    for row in range(3):
        for target in range(4):
            seen = allowed[row, target]
            shares = NORMALIZERS[type(normalizer).__name__](scores[row, target, seen])
            expected = expected.index_put((torch.tensor(row), torch.tensor(target), seen.nonzero()[:, 0]), shares)
    found = normalizer(scores, allowed).weights
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    ours, theirs = (torch.autograd.grad((w * upstream).sum(), scores)[0] for w in (found, expected))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-11)
    assert (ours[~allowed] == 0).all()


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize(("option", "power"), [("sparsemax", 1), ("entmax15", 2)])
def test_the_threshold_is_where_bisection_finds_it(option: str, power: int) -> None:
    scores = 2 * torch.randn(101, 11)
    halved = scores / power  # entmax with alpha: ((alpha - 1) score - tau) ^ (1 / (alpha - 1))
    low, high = halved.amax(-1, keepdim=True) - 1, halved.amax(-1, keepdim=True)
    for _ in range(60):
        middle = (low + high) / 2
        above = (halved - middle).relu().pow(power).sum(-1, keepdim=True) > 1
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    expected = (halved - low).relu().pow(power)
    torch.testing.assert_close(normalizer_of(option)(scores, None).weights, expected, rtol=0, atol=1e-12)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("option", SPARSE)
def test_gradients_are_those_of_finite_differences(option: str) -> None:
    normalizer, allowed = normalizer_of(option), mask_with_a_blind_row(3, 5)
    for given in (allowed, None):
        scores = torch.randn(3, 5).requires_grad_()
        assert torch.autograd.gradcheck(lambda x, given=given: normalizer(x, given).weights, scores)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("option", ROWWISE)
def test_hidden_weighs_exactly_nothing_at_every_dtype(option: str, dtype: torch.dtype) -> None:
    # The hidden score is the largest of a row, then those that are seen stand as low as float16 goes.
    scores = torch.tensor(
        [[1.0, 2.0, 60000.0], [-65504.0, -65504.0, 60000.0], [60000.0, 0.0, 1.0], [5.0, 5.0, 5.0]], dtype=dtype
    ).requires_grad_()
    allowed = torch.tensor([[True, True, False], [False, True, False], [True, True, True], [False, False, False]])
    weights = normalizer_of(option)(scores, allowed).weights
    assert weights.dtype == dtype
    assert (weights[~allowed] == 0).all()
    assert weights[1:].tolist() == [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    torch.testing.assert_close(weights[0].double().sum(), torch.ones(()).double(), atol=4e-3, rtol=0)
    if weights.requires_grad:
        weights.float().square().sum().backward()
        assert scores.grad.isfinite().all()
        assert (scores.grad[~allowed] == 0).all()


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("option", ROWWISE)
def test_a_hidden_key_is_as_good_as_none(option: str) -> None:
    scores, allowed = torch.randn(3, 5, 7), torch.arange(7) < 4
    normalizer = normalizer_of(option)
    found, alone = (normalizer(scores, allowed.expand(1, 1, 7)).weights, normalizer(scores[..., :4], None).weights)
    torch.testing.assert_close(found[..., :4], alone, rtol=0, atol=1e-12)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize(("option", "reach"), SPARSE.items())
def test_a_score_as_far_below_the_best_as_the_reach_weighs_nothing(option: str, reach: float) -> None:
    for below, seen in ((reach + 1e-6, False), (reach - 1e-6, True)):
        weights = normalizer_of(option)(torch.tensor([[3.0, 3.0 - below]]), None).weights
        assert (weights[0, 1] > 0).item() is seen


@pytest.mark.usefixtures("double")
def test_entmax_has_more_than_sparsemax_and_fewer_than_softmax() -> None:
    scores = torch.randn(101, 31)
    counts = [(normalizer_of(option)(scores, None).weights > 0).sum() for option in (*SPARSE, "softmax")]
    assert counts == sorted(counts)
    assert len(set(counts)) == 3


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("option", SPARSE)
def test_adding_the_same_to_all_scores_changes_nothing(option: str) -> None:
    scores, allowed = torch.randn(3, 5, 7), mask_with_a_blind_row(3, 5, 7)
    normalizer = normalizer_of(option)
    found, expected = (normalizer(x, allowed).weights for x in (scores - 1000, scores))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float16, 1e-3), (torch.bfloat16, 4e-3)])
@pytest.mark.parametrize("option", ROWWISE)
def test_lower_precision_errs_by_its_last_digit_only(option: str, dtype: torch.dtype, tolerance: float) -> None:
    # Sums over 1009 keys and squares of them, which half precision would lose.
    scores = torch.randn(5, 1009).to(dtype)
    allowed = torch.rand(5, 1009) > 0.1
    normalizer = normalizer_of(option)
    found, expected = normalizer(scores, allowed).weights, normalizer(scores.double(), allowed).weights
    assert (found.double() - expected).abs().max() < tolerance
    assert (found.double().sum(-1) - 1).abs().max() < 5 * tolerance


@pytest.mark.parametrize("option", [option for option in ROWWISE if option != "softmax"])
def test_the_kernel_of_softmax_serves_softmax_only(option: str) -> None:
    attention = attention_of(
        "multihead", f"attention/normalizer={option}", query_dim=128, key_dim=128, value_dim=128
    ).eval()
    x = torch.randn(2, 7, 128)
    fast, dense = (attention.attend_self(x, causal=True, need_weights=need).context for need in (False, True))
    torch.testing.assert_close(fast, dense)
    assert not attention.normalizer.is_softmax
