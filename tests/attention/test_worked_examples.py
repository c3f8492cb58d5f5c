"""Numbers that can be checked by hand, and laws between the parts."""

from __future__ import annotations

import math

import pytest
import torch
from configs import attention_of, built, composed

from seq2seq_attn.attention import Attention
from seq2seq_attn.attention.state import QueryKeyPositions
from seq2seq_attn.errors import UserError
from seq2seq_attn.nn.masked import masked_softmax

NOWHERE = QueryKeyPositions.dense(
    start=0, target=1, source=2, lengths=lambda: torch.tensor([2]), causal=False, device=torch.device("cpu")
)


@pytest.mark.parametrize(
    ("preset", "query_dim", "overrides"),
    [
        ("scaled_dot", 2, ["attention.project_values=false"]),
        ("bahdanau", 20, []),
        ("plain_scaled_dot", 2, []),
        ("luong_dot", 2, []),
        ("luong_general", 20, []),
        ("luong_concat", 20, []),
    ],
)
def test_equal_keys_give_the_mean_of_the_valid_values(preset: str, query_dim: int, overrides: list[str]) -> None:
    # Dive into Deep Learning, attention scoring functions: keys of ones, values 0..39, valid lengths 2 and 6. Its
    # DotProductAttention is scaled and projects nothing; its AdditiveAttention has queries of another width.
    attention = attention_of(preset, *overrides, query_dim=query_dim, key_dim=2, value_dim=4)
    values = torch.arange(40.0).view(1, 10, 4).expand(2, -1, -1)
    mask = torch.arange(10) < torch.tensor([[2], [6]])
    query, memory = torch.randn(2, 1, query_dim), attention.prepare(torch.ones(2, 10, 2), values, mask)
    found = attention(query, memory, need_weights=True)
    for context in (found.context, attention(query, memory).context):
        torch.testing.assert_close(context, torch.tensor([[[2.0, 3, 4, 5]], [[10.0, 11, 12, 13]]]))
    expected = torch.tensor([[1 / 2] * 2 + [0.0] * 8, [1 / 6] * 6 + [0.0] * 4])
    torch.testing.assert_close(found.weights[:, 0, 0], expected)


@pytest.mark.parametrize("preset", ["plain_scaled_dot", "bahdanau", "multihead"])
def test_the_order_of_keys_with_their_values_changes_nothing(preset: str) -> None:
    attention = attention_of(preset, query_dim=12, key_dim=12, value_dim=12)
    query, keys, order = torch.randn(2, 3, 12), torch.randn(2, 5, 12), torch.tensor([3, 0, 4, 2, 1])
    found, shuffled = (attention(query, attention.prepare(rows, rows, None)).context for rows in (keys, keys[:, order]))
    torch.testing.assert_close(found, shuffled)


def test_a_sparse_row_by_hand() -> None:
    # n = 10, k = 3: position 9 sees 6 to 9 by nearness, and 0 and 3 as multiples of 3 away; equal keys weigh the same.
    options = ("attention/score=dot", "attention.project_values=false", "attention.pattern.k=3")
    attention = attention_of("sparse", *options, query_dim=2, key_dim=2, value_dim=1)
    memory = attention.prepare(torch.ones(1, 10, 2), torch.arange(10.0)[None, :, None])
    found = attention(torch.randn(1, 10, 2), memory, need_weights=True)
    sixth = 1 / 6
    torch.testing.assert_close(
        found.weights[0, 0, 9], torch.tensor([sixth, 0, 0, sixth, 0, 0, sixth, sixth, sixth, sixth])
    )
    torch.testing.assert_close(found.context[0, 9], torch.tensor([33 / 6]))


@pytest.mark.parametrize(
    ("preset", "overrides", "row", "keys"),
    [
        ("global_local", ["k=1"], 7, [0, 6, 7, 8]),
        ("bigbird", ["block_length=2", "k=0"], 7, [0, 1, 2, 3, 6, 7]),  # block 3 drew block 1
        ("bigbird", ["block_length=2", "k=0"], 4, [0, 1, 2, 3, 4, 5, 8, 9]),  # 2 drew 1, and 4 drew 2
        ("dilated", ["segments=[[2,1],[8,4]]"], 5, [0, 4, 5]),
        ("block_summary", [], 5, [3, 4, 5, 6, 7]),
    ],
)
def test_a_row_of_ten_equal_keys_by_hand(preset: str, overrides: list[str], row: int, keys: list[int]) -> None:
    options = [f"attention.pattern.{option}" for option in overrides]
    options += ["attention/score=dot", "attention.project_values=false"]
    attention = attention_of(preset, *options, query_dim=2, key_dim=2, value_dim=1)
    memory = attention.prepare(torch.ones(1, 10, 2), torch.arange(10.0)[None, :, None])
    found = attention(torch.randn(1, 10, 2), memory, need_weights=True)
    assert found.weights[0, 0, row].nonzero()[:, 0].tolist() == keys
    torch.testing.assert_close(found.weights[0, 0, row, keys], torch.full((len(keys),), 1 / len(keys)))
    torch.testing.assert_close(found.context[0, row], torch.tensor([sum(keys) / len(keys)]))


