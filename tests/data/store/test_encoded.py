"""Encoded shards and the batches of an epoch over several of them."""

from __future__ import annotations

import errno
import resource
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from seq2seq_attn.data import encoded
from seq2seq_attn.data.batch_sampler import Lengths, TokenBatchSampler
from seq2seq_attn.data.collate import collate
from seq2seq_attn.data.corpus import Split
from seq2seq_attn.data.encoded import EncodedSplit, encode_split, save_array
from seq2seq_attn.errors import UserError
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer

SHARDS = (40, 33, 50)
SOURCES = ["the red cat sees " + "very " * (i % 7) + f"old dog {i}." for i in range(sum(SHARDS))]
TARGETS = ["le chat rouge voit " + "très " * (i % 4) + f"vieux chien {i}." for i in range(sum(SHARDS))]


@pytest.fixture(scope="module")
def tokenizer() -> SentencePieceTokenizer:
    trained = SentencePieceTokenizer("unigram", 50, True, 0.0, None)
    trained.train(SOURCES, TARGETS)
    return trained


def split(shards: tuple[int, ...] | None = SHARDS) -> Split:
    return Split(SOURCES, TARGETS, [[target] for target in TARGETS], shards)


def arrays(folder: Path) -> dict[str, list[int]]:
    return {file.name: np.load(file).tolist() for file in sorted(folder.glob("*.npy"))}


def test_ids_are_those_of_the_tokenizer_in_16_bits(tokenizer: SentencePieceTokenizer, tmp_path: Path) -> None:
    found = encode_split(split(), tokenizer, tmp_path)
    assert found.num_rows == len(SOURCES)
    assert found.shard(1).source_ids.dtype == np.uint16
    expected = tokenizer.encode_source(SOURCES), tokenizer.encode_target(TARGETS)
    longest = tuple(max(map(len, side)) + 1 for side in expected)
    assert found.longest == longest
    specials = {"pad_id": tokenizer.pad_id, "bos_id": tokenizer.bos_id, "eos_id": tokenizer.eos_id}
    for rows in ([0, 39, 7], [40, 72], [73, 122, 100]):
        batch = collate(found, rows, **specials)
        assert batch.index.tolist() == rows
        for row, ids, length in zip(rows, batch.source.tolist(), batch.source_lengths.tolist(), strict=True):
            assert ids[: length - 1] == expected[0][row]
        for row, ids, length in zip(rows, batch.target_output.tolist(), batch.target_lengths.tolist(), strict=True):
            assert ids[: length - 1] == expected[1][row]


def test_two_processes_write_what_one_writes(
    tokenizer: SentencePieceTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoded, "RANGE", 16)
    encode_split(split(), tokenizer, tmp_path / "one")
    monkeypatch.setattr(encoded, "LONG", 1)
    monkeypatch.setattr(encoded, "num_cores", lambda: 2)
    encode_split(split(), tokenizer, tmp_path / "two")
    assert arrays(tmp_path / "one") == arrays(tmp_path / "two")


