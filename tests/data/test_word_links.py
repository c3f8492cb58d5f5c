"""Links between words: read, stored for the rows that are left, and projected to tokens."""

from __future__ import annotations

import pickle
from pathlib import Path
from random import Random

import numpy as np
import pytest
from data.test_collate import SPECIALS
from sentencepiece import SentencePieceProcessor

from seq2seq_attn.alignment.word_alignment import word_of_each
from seq2seq_attn.batch import Batch
from seq2seq_attn.data.cleaning import Cleaning
from seq2seq_attn.data.collate import collate_pairs
from seq2seq_attn.data.corpus import Split
from seq2seq_attn.data.parallel import normalized_chunks, pair_sources
from seq2seq_attn.data.word_links import FileLinks, Marks, TokenLinks, WordLinks, read_links, write_links
from seq2seq_attn.errors import UserError
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer


class Pieces(SentencePieceProcessor):
    """A model of given tokens, which segments nothing."""

    def __init__(self, tokens: list[str]) -> None:
        super().__init__()
        self.tokens = ["<pad>", "<unk>", "<s>", "</s>", *tokens]

    def id_to_piece(self, number: int) -> str:
        return self.tokens[number]

    def get_piece_size(self) -> int:
        return len(self.tokens)

    def unk_id(self) -> int:
        return 1

    def ids(self, text: str) -> list[int]:
        return [self.tokens.index(token) for token in text.split()]


def tokenizer_of(model_type: str, source: Pieces, target: Pieces) -> SentencePieceTokenizer:
    tokenizer = SentencePieceTokenizer(model_type, 30, False, 0.0, None)
    tokenizer._source, tokenizer._target = source, target
    return tokenizer


def stored(folder: Path, links: list[list[tuple[int, int]]], words: list[tuple[int, int]]) -> WordLinks:
    flat = np.array([link for row in links for link in row], np.int64).reshape(-1, 2)
    write_links(folder, flat, np.array([len(row) for row in links]), np.array(words))
    return WordLinks(folder)


def project(
    folder: Path,
    sources: list[str],
    targets: list[str],
    links: list[list[tuple[int, int]]],
    words: list[tuple[int, int]],
    model_type: str = "unigram",
) -> list[list[tuple[int, int]]]:
    """Return the linked tokens of each row, as (target, source)."""
    source, target = (
        Pieces(sorted({t for text in side for t in text.split()} - {"<unk>"})) for side in (sources, targets)
    )
    tokenizer = tokenizer_of(model_type, source, target)
    batch = collate_pairs([source.ids(s) for s in sources], [target.ids(t) for t in targets], [0, 1], **SPECIALS)
    linked = TokenLinks(stored(folder, links, words), tokenizer)(batch)
    assert linked.shape == (2, batch.target_output.shape[1], batch.source.shape[1])
    return [[tuple(pair) for pair in row.nonzero().tolist()] for row in linked]


def test_all_tokens_of_a_word_are_linked_to_all_of_the_other(tmp_path: Path) -> None:
    sources, targets = ["▁the ▁c at ▁sat", "▁yes"], ["▁le ▁ch at ▁s assit", "▁o u i"]
    links = [[(0, 0), (1, 1), (1, 2)], [(0, 0)]]
    found = project(tmp_path, sources, targets, links, [(3, 3), (1, 1)])
    cat, sat = [(1, 1), (1, 2), (2, 1), (2, 2)], [(3, 1), (3, 2), (4, 1), (4, 2)]
    assert found == [[(0, 0), *cat, *sat], [(0, 0), (1, 0), (2, 0)]]


def test_words_without_links_and_end_tokens_have_none(tmp_path: Path) -> None:
    assert project(tmp_path, ["▁a ▁b", "▁a"], ["▁x ▁y", "▁x"], [[(1, 0)], []], [(2, 2), (1, 1)]) == [[(0, 1)], []]


def test_an_unknown_letter_and_a_mark_of_its_own_belong_to_their_word(tmp_path: Path) -> None:
    sources = ["▁a <unk> b ▁ <unk> ▁c", "▁a"]  # three words: a?b, ?, c
    found = project(tmp_path, sources, ["▁x ▁y ▁z", "▁x"], [[(0, 0), (1, 1), (2, 2)], []], [(3, 3), (1, 1)])
    assert found[0] == [(0, 0), (0, 1), (0, 2), (1, 3), (1, 4), (2, 5)]


