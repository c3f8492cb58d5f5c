"""Normalizers by hand, against their formula, by bisection and as laws; what is hidden at every dtype."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from attention.layers import by_blocks
from attention.normalizer_formulas import weights_of
from configs import CONF, attention_of, built, options
from omegaconf import OmegaConf
from torch import Tensor

from seq2seq_attn.attention.build import option_reads_history
from seq2seq_attn.attention.state import Attended
from seq2seq_attn.errors import UserError
from seq2seq_attn.factory import build_part

SPARSE = {"sparsemax": 1.0, "entmax15": 2.0}  # how far below the best a score weighs nothing
FUSED = {"softmax", "softmax_one", "sink"}
ROWWISE = [
    option for option in options("attention/normalizer") if not option_reads_history(option, "attention/normalizer")
]
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def normalizer_of(option: str, num_heads: int = 1) -> Any:
    """With drawn parameters, and fewer best keys than sentences here have."""
    factory = built(OmegaConf.load(CONF / f"attention/normalizer/{option}.yaml"))
    normalizer = build_part(factory, num_heads=num_heads).eval()
    for parameter in normalizer.parameters():
        torch.nn.init.normal_(parameter)
    if option == "top_k":
        normalizer.k = 3
    return normalizer


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


@pytest.mark.parametrize(
    ("option", "scores", "weights"),
    [
        ("sigmoid", [math.log(2), math.log(6)], [2 / 4, 6 / 8]),  # e^b / (e^b + n)
        ("sigmoid", [0.0, 0.0, 0.0], [0.25] * 3),  # together just below 1
        ("relu", [3.0, -1.0, 0.0, 5.0], [0.75, 0.0, 0.0, 1.25]),
        ("identity", [3.0, -1.0, 0.0, 5.0], [0.75, -0.25, 0.0, 1.25]),
        ("softmax_one", [0.0, math.log(2)], [1 / 4, 2 / 4]),
        ("sink", [0.0, math.log(2)], [1 / 6, 2 / 6]),  # the logit is log 3
        ("top_k", [1.0, 2.0, 2.0, 2.0, 2.0], [0.0, 1 / 3, 1 / 3, 1 / 3, 0.0]),  # of equal scores the first
        ("top_k", [0.0, -1.0, math.log(2), math.log(3), -2.0], [1 / 6, 0.0, 2 / 6, 3 / 6, 0.0]),
    ],
)
def test_weights_by_hand(option: str, scores: list[float], weights: list[float]) -> None:
    normalizer = normalizer_of(option)
    if option == "sink":
        normalizer.logits.data.fill_(math.log(3))
    found = normalizer(torch.tensor([[scores]]), None).weights
    torch.testing.assert_close(found, torch.tensor([[weights]]))


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("option", [option for option in ROWWISE if "hard" not in option])
def test_weights_and_gradients_equal_the_formula_of_what_is_seen(option: str, scale: float) -> None:
    scores, allowed = (scale * torch.randn(3, 5, 7)).requires_grad_(), mask_with_a_blind_row(3, 5, 7)
    normalizer, upstream = normalizer_of(option, num_heads=3), torch.randn(3, 5, 7)
    expected = torch.zeros(3, 5, 7)
    for row in range(3):
        for target in range(4):
            seen = allowed[row, target]
            shares = weights_of(normalizer, scores[row, target, seen], head=row)
            expected = expected.index_put((torch.tensor(row), torch.tensor(target), seen.nonzero()[:, 0]), shares)
    found = normalizer(scores, allowed).weights
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    inputs = [scores, *normalizer.parameters()]
    ours, theirs = (torch.autograd.grad((w * upstream).sum(), inputs) for w in (found, expected))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-11)
    assert (ours[0][~allowed] == 0).all()


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
        [[[1.0, 2.0, 60000.0], [-65504.0, -65504.0, 60000.0], [60000.0, 0.0, 1.0], [5.0, 5.0, 5.0]]], dtype=dtype
    ).requires_grad_()
    allowed = torch.tensor([[[True, True, False], [False, True, False], [True, True, True], [False, False, False]]])
    normalizer = normalizer_of(option)
    weights = normalizer(scores, allowed).weights
    assert weights.dtype == dtype
    assert weights.isfinite().all()
    assert (weights[~allowed] == 0).all()
    if normalizer.sums_to_one:
        assert weights[0, 1:].tolist() == [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
        torch.testing.assert_close(weights[0, 0].double().sum(), torch.ones(()).double(), atol=4e-3, rtol=0)
    if weights.requires_grad:
        weights.float().sin().sum().backward()
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
    scores = torch.randn(1, 5, 1009).to(dtype)
    allowed = torch.rand(1, 5, 1009) > 0.1
    normalizer = normalizer_of(option)
    found, expected = normalizer(scores, allowed).weights, normalizer(scores.double(), allowed).weights
    assert (found.double() - expected).abs().max() < tolerance
    assert (found.double().sum(-1) - expected.sum(-1)).abs().max() < 5 * tolerance


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("option", ROWWISE)
def test_a_distribution_sums_to_one_where_it_says_so(option: str) -> None:
    scores, normalizer = 3 * torch.randn(2, 3, 5, 7), normalizer_of(option, num_heads=3)
    weights = normalizer(scores, None).weights
    one = bool(((weights.sum(-1) - 1).abs() < 1e-12).all() and (weights >= 0).all())
    assert one is normalizer.sums_to_one
    found = Attended(torch.zeros(2, 5, 6), weights, sums_to_one=normalizer.sums_to_one).distribution
    assert (found >= 0).all()
    torch.testing.assert_close(found.sum(-1), (weights > 0).any(-1).double())


def test_a_distribution_is_the_positive_part_of_a_row_divided_by_its_sum() -> None:
    weights = torch.tensor([[[[1.0, -2.0, 3.0], [-1.0, -1.0, 0.0], [0.25, 0.0, 0.25]]]])
    attended = Attended(torch.zeros(1, 3, 2), weights, sums_to_one=False)
    expected = torch.tensor([[[[0.25, 0.0, 0.75], [0.0, 0.0, 0.0], [0.5, 0.0, 0.5]]]])
    assert torch.equal(attended.distribution, expected)
    assert attended._replace(sums_to_one=True).distribution is weights


@pytest.mark.parametrize("option", ROWWISE)
def test_the_kernel_of_softmax_serves_softmax_and_sinks_only(option: str) -> None:
    attention = attention_of(
        "multihead", f"attention/normalizer={option}", query_dim=128, key_dim=128, value_dim=128
    ).eval()
    x = torch.randn(2, 7, 128)
    fast, dense = (attention.attend_self(x, causal=True, need_weights=need).context for need in (False, True))
    torch.testing.assert_close(fast, dense)
    assert attention.normalizer.is_softmax is (option in FUSED)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("pattern", ["full", "local", "sparse"])
@pytest.mark.parametrize("option", ["softmax_one", "sink"])
def test_a_sink_is_the_same_by_kernels_steps_blocks_and_all_pairs(option: str, pattern: str) -> None:
    overrides = [f"attention/pattern={pattern}", f"attention/normalizer={option}", "attention.num_heads=2"]
    attention = attention_of("multihead", *overrides, query_dim=6, key_dim=6, value_dim=6).eval()
    for parameter in attention.normalizer.parameters():
        torch.nn.init.normal_(parameter)
    inputs = [torch.randn(2, 11, 6, requires_grad=True), *attention.parameters()]
    mask = torch.arange(11) < torch.tensor([[11], [4]])
    upstream = torch.randn(2, 11, 6) * mask[..., None]

    def found(**options: Any) -> list[Tensor]:
        context = attention.attend_self(inputs[0], mask, causal=True, **options).context
        return [context[mask], *torch.autograd.grad((context * upstream).sum(), inputs)]

    expected, fused = found(need_weights=True), found()
    by_blocks(SimpleNamespace(attention=attention))
    for ours in (fused, found()):
        for one, other in zip(ours, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-12)
    memory, steps = None, []
    for t in range(11):
        attended = attention.attend_self(inputs[0][:, t : t + 1], mask[:, t : t + 1], past=memory, causal=True)
        memory = attended.memory
        steps.append(attended.context)
    torch.testing.assert_close(torch.cat(steps, 1)[mask], expected[0], rtol=0, atol=1e-12)
    crossed = attention.prepare(torch.randn(2, 7, 6), mask=torch.arange(7) < torch.tensor([[0], [5]]))
    for query in (inputs[0], inputs[0][:, :1]):
        fast, dense = (attention(query, crossed, need_weights=need).context for need in (False, True))
        torch.testing.assert_close(fast, dense, rtol=0, atol=1e-12)
        assert (fast[0] == 0).all()


@pytest.mark.usefixtures("double")
def test_a_sink_is_fused(monkeypatch: pytest.MonkeyPatch) -> None:
    attention = attention_of("sink", query_dim=6, key_dim=6, value_dim=6).eval()

    def refuse(*_: Any) -> None:
        raise AssertionError("all pairs were scored")

    monkeypatch.setattr(attention.score, "forward", refuse)
    attention.attend_self(torch.randn(2, 5, 6), causal=True)


@pytest.mark.usefixtures("double")
def test_as_many_best_keys_as_there_are_is_softmax_and_one_is_hard() -> None:
    scores, allowed = torch.randn(3, 5, 7), mask_with_a_blind_row(3, 5, 7)
    top_k = normalizer_of("top_k")
    for k, option in ((1, "hard"), (6, "softmax"), (7, "softmax"), (100, "softmax")):
        top_k.k = k
        expected = normalizer_of(option)(scores, allowed).weights
        seen = allowed.sum(-1, keepdim=True) <= k if option == "softmax" else torch.tensor(True)
        torch.testing.assert_close(top_k(scores, allowed).weights * seen, expected * seen, rtol=0, atol=1e-15)


def test_no_best_key_is_refused() -> None:
    with pytest.raises(UserError) as refused:
        attention_of("top_k", "attention.normalizer.k=0", query_dim=6, key_dim=6, value_dim=6)
    assert str(refused.value) == "attention.normalizer.k=0 leaves no key to attend to; take 1 or more"


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("option", ["sparsemax", "entmax15", "adaptive_entmax"])
def test_scores_that_are_not_finite_give_nan_and_no_error(option: str, bad: float) -> None:
    """An update is left out then; an index out of range would end the process on a GPU."""
    scores = torch.tensor([[[[1.0, bad, 2.0], [1.0, 0.5, 2.0]]]])
    weights = normalizer_of(option)(scores, torch.ones_like(scores, dtype=torch.bool)).weights
    assert weights[..., 0, :].isnan().any()
    assert weights[..., 1, :].isfinite().all()