def test_only_missing_and_damaged_shards_are_encoded_again(
    tokenizer: SentencePieceTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode_split(split(), tokenizer, tmp_path)
    whole = arrays(tmp_path)
    (tmp_path / "00001.json").unlink()
    (tmp_path / "00002.target_ids.npy").write_bytes(b"cut")
    written: list[int] = []
    write = encoded.write_shard

    def noted(folder: Path, number: int, content: Any) -> None:
        written.append(number)
        write(folder, number, content)

    monkeypatch.setattr(encoded, "write_shard", noted)
    encode_split(split(), tokenizer, tmp_path)
    assert written == [1, 2]
    assert arrays(tmp_path) == whole


def test_a_disk_that_fills_up_is_named_as_that(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))  # as if there were no room for more
    try:
        with pytest.raises(OSError, match="File too large") as full:  # of numpy: "N requested and M written"
            save_array(tmp_path / "ids.npy", np.arange(100_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert full.value.errno == errno.EFBIG
    assert list(tmp_path.iterdir()) == []


def test_arrays_are_saved_as_numpy_does(tmp_path: Path) -> None:
    for array in (np.arange(7), np.zeros((0, 2), np.uint16), np.arange(100_000).reshape(-1, 2)):
        save_array(tmp_path / "a.npy", array)
        np.save(tmp_path / "b.npy", array)
        assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()


def test_a_shard_that_vanishes_from_a_running_training_is_a_sentence(
    tokenizer: SentencePieceTokenizer, tmp_path: Path
) -> None:
    found = encode_split(split(), tokenizer, tmp_path)
    found.shard(0)  # beartype has opened a random one
    (tmp_path / "00001.source_ids.npy").unlink()
    with pytest.raises(UserError, match=r"shard 1 of the encoded data in .* is missing or damaged"):
        found.shard(1)


def sampler(found: EncodedSplit, **settings: Any) -> TokenBatchSampler:
    return TokenBatchSampler(
        found, **{"starts": found.starts, "batch_tokens": 150, "shuffle": True, "seed": 3, **settings}
    )


@pytest.mark.parametrize("num_replicas", [1, 3])
def test_an_epoch_reads_every_pair_once_shard_by_shard(
    tokenizer: SentencePieceTokenizer, tmp_path: Path, num_replicas: int
) -> None:
    found = encode_split(split(), tokenizer, tmp_path)
    orders = []
    for epoch in (0, 1, 2):
        ranks = []
        for rank in range(num_replicas):
            one = sampler(found, rank=rank, num_replicas=num_replicas)
            one.set_epoch(epoch)
            ranks.append(list(one))
            assert len(ranks[-1]) == len(one)
        assert sorted(chain.from_iterable(chain.from_iterable(ranks))) == list(range(len(SOURCES)))
        visits = [np.searchsorted(found.starts, batch, "right").tolist() for batch in ranks[0]]
        assert all(len(set(visit)) == 1 for visit in visits)
        shards = [visit[0] for visit in visits]
        assert [a for a, b in zip([0, *shards], shards, strict=False) if a != b] == list(dict.fromkeys([0, *shards]))[
            :-1
        ]
        orders.append(ranks[0])
    assert orders[0] != orders[1] != orders[2]


@pytest.mark.parametrize("read", [1, 4, 9, 14])
def test_an_epoch_goes_on_within_any_shard(tokenizer: SentencePieceTokenizer, tmp_path: Path, read: int) -> None:
    found = encode_split(split(), tokenizer, tmp_path)
    whole, resumed = (sampler(found, rank=1, num_replicas=2) for _ in range(2))
    whole.set_epoch(5)
    resumed.start_at(5, read)
    assert list(resumed) == list(whole)[read:]
    resumed.set_epoch(6)
    whole.set_epoch(6)
    assert list(resumed) == list(whole)


def test_cuts_are_kept_and_used_again(
    tokenizer: SentencePieceTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = encode_split(split(), tokenizer, tmp_path)
    first = sampler(found, cache=tmp_path)
    (file,) = tmp_path.glob("batches-*.npz")
    monkeypatch.setattr(TokenBatchSampler, "_plan", lambda self: pytest.fail("planned again"))
    again = sampler(found, cache=tmp_path)
    assert list(again) == list(first)
    assert (again.padding_share, again.largest()) == (first.padding_share, first.largest())
    monkeypatch.undo()
    file.write_bytes(b"damaged")
    assert list(sampler(found, cache=tmp_path)) == list(first)


def test_cuts_are_kept_for_each_limit_and_number_of_devices(tokenizer: SentencePieceTokenizer, tmp_path: Path) -> None:
    found = encode_split(split(), tokenizer, tmp_path)
    limits = [
        {"num_replicas": 1},
        {"num_replicas": 2},
        {"num_replicas": 3},
        {"batch_sentences": 5},
        {"batch_tokens": 90},
    ]
    for limit in limits:
        assert list(sampler(found, cache=tmp_path, **limit)) == list(sampler(found, **limit))
    assert len(list(tmp_path.glob("batches-*.npz"))) == len(limits)


def test_a_complete_encoding_is_read_where_nothing_can_be_written(
    tokenizer: SentencePieceTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode_split(split(), tokenizer, tmp_path)
    monkeypatch.setattr(encoded, "locked", None)
    found = encode_split(split(), tokenizer, tmp_path)

    def refused(file: Path) -> NoReturn:
        raise UserError(f"the folder {file.parent} cannot be written")

    monkeypatch.setattr("seq2seq_attn.data.batch_sampler.replacing", refused)
    assert list(sampler(found, cache=tmp_path)) == list(sampler(found))


def test_evaluation_reads_all_shards_in_order(tokenizer: SentencePieceTokenizer, tmp_path: Path) -> None:
    found = encode_split(split(), tokenizer, tmp_path)
    alone = list(sampler(found, shuffle=False, single_device_batches=True))
    for devices in (2, 3):
        shares = [
            list(sampler(found, shuffle=False, single_device_batches=True, rank=rank, num_replicas=devices))
            for rank in range(devices)
        ]
        assert [batch for batches in zip(*shares, strict=True) for batch in batches if batch] == alone


def test_chosen_rows_may_be_in_any_shard() -> None:
    shards = [Lengths(np.full(n, 5), np.full(n, 6)) for n in SHARDS]
    rows = np.array([3, 39, 40, 100, 122])
    one = TokenBatchSampler(shards, rows=rows, batch_tokens=30, shuffle=False, seed=0)
    assert sorted(chain.from_iterable(one)) == rows.tolist()
