"""Weights of tokens to links of words, on worked numbers."""

from __future__ import annotations

import numpy as np
import pytest

from seq2seq_attn.alignment.word_alignment import (
    Extraction,
    chosen_weights,
    from_pharaoh,
    links_of,
    to_pharaoh,
    weights_by_word,
    word_links,
    word_of_each,
    word_weights,
)
from seq2seq_attn.errors import UserError
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer

COLUMNS = ["▁a", "▁bl", "ack", "▁dog", "</s>"]
ROWS = ["▁un", "▁ch", "ien", "▁noir", "</s>"]
# Each column of tokens: a, bl, ack, dog, end.
HEAD = np.array(
    [
        [0.50, 0.00, 0.25, 0.25, 0.00],
        [0.00, 0.25, 0.25, 0.50, 0.00],
        [0.00, 0.00, 0.25, 0.75, 0.00],
        [0.00, 0.25, 0.25, 0.375, 0.125],
        [0.00, 0.00, 0.00, 0.00, 1.00],
    ]
)


def test_a_source_word_has_the_sum_of_its_tokens_and_a_target_word_the_mean_of_its() -> None:
    expected = [[0.5, 0.25, 0.25, 0.0], [0.0, 0.375, 0.625, 0.0], [0.0, 0.5, 0.375, 0.125]]
    np.testing.assert_array_equal(word_weights(HEAD[None], COLUMNS, ROWS), expected)


def test_a_word_is_linked_to_the_word_of_most_weight_though_a_single_token_of_another_has_more() -> None:
    assert HEAD[3].argmax() == 3
    assert word_links(HEAD[None], COLUMNS, ROWS) == [(0, 0), (2, 1), (1, 2)]


def test_heads_are_averaged() -> None:
    other = np.zeros_like(HEAD)
    other[:, 0] = 1.0
    heads = np.stack([HEAD, other, HEAD])
    by_word = word_weights(heads.astype(np.float32), COLUMNS, ROWS)
    np.testing.assert_allclose(by_word[2], [1 / 3, 1 / 3, 0.25, 0.25 / 3], atol=1e-7)


def test_rows_that_sum_to_one_keep_their_sum() -> None:
    weights = np.random.default_rng(1).dirichlet(np.ones(5), size=(3, 5))
    np.testing.assert_allclose(word_weights(weights, COLUMNS, ROWS).sum(1), np.ones(3))


def test_a_word_that_looks_most_at_the_end_or_at_nothing_has_no_link() -> None:
    weights = HEAD.copy()
    weights[0] = [0.25, 0.0, 0.0, 0.0, 0.75]
    weights[3] = 0.0
    assert word_links(weights[None], COLUMNS, ROWS) == [(2, 1)]


def test_the_row_of_the_end_token_is_no_word_and_no_part_of_the_last_one() -> None:
    weights = HEAD.copy()
    weights[4] = [5.0, 0.0, 0.0, 0.0, 0.0]
    np.testing.assert_array_equal(word_weights(weights[None], COLUMNS, ROWS), word_weights(HEAD[None], COLUMNS, ROWS))


def test_without_the_sink_a_word_is_linked_to_the_word_of_most_weight_unless_all_are_zero() -> None:
    weights = HEAD.copy()
    weights[0] = [0.25, 0.0, 0.0, 0.0, 0.75]
    weights[3] = [0.0, 0.0, 0.0, 0.0, 1.0]
    assert word_links(weights[None], COLUMNS, ROWS, Extraction(sink=False)) == [(0, 0), (2, 1)]


def test_a_threshold_links_a_word_to_each_word_of_more_weight() -> None:
    """By words: 0.5 0.25 0.25, 0 0.375 0.625, 0 0.5 0.375 and 0.125 on the end token."""
    assert word_links(HEAD[None], COLUMNS, ROWS, Extraction(0.25)) == [(0, 0), (1, 1), (2, 1), (1, 2), (2, 2)]
    assert word_links(HEAD[None], COLUMNS, ROWS, Extraction(0.4)) == [(0, 0), (2, 1), (1, 2)]
    # without the end token the last word has 0.5 / 0.875 = 0.571 and 0.429
    assert word_links(HEAD[None], COLUMNS, ROWS, Extraction(0.4, sink=False))[-2:] == [(1, 2), (2, 2)]
    assert word_links(HEAD[None], COLUMNS, ROWS, Extraction(1)) == []


