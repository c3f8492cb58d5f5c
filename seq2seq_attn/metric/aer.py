"""Alignment error rate of a model's attention, in percent. Och and Ney 2003, 5.2."""

from __future__ import annotations

import logging
import math
from typing import Annotated, Any, Literal, final

import torch
from torch import Tensor

from seq2seq_attn.alignment.attention_links import Heads, attended_links, pair_lengths, word_maps
from seq2seq_attn.alignment.gold import agreement, read_aligned_pairs
from seq2seq_attn.alignment.guided import guided_head, guided_shift
from seq2seq_attn.alignment.word_alignment import Extraction
from seq2seq_attn.errors import UserError
from seq2seq_attn.metric.chosen_metric import ChosenMetric
from seq2seq_attn.model.encoder_decoder import EncoderDecoder
from seq2seq_attn.model.ensemble import Ensemble
from seq2seq_attn.paths import given_text
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer

log = logging.getLogger(__name__)


@final
class AER(ChosenMetric):
    """The error rate on a gold standard, whatever the set that the other metrics score.

    Args:
        gold: the pairs, each line with its links after two blanks; with `pairs`, the links alone.
        pairs, gold_start, target_first, lowercase: see `read_aligned_pairs`; one file, or [SOURCE,TARGET].
        layer, head: whose attention aligns words; one of them None: the mean over it; both None: the head that guided
            alignment teaches, or without it the mean over all.
        threshold, shift, sink: see `Extraction`; shift=None: as guided alignment teaches the run, if it does,
            for all heads.
    """

    higher_is_better = False

    def __init__(
        self,
        *,
        gold: str,
        pairs: str | list[str] | None = None,
        gold_start: Literal[0, 1] = 0,
        target_first: bool = False,
        lowercase: bool = False,
        layer: Annotated[int | None, "[0, 1000]"] = None,
        head: Annotated[int | None, "[0, 1000]"] = None,
        threshold: Annotated[int | float | None, "[0, 1]"] = None,
        shift: bool | None = None,
        sink: bool = True,
    ) -> None:
        super().__init__()
        named: list[str] = [gold] if pairs is None else [pairs] if isinstance(pairs, str) else pairs
        self.pairs = read_aligned_pairs(
            [given_text(path, "metric.aer.gold" if pairs is None else "metric.aer.pairs") for path in named],
            None if pairs is None else given_text(gold, "metric.aer.gold"),
            start=gold_start,
            target_first=target_first,
            lowercase=lowercase,
            prefix="metric.aer.",
        )
        self.gold = gold
        self.heads, self.threshold, self.shift, self.sink = Heads(layer, head), threshold, shift, sink
        self.error_rate = math.nan

    def check(self, model: EncoderDecoder | Ensemble, config: dict[str, Any]) -> None:
        """Refuse an ensemble, or a layer or a head that the model lacks; log which are scored if guided alignment
        taught them.

        Raises:
            UserError: for one of these.
        """
        model = self.checked(model)
        heads = self.heads_of(model, config)
        if heads != self.heads:
            log.info(f"metric.aer is of {heads}, the guided head; metric.aer.layer and metric.aer.head choose another")

    def check_lengths(
        self, model: EncoderDecoder | Ensemble, tokenizer: SentencePieceTokenizer, config: dict[str, Any]
    ) -> None:
        """Refuse a pair of more tokens than the model has positions for, before a training.

        Raises:
            UserError: naming the first.
        """
        if model.max_length is None:
            return
        pairs = [(pair.source, pair.target) for pair in self.pairs]
        for number, longest in enumerate(pair_lengths(tokenizer, pairs, config), start=1):
            if longest > model.max_length:
                raise UserError(
                    f"metric.aer.gold={self.gold}, line {number}: a pair of {longest} tokens, and the model has "
                    f"positions for {model.max_length}; leave the pair out"
                )

    def checked(self, model: EncoderDecoder | Ensemble) -> EncoderDecoder:
        """Return a model, unless it is an ensemble, or lacks the layer or the head."""
        if isinstance(model, Ensemble):
            raise UserError("metric=[aer] is of one model's attention, not of an ensemble's; leave it out")
        layers, (layer, head) = model.decoder.source_attentions, self.heads
        if layer is not None and layer >= len(layers):
            raise UserError(f"metric.aer.layer={layer} does not exist; choose from 0 to {len(layers) - 1}")
        chosen = layers if layer is None else [layers[layer]]
        heads = min((one.num_heads for one in chosen), default=None)
        if head is not None and heads is not None and head >= heads:
            raise UserError(f"metric.aer.head={head} does not exist; choose from 0 to {heads - 1}")
        return model

    def heads_of(self, model: EncoderDecoder, config: dict[str, Any]) -> Heads:
        """Return the heads that the options choose, or else the one that guided alignment teaches, if any."""
        guided = guided_head(config, model) if self.heads == Heads() else None
        return guided or self.heads

    def update(
        self, model: EncoderDecoder | Ensemble, tokenizer: SentencePieceTokenizer, config: dict[str, Any]
    ) -> None:
        """Read the pairs with the model as it is now; every process reads all of them.

        Args:
            config: of the run.

        Raises:
            UserError: for an ensemble, or a layer or a head that the model lacks.
        """
        model = self.checked(model)
        maps = word_maps(model, tokenizer, [(pair.source, pair.target) for pair in self.pairs], config)
        heads = self.heads_of(model, config)
        shift = guided_shift(config) if self.shift is None else self.shift
        extraction = Extraction(self.threshold, shift, self.sink)
        links = (attended_links(pair_maps, heads, extraction) for pair_maps in maps)
        self.error_rate = agreement(links, self.pairs).error_rate

    def compute(self) -> Tensor:
        return torch.tensor(self.error_rate, dtype=torch.float64)
