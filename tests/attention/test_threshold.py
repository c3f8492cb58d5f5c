"""The thresholds of entmax by Newton's method: those of sorting and bisection, in few steps from below."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from seq2seq_attn.attention.normalizer import adaptive_entmax, entmax, threshold
from seq2seq_attn.attention.normalizer.threshold import entmax15_step, entmax_step, newton_threshold, sparsemax_step

pytestmark = pytest.mark.usefixtures("double")

EXCESSES = (0.01, 0.1, 0.5, 0.9, 1.0)
DTYPES = (torch.float32, torch.float64)


def uneven(keys: int) -> Tensor:
    """Scores that sparsemax drops a few at a time."""
    return 2.0 ** -torch.arange(keys) - 1


def sets_of_scores() -> list[Tensor]:
    made = [torch.randn(9, 1), torch.randn(9, 40), 20 * torch.randn(9, 40), torch.zeros(2, 7), uneven(99)[None]]
    hidden = torch.randn(3, 12).masked_fill(torch.rand(3, 12) > 0.5, -1e30)
    return [scores - scores.amax(-1, keepdim=True) for scores in [*made, hidden, torch.randn(5, 700)]]


def steps_of(excess: float, rows: int, dtype: torch.dtype) -> list[threshold.Step]:
    """All steps for an alpha."""
    alphas = torch.full((rows, 1), excess, dtype=dtype)
    special = {0.5: entmax15_step, 1.0: sparsemax_step}
    return [lambda above: entmax_step(above, alphas), *([special[excess]] if excess in special else [])]


def by_bisection(scaled: Tensor, excess: float) -> Tensor:
    """The threshold in float64, whatever its weights sum to in another type."""
    scaled = scaled.double()
    low, high = -torch.ones_like(scaled[..., :1]), torch.zeros_like(scaled[..., :1])
    for _ in range(60):
        middle = (low + high) / 2
        enough = ((scaled - middle).clamp(min=0) ** (1 / excess)).sum(-1, keepdim=True) >= 1
        low, high = torch.where(enough, middle, low), torch.where(enough, high, middle)
    return low


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("excess", EXCESSES)
def test_few_steps_that_never_go_too_far_lead_to_the_threshold(excess: float, dtype: torch.dtype) -> None:
    tiny = torch.finfo(dtype).eps
    for scores in sets_of_scores():
        scaled = (excess * scores).to(dtype)
        for step in steps_of(excess, len(scaled), dtype):
            rises: list[Tensor] = []

            def watched(above: Tensor, step: threshold.Step = step, rises: list[Tensor] = rises) -> Tensor:
                rises.append(step(above))
                return rises[-1]

            found = newton_threshold(scaled, watched)
            assert found is not None
            assert found.dtype == dtype
            torch.testing.assert_close(found.double(), by_bisection(scaled, excess), rtol=0, atol=4 * tiny)
            assert all((rise >= -2 * tiny).all() for rise in rises)
            assert len(rises) <= (12 if scores.shape[1] > 40 else 8)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("find", [entmax.sparsemax_threshold, entmax.entmax15_threshold])
def test_many_scores_are_not_sorted_and_few_are(
    find: Callable[[Tensor], Tensor], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []
    monkeypatch.setattr(Tensor, "sort", counted(Tensor.sort, sizes))
    for scores in sets_of_scores():
        monkeypatch.setattr(entmax, "NEWTON_FROM", scores.numel())
        found = find(scores.to(dtype))
        monkeypatch.setattr(entmax, "NEWTON_FROM", scores.numel() + 1)
        assert sizes == []
        torch.testing.assert_close(found, find(scores.to(dtype)), rtol=0, atol=8 * torch.finfo(dtype).eps)
        assert sizes == [scores.numel()]
        sizes.clear()


def counted(method: Callable[..., Tensor], sizes: list[int]) -> Callable[..., Tensor]:
    def call(x: Tensor, *arguments: object, **options: object) -> Tensor:
        sizes.append(x.numel())
        return method(x, *arguments, **options)

    return call


@pytest.mark.parametrize("excess", EXCESSES)
def test_bisection_and_sorting_serve_where_steps_do_not_suffice(excess: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threshold, "STEPS", 1)
    monkeypatch.setattr(entmax, "NEWTON_FROM", 1)
    sorting = {0.5: entmax.entmax15_threshold, 1.0: entmax.sparsemax_threshold}
    for scores in sets_of_scores():
        scaled = excess * scores
        expected, alphas = by_bisection(scaled, excess), torch.full((len(scaled), 1), excess)
        found = [adaptive_entmax.entmax_threshold(scaled, alphas)]
        found += [sorting[excess](scaled)] if excess in sorting else []
        for one in found:
            torch.testing.assert_close(one, expected, rtol=0, atol=1e-14)


def test_scores_that_are_not_finite_have_no_threshold() -> None:
    for bad in ([torch.nan, 0.0], [0.0, torch.nan, -1.0]):
        assert newton_threshold(torch.tensor([bad]), sparsemax_step) is None
        weights = entmax.Entmax.apply(torch.tensor([bad]).expand(5000, -1), 2.0)
        assert weights.isnan().any()


def test_bisection_does_not_begin_where_steps_suffice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adaptive_entmax, "entmax_powers", None)
    for scores in sets_of_scores():
        alphas = torch.full((len(scores), 1), 0.3)
        expected = by_bisection(0.3 * scores, 0.3)
        torch.testing.assert_close(adaptive_entmax.entmax_threshold(0.3 * scores, alphas), expected, rtol=0, atol=1e-14)


def test_other_devices_and_compiled_code_do_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert newton_threshold(torch.zeros(2, 3, device="meta"), sparsemax_step) is None
    assert newton_threshold(torch.zeros(2, 3), sparsemax_step) is not None
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert newton_threshold(torch.zeros(2, 3), sparsemax_step) is None


def test_transforms_do_without_it() -> None:
    scores = torch.randn(4, 3, 2000)
    scores = scores - scores.amax(-1, keepdim=True)
    served = []

    def find(scores: Tensor) -> Tensor:
        served.append(newton_threshold(scores, sparsemax_step))
        return entmax.sparsemax_threshold(scores)

    torch.testing.assert_close(torch.func.vmap(find)(scores), find(scores), rtol=0, atol=1e-14)
    assert served[0] is None
    assert served[1] is not None
