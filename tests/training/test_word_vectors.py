"""Files of word vectors: their formats, which token takes which vector, and what is refused."""

from __future__ import annotations

import gzip
import logging
from pathlib import Path

import pytest
import torch
from configs import model_of
from small_run import run_here

from seq2seq_attn.checkpoint.export_safetensors import main as export
from seq2seq_attn.checkpoint.load import load
from seq2seq_attn.errors import UserError
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer
from seq2seq_attn.training.word_vectors import copy_word_vectors, read_vectors

TEXT = ["The cat sees a house", "a dog sees the House", "the cat"] * 4
VECTORS = {"cat": (1.0, 2.0, 3.0), "the": (4.0, 5.0, 6.0), "house": (0.5, -1.0, 2e-3), "unicorn": (9.0, 9.0, 9.0)}


def content(header: str = "", end: str = "\n", blank: str = "") -> bytes:
    rows = [f"{word} {' '.join(map(str, vector))}{blank}{end}" for word, vector in VECTORS.items()]
    return (header + end * bool(header) + "".join(rows)).encode()


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("glove.txt", content()),
        ("word2vec.txt", content("4 3", blank=" ")),
        ("windows.txt", content("4 3", end="\r\n")),
        ("packed.txt.gz", gzip.compress(content(), mtime=0)),
        ("others.txt", content() + b"caf\xe9 1 2 3\n. . . 7 8 9\ncat 0 0 0\n"),
    ],
)
def test_every_usual_format_is_read(name: str, data: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    found = read_vectors(tmp_path / name, {b"cat", b"house", b".", b"dog"}, 3)
    assert {word: tuple(vector.tolist()) for word, vector in found.items()} == {
        b"cat": (1.0, 2.0, 3.0),
        b"house": pytest.approx((0.5, -1.0, 2e-3)),
    }


def word_tokenizer() -> SentencePieceTokenizer:
    tokenizer = SentencePieceTokenizer("word", 50, joint=True, sampling_alpha=0.0, cache_dir=None)
    tokenizer.train(TEXT, TEXT)
    return tokenizer


def test_a_token_takes_the_vector_of_its_word_or_of_the_word_in_lower_case(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.txt").write_bytes(content() + b"House 7 8 9\n")
    tokenizer = word_tokenizer()
    size = tokenizer.source_vocab_size
    model = model_of("model.embedding_dim=3", source_vocab_size=size, target_vocab_size=size)
    before = model.embed_source.weight.clone()
    with caplog.at_level(logging.INFO, "seq2seq_attn"):
        copy_word_vectors(model, tokenizer, {"source_embedding_file": str(tmp_path / "a.txt")})
    expected = {"cat": VECTORS["cat"], "The": VECTORS["the"], "the": VECTORS["the"], "House": (7.0, 8.0, 9.0)}
    expected["house"] = VECTORS["house"]
    for i in range(size):
        word = tokenizer.source_model.id_to_piece(i).removeprefix("▁")
        row = torch.tensor(expected[word]) if word in expected else before[i]
        torch.testing.assert_close(model.embed_source.weight[i], row)
    assert caplog.messages == [f"{tmp_path / 'a.txt'} has vectors for 5 of the 8 source tokens that begin a word (62%)"]


BROKEN = {
    "narrow": (
        b"cat 1 2\n",
        r"narrow, line 1: a vector of 2 numbers for embeddings of 3; give .* model.embedding_dim=2$",
    ),
    "wide": (b"cat 1 2 3 4\n", r"wide, line 1: a vector of 4 numbers for embeddings of 3"),
    "header": (b"4 300\n", r"header, line 1: a vector of 300 numbers for embeddings of 3"),
    "cut": (b"dog 1 2 3\ncat 1 2\n", r"cut, line 2: a vector of 2 numbers for embeddings of 3"),
    "text": (b"cat 1 two 3\n", r"text, line 1: could not convert string to float: .*two.*; fix or remove the line$"),
    "nan": (b"cat 1 nan 3\n", r"nan, line 1: a number that is not finite; fix or remove the line$"),
    "empty": (b"", r"empty is empty; give word vectors in the text format of word2vec or GloVe$"),
    "damaged.gz": (b"cat 1 2 3\n", r"damaged.gz is a damaged gzip file \(.+\); get it again$"),
    "foreign": (b"unicorn 1 2 3\n", r"foreign has none of the 8 words of the target vocabulary; give another file$"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_refused_with_its_line(name: str, tmp_path: Path) -> None:
    data, sentence = BROKEN[name]
    (tmp_path / name).write_bytes(data)
    tokenizer = word_tokenizer()
    size = tokenizer.source_vocab_size
    model = model_of("model.embedding_dim=3", source_vocab_size=size, target_vocab_size=size)
    with pytest.raises(UserError, match=sentence):
        copy_word_vectors(model, tokenizer, {"target_embedding_file": str(tmp_path / name)})
    with pytest.raises(UserError, match=r"nowhere cannot be read \(No such file or directory\)"):
        copy_word_vectors(model, tokenizer, {"target_embedding_file": str(tmp_path / "nowhere")})


def test_two_files_for_one_matrix_are_refused() -> None:
    model = model_of("model.tie_embeddings=all", source_vocab_size=17, target_vocab_size=17)
    files = {"source_embedding_file": "a", "target_embedding_file": "b"}
    with pytest.raises(UserError, match=r"^model.tie_embeddings=all has one matrix for both languages, which"):
        copy_word_vectors(model, word_tokenizer(), files)


@pytest.mark.usefixtures("quiet")
def test_a_run_reads_its_files_once_and_what_it_leaves_does_without_them(pairs: list[str], tmp_path: Path) -> None:
    vectors, tokens = tmp_path / "vectors.txt", tmp_path / "tokens.model"
    vectors.write_text("".join(f"{word} {' '.join(['0.25'] * 12)}\n" for word in ("the", "cat", "house", "a")))
    tokens.write_bytes(word_tokenizer().source_model.serialized_model_proto())
    given = [
        *pairs,
        f"model.target_embedding_file={vectors}",
        f"tokenizer.model={tokens}",
        "tokenizer.sampling_alpha=0",
    ]
    given += ["attention=none", "trainer.limit_val_batches=0", "trainer.limit_test_batches=0", "resume=auto"]
    run_here(tmp_path / "run", *given, "trainer.max_epochs=0")
    model, tokenizer, _ = load(str(tmp_path / "run"))
    assert tokenizer.model_type == "word"
    assert (model.embed_target.weight[tokenizer.target_model.piece_to_id("▁house")] == 0.25).all()
    assert model.output.weight is model.embed_target.weight
    vectors.unlink()
    tokens.unlink()
    run_here(tmp_path / "run", *given, "trainer.max_epochs=1", "trainer.max_steps=1")
    last = tmp_path / "run" / "checkpoints" / "last.ckpt"
    model, resumed, _ = load(str(last))
    assert not (model.embed_target.weight == 0.25).any()
    assert resumed.fingerprint == tokenizer.fingerprint
    export([str(last), str(tmp_path / "published")])
    assert str(tmp_path) not in (tmp_path / "published" / "config.json").read_text()
    with pytest.raises(
        UserError, match=r"/run is complete and was trained with other options: tokenizer.model .* → other; give them"
    ):
        run_here(tmp_path / "run", *given, "tokenizer.model=other", "trainer.max_steps=2", "trainer.max_epochs=2")


def test_tabs_may_separate_the_numbers(tmp_path: Path) -> None:
    file = tmp_path / "vectors.txt"
    file.write_text("2\t3\nchat\t1\t2\t3\nchien 4\t5 6\n", encoding="utf-8")
    found = read_vectors(file, {b"chat", b"chien"}, 3)
    assert {word: vector.tolist() for word, vector in found.items()} == {b"chat": [1, 2, 3], b"chien": [4, 5, 6]}
