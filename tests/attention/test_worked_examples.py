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


def test_additive_score_by_hand() -> None:
    score = attention_of("bahdanau", query_dim=1, key_dim=1, value_dim=1).score
    score.project_query.weight.data = torch.tensor([[2.0]])
    score.project_key.weight.data = torch.tensor([[-1.0]])
    score.vector.data = torch.tensor([[3.0]])
    query, keys = torch.tensor([[[1.0]]]), torch.tensor([[[2.0], [0.0]]])
    found = score(score.prepare_query(query), score.prepare_keys(keys), NOWHERE)
    torch.testing.assert_close(found, torch.tensor([[[[3 * math.tanh(0.0), 3 * math.tanh(2.0)]]]]))


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
    half = score.to(torch.float16)
    (short,) = half.split_keys(torch.full((1, 1, 2), 3e-4, dtype=torch.float16))  # whose square is 0 in float16
    torch.testing.assert_close(short.float(), torch.full((1, 1, 1, 2), 0.5**0.5), atol=1e-3, rtol=0)


def test_l2_score_by_hand() -> None:
    score = attention_of("l2", "attention.num_heads=1", query_dim=4, key_dim=4, value_dim=4).score
    score.project_query.weight.data = score.project_key.weight.data = torch.eye(4)
    query, keys = torch.tensor([[[1.0, 2, 3, 4]]]), torch.tensor([[[1.0, 2, 3, 4], [2.0, 3, 4, 5], [1.0, 2, 3, 10]]])
    found = score(score.prepare_query(query), score.prepare_keys(keys), NOWHERE)
    assert found.tolist() == [[[[0.0, -2.0, -18.0]]]]


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
    additive = attention_of("bahdanau", query_dim=3, key_dim=5, value_dim=5)
    concat = attention_of("luong_concat", query_dim=3, key_dim=5, value_dim=5)
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
            "attention.num_heads=2 does not divide value_dim=5; use a number of heads that does",
        ),
        (
            "bahdanau",
            ["attention.qk_scale=0.5"],
            (4, 5, 5),
            "AdditiveScore takes no attention.qk_scale=0.5; use attention/score=scaled_dot",
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
            "AdditiveScore takes no attention.qk_scale=0.5; leave it null",
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
