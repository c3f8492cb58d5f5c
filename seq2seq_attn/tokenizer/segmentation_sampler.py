"""Segmentations drawn: Kudo 2018, arXiv:1804.10959, 3.3 (unigram); Provilkov et al. 2020, arXiv:1910.13267 (BPE).

Not sentencepiece's own sampling: its random numbers differ from process to process, whatever seed is set.
"""

from __future__ import annotations

import math
from bisect import bisect
from itertools import accumulate
from random import Random
from typing import final

from sentencepiece import SentencePieceProcessor

NBEST = 64  # segmentations of a word to draw from; l of Kudo 2018 counts those of a sentence


@final
class SegmentationSampler:
    """Draws word by word, which is no restriction: no piece spans a blank.

    Args:
        alpha: `unigram`: a segmentation is drawn with its probability to this power. `bpe`: the chance
            of each possible merge, at each step, to be left out.
    """

    def __init__(self, model: SentencePieceProcessor, model_type: str, alpha: float) -> None:
        assert model_type in ("unigram", "bpe")
        self.model, self.alpha = model, alpha
        self._draw = self._draw_unigram if model_type == "unigram" else self._draw_bpe
        self._scores = {
            model.id_to_piece(i): model.get_score(i)
            for i in range(model.get_piece_size())
            if not (model.is_control(i) or model.is_unknown(i))
        }
        self._tables: dict[str, tuple[list[float], list[list[int]]]] = {}

    def __call__(self, sentences: list[str], seed: int) -> list[list[int]]:
        """Token ids; a pure function of model, alpha, sentences and seed."""
        random = Random(seed)
        return [[i for word in s.split(" ") if word for i in self._draw(word, random)] for s in sentences]

    def _draw_unigram(self, word: str, random: Random) -> list[int]:
        if word not in self._tables:
            self._tables[word] = self._tabulate(word)
        cumulative, segmentations = self._tables[word]
        return segmentations[bisect(cumulative, random.random() * cumulative[-1], hi=len(cumulative) - 1)]

    def _tabulate(self, word: str) -> tuple[list[float], list[list[int]]]:
        """The likeliest segmentations of a word and their summed weights."""
        segmentations = self.model.nbest_encode(word, nbest_size=NBEST)
        scores = [self.alpha * sum(self.model.get_score(i) for i in ids) for ids in segmentations]
        return list(accumulate(math.exp(score - max(scores)) for score in scores)), segmentations

    def _draw_bpe(self, word: str, random: Random) -> list[int]:
        symbols = ["▁", *word]
        while True:
            merges = [
                (self._scores[symbols[i] + symbols[i + 1]], -i)
                for i in range(len(symbols) - 1)
                if symbols[i] + symbols[i + 1] in self._scores and random.random() >= self.alpha
            ]
            if not merges:
                break
            i = -max(merges)[1]
            symbols[i : i + 2] = [symbols[i] + symbols[i + 1]]
        ids = [self.model.piece_to_id(symbol) if symbol in self._scores else self.model.unk_id() for symbol in symbols]
        # sentencepiece gives one unknown piece for a row of them
        return [i for place, i in enumerate(ids) if i != self.model.unk_id() or ids[place - 1] != i or not place]
