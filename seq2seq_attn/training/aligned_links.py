"""Links between the words of a corpus, made by a statistical aligner or by the attention of two trained runs."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, final

import numpy as np
import torch
from hydra.utils import instantiate
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional as F

from seq2seq_attn.alignment.eflomal_aligner import align_words
from seq2seq_attn.alignment.forced_attention import attention_along
from seq2seq_attn.alignment.symmetrize import symmetrize
from seq2seq_attn.alignment.word_alignment import Link
from seq2seq_attn.checkpoint.admitted import Trust
from seq2seq_attn.checkpoint.load import load
from seq2seq_attn.data.cleaning import Cleaning, cleaning_options
from seq2seq_attn.data.collate import collate_pairs, gather_lists
from seq2seq_attn.data.store.progress import progress
from seq2seq_attn.errors import UserError
from seq2seq_attn.model.encoder_decoder import EncoderDecoder
from seq2seq_attn.text import plain_console
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer

BATCH_WORDS = 2048  # of the longer side, padded, that a run reads at once
LONG = 20_000  # pairs; fewer have no progress bar
SAMPLE = 1000  # pairs by which the weights that align best are found

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
class View(NamedTuple):
    """Weights that words are aligned by: the mean of the heads of a layer, or of all layers, if None.

    Attributes:
        shift: the weights of a target token are those of the step that reads it, not of the one that writes it.
    """

    layer: int | None
    shift: bool

    def __str__(self) -> str:
        layers = "all layers" if self.layer is None else f"layer {self.layer}"
        return f"{layers} in the step that {'reads' if self.shift else 'writes'} a word"


@final
class Aligner(NamedTuple):
    """A trained run, whose attention to the source aligns words, which are normalised as the run does it."""

    model: EncoderDecoder
    tokenizer: SentencePieceTokenizer
    cleaning: Cleaning

    def views(self) -> list[View]:
        """Return each layer and, if there are several, all of them, in both steps."""
        layers: list[int | None] = [*range(len(self.model.decoder.source_attentions))]
        layers += [None] * (len(layers) > 1)
        return [View(layer, shift) for layer in layers for shift in (False, True)]

    def links(self, sources: Words, targets: Words, views: Sequence[View]) -> list[list[list[Link]]]:
        """Return, for each view, a link for each target word, to the source word with the highest weight.

        A word has the sum of the weights of its tokens as a source, and their mean as a target. It has no link where
        most weight is on the end token.

        Raises:
            UserError: if the model has too few positions for a sentence.
        """
        tokenizer, device = self.tokenizer, self.model.embed_source.weight.device
        # each word on its own, so its tokens are known
        read = [tokenizer.encode_source(self.clean(words)) for words in sources]
        written = [tokenizer.encode_target(self.clean(words)) for words in targets]
        specials = {"pad_id": tokenizer.pad_id, "bos_id": tokenizer.bos_id, "eos_id": tokenizer.eos_id}
        batch = collate_pairs(flat(read), flat(written), range(len(read)), **specials).to(device)
        decoded = self.model(batch.source, batch.source_mask, batch.target_input, need_weights=True)
        source_words, target_words = (max(map(len, side), default=0) for side in (sources, targets))
        column = torch.from_numpy(word_of_each_token(read, source_words)).to(device)
        row = torch.from_numpy(word_of_each_token(written, target_words)).to(device)
        layer_weights = [
            decoded.weights[f"cross/{layer}"].float().mean(1)
            for layer in range(len(self.model.decoder.source_attentions))
        ]
        links_by_view = []
        for view in views:
            weights = torch.stack(layer_weights).mean(0) if view.layer is None else layer_weights[view.layer]
            if view.shift:
                weights = F.pad(weights[:, 1:], (0, 0, 0, 1))
            by_column = weights.new_zeros(*weights.shape[:2], source_words + 1)
            by_column.scatter_add_(2, column[:, None].expand_as(weights), weights)
            by_word = weights.new_zeros(len(read), target_words + 1, source_words + 1)
            by_word.scatter_add_(1, row[:, :, None].expand_as(by_column), by_column)
            links_by_view.append(links_to_the_most(by_word))
        return links_by_view

    def clean(self, words: list[str]) -> list[str]:
        return [self.cleaning.normalize_text(word) for word in words]


def links_to_the_most(weights: Float[Tensor, "pairs target_words_and_end source_words_and_end"]) -> list[list[Link]]:
    """Return the links of each pair, of the target words whose highest weight is on a source word."""
    most, best = weights.max(-1)
    linked = ((best < weights.shape[2] - 1) & (most > 0))[:, :-1].cpu().numpy()
    best_source = best.cpu().numpy()
    return [[(int(best_source[pair, word]), int(word)) for word in of.nonzero()[0]] for pair, of in enumerate(linked)]


def load_aligner(file: Path, languages: tuple[str, str], trust: Trust = ()) -> Aligner:
    """Return a trained run as an aligner.

    Args:
        languages: source and target.
        trust: packages whose classes the run may name.

    Raises:
        UserError: if it translates between other languages, or has no weights of attention to the source.
    """
    with torch.random.fork_rng():  # weights are drawn before they are loaded
        loaded = load(str(file), trust)
        maps = attention_along(loaded.model, loaded.tokenizer, [], [])
    run_languages = loaded.config["data"]["source_language"], loaded.config["data"]["target_language"]
    if run_languages != languages:
        raise UserError(
            f"guided_alignment.runs=[FORWARD,REVERSE]: {file} translates from {' to '.join(run_languages)}, and must "
            f"translate from {' to '.join(languages)}; give another run"
        )
    if not any(one.slot.startswith("cross/") for one in maps):
        raise UserError(
            f"guided_alignment.runs=[FORWARD,REVERSE]: {file} has no attention to a source whose weights could align "
            "words; give another run"
        )
    model = loaded.model.to("cuda" if torch.cuda.is_available() else "cpu")
    cleaning: Cleaning = instantiate(cleaning_options(loaded.config["data"]), _convert_="all")
    return Aligner(model, loaded.tokenizer, cleaning)


def flat(sentences: list[list[list[int]]]) -> list[list[int]]:
    return [[token for word in words for token in word] for words in sentences]


def word_of_each_token(sentences: list[list[list[int]]], end: int) -> Int64[np.ndarray, "batch length"]:
    """Return the word that each token belongs to, from 0, and `end` for the end token and padding."""
    owners = [[number for number, word in enumerate(words) for _ in word] for words in sentences]
    return gather_lists(owners, end)[0]


def attention_links(
    forward: Aligner, reverse: Aligner, sources: Words, targets: Words, method: str
) -> list[list[Link]]:
    """Return the links of each pair by two runs of opposite directions, symmetrized. Garg et al. 2019, section 4.1.

    Each run aligns by the view with which it agrees most with the other run (see `agreeing_views`).
    """
    links: list[list[Link]] = [[] for _ in sources]
    done = 0
    with torch.inference_mode(), progress("Aligning", len(links), "pairs", shown=len(links) >= LONG) as advance:
        by_forward, by_reverse = agreeing_views(forward, reverse, sources, targets)
        for rows in batches(sources, targets):
            sides = [sources[row] for row in rows], [targets[row] for row in rows]
            (forward_by_pair,) = forward.links(*sides, [by_forward])
            (reverse_by_pair,) = reverse.links(*sides[::-1], [by_reverse])
            for row, forward_links, reverse_links in zip(rows, forward_by_pair, reverse_by_pair, strict=True):
                links[row] = symmetrize(forward_links, turned(reverse_links), method)
            done += len(rows)
            advance(done)
    return links


def agreeing_views(forward: Aligner, reverse: Aligner, sources: Words, targets: Words) -> tuple[View, View]:
    """Return the view of each run with which both agree most: 2 |A ∩ B| / (|A| + |B|) for their links A and B.

    It is the criterion for a layer of Chen et al. 2020, arXiv:2004.14837. The runs are compared on about `SAMPLE`
    pairs, evenly spaced.
    """
    sample = range(0, len(sources), max(1, len(sources) // SAMPLE))
    both = [sources[row] for row in sample], [targets[row] for row in sample]
    link_sets: tuple[list[set[tuple[int, Link]]], ...] = tuple(
        [set() for _ in one.views()] for one in (forward, reverse)
    )
    for rows in batches(*both):
        sides = [both[0][row] for row in rows], [both[1][row] for row in rows]
        for sets, links in zip(link_sets[0], forward.links(*sides, forward.views()), strict=True):
            sets.update((row, link) for row, pair_links in zip(rows, links, strict=True) for link in pair_links)
        for sets, links in zip(link_sets[1], reverse.links(*sides[::-1], reverse.views()), strict=True):
            sets.update((row, link) for row, pair_links in zip(rows, links, strict=True) for link in turned(pair_links))
    shares = {
        (one, other): 2 * len(a & b) / max(1, len(a) + len(b))
        for one, a in zip(forward.views(), link_sets[0], strict=True)
        for other, b in zip(reverse.views(), link_sets[1], strict=True)
    }
    best = max(shares, key=lambda views: shares[views])
    log.info(f"both directions agree most, on {shares[best]:.0%} of their links, by {best[0]}, and by {best[1]}")
    return best


def turned(links: Sequence[Link]) -> list[Link]:
    """Return links with both sides exchanged."""
    return [link[::-1] for link in links]


def batches(sources: Words, targets: Words) -> Iterator[list[int]]:
    """Yield the numbers of pairs of similar length, the longest first, which a run may lack positions or memory for."""
    longest = [max(len(source), len(target), 1) for source, target in zip(sources, targets, strict=True)]
    rows: list[int] = []
    for row in np.argsort(longest, kind="stable")[::-1].tolist():
        if rows and longest[rows[0]] * (len(rows) + 1) > BATCH_WORDS:
            yield rows
            rows = []
        rows.append(row)
    if rows:
        yield rows
