"""T5's bias: its buckets by hand and by the formula of the paper, its sums pair by pair, and its two directions."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from configs import attention_of, model_of

from seq2seq_attn.errors import UserError
from seq2seq_attn.position.t5 import BucketBias, T5Position, bucket_of

H = 3


def bias(*, causal: bool, num_buckets: int = 8, max_distance: int = 20) -> BucketBias:
    positions = T5Position(dim=11 * H, num_buckets=num_buckets, max_distance=max_distance)
    part = (positions.causal_relative if causal else positions.relative)(num_heads=H, head_dim=11)
    assert isinstance(part, BucketBias)
    return part


def bucket(key: int, query: int, num_buckets: int, max_distance: int, causal: bool) -> int:
    """The bucket of a pair as the code of the paper computes it, in float64."""
    behind, first = query - key, 0
    if not causal:
        num_buckets //= 2
        first = num_buckets if behind < 0 else 0
        behind = abs(behind)
    behind, exact = max(behind, 0), num_buckets // 2
    if behind < exact:
        return first + behind
    share = math.log(behind / exact) / math.log(max_distance / exact)
    return first + min(exact + int(share * (num_buckets - exact) + 1e-10), num_buckets - 1)


def test_the_sixteen_buckets_of_a_direction_begin_at_these_distances() -> None:
    # Powers of the root of 2 times 8: 11.3, 16, 22.6, 32, 45.3, 64, 90.5 and 128, which has no bucket any more.
    begins = [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91]
    for number, begin in enumerate(torch.tensor(begins)):
        assert bucket_of(begin, 16, 128) == number
        assert begin == 0 or bucket_of(begin - 1, 16, 128) == number - 1
    assert bucket_of(torch.tensor(128), 16, 128) == 15


def test_the_thirty_two_buckets_of_a_decoder_begin_at_these_distances() -> None:
    # Powers of the sixteenth root of 8 times 16: 18.2, 20.8, 23.6, 26.9, 30.6, 34.9, 39.7, 45.3, 51.5, 58.7, ...
    begins = [*range(17), 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113]
    assert len(begins) == 32
    for number, begin in enumerate(torch.tensor(begins)):
        assert bucket_of(begin, 32, 128) == number
        assert begin == 0 or bucket_of(begin - 1, 32, 128) == number - 1


@pytest.mark.parametrize("sizes", [(4, 3), (10, 128), (32, 128), (64, 1000), (1024, 9973)])
def test_every_distance_has_the_bucket_of_the_formula(sizes: tuple[int, int]) -> None:
    part = bias(causal=True, num_buckets=sizes[0], max_distance=sizes[1])
    assert part.buckets.tolist() == [bucket(0, distance, *sizes, causal=True) for distance in range(sizes[1] + 1)]


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("sizes", [(4, 3), (8, 20), (10, 128), (32, 128), (32, 17)])
@pytest.mark.parametrize("causal", [False, True])
def test_it_equals_the_formula_pair_by_pair_values_and_gradients(causal: bool, sizes: tuple[int, int]) -> None:
    part = bias(causal=causal, num_buckets=sizes[0], max_distance=sizes[1])
    query_position, key_position = torch.tensor([0, 3, 1009, 40, 4]), torch.tensor([0, 1, 2, 5, 19, 50, 300])
    pairs = [[(key, query) for key in key_position.tolist()] for query in query_position.tolist()]
    rows = torch.tensor([[bucket(*pair, *sizes, causal) for pair in row] for row in pairs])
    expected = part.table[rows].permute(2, 0, 1)[None]  # the heads first
    found = part.bias(None, query_position, key_position)
    assert found.shape == (1, H, 5, 7)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    upstream = torch.randn_like(found)
    ours, theirs = (torch.autograd.grad((x * upstream).sum(), part.table)[0] for x in (found, expected))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_a_bias_by_hand() -> None:
    # Eight buckets: of the past 0, 1, 2 to 6 and 7 or more; of the future the same from the fourth on.
    part = bias(causal=False)
    part.table.data = torch.arange(8.0)[:, None] * torch.tensor([1.0, 10.0, 100.0])
    found = part.bias(None, torch.tensor([8]), torch.tensor([0, 1, 2, 6, 7, 8, 9, 10, 14, 15, 99]))
    buckets = [3.0, 3.0, 2.0, 2.0, 1.0, 0.0, 5.0, 6.0, 6.0, 7.0, 7.0]
    assert found.tolist() == [[[[number * head for number in buckets]] for head in (1.0, 10.0, 100.0)]]


def test_the_encoder_sees_both_directions_and_a_decoder_its_past() -> None:
    model = model_of("model=transformer", "position=t5")
    encoder, decoder = model.encoder.layers, model.decoder.layers
    assert {layer.attention.relative.causal for layer in encoder} == {False}
    assert {layer.self_attention.relative.causal for layer in decoder} == {True}
    assert {layer.cross_attention.relative for layer in decoder} == {None}
    tables = [layer.attention.relative.table for layer in encoder]
    tables += [layer.self_attention.relative.table for layer in decoder]
    assert len({id(table) for table in tables}) == len(encoder) + len(decoder)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("preset", ["multihead", "bahdanau", "local"])
def test_it_is_added_to_any_score(preset: str, causal: bool) -> None:
    part, sizes = bias(causal=causal), {"query_dim": 6 * H, "key_dim": 6 * H, "value_dim": 6 * H}

    def relative(**_: Any) -> BucketBias:
        return part

    attention = attention_of(preset, f"attention.num_heads={H}", **sizes, relative=relative).eval()
    plain = attention_of(preset, f"attention.num_heads={H}", **sizes, relative=lambda **_: None).eval()
    plain.load_state_dict(attention.state_dict(), strict=False)
    x, position = torch.randn(2, 29, 6 * H), torch.arange(29)
    found, without = (a.attend_self(x, causal=causal, need_weights=True).weights for a in (attention, plain))
    expected = without * part.bias(None, position, position).exp()
    expected = expected / expected.sum(-1, keepdim=True)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_buckets_that_do_not_fit_are_refused() -> None:
    for number in (2, 7):
        sentence = rf"^position\.num_buckets={number} must be even and at least 4; use 32$"
        with pytest.raises(UserError, match=sentence):
            T5Position(dim=6, num_buckets=number, max_distance=128)
    sentence = (
        r"^position\.max_distance=16 must be above half of position\.num_buckets=32, the distances that have a bucket "
        r"of their own; use 128 and 32$"
    )
    with pytest.raises(UserError, match=sentence):
        T5Position(dim=6, num_buckets=32, max_distance=16)
    with pytest.raises(UserError, match=r"^position\.max_distance=1000001 must be at most 1000000; use 128$"):
        T5Position(dim=6, num_buckets=32, max_distance=10**6 + 1)
