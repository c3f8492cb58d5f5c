"""Properties that the batches have for any lengths."""

import errno
import re

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from seq2seq_attn.data.batch_sampler import Lengths, TokenBatchSampler
from seq2seq_attn.errors import UserError

lengths = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=5, max_size=80)


def make(pairs, **settings):
    source, target = np.array(pairs).T
    try:
        return TokenBatchSampler(
            [Lengths(source, target)], **{"batch_tokens": 200, "shuffle": True, "seed": 3, **settings}
        )
    except UserError as error:
        assume("batches of one pair each cannot be shared equally" not in str(error))
        raise


def epoch(sampler, number):
    sampler.set_epoch(number)
    return list(sampler)


@settings(deadline=None, max_examples=60)
@given(pairs=lengths, batch_tokens=st.integers(60, 400), num_replicas=st.integers(1, 5), shuffle=st.booleans())
def test_every_pair_once_within_the_budget_and_as_many_batches_on_every_device(
    pairs, batch_tokens, num_replicas, shuffle
):
    samplers = [
        make(pairs, batch_tokens=batch_tokens, rank=rank, num_replicas=num_replicas, shuffle=shuffle)
        for rank in range(num_replicas)
    ]
    for number in (0, 1):
        shares = [epoch(sampler, number) for sampler in samplers]
        assert {len(share) for share in shares} == {len(samplers[0])}
        batches = [batch for share in shares for batch in share]
        assert sorted(row for batch in batches for row in batch) == list(range(len(pairs)))
        for batch in batches:
            longest = max(pairs[i][0] for i in batch) + max(pairs[i][1] for i in batch) + 2
            assert len(batch) == 1 or len(batch) * longest <= batch_tokens


@settings(deadline=None, max_examples=30)
@given(pairs=lengths)
def test_batches_are_a_pure_function_of_seed_and_epoch(pairs):
    assert epoch(make(pairs), 4) == epoch(make(pairs), 4)
    sampler = make(pairs)
    first = epoch(sampler, 0)
    epoch(sampler, 1)
    assert epoch(sampler, 0) == first


def test_epochs_and_seeds_differ_in_order_and_membership():
    pairs = [(5, 7)] * 97
    orders = [epoch(make(pairs, seed=seed), number) for seed, number in [(3, 0), (3, 1), (4, 0)]]
    members = [{frozenset(batch) for batch in order} for order in orders]
    assert members[0] != members[1] != members[2] != members[0]
    assert [len(order) for order in orders] == [len(orders[0])] * 3