def test_top_blocks_by_hand() -> None:
    # Blocks of 2 with the mean keys 2, 1 and 4: a query of 1 sees the last block and the first.
    options = ("attention.pattern.block_length=2", "attention.pattern.num_blocks=2", "attention/score=dot")
    attention = attention_of(
        "top_blocks", *options, "attention.project_values=false", query_dim=1, key_dim=1, value_dim=1
    )
    keys = torch.tensor([[[1.0], [3.0], [0.0], [2.0], [4.0], [4.0]]])
    found = attention(torch.ones(1, 1, 1), attention.prepare(keys), need_weights=True).weights[0, 0, 0]
    parts = torch.tensor([1.0, 3.0, -math.inf, -math.inf, 4.0, 4.0]).exp()
    torch.testing.assert_close(found, parts / parts.sum())


def test_lsh_by_hand() -> None:
    # The directions of the four buckets are right, up, left and down: only the first and the last key are on the right.
    attention = attention_of(
        "lsh",
        "attention.pattern.num_buckets=4",
        "attention.pattern.num_rounds=1",
        "attention/score=dot",
        "attention.project_values=false",
        query_dim=2,
        key_dim=2,
        value_dim=2,
    )
    attention.pattern.rotations = torch.eye(2)[None]
    keys = torch.tensor([[[2.0, 1.0], [1.0, 2.0], [-3.0, 1.0], [2.0, -1.0]]])
    found = attention(torch.tensor([[[1.0, 0.5]]]), attention.prepare(keys), need_weights=True).weights[0, 0, 0]
    better = math.exp(2.5) / (math.exp(2.5) + math.exp(1.5))
    torch.testing.assert_close(found, torch.tensor([better, 0.0, 0.0, 1 - better]))


def test_additive_score_by_hand() -> None:
    score = attention_of("bahdanau", query_dim=1, key_dim=1, value_dim=1).score
    score.project_query.weight.data = torch.tensor([[2.0]])
    score.project_key.weight.data = torch.tensor([[-1.0]])
    score.vector.data = torch.tensor([[3.0]])
    query, keys = torch.tensor([[[1.0]]]), torch.tensor([[[2.0], [0.0]]])
    found = score(score.prepare_query(query), score.prepare_keys(keys), NOWHERE)
    torch.testing.assert_close(found, torch.tensor([[[[3 * math.tanh(0.0), 3 * math.tanh(2.0)]]]]))


def test_coverage_by_hand() -> None:
    # The first key got the weights 0.5 and 0.25, and its fertility is 2 sigmoid(0) = 1: a coverage of 0.75.
    score = attention_of("coverage", query_dim=1, key_dim=1, value_dim=1).score
    score.additive.project_query.weight.data = torch.tensor([[2.0]])
    score.additive.project_key.weight.data = torch.tensor([[-1.0]])
    score.additive.vector.data, score.from_coverage.data = torch.tensor([[3.0]]), torch.tensor([[-4.0]])
    query, keys = score.prepare_query(torch.tensor([[[1.0]]])), score.prepare_keys(torch.tensor([[[2.0], [0.0]]]))
    history = torch.zeros(1, 1, 1, 2)
    for weights in ([0.5, 0.5], [0.25, 0.0]):
        history = score.next_history(history, torch.tensor([[[weights]]]))
    expected = [3 * math.tanh(0.0 - 4 * 0.75), 3 * math.tanh(2.0 - 4 * 0.5)]
    torch.testing.assert_close(score(query, keys, NOWHERE, history), torch.tensor([[[expected]]]))


