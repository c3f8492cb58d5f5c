"""Buckets of source length partition the sentences."""

from __future__ import annotations

from seq2seq_attn.metric.bleu import BLEU
from seq2seq_attn.metric.by_length import score_by_length

RIGHT, WRONG = "Le chat dort sur le tapis.", "Il pleut."


def test_bounds_belong_to_their_bucket_and_empty_ones_are_left_out() -> None:
    lengths = [0, 1, 5, 6, 10, 11, 20, 21, 30, 31, 50, 51, 97]
    sources = [" ".join(["word"] * length) for length in lengths]
    found = score_by_length(BLEU(lowercase=False, tokenize="13a"), sources, [RIGHT] * 13, [[RIGHT]] * 13)
    counts = {bucket.words: bucket.sentences for bucket in found}
    assert counts == {"1-5": 3, "6-10": 2, "11-20": 2, "21-30": 2, "31-50": 2, "51+": 2}
    assert len(score_by_length(BLEU(lowercase=False, tokenize="13a"), ["a"], [RIGHT], [[RIGHT]])) == 1


def test_words_of_a_script_without_blanks_are_counted_by_its_characters() -> None:
    found = score_by_length(
        BLEU(lowercase=False, tokenize="13a"),
        ["我喜欢猫。", "他在海边读书,她跑得很快,我们在家里吃饭。"],
        [RIGHT] * 2,
        [[RIGHT]] * 2,
    )
    assert [(bucket.words, bucket.sentences) for bucket in found] == [("1-5", 1), ("11-20", 1)]


def test_a_bucket_is_scored_by_its_own_sentences_and_all_their_references() -> None:
    metric = BLEU(lowercase=False, tokenize="13a")
    metric.update([WRONG], [[RIGHT]])  # what it has seen before does not count
    found = score_by_length(
        metric, ["a b", "a b c d e f", "a b c"], [RIGHT, WRONG, RIGHT], [[RIGHT], [RIGHT], [WRONG, RIGHT]]
    )
    assert [round(bucket.score) for bucket in found] == [100, 0]
    assert metric.counts[0] == 1