def test_shards_come_in_an_order_of_the_epoch_and_the_seed_and_each_has_an_order_of_its_own():
    def orders(seed, number):
        shards = [Lengths(np.full(12, 5), np.full(12, 7))] * 6
        sampler = TokenBatchSampler(shards, batch_sentences=4, shuffle=True, seed=seed)
        batches = epoch(sampler, number)
        assert all(len({row // 12 for row in batch}) == 1 for batch in batches)
        shard_of = [batch[0] // 12 for batch in batches]
        assert shard_of[::3] == shard_of[1::3] == shard_of[2::3]  # one after another
        rows = {
            shard: [row % 12 for batch in batches if batch[0] // 12 == shard for row in batch] for shard in range(6)
        }
        return shard_of[::3], rows

    (first, rows), (second, later), (other, _) = orders(3, 0), orders(3, 1), orders(4, 0)
    assert sorted(first) == list(range(6))
    assert first != second != other != first
    assert rows[0] != later[0]
    assert len({tuple(one) for one in rows.values()}) == 6


def test_without_shuffling_every_epoch_is_sorted_by_length_and_the_same():
    random = np.random.default_rng(0)
    pairs = random.integers(1, 30, (67, 2)).tolist()
    sampler = make(pairs, shuffle=False)
    assert epoch(sampler, 0) == epoch(sampler, 5)
    eighths = [(pairs[row][0] + 1) // 8 for batch in sampler for row in batch]  # a bucket is 1, 2, 4 or 8 wide
    assert eighths == sorted(eighths)
    assert set(eighths) == {0, 1, 2, 3}


def test_padding_is_under_a_tenth_on_lengths_like_tatoebas():
    random = np.random.default_rng(1)
    source = random.poisson(7, 20_000) + 2
    target = np.maximum(1, np.round(source * random.lognormal(0.15, 0.25, 20_000))).astype(np.int64)
    sampler = TokenBatchSampler([Lengths(source, target)], batch_tokens=4096, shuffle=True, seed=1)
    padded = real = 0
    for batch in sampler:
        padded += len(batch) * (source[batch].max() + target[batch].max() + 2)
        real += (source[batch] + target[batch] + 2).sum()
    assert sampler.padding_share == pytest.approx(1 - real / padded)
    assert sampler.padding_share < 0.05


@pytest.mark.parametrize(("num_pairs", "best"), [(300, 8), (20_000, 1)])
def test_buckets_are_as_wide_as_pads_least(num_pairs, best, monkeypatch):
    pairs = np.random.default_rng(2).integers(5, 30, (num_pairs, 2))
    shares = {}
    for width in (1, 8):
        with monkeypatch.context() as patch:
            patch.setattr("seq2seq_attn.data.batch_sampler.BUCKET_WIDTHS", (width,))
            shares[width] = make(pairs, batch_tokens=1000).padding_share
    assert min(shares, key=shares.get) == best
    assert make(pairs, batch_tokens=1000).padding_share <= shares[best]


def test_a_pair_longer_than_the_budget_stands_alone():
    assert sorted(map(len, epoch(make([(3, 3), (500, 2), (3, 3), (2, 3), (3, 2)]), 0))) == [1, 4]


def test_a_batch_may_reach_its_budget() -> None:
    sampler = make([(3, 3)] * 25, batch_tokens=80, shuffle=False)  # with begin and end tokens, 8 a pair
    assert [len(batch) for batch in sampler] == [10, 10, 5]


def test_lightning_reaches_set_epoch_through_the_sampler():
    sampler = make([(3, 3)] * 5)
    sampler.sampler.set_epoch(7)
    assert sampler.epoch == 7


def test_batches_can_be_limited_in_sentences():
    sampler = make([(3, 3)] * 23, batch_tokens=None, batch_sentences=5, shuffle=False)
    assert [len(batch) for batch in sampler] == [5, 5, 5, 5, 3]


def test_fewer_pairs_than_devices_are_refused():
    sentence = "3 sentence pairs cannot be shared by 5 devices; use trainer.devices=1"
    with pytest.raises(UserError, match=f"^{re.escape(sentence)}$"):
        TokenBatchSampler(
            [Lengths(np.ones(3, int), np.ones(3, int))], batch_tokens=9, shuffle=True, seed=1, num_replicas=5
        )


def test_single_pairs_that_devices_cannot_share_equally_are_refused():
    sentence = (
        "7 batches of one pair each cannot be shared equally by 5 devices; use a larger batch_tokens or "
        "trainer.devices=1"
    )
    with pytest.raises(UserError, match=f"^{re.escape(sentence)}$"):
        TokenBatchSampler(
            [Lengths(np.ones(7, int), np.ones(7, int))], batch_tokens=2, shuffle=True, seed=1, num_replicas=5
        )


@pytest.mark.parametrize(("name", "way_out"), [("batch_tokens", 4096), ("batch_sentences", 64)])
def test_a_limit_below_one_is_refused(name, way_out):
    with pytest.raises(UserError, match=f"^{name}=0 must be at least 1; use {name}={way_out}$"):
        TokenBatchSampler([Lengths(np.ones(3, int), np.ones(3, int))], shuffle=True, seed=1, **{name: 0})


@settings(deadline=None, max_examples=30)
@given(pairs=lengths, num_replicas=st.integers(1, 3), shuffle=st.booleans(), read=st.integers(0, 7))
def test_a_run_that_goes_on_gets_the_rest_of_its_epoch_and_later_epochs_whole(pairs, num_replicas, shuffle, read):
    for rank in range(num_replicas):
        whole, resumed = (make(pairs, rank=rank, num_replicas=num_replicas, shuffle=shuffle) for _ in range(2))
        resumed.start_at(4, read)
        assert resumed.epoch == 4
        assert list(resumed) == epoch(whole, 4)[read:]
        assert len(resumed) == len(whole)
        assert epoch(resumed, 5) == epoch(whole, 5)


def test_a_plan_that_cannot_be_kept_is_used_all_the_same(tmp_path, monkeypatch):
    def full(stream, **arrays):
        stream.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    assert epoch(make([(3, 4)] * 7, cache=tmp_path), 0) == epoch(make([(3, 4)] * 7), 0)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("num_replicas", [1, 2, 3])
def test_a_share_of_the_rows_is_read_once_in_the_batches_of_one_device(num_replicas):
    lengths = np.random.default_rng(0).integers(1, 30, (2, 41))
    rows = np.arange(13) * 41 // 13

    def batches(rank, devices):
        return list(
            TokenBatchSampler(
                [Lengths(*lengths)],
                batch_tokens=150,
                shuffle=False,
                seed=1,
                rank=rank,
                num_replicas=devices,
                single_device_batches=True,
                rows=rows,
            )
        )

    alone = batches(0, 1)
    assert len(alone) > 3
    assert sorted(row for batch in alone for row in batch) == rows.tolist()
    shares = [batches(rank, num_replicas) for rank in range(num_replicas)]
    assert sorted(batch for share in shares for batch in share if batch) == sorted(alone)


@pytest.mark.parametrize("num_replicas", [2, 3])
def test_the_batches_of_one_device_are_shared_over_the_ends_of_shards(num_replicas):
    shards = [Lengths(*np.random.default_rng(n).integers(1, 30, (2, 17))) for n in range(3)]
    for batch_tokens in range(80, 400, 40):  # so that a shard has even and odd numbers of batches
        options = {"batch_tokens": batch_tokens, "shuffle": False, "seed": 1, "single_device_batches": True}
        samplers = [
            TokenBatchSampler(shards, rank=rank, num_replicas=num_replicas, **options) for rank in range(num_replicas)
        ]
        assert len({len(list(sampler)) for sampler in samplers}) == 1
        rows = sorted(row for sampler in samplers for batch in sampler for row in batch)
        assert rows == list(range(51))


def test_training_and_evaluation_have_cuts_of_their_own_in_the_cache(tmp_path):
    lengths = Lengths(*np.random.default_rng(0).integers(1, 30, (2, 41)))
    options = {"batch_tokens": 150, "shuffle": False, "seed": 1, "num_replicas": 3}
    for single in (False, True, False):
        kept = TokenBatchSampler([lengths], single_device_batches=single, cache=tmp_path, **options)
        assert list(kept) == list(TokenBatchSampler([lengths], single_device_batches=single, **options))
    assert len(list(tmp_path.iterdir())) == 2


def test_the_order_that_spreads_all_lengths_is_the_same_for_every_seed_and_epoch():
    pairs = [(n, n) for n in range(1, 61)]
    spread = [epoch(make(pairs, shuffle=False, spread=True, seed=seed), number) for seed, number in ((3, 0), (4, 1))]
    by_length = epoch(make(pairs, shuffle=False), 0)
    assert spread[0] == spread[1] != by_length
    assert sorted(spread[0]) == sorted(by_length)


def test_short_and_long_batches_come_in_an_order_of_their_own_in_every_epoch():
    sampler = make([(n, n) for n in range(1, 61)])
    longest = [[max(batch) for batch in epoch(sampler, number)] for number in (0, 1, 2)]
    assert len(longest[0]) > 5
    assert all(order != sorted(order) for order in longest)
    assert longest[0] != longest[1]
