"""Links between the words of a corpus, made by a statistical aligner or by the attention of two trained runs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, final

import numpy as np
import torch
from jaxtyping import Int64
from torch.nn import functional as F

from seq2seq_attn.alignment.eflomal_aligner import align_words
from seq2seq_attn.alignment.symmetrize import symmetrize
from seq2seq_attn.alignment.word_alignment import Link
from seq2seq_attn.checkpoint.admitted import Trust
from seq2seq_attn.checkpoint.load import load
from seq2seq_attn.data.collate import collate_pairs, gather_lists
from seq2seq_attn.data.store.progress import progress
from seq2seq_attn.errors import UserError
from seq2seq_attn.model.encoder_decoder import EncoderDecoder
from seq2seq_attn.text import plain_console
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer

BATCH_WORDS = 2048  # of the longer side, padded, that a run reads at once
LONG = 20_000  # pairs; fewer have no progress bar

Words = Sequence[list[str]]  # of each sentence
log = logging.getLogger(__name__)


def eflomal_links(sources: Words, targets: Words, method: str) -> list[list[Link]]:
    """Return the links of each pair by eflomal, symmetrized."""
    start = time.monotonic()
    with plain_console().status(f"eflomal aligns {len(sources):,} pairs"):
        directions = align_words(sources, targets)
        links = [symmetrize(*both, method) for both in zip(*directions, strict=True)]
    log.info(f"eflomal: links of {len(sources):,} pairs in {time.monotonic() - start:,.0f} s")
    return links


@final
class Aligner(NamedTuple):
    """A trained run, the mean of whose heads of one layer aligns words."""

    model: EncoderDecoder
    tokenizer: SentencePieceTokenizer
    layer: int

    def links(self, sources: Words, targets: Words, *, shift: bool = False) -> list[list[Link]]:
        """Return a link for each target word, to the source word with the highest weight.

        A word has the sum of the weights of its tokens as a source, and their mean as a target. It has no link where
        most weight is on the end token.

        Args:
            shift: the weights of a target token are those of the step that reads it.

        Raises:
            UserError: if the model has too few positions for a sentence.
        """
        tokenizer, device = self.tokenizer, self.model.embed_source.weight.device
        read = [tokenizer.encode_source(words) for words in sources]  # each word on its own, so its tokens are known
        written = [tokenizer.encode_target(words) for words in targets]
        specials = {"pad_id": tokenizer.pad_id, "bos_id": tokenizer.bos_id, "eos_id": tokenizer.eos_id}
        batch = collate_pairs(flat(read), flat(written), range(len(read)), **specials).to(device)
        decoded = self.model(batch.source, batch.source_mask, batch.target_input, need_weights=True)
        weights = decoded.weights[f"cross/{self.layer}"].float().mean(1)
        if shift:
            weights = F.pad(weights[:, 1:], (0, 0, 0, 1))
        source_words, target_words = (max(map(len, side), default=0) for side in (sources, targets))
        column = torch.from_numpy(word_of_each_token(read, source_words)).to(device)
        row = torch.from_numpy(word_of_each_token(written, target_words)).to(device)
        by_column = weights.new_zeros(*weights.shape[:2], source_words + 1)
        by_column.scatter_add_(2, column[:, None].expand_as(weights), weights)
        by_word = weights.new_zeros(len(read), target_words + 1, source_words + 1)
        by_word.scatter_add_(1, row[:, :, None].expand_as(by_column), by_column)
        best, most = by_word.max(-1)[::-1]
        linked = ((best < source_words) & (most > 0))[:, :-1].cpu().numpy()
        found = best.cpu().numpy()
        return [[(int(found[pair, word]), int(word)) for word in of.nonzero()[0]] for pair, of in enumerate(linked)]


def load_aligner(
    file: Path, languages: tuple[str, str], layer: Callable[[EncoderDecoder], int], trust: Trust = ()
) -> Aligner:
    """Return a trained run as an aligner.

    Args:
        languages: source and target.
        layer: returns the number of the layer that aligns.
        trust: packages whose classes the run may name.

    Raises:
        UserError: if it translates between other languages.
    """
    with torch.random.fork_rng():  # weights are drawn before they are loaded
        loaded = load(str(file), trust)
    found = loaded.config["data"]["source_language"], loaded.config["data"]["target_language"]
    if found != languages:
        raise UserError(
            f"guided_alignment.runs=[FORWARD,REVERSE]: {file} translates from {' to '.join(found)}, and must "
            f"translate from {' to '.join(languages)}; give another run"
        )
    model = loaded.model.to("cuda" if torch.cuda.is_available() else "cpu")
    return Aligner(model, loaded.tokenizer, layer(model))


def flat(sentences: list[list[list[int]]]) -> list[list[int]]:
    return [[token for word in words for token in word] for words in sentences]


def word_of_each_token(sentences: list[list[list[int]]], end: int) -> Int64[np.ndarray, "batch length"]:
    """Return the word that each token belongs to, from 0, and `end` for the end token and padding."""
    owners = [[number for number, word in enumerate(words) for _ in word] for words in sentences]
    return gather_lists(owners, end)[0]


def attention_links(
    forward: Aligner, reverse: Aligner, sources: Words, targets: Words, method: str, *, shift: bool = False
) -> list[list[Link]]:
    """Return the links of each pair by two runs of opposite directions, symmetrized. Garg et al. 2019, section 4.1."""
    links: list[list[Link]] = [[] for _ in sources]
    done = 0
    with torch.inference_mode(), progress("Aligning", len(links), "pairs", shown=len(links) >= LONG) as advance:
        for rows in batches(sources, targets):
            sides = [sources[row] for row in rows], [targets[row] for row in rows]
            turned = [[link[::-1] for link in of_pair] for of_pair in reverse.links(*sides[::-1], shift=shift)]
            for row, of_forward, of_reverse in zip(rows, forward.links(*sides, shift=shift), turned, strict=True):
                links[row] = symmetrize(of_forward, of_reverse, method)
            done += len(rows)
            advance(done)
    return links


def batches(sources: Words, targets: Words) -> Iterator[list[int]]:
    """Yield the numbers of pairs of similar length."""
    longest = [max(len(source), len(target), 1) for source, target in zip(sources, targets, strict=True)]
    rows: list[int] = []
    for row in np.argsort(longest, kind="stable").tolist():
        if rows and longest[row] * (len(rows) + 1) > BATCH_WORDS:
            yield rows
            rows = []
        rows.append(row)
    if rows:
        yield rows
