"""Cleaning: Unicode form and blanks everywhere; what is empty, too long or double goes from training."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import NamedTuple, final

from seq2seq_attn.data.corpus import Pair
from seq2seq_attn.errors import UserError

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # a tab and a line feed are blanks
BLANKS = re.compile(r"[ \t]+")
LONG = 10_000  # letters, beyond which putting combining marks in order may take minutes


class Sized(NamedTuple):
    """A pair and the words of its shorter and of its longer side, counted once for all steps."""

    pair: Pair
    fewest: int
    most: int


@final
class Cleaning:
    """Args:
    normalize_spaces: every kind of blank (U+00A0, U+202F, U+2009, U+2028, ...) becomes a plain space.
    min_words, max_words: of either side, words being what stands between blanks.
    max_characters: of either side, for text without blanks.
    max_ratio: of the longer side to the shorter, in words; None: any.
    deduplicate: keep the first of several equal pairs.
    """

    def __init__(
        self,
        *,
        normalize_spaces: bool = True,
        min_words: int = 1,
        max_words: int = 100,
        max_characters: int = 1000,
        max_ratio: int | float | None = None,
        deduplicate: bool = True,
    ) -> None:
        if not 1 <= min_words <= max_words:
            raise UserError(
                f"data.cleaning needs 1 <= min_words <= max_words, got {min_words} and {max_words}; "
                "use min_words=1 max_words=100"
            )
        if max_characters < 1:
            raise UserError(f"data.cleaning.max_characters={max_characters} leaves nothing; use 1000")
        if max_ratio is not None and max_ratio < 1:
            raise UserError(f"data.cleaning.max_ratio={max_ratio} is less than 1, an even pair; use 9 or null")
        self.normalize_spaces, self.deduplicate = normalize_spaces, deduplicate
        self.min_words, self.max_words, self.max_characters = min_words, max_words, max_characters
        self.max_ratio = max_ratio

    def normalize(self, pairs: list[tuple[str, str]]) -> tuple[list[Pair], dict[str, int]]:
        """Every pair, in one Unicode form with single blanks, and how many that changed."""
        cleaned = [Pair(self.normalize_text(s), self.normalize_text(t), t) for s, t in pairs]
        changed = sum(new[:2] != old for new, old in zip(cleaned, pairs, strict=True))
        return cleaned, {"pairs read": len(pairs), "pairs normalised": changed}

    def normalize_text(self, text: str) -> str:
        """NFC; control characters are blanks; blanks collapsed, and none at the ends."""
        composed = compose(text if text.isprintable() else CONTROL.sub(" ", text))
        single = " ".join(composed.split()) if self.normalize_spaces else BLANKS.sub(" ", composed).strip(" ")
        return text if single == text else single  # most lines are clean, and are kept once

    def drop(self, pairs: list[Pair]) -> tuple[list[Pair], dict[str, int]]:
        """The pairs worth training on, and how many each step dropped."""
        steps: list[tuple[str, Callable[[Sized], bool]]] = [
            ("empty side", lambda sized: bool(sized.pair.source and sized.pair.target)),
            (f"over {self.max_characters} characters", self._few_characters),
            (f"under {self.min_words} words", lambda sized: sized.fewest >= self.min_words),
            (f"over {self.max_words} words", lambda sized: sized.most <= self.max_words),
        ]
        if self.max_ratio is not None:
            steps.append((f"longer over shorter side beyond {self.max_ratio:g}", self._even))
        if self.deduplicate:
            seen: set[tuple[str, str]] = set()

            def is_new(sized: Sized) -> bool:
                """Of a pair that passes once, and is then seen."""
                new = sized.pair[:2] not in seen
                seen.add(sized.pair[:2])
                return new

            steps.append(("double", is_new))
        counts = {}
        left = [Sized(pair, *sorted(num_words(pair))) for pair in pairs]
        for name, keeps in steps:
            kept = [sized for sized in left if keeps(sized)]
            counts[f"dropped, {name}"] = len(left) - len(kept)
            left = kept
        return [sized.pair for sized in left], counts

    def _few_characters(self, sized: Sized) -> bool:
        return max(len(sized.pair.source), len(sized.pair.target)) <= self.max_characters

    def _even(self, sized: Sized) -> bool:
        assert self.max_ratio is not None
        return sized.most <= self.max_ratio * sized.fewest


def compose(text: str) -> str:
    """NFC, but for words that are none: sorting their combining marks takes the square of their number."""
    if len(text) <= LONG:
        return unicodedata.normalize("NFC", text)
    words = text.split(" ")
    return " ".join(word if len(word) > LONG else unicodedata.normalize("NFC", word) for word in words)


def num_words(pair: Pair) -> tuple[int, int]:
    return len(pair.source.split()), len(pair.target.split())