def test_location_sensitive_score_by_hand() -> None:
    # A filter of (1, 0, 0) reads the weight of the key before: the last step looked at key 0, so key 1 gets 5.
    options = ("attention.score.num_filters=1", "attention.score.kernel_size=3")
    score = attention_of("location_sensitive", *options, query_dim=1, key_dim=1, value_dim=1).score
    for weight in (score.additive.project_query.weight, score.additive.project_key.weight):
        weight.data = torch.zeros(1, 1)
    score.convolution.weight.data = torch.tensor([[[1.0, 0.0, 0.0]]])
    score.from_features.weight.data, score.from_features.bias.data = torch.tensor([[[5.0]]]), torch.tensor([[0.5]])
    score.additive.vector.data = torch.tensor([[3.0]])
    keys = score.prepare_keys(torch.ones(1, 3, 1))
    found = score(score.prepare_query(torch.ones(1, 1, 1)), keys, NOWHERE, torch.tensor([[[[0.8, 0.2, 0.0]]]]))
    expected = [3 * math.tanh(0.5 + 5 * before) for before in (0.0, 0.8, 0.2)]
    torch.testing.assert_close(found, torch.tensor([[[expected]]]))


def test_monotonic_weights_by_hand() -> None:
    # p = (1/2, 1/4, 3/4). The walk starts at key 0: 1/2, then 1/2 . 1/4, then 1/2 . 3/4 . 3/4. The next step starts
    # where this one stopped: q = (1/2, 1/2 . 1/2 + 1/8, 3/4 . 3/8 + 9/32).
    normalizer = attention_of("monotonic", "attention.normalizer.offset=0.0", query_dim=1, key_dim=1, value_dim=1)
    normalizer, scores = normalizer.normalizer.eval(), torch.tensor([[[[0.5, 0.25, 0.75]]]]).logit()
    first = normalizer(scores, None, normalizer.first_history(torch.zeros(1, 1, 1, 3))).weights
    torch.testing.assert_close(first, torch.tensor([[[[1 / 2, 1 / 8, 9 / 32]]]]))
    second = normalizer(scores, None, normalizer.next_history(first, first)).weights
    torch.testing.assert_close(second, torch.tensor([[[[1 / 4, 3 / 32, 27 / 64]]]]))
    # In a search, p is rounded: the first key above 1/2 is key 2, and there it stays.
    hard = normalizer(scores, None, first, in_search=True).weights
    assert (hard[..., :2] == 0).all()
    start = normalizer.first_history(torch.zeros(1, 1, 1, 3))
    assert normalizer(scores, None, start, in_search=True).weights.tolist() == [[[[0.0, 0.0, 1.0]]]]


def test_general_score_by_hand() -> None:
    score = attention_of("luong_general", query_dim=2, key_dim=2, value_dim=2).score
    score.project_key.weight.data = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    query, keys = torch.tensor([[[1.0, 10.0]]]), torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    assert score(score.prepare_query(query), score.prepare_keys(keys), NOWHERE).tolist() == [[[[31.0, 42.0]]]]


def test_scaled_dot_score_by_hand() -> None:
    score = attention_of("scaled_dot", query_dim=4, key_dim=4, value_dim=4).score
    score.project_query.weight.data = score.project_key.weight.data = torch.eye(4)
    query, keys = torch.tensor([[[1.0, 2, 3, 4]]]), torch.tensor([[[4.0, 4, 4, 4], [6.0, 6, 6, 6]]])
    assert score(score.prepare_query(query), score.prepare_keys(keys), NOWHERE).tolist() == [[[[20.0, 30.0]]]]


def weights_of_one_query(preset: str, keys: list[float], *overrides: str) -> torch.Tensor:
    """Weights of a query of 1 at position 0 for keys of one number, of a layer whose projections do nothing."""
    attention = attention_of(preset, *overrides, query_dim=1, key_dim=1, value_dim=1)
    attention.project_query.weight.data = attention.project_key.weight.data = torch.ones(1, 1)
    if preset == "performer":
        attention.feature_map.directions = torch.ones(1, 1)
    memory = attention.prepare(torch.tensor(keys)[None, :, None])
    return attention(torch.ones(1, 1, 1), memory, need_weights=True).weights[0, 0, 0]


