"""Links by eflomal, an optional package."""

import sys

import pytest

from seq2seq_attn.alignment.eflomal_aligner import align_words
from seq2seq_attn.errors import UserError

WORDS = {"the": "le", "dog": "chien", "cat": "chat", "small": "petit", "sees": "voit", "Paul": "Paul"}


def test_a_bitext_of_one_word_for_another_is_aligned() -> None:
    pytest.importorskip("eflomal")
    sentences = ["the dog", "the cat", "the small cat sees Paul", "", "Paul sees the dog", "small dog", "Paul"]
    sources = [line.split() for line in sentences * 20]
    targets = [[WORDS[word] for word in words] for words in sources]
    forward, reverse = align_words(sources, targets)
    expected = [[(word, word) for word in range(len(words))] for words in sources]
    assert len(forward) == len(reverse) == len(sources)
    assert forward[3] == reverse[3] == []
    assert sum(map(len, forward)) > 0.9 * sum(map(len, expected))
    assert sum(links == wanted for links, wanted in zip(forward, expected, strict=True)) > 0.8 * len(expected)
    assert sum(links == wanted for links, wanted in zip(reverse, expected, strict=True)) > 0.8 * len(expected)


def test_without_the_package_one_sentence_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "eflomal", None)
    with pytest.raises(UserError, match=r"pip install 'seq2seq_attn\[align\]'"):
        align_words([["a"]], [["b"]])
