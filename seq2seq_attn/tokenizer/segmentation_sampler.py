"""Segmentation sampling. Unigram: Kudo 2018, 3.3, arXiv:1804.10959. BPE: Provilkov et al. 2020, arXiv:1910.13267.

SentencePiece's own sampling is not used, because its random numbers differ between processes whatever the seed.
"""

from __future__ import annotations

import math
from bisect import bisect
from itertools import accumulate
from random import Random
from typing import final

from sentencepiece import SentencePieceProcessor

NBEST = 64  # candidate segmentations of a word; l of Kudo 2018, which counts those of a sentence

MOST_TABLES = 1 << 14  # words whose segmentations are kept, about 10 KB each; those used last
MOST_LETTERS = 32  # of a word that is kept; longer ones, such as a sentence without blanks, rarely recur


@final
class SegmentationSampler:
    """A sampler of segmentations, word by word; this is no restriction, since no piece spans a blank.

    Args:
        alpha: `unigram`: segmentations are drawn in proportion to their probability to this power. `bpe`: the
            probability with which each possible merge is dropped at each step.
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
        self._symbols = symbols_of(model)
        self._tables: dict[str, tuple[list[float], list[list[int]]]] = {}

    def __call__(self, sentences: list[str], seed: int) -> list[list[int]]:
        """Return token ids, which depend on model, alpha, sentences and seed alone."""
        random = Random(seed)
        return [[i for word in s.split(" ") if word for i in self._draw(word, random)] for s in sentences]

    def _draw_unigram(self, word: str, random: Random) -> list[int]:
        table = self._tables.pop(word, None) or self._tabulate(word)
        if len(word) <= MOST_LETTERS:
            self._tables[word] = table  # the last one used
        if len(self._tables) > MOST_TABLES:
            del self._tables[next(iter(self._tables))]
        cumulative, segmentations = table
        return segmentations[bisect(cumulative, random.random() * cumulative[-1], hi=len(cumulative) - 1)]

    def _tabulate(self, word: str) -> tuple[list[float], list[list[int]]]:
        """Return the likeliest segmentations of a word and their cumulative weights; none splits a user's symbol."""
        segmentations = self.model.nbest_encode(word, nbest_size=NBEST)
        if self._symbols:
            counts = [sum(i in self._symbols for i in ids) for ids in segmentations]
            whole = sum(i in self._symbols for i in self.model.encode(word))
            segmentations = [ids for ids, count in zip(segmentations, counts, strict=True) if count == whole]
            segmentations = segmentations or [self.model.encode(word)]
        scores = [self.alpha * sum(self.model.get_score(i) for i in ids) for ids in segmentations]
        return list(accumulate(math.exp(score - max(scores)) for score in scores)), segmentations

    def _draw_bpe(self, word: str, random: Random) -> list[int]:
        symbols = [*self.model.normalize(word)]
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
        # SentencePiece merges adjacent unknown pieces into one
        return [i for index, i in enumerate(ids) if i != self.model.unk_id() or ids[index - 1] != i or not index]


def symbols_of(model: SentencePieceProcessor) -> frozenset[int]:
    """Return the ids of the symbols that a user has defined."""
    from sentencepiece import sentencepiece_model_pb2

    proto = sentencepiece_model_pb2.ModelProto.FromString(model.serialized_model_proto())  # type: ignore[attr-defined]
    return frozenset(i for i, piece in enumerate(proto.pieces) if piece.type == proto.SentencePiece.USER_DEFINED)