def test_shifted_weights_are_those_of_the_step_that_reads_the_token() -> None:
    weights = np.zeros((5, 5))
    weights[[1, 2, 3, 4], [3, 0, 1, 3]] = 1.0  # read: un, ch, ien, noir
    assert word_links(weights[None], COLUMNS, ROWS, Extraction(shift=True)) == [(2, 0), (0, 1), (2, 2)]
    np.testing.assert_array_equal(word_weights(weights[None], COLUMNS, ROWS, shift=True)[1], [0.5, 0.5, 0.0, 0.0])


def test_words_without_tokens_have_no_link_and_number_the_others() -> None:
    weights = np.eye(3)[None]
    by_word = weights_by_word(weights, np.array([1, 2]), np.array([0, 2]), num_words=(4, 4))
    assert by_word.shape == (4, 5)
    assert links_of(by_word) == [(1, 0), (2, 2)]


def test_empty_sentences_have_no_links() -> None:
    assert word_links(np.ones((1, 1, 5)) / 5, COLUMNS, ["</s>"]) == []
    assert word_links(np.ones((1, 5, 1)), ["</s>"], ROWS) == []
    assert word_links(np.ones((1, 1, 1)), ["</s>"], ["</s>"]) == []


@pytest.mark.parametrize("model_type", ["unigram", "bpe", "char"])
def test_words_of_tokens_are_those_between_blanks_even_of_letters_never_seen(model_type: str) -> None:
    text = ["L'homme n'a-t-il pas vu, hier soir, le chat noir ?", "Le chien noir dort, dit-il."]
    tokenizer = SentencePieceTokenizer(model_type, 35, joint=True, sampling_alpha=0.0, cache_dir=None)
    tokenizer.train(text, text)
    sentence = "Ωμέγα l'homme dort-il , ☃ ☃ ?"
    tokens = tokenizer.source_tokens(tokenizer.encode_source([sentence])[0])
    assert "<unk>" in tokens
    of_word: dict[int, str] = {}
    for token, word in zip(tokens, word_of_each(tokens).tolist(), strict=True):
        of_word[word] = of_word.get(word, "") + token.removeprefix("▁")
    found = [of_word[word] for word in sorted(of_word)]
    assert len(found) == len(sentence.split())
    assert found[1:4] == ["l'homme", "dort-il", ","]


def test_pharaoh_text_is_in_order_of_the_target_and_read_back() -> None:
    links = [(0, 0), (10, 2), (2, 1), (1, 2)]
    assert to_pharaoh(links) == "0-0 2-1 1-2 10-2"
    assert set(from_pharaoh(to_pharaoh(links))) == set(links)
    assert from_pharaoh(to_pharaoh([])) == []


def test_the_first_token_begins_a_word_though_it_shows_no_blank() -> None:
    assert word_of_each(["<unk>", "s", "▁a"]).tolist() == [0, 0, 1]


def test_a_mark_that_stands_alone_is_no_word() -> None:
    tokens = ["▁", "l", "'eau", "▁", "▁▁", "claire", "▁est", "▁"]
    assert word_of_each(tokens).tolist() == [0, 0, 0, 1, 1, 1, 2, 2]
    assert "".join(tokens).replace("▁", " ").split() == ["l'eau", "claire", "est"]
    assert word_of_each(["▁"]).tolist() == [0]
    assert word_of_each([]).tolist() == []


def test_a_model_that_reads_no_source_aligns_nothing() -> None:
    with pytest.raises(UserError, match="has no attention to a source"):
        chosen_weights([], None, None)