def test_an_unknown_word_of_a_word_tokenizer_is_a_word(tmp_path: Path) -> None:
    args = (["▁a <unk> ▁c", "▁a <unk>"], ["▁x ▁y ▁z", "▁x"], [[(1, 2)], [(1, 0)]])
    # in the second pair, two unknown words are one token, so that it is not known which word is which
    assert project(tmp_path, *args, [(3, 3), (3, 1)], "word") == [[(2, 1)], []]


def test_each_side_has_the_words_of_its_own_tokenizer(tmp_path: Path) -> None:
    pieces = Pieces(["▁a", "▁b"])
    tokenizer = tokenizer_of("unigram", pieces, pieces)
    ids = [pieces.ids("▁a <unk> ▁b")]  # three words of a word tokenizer; of subwords, the second goes on with the first
    batch = collate_pairs(ids, ids, [0], **SPECIALS)
    for words, types in (((2, 3), ("unigram", "word")), ((3, 2), ("word", "unigram"))):
        tokenizer.model_type, tokenizer.target_model_type = types
        links = stored(tmp_path / types[0], [[(words[0] - 1, words[1] - 1)]], [words])
        assert TokenLinks(links, tokenizer)(batch)[0].nonzero().tolist() == [[2, 2]]


def test_a_side_of_more_words_than_are_counted_has_no_links(tmp_path: Path) -> None:
    links = stored(tmp_path, [[], [(0, 0)]], [(65_536 + 1, 65_536 + 1), (65_534, 1)])
    assert links.words.tolist() == [[65_535, 65_535], [65_534, 1]]  # not [1, 1], as two short sentences have


def test_a_digest_is_of_the_links_and_of_the_rows_that_have_them(tmp_path: Path) -> None:
    words = [(2, 2)] * 2
    of_rows = ([[(0, 0)], []], [[], [(0, 0)]], [[(0, 1)], []], [[(0, 0)], []])
    found = [stored(tmp_path / str(number), links, words).digest for number, links in enumerate(of_rows)]
    assert len(set(found)) == 3
    assert found[0] == found[3]


def test_words_are_those_of_the_alignment_of_a_translation() -> None:
    random, model = Random(5), Pieces(["▁a", "b", "▁", "▁▁c", "d"])
    marks = Marks.of(model, whole_words=False)
    for _ in range(200):
        ids = [random.choice([1, 4, 5, 6, 7, 8]) for _ in range(random.randrange(1, 9))]
        expected = word_of_each([model.tokens[i] for i in ids])
        found, words = marks.words(np.array([[*ids, 3, 0]]), np.array([len(ids)]))
        if words[0]:  # marks alone are no word
            assert found[0].tolist() == [*expected.tolist(), -1, -1]
            assert words[0] == expected.max() + 1


def test_links_are_read_again_in_another_process(tmp_path: Path) -> None:
    links = stored(tmp_path, [[(0, 1)], []], [(1, 2), (1, 1)])
    again = pickle.loads(pickle.dumps(links))
    assert [part.tolist() for part in again.of(np.array([1, 0]))] == [[1], [0], [1]]
    assert again.num_linked == 1


def chunks(*pairs: tuple[str, str] | None) -> list[list[tuple[str, str] | None]]:
    return [list(pairs[:2]), list(pairs[2:])]


def read(folder: Path, content: str, *pairs: tuple[str, str] | None) -> FileLinks:
    file = folder / "links"
    file.write_text(content, encoding="utf-8")
    return read_links(file, chunks(*pairs))


def linked(split: Split, folder: Path) -> list[list[list[int]]]:
    links = WordLinks(folder)
    return [links.links[links.offsets[row] : links.offsets[row + 1]].tolist() for row in range(len(split.sources))]