def test_weights_of_feature_maps_by_hand() -> None:
    torch.testing.assert_close(weights_of_one_query("linear", [0.0, 1.0]), torch.tensor([1 / 3, 2 / 3]))
    performer = torch.tensor([1.0, math.exp(1 / 2)]) / (1 + math.exp(1 / 2))  # exp(k - k^2 / 2)
    assert performer.tolist() == pytest.approx([0.378, 0.622], abs=5e-4)
    torch.testing.assert_close(weights_of_one_query("performer", [0.0, 1.0]), performer)
    products = torch.tensor([1.0, math.sqrt(3) / 2, 1 / 2])  # cos(0), cos(pi / 6), cos(pi / 3)
    found = weights_of_one_query("cosformer", [1.0, 1.0, 1.0], "attention.feature_map.max_length=3")
    torch.testing.assert_close(found, products / products.sum())


def test_plain_scaled_dot_score_by_hand() -> None:
    attention = attention_of("plain_scaled_dot", query_dim=4, key_dim=4, value_dim=4)
    query, keys = torch.tensor([[[1.0, 2, 3, 4]]]), torch.tensor([[[4.0, 4, 4, 4], [6.0, 6, 6, 6]]])
    score = attention.score
    assert score(score.prepare_query(query), score.prepare_keys(keys), NOWHERE).tolist() == [[[[20.0, 30.0]]]]
    assert not list(attention.parameters())
    scaled = attention_of("plain_scaled_dot", "attention.qk_scale=1.0", query_dim=4, key_dim=4, value_dim=4).score
    assert scaled(scaled.prepare_query(query), scaled.prepare_keys(keys), NOWHERE).tolist() == [[[[40.0, 60.0]]]]


def test_cosine_score_by_hand() -> None:
    score = attention_of("cosine", "attention.num_heads=1", query_dim=2, key_dim=2, value_dim=2).score
    score.project_query.weight.data = score.project_key.weight.data = torch.eye(2)
    query, keys = torch.tensor([[[3.0, 4.0]]]), torch.tensor([[[300.0, 400.0], [-4.0, 3.0], [5.0, 0.0], [0.0, 0.0]]])
    found = score(score.prepare_query(query), score.prepare_keys(keys), NOWHERE)
    torch.testing.assert_close(found, torch.tensor([[[[10.0, 0.0, 6.0, 0.0]]]]))
    other = attention_of("cosine", "attention.score.initial_scale=4.0", query_dim=2, key_dim=2, value_dim=2).score
    assert other.scales.tolist() == [4.0]
    half = score.to(torch.float16)
    (short,) = half.split_keys(torch.full((1, 1, 2), 3e-4, dtype=torch.float16))  # whose square is 0 in float16
    torch.testing.assert_close(short.float(), torch.full((1, 1, 1, 2), 0.5**0.5), atol=1e-3, rtol=0)


def test_qk_norm_score_by_hand() -> None:
    score = attention_of("qk_norm", "attention.num_heads=1", query_dim=2, key_dim=2, value_dim=2).score
    score.project_query.weight.data = score.project_key.weight.data = torch.eye(2)
    score.query_gain.data, score.key_gain.data = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 1.0])
    query, keys = torch.tensor([[[3.0, 4.0]]]), torch.tensor([[[300.0, 400.0], [-4.0, 3.0], [5.0, 0.0], [0.0, 0.0]]])
    found = score(score.prepare_query(query), score.prepare_keys(keys), NOWHERE)
    # sqrt(2) [0.6, 1.6] . [1.8, 0.8], [-2.4, 0.6] and [3, 0], times sqrt(2) / sqrt(2)
    expected = torch.tensor([[[[2.36, -0.48, 1.8, 0.0]]]]) * 2**0.5
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)  # of an epsilon in the root
    half = score.to(torch.float16)
    (short,) = half.split_keys(torch.full((1, 1, 2), 2e-2, dtype=torch.float16))
    torch.testing.assert_close(short.float()[0, 0, 0], torch.tensor([3.0, 1.0], dtype=torch.float32), atol=1e-2, rtol=0)


def test_l2_score_by_hand() -> None:
    score = attention_of("l2", "attention.num_heads=1", query_dim=4, key_dim=4, value_dim=4).score
    score.project_query.weight.data = score.project_key.weight.data = torch.eye(4)
    query, keys = torch.tensor([[[1.0, 2, 3, 4]]]), torch.tensor([[[1.0, 2, 3, 4], [2.0, 3, 4, 5], [1.0, 2, 3, 10]]])
    found = score(score.prepare_query(query), score.prepare_keys(keys), NOWHERE)
    assert found.tolist() == [[[[0.0, -2.0, -18.0]]]]


