"""Word vectors of a file in the text format of word2vec or GloVe, copied into the embeddings of a new model.

A token that begins a word, `▁House`, takes the vector of `House`, or else that of `house`. A token within a word has no
vector. Mikolov et al. 2013, arXiv:1301.3781; Pennington et al. 2014, doi:10.3115/v1/D14-1162.
"""

from __future__ import annotations

import gzip
import logging
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32
from sentencepiece import SentencePieceProcessor

from seq2seq_attn.data.reading import compressed_ending
from seq2seq_attn.errors import UserError
from seq2seq_attn.model.encoder_decoder import EncoderDecoder
from seq2seq_attn.paths import given_path
from seq2seq_attn.tokenizer.sentencepiece import WORD_MARK, SentencePieceTokenizer

log = logging.getLogger(__name__)

Vectors = dict[bytes, Float32[np.ndarray, " dim"]]


def copy_word_vectors(model: EncoderDecoder, tokenizer: SentencePieceTokenizer, options: dict[str, Any]) -> None:
    """Copy the vectors of the files that the options of the model name, and log the share of the tokens found.

    Raises:
        UserError: if a file cannot be read or has vectors of another width, or both sides share one matrix.
    """
    files = {side: options.get(f"{side}_embedding_file") for side in ("source", "target")}
    if all(files.values()) and model.embed_source.weight is model.embed_target.weight:
        raise UserError(
            "model.tie_embeddings=all has one matrix for both languages, which model.source_embedding_file and "
            "model.target_embedding_file would both fill; give one of the files, or model.tie_embeddings=target"
        )
    sides = {
        "source": (model.embed_source, tokenizer.source_model),
        "target": (model.embed_target, tokenizer.target_model),
    }
    for side, (embedding, pieces) in sides.items():
        if not files[side]:
            continue
        file = given_path(files[side], f"model.{side}_embedding_file")
        words = starting_words(pieces)
        vectors = read_vectors(file, {form for word in words.values() for form in forms(word)}, embedding.embedding_dim)
        rows = {i: next((vectors[form] for form in forms(word) if form in vectors), None) for i, word in words.items()}
        known = {i: vector for i, vector in rows.items() if vector is not None}
        if not known:
            raise UserError(f"{file} has none of the {len(words):,} words of the {side} vocabulary; give another file")
        with torch.no_grad():
            embedding.weight[list(known)] = torch.from_numpy(np.stack(list(known.values()))).to(embedding.weight)
        share = f"{len(known):,} of the {len(words):,} {side} tokens that begin a word ({len(known) / len(words):.0%})"
        log.info(f"{file} has vectors for {share}")


def starting_words(pieces: SentencePieceProcessor) -> dict[int, str]:
    """Return the words of the tokens that begin a word, by id."""
    tokens = {i: pieces.id_to_piece(i) for i in range(pieces.get_piece_size())}
    return {i: token[1:] for i, token in tokens.items() if token.startswith(WORD_MARK) and len(token) > 1}


def forms(word: str) -> list[bytes]:
    """Return what the word may be called in a file, the best first."""
    return list(dict.fromkeys((word.encode(), word.lower().encode())))


def read_vectors(file: Path, wanted: set[bytes], dim: int) -> Vectors:
    """Return the vectors of the wanted words; the first counts if a word has several.

    Words are compared as bytes, since published files hold bytes that are not UTF-8.

    Raises:
        UserError: with the line, if it has another number of values or one that is not a finite number.
    """
    vectors: Vectors = {}
    number = 0
    for number, line in enumerate(read_lines(file), start=1):
        word, _, values = line.rstrip().replace(b"\t", b" ").partition(b" ")
        width = values.count(b" ") + 1 if values else 0
        if number == 1 and width == 1 and word.isdigit() and values.isdigit() and dim != 1:
            width = int(values)  # word2vec's header: number of words and width
        elif width > dim and number > 1:
            continue  # a word with blanks in it, which no token is
        elif width == dim and word in wanted and word not in vectors:
            vectors[word] = vector_of(values, file, number)
        if width != dim:
            raise UserError(
                f"{file}, line {number}: a vector of {width} numbers for embeddings of {dim}; give a file of that "
                f"width, or model.embedding_dim={width}"
            )
    if number == 0:
        raise UserError(f"{file} is empty; give word vectors in the text format of word2vec or GloVe")
    return vectors


def vector_of(values: bytes, file: Path, number: int) -> Float32[np.ndarray, " dim"]:
    try:
        vector = np.array(values.split(b" "), dtype=np.float32)
    except ValueError as error:
        raise UserError(f"{file}, line {number}: {error}; fix or remove the line") from error
    if not np.isfinite(vector).all():
        raise UserError(f"{file}, line {number}: a number that is not finite; fix or remove the line")
    return vector


def read_lines(file: Path) -> Iterator[bytes]:
    """Yield the lines of a file, plain or .gz."""
    try:
        with gzip.open(file) if compressed_ending(file) == ".gz" else file.open("rb") as stream:
            yield from stream
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{file} is a damaged gzip file ({error}); get it again") from error
    except OSError as error:
        raise UserError(f"{file} cannot be read ({error.strerror}); give a file of word vectors") from error