def test_links_follow_their_pairs_wherever_cleaning_takes_them(tmp_path: Path) -> None:
    pairs = [("a b", "x y"), ("c", "z"), None, ("a b", "x y"), ("d e", "v w")]
    found = read(tmp_path, "0-0 1-1\n\n7-7\n0-1\n1-0 0-1", *pairs)
    split = Split(["d e", "a b", "c", "f"], ["v w", "x y", "z", "u"], [[""]] * 4)
    found.write(split, tmp_path / "train")
    assert linked(split, tmp_path / "train") == [[[1, 0], [0, 1]], [[0, 0], [1, 1]], [], []]
    found.write(Split(["other"], ["text"], [[""]]), tmp_path / "val")
    assert not (tmp_path / "val").exists()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("0-0\n0_1", r"links, line 2: '0_1' is not links in Pharaoh form, such as 0-0 2-1: .*; correct the line$"),
        ("0-0\n0-0 1-", r"links, line 2: '0-0 1-' is not links"),
        ("0-0\n0-0\n0-0 2-0", r"links, line 3: the link 2-0 is outside of its pair, which has 2 source and 1 target "),
        ("0-0\n0-0\n0-1", r"links, line 3: the link 0-1 is outside of its pair"),
        ("0-0\n0-0", r"links has 2 lines, and the training files have 3 pairs; guided_alignment.links needs one line "),
        ("0-0\n\n\n\n0-0", r"links has 5 lines, and the training files have 3 pairs"),
    ],
)
def test_a_wrong_file_of_links_is_refused_by_file_and_line(tmp_path: Path, content: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        read(tmp_path, content, ("a", "x"), ("b", "y"), ("c d", "z"))


def test_lines_are_those_of_the_files_with_their_rejected_lines_and_without_a_header(tmp_path: Path) -> None:
    file = tmp_path / "pairs.tsv"
    file.write_bytes(b"en\tfr\na\tx\nno pair\n b  c\ty \n")
    sources = pair_sources(str(file), "data.train", (None, None), ("en", "fr"))
    assert list(normalized_chunks(sources, Cleaning())) == [[("a", "x"), None, ("b c", "y")]]
    sides = [tmp_path / "a.en", tmp_path / "a.fr"]
    sides[0].write_bytes(b"a\n\xff\nc\n")
    sides[1].write_bytes(b"x\ny\nz\n")
    sources = pair_sources([str(side) for side in sides], "data.train", (None, None), ("en", "fr"))
    assert list(normalized_chunks(sources, Cleaning())) == [[("a", "x"), None, ("c", "z")]]
    table = tmp_path / "pairs.csv"
    table.write_text('en,fr\n"a\nb",x\nc\n', encoding="utf-8")
    sources = pair_sources(str(table), "data.train", (None, None), ("en", "fr"))
    with pytest.raises(UserError, match=r"pairs.csv, line 4: 1 comma-separated column, .* needs a pair in every row"):
        list(normalized_chunks(sources, Cleaning()))


def test_blank_lines_between_json_records_are_no_lines_of_links(tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    file.write_text('\n{"en": "a", "fr": "x"}\n \n{"en": "b"}\n{"en": "c", "fr": "z"}\n\n[]\n', encoding="utf-8")
    sources = pair_sources(str(file), "data.train", (None, None), ("en", "fr"))
    assert list(normalized_chunks(sources, Cleaning())) == [[("a", "x"), None, ("c", "z"), None]]


def test_links_of_a_file_take_the_room_that_they_have_when_stored(tmp_path: Path) -> None:
    found = read(tmp_path, "65534-0\n0-0\n65536-0", ("a " * 65_535, "x"), ("b", "y"), ("c " * 65_537, "z"))
    assert (found.links.dtype, found.links.tolist()) == (np.uint16, [[65_534, 0], [0, 0], [0, 0]])
    assert found.words[:, 0].tolist() == [65_535, 1, 65_537]  # more words than are counted: no links of the last pair


@pytest.mark.parametrize("model_type", ["unigram", "bpe", "char", "word"])
def test_every_tokenizer_shows_the_words_of_the_text(model_type: str, tmp_path: Path) -> None:
    random = Random(2)
    texts = [" ".join(random.choices(["chat", "noir", "les", "l'eau", "où", "était"], k=1 + i % 7)) for i in range(60)]
    vocab_size = {"unigram": 25, "bpe": 25, "char": "auto", "word": "auto"}[model_type]
    tokenizer = SentencePieceTokenizer(model_type, vocab_size, True, 0.3 * (model_type in ("unigram", "bpe")), None)
    tokenizer.train(texts, texts)
    seen = [*texts, "les ☃ chats☃ ☃"][-9:]
    for sample in (False, True):
        ids = tokenizer.encode_source(seen, sample=sample, seed=3)
        batch: Batch = collate_pairs(ids, ids, list(range(len(seen))), **SPECIALS)
        lengths = batch.source_lengths.numpy() - 1
        words, counts = Marks.of(tokenizer.source_model, model_type == "word").words(batch.source.numpy(), lengths)
        assert isinstance(tokenizer.source_model, SentencePieceProcessor)
        expected = [len(text.split()) for text in seen]
        if model_type == "word":
            expected[-1] = 2  # the last three words are one unknown token
        assert counts.tolist() == expected
        assert words.max(1).tolist() == [count - 1 for count in expected]
