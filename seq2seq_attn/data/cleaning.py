"""Cleaning: normalise Unicode and whitespace in every split; drop empty, overlong and duplicate training pairs."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple, final

from seq2seq_attn.data.corpus import Pair
from seq2seq_attn.errors import UserError
from seq2seq_attn.text import num_words

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all but tab and line feed, which count as blanks
BLANKS = re.compile(r"[ \t]+")
PUNCTUATION = re.compile(r"(?<=[^ ])(?=[,.!?])")  # the place of a blank before a mark, as in Dive into Deep Learning
OF_TEXT = {"normalize_spaces": True, "lowercase": False, "split_punctuation": False}  # options that change a text
LONG = 10_000  # characters; sorting the combining marks of a longer word may take minutes


class Sized(NamedTuple):
    """A pair with the number of words of its shorter and its longer side, counted once for all steps."""

    pair: Pair
    shorter: int
    longer: int


def cleaning_options(data: Mapping[Any, Any]) -> Any:
    """Return the options of the cleaning of a corpus, or of that whose sentences its documents are made of."""
    own = data.get("cleaning")
    return cleaning_options(data["corpus"]) if own is None and isinstance(data.get("corpus"), Mapping) else own


def text_options(data: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the cleaning options of a corpus that change its text: a model reads all text as they make it.

    The other options choose the pairs to train on.
    """
    cleaning = cleaning_options(data)
    if not isinstance(cleaning, Mapping):  # that of a corpus of the user's own, or none
        cleaning = {}
    return {name: cleaning.get(name, default) for name, default in OF_TEXT.items()}


@final
class Cleaning:
    """Normalisation of all pairs, and the filters of the training pairs.

    Args:
        normalize_spaces: replace every kind of blank (U+00A0, U+202F, U+2009, U+2028, ...) by a plain space.
        min_words, max_words: limits for each side, in words between blanks; scripts without spaces, such as Chinese
            and Thai, count by their characters, as in `text.num_words`.
        max_characters: limit for each side, which also covers text without blanks.
        max_ratio: largest ratio of the longer to the shorter side, in words; None: any.
        deduplicate: keep the first of several equal pairs.
        lowercase: turn all letters into small ones.
        split_punctuation: write a blank before each `,`, `.`, `!` and `?`, so that they are words of their own.

    Raises:
        UserError: if no pair could meet the limits.
    """

    def __init__(
        self,
        *,
        normalize_spaces: bool = True,
        min_words: Annotated[int, "[1, 1000000]"] = 1,
        max_words: Annotated[int, "[1, 1000000]"] = 100,
        max_characters: Annotated[int, "[1, 1000000]"] = 1000,
        max_ratio: Annotated[int | float | None, "[1, inf)"] = None,
        deduplicate: bool = True,
        lowercase: bool = False,
        split_punctuation: bool = False,
    ) -> None:
        if not 1 <= min_words <= max_words:
            raise UserError(
                f"data.cleaning needs 1 <= min_words <= max_words, got {min_words} and {max_words}; "
                "use min_words=1 max_words=100"
            )
        if max_characters < 1:
            raise UserError(f"data.cleaning.max_characters={max_characters} must be at least 1; use 1000")
        if max_ratio is not None and max_ratio < 1:
            raise UserError(f"data.cleaning.max_ratio={max_ratio} must be at least 1; use 9, or null for no limit")
        self.normalize_spaces, self.deduplicate = normalize_spaces, deduplicate
        self.min_words, self.max_words, self.max_characters = min_words, max_words, max_characters
        self.max_ratio = max_ratio
        self.lowercase, self.split_punctuation = lowercase, split_punctuation

    def normalize(self, pairs: list[tuple[str, str]]) -> tuple[list[Pair], dict[str, int]]:
        """Return every pair in normalised form, and the counts of pairs read and changed."""
        cleaned = [Pair(self.normalize_text(s), self.normalize_text(t), t) for s, t in pairs]
        changed = sum(new[:2] != old for new, old in zip(cleaned, pairs, strict=True))
        return cleaned, {"pairs read": len(pairs), "pairs normalised": changed}

    def normalize_pairs(self, pairs: list[tuple[str, str]]) -> list[tuple[str, str] | None]:
        """Return every pair in normalised form, as `Corpus.training_pairs` yields them."""
        return [(self.normalize_text(source), self.normalize_text(target)) for source, target in pairs]

    def normalize_text(self, text: str) -> str:
        """Return `text` in NFC, with control characters as blanks, runs of blanks collapsed and the ends stripped.

        With `lowercase` and `split_punctuation`, it is also lower-cased, and its punctuation split off.
        """
        composed = compose(text if text.isprintable() else CONTROL.sub(" ", text))
        single = " ".join(composed.split()) if self.normalize_spaces else BLANKS.sub(" ", composed).strip(" ")
        if self.lowercase:
            single = single.lower()
        if self.split_punctuation:
            single = PUNCTUATION.sub(" ", single)
        return text if single == text else single  # most lines are clean: keep one copy of them

    def drop(self, pairs: list[Pair]) -> tuple[list[Pair], dict[str, int]]:
        """Return the pairs to train on, and how many each step dropped."""
        kept, counts = self.filter(pairs)
        if self.deduplicate:
            first: dict[tuple[str, str], Pair] = {}
            for pair in kept:
                first.setdefault(pair[:2], pair)
            counts["dropped, duplicate"] = len(kept) - len(first)
            kept = list(first.values())
        return kept, counts

    def filter(self, pairs: list[Pair]) -> tuple[list[Pair], dict[str, int]]:
        """Return the pairs to train on, duplicates included, and how many each step dropped."""
        steps: list[tuple[str, Callable[[Sized], bool]]] = [
            ("empty side", lambda sized: bool(sized.pair.source and sized.pair.target)),
            (f"over {self.max_characters} characters", self._within_characters),
            (f"under {self.min_words} words", lambda sized: sized.shorter >= self.min_words),
            (f"over {self.max_words} words", lambda sized: sized.longer <= self.max_words),
        ]
        if self.max_ratio is not None:
            steps.append((f"length ratio over {self.max_ratio:g}", self._within_ratio))
        counts = {}
        left = [Sized(pair, *sorted((num_words(pair.source), num_words(pair.target)))) for pair in pairs]
        for name, keeps in steps:
            kept = [sized for sized in left if keeps(sized)]
            counts[f"dropped, {name}"] = len(left) - len(kept)
            left = kept
        return [sized.pair for sized in left], counts

    def _within_characters(self, sized: Sized) -> bool:
        return max(len(sized.pair.source), len(sized.pair.target)) <= self.max_characters

    def _within_ratio(self, sized: Sized) -> bool:
        assert self.max_ratio is not None
        return sized.longer <= self.max_ratio * sized.shorter


def compose(text: str) -> str:
    """Return `text` in NFC, except for words over `LONG`: sorting n combining marks takes time n**2."""
    if len(text) <= LONG:
        return unicodedata.normalize("NFC", text)
    words = text.split(" ")
    return " ".join(word if len(word) > LONG else unicodedata.normalize("NFC", word) for word in words)