def test_l2_score_keeps_the_digits_of_long_keys_in_half_precision() -> None:
    torch.manual_seed(0)
    score = attention_of("l2", "attention.num_heads=1", query_dim=64, key_dim=64, value_dim=64).score
    query, keys = (4 * torch.randn(1, n, 64).bfloat16().double() for n in (5, 9))
    exact = score.double().of_query(query[:, None]) @ score.of_keys(keys[:, None]).mT
    columns = [method(x[:, None].bfloat16()).double() for method, x in ((score.of_query, query), (score.of_keys, keys))]
    error = columns[0] @ columns[1].mT - exact
    assert (error - error.mean(-1, keepdim=True)).abs().max() < 0.02  # one column of |k|^2 would err by up to 0.5


def test_soft_cap_of_another_score_by_hand() -> None:
    overrides = ["attention/score=soft_cap", "attention/score@attention.score.score=dot", "attention.score.cap=30.0"]
    score = attention_of("luong_dot", *overrides, query_dim=2, key_dim=2, value_dim=2).score
    query, keys = torch.tensor([[[1.0, 10.0]]]), torch.tensor([[[0.0, 0.0], [0.0, 3.0], [0.0, -1000.0]]])
    found = score(score.prepare_query(query), score.prepare_keys(keys), NOWHERE)
    torch.testing.assert_close(found, torch.tensor([[[[0.0, 30 * math.tanh(1.0), -30.0]]]]))
    assert not score.inner_product


def test_a_soft_cap_has_the_facts_of_its_score() -> None:
    overrides = ["attention/score=soft_cap", "attention/score@attention.score.score=mixture_random_dense"]
    score = attention_of(
        "multihead", *overrides, "attention.score.score.scores.random.max_length=9", query_dim=6, key_dim=6, value_dim=6
    ).score
    assert (score.query_parts, score.key_parts, score.max_length, score.reads_query) == (1, 0, 9, True)
    assert not score.rotatable
    assert attention_of("soft_cap", query_dim=6, key_dim=6, value_dim=6).score.rotatable


def test_concat_equals_additive_with_its_matrix_split() -> None:
    hidden, sizes = "attention.score.hidden_dim=7", {"query_dim": 3, "key_dim": 5, "value_dim": 5}
    additive, concat = (attention_of(preset, hidden, **sizes) for preset in ("bahdanau", "luong_concat"))
    assert (additive.score.project_query.weight.shape, concat.score.project.weight.shape) == ((7, 3), (7, 8))
    concat.score.vector.data = additive.score.vector.data
    concat.score.project.weight.data = torch.cat(
        [additive.score.project_query.weight, additive.score.project_key.weight], 1
    )
    query, keys = torch.randn(2, 7, 3), torch.randn(2, 11, 5)
    ours, theirs = (a(query, a.prepare(keys)).context for a in (concat, additive))
    torch.testing.assert_close(ours, theirs)


def test_no_attention_is_the_mean_of_the_memory() -> None:
    attention = attention_of("none", query_dim=3, key_dim=5, value_dim=5)
    keys = torch.randn(2, 7, 5)
    mask = torch.arange(7) < torch.tensor([[7], [4]])
    found = attention(torch.randn(2, 3, 3), attention.prepare(keys, mask=mask)).context
    torch.testing.assert_close(found[1], keys[1, :4].mean(0).expand(3, -1))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_masked_softmax_hides_at_every_dtype(dtype: torch.dtype) -> None:
    scores = torch.tensor([[1.0, 2.0, 60000.0], [5.0, 5.0, 5.0]], dtype=dtype).requires_grad_()
    allowed = torch.tensor([[True, True, False], [False, False, False]])
    weights = masked_softmax(scores, allowed)
    assert weights.dtype == dtype
    assert weights[0, 2] == 0
    assert weights[1].tolist() == [0.0, 0.0, 0.0]
    torch.testing.assert_close(weights[0, 1].float(), torch.tensor(math.e / (1 + math.e)), atol=5e-3, rtol=0)
    weights.float().square().sum().backward()
    assert scores.grad.isfinite().all()


