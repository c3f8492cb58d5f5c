"""Batches with their expected tensors written out."""

import numpy as np

from seq2seq_attn.data.collate import collate, collate_pairs, collate_sources
from seq2seq_attn.data.encoded import open_encoded, write_shard

SPECIALS = {"pad_id": 0, "bos_id": 2, "eos_id": 3}
SOURCES, TARGETS = [[11, 12, 13], [], [14]], [[21], [22, 23], []]


def encoded(folder, sources, targets):
    def fences(rows):
        return np.cumsum([0, *map(len, rows)], dtype=np.int64)

    def flat(rows):
        return np.array([i for row in rows for i in row], np.int32)

    arrays = {"source_ids": flat(sources), "target_ids": flat(targets)}
    write_shard(folder, 0, arrays | {"source_offsets": fences(sources), "target_offsets": fences(targets)})
    return open_encoded(folder)


def check(batch):
    assert batch.source.tolist() == [[14, 3, 0, 0], [11, 12, 13, 3]]
    assert batch.source_lengths.tolist() == [2, 4]
    assert batch.source_mask.tolist() == [[True, True, False, False], [True] * 4]
    assert batch.target_input.tolist() == [[2, 0], [2, 21]]
    assert batch.target_output.tolist() == [[3, 0], [21, 3]]
    assert batch.target_lengths.tolist() == [1, 2]
    assert batch.target_mask.tolist() == [[True, False], [True, True]]
    assert batch.index.tolist() == [2, 0]


def test_rows_of_an_encoded_split_make_a_batch(tmp_path):
    check(collate(encoded(tmp_path, SOURCES, TARGETS), [2, 0], **SPECIALS))


def test_lists_of_ids_make_the_same_batch():
    check(collate_pairs([[14], [11, 12, 13]], [[], [21]], [2, 0], **SPECIALS))


def test_no_rows_make_an_empty_batch(tmp_path):
    for batch in (collate_pairs([], [], [], **SPECIALS), collate(encoded(tmp_path, SOURCES, TARGETS), [], **SPECIALS)):
        assert (len(batch), len(batch.source), len(batch.target_mask)) == (0, 0, 0)


def test_a_sentence_without_tokens_is_its_end_token(tmp_path):
    batch = collate(encoded(tmp_path, [[], []], [[], []]), [0, 1], **SPECIALS)
    assert batch.source.tolist() == batch.target_output.tolist() == [[3], [3]]
    assert batch.target_input.tolist() == [[2], [2]]


def test_sources_to_translate_are_closed_and_masked():
    source, lengths, mask = collate_sources([[7, 8], [], [9]], pad_id=0, eos_id=3)
    assert source.tolist() == [[7, 8, 3], [3, 0, 0], [9, 3, 0]]
    assert lengths.tolist() == [3, 1, 2]
    assert mask.sum(1).tolist() == [3, 1, 2]
