"""seq-rep-n by hand."""

from __future__ import annotations

from seq2seq_attn.metric.repetition import repetition


def test_a_run_of_four_words_that_comes_again_counts_once_each_time() -> None:
    assert repetition(["a b c d a b c d"]) == 1 / 5  # abcd bcda cdab dabc abcd
    assert repetition(["no no no no no no"]) == 2 / 3


def test_runs_are_summed_over_the_corpus_and_short_sentences_have_none() -> None:
    assert repetition(["a b c d a b c d", "x y z", "", "a b c d"]) == 1 / 6
    assert repetition(["x y z", ""]) == 0.0
    assert repetition([]) == 0.0


def test_another_sentence_may_say_the_same() -> None:
    assert repetition(["a b c d e"] * 7) == 0.0


def test_the_length_of_a_run_is_an_option() -> None:
    assert repetition(["to be or not to be"], n=1) == 2 / 6
    assert repetition(["to be or not to be"], n=2) == 1 / 5
    assert repetition(["to be or not to be"], n=3) == 0.0


def test_a_loop_without_spaces_is_found_by_its_characters() -> None:
    assert repetition(["我们去我们去我们去"]) == 3 / 6
    assert repetition(["ไปไปไปไป"]) == 3 / 5
    assert repetition(["hahahahaha"]) == 0.0