@pytest.mark.parametrize(
    ("preset", "query_dim", "value_dim", "heads"),
    [
        ("bahdanau", 128, 6, 2),
        ("bahdanau", 192, 128, 2),
        ("bahdanau", 192, 63, 3),
        ("bahdanau", 192, 65, 1),
        ("multihead", 192, 128, 3),
        ("multihead", 200, 7, 2),
        ("multihead", 320, 7, 5),
        ("multihead", 63, 7, 1),
        ("multihead", 193, 193, 1),
    ],
)
def test_heads_by_default_divide_what_is_cut_and_are_64_of_the_query_or_wider(
    preset: str, query_dim: int, value_dim: int, heads: int
) -> None:
    sizes = {"query_dim": query_dim, "key_dim": 7, "value_dim": value_dim}
    attention = attention_of(preset, "attention.num_heads=null", **sizes)
    assert attention.num_heads == heads


def test_values_that_are_projected_need_no_width_that_the_heads_divide() -> None:
    attention = attention_of("multihead", "attention.num_heads=3", query_dim=6, key_dim=5, value_dim=7)
    query, keys, values = (torch.randn(2, length, dim) for length, dim in ((3, 6), (4, 5), (4, 7)))
    found = attention(query, attention.prepare(keys, values), need_weights=True)
    assert (found.context.shape, found.weights.shape) == ((2, 3, 6), (2, 3, 3, 4))
    torch.testing.assert_close(attention(query, attention.prepare(keys, values)).context, found.context)


@pytest.mark.parametrize(
    ("preset", "overrides", "sizes", "sentence"),
    [
        ("luong_dot", [], (3, 5, 5), "dot score needs query_dim == key_dim, got 3 and 5; use attention/score=general"),
        (
            "bahdanau",
            ["attention.num_heads=2"],
            (4, 5, 5),
            "attention.num_heads=2 does not divide value_dim=5, in a model the width (dim) of its encoder or decoder; "
            "use a number of heads that does",
        ),
        (
            "bahdanau",
            ["attention.qk_scale=0.5"],
            (4, 5, 5),
            "AdditiveScore takes no attention.qk_scale=0.5; leave it null, or use attention/score=scaled_dot",
        ),
        (
            "plain_scaled_dot",
            [],
            (3, 5, 5),
            "plain_scaled_dot score needs query_dim == key_dim, got 3 and 5; use attention/score=scaled_dot",
        ),
        (
            "soft_cap",
            ["attention/score@attention.score.score=fixed"],
            (16, 16, 16),
            "soft_cap bounds scores, but FixedScore hides positions; use it alone",
        ),
        (
            "soft_cap",
            ["attention/score@attention.score.score=additive", "attention.qk_scale=0.5"],
            (4, 5, 5),
            "AdditiveScore takes no attention.qk_scale=0.5; leave it null, or use attention/score=scaled_dot",
        ),
        (
            "bahdanau",
            ["+attention.score.query_dim=9"],
            (4, 5, 5),
            "AdditiveScore gets query_dim from the module around it; remove 'query_dim' from its options",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_sentence(
    preset: str, overrides: list[str], sizes: tuple[int, int, int], sentence: str
) -> None:
    query_dim, key_dim, value_dim = sizes
    with pytest.raises(UserError) as refused:
        attention_of(preset, *overrides, query_dim=query_dim, key_dim=key_dim, value_dim=value_dim)
    assert str(refused.value) == sentence


def of_itself(score: str, position: str, *overrides: str) -> Attention:
    relative = built(composed(f"position={position}").position)(dim=6).relative
    chosen = [f"attention/score={score}", "attention.num_heads=1", *overrides]
    return attention_of("multihead", *chosen, query_dim=6, key_dim=6, value_dim=6, relative=relative).eval()


@pytest.mark.parametrize("position", ["alibi", "kerple"])
def test_a_distance_is_subtracted_from_scores_and_not_from_weights(position: str) -> None:
    of_itself("scaled_dot", position, "attention/normalizer=relu")
    with pytest.raises(UserError, match=rf"^position={position} subtracts a distance from a score, and IdentityNormal"):
        of_itself("scaled_dot", position, "attention/normalizer=identity")


@pytest.mark.parametrize("position", ["rotary", "relative"])
def test_a_relative_position_acts_on_a_capped_inner_product_and_not_on_a_distance(position: str) -> None:
    plain = of_itself("scaled_dot", position)
    capped = of_itself("soft_cap", position, "attention.score.cap=1000000.0")
    for ours, theirs in zip(capped.parameters(), plain.parameters(), strict=True):
        ours.data = theirs.data
    x = torch.randn(2, 7, 6)
    torch.testing.assert_close(capped.attend_self(x).context, plain.attend_self(x).context)
    with pytest.raises(UserError, match=rf"position={position} acts on an inner product of .*, which L2Score is not"):
        of_itself("l2", position)
