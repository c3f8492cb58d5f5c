"""From pairs to splits: those a corpus has, or ours, by source sentence."""

from __future__ import annotations

import hashlib
import logging

from seq2seq_attn.data.cleaning import Cleaning
from seq2seq_attn.data.corpus import Pair, Split
from seq2seq_attn.errors import UserError

MOST_CHARACTERS = 10_000  # of a side that is not cleaned: the first validation would die of a longer one

log = logging.getLogger(__name__)


def clean_splits(raw: dict[str, list[tuple[str, str]]], cleaning: Cleaning) -> tuple[dict[str, Split], dict[str, int]]:
    """A corpus's own splits: training is cleaned, the others only normalised, so that scores compare."""
    splits: dict[str, Split] = {}
    counts: dict[str, int] = {}
    for name, pairs in raw.items():
        cleaned, steps = cleaning.normalize(pairs)
        if name == "train":
            cleaned, dropped = drop(cleaned, cleaning)
            steps |= dropped
            splits[name] = training_split(cleaned)
        else:
            check_bearable(name, cleaned)
            splits[name] = held_out_split(cleaned)
        counts |= {f"{name}: {step}": count for step, count in steps.items()}
    return splits, counts | count_overlap(splits)


def split_by_source(
    raw: list[tuple[str, str]], cleaning: Cleaning, *, val_sentences: int, test_sentences: int, seed: int
) -> tuple[dict[str, Split], dict[str, int]]:
    """Cleaned pairs, all versions of a source sentence in the same split.

    A function of the seed and the sources. In "val" and "test" a source stands once, with all versions.

    Raises:
        UserError: if nothing is left to train on.
    """
    pairs, steps = cleaning.normalize(raw)
    pairs, dropped = drop(pairs, cleaning)
    versions = group_by_source(pairs)
    held_out = val_sentences + test_sentences
    if min(val_sentences, test_sentences) < 1 or held_out >= len(versions):
        fit = max(1, len(versions) // 20)
        raise UserError(
            f"data.val_sentences={val_sentences} data.test_sentences={test_sentences} does not fit a corpus "
            f"of {len(versions)} different source sentences: each needs at least 1, and training the rest; "
            f"use data.val_sentences={fit} data.test_sentences={fit}"
        )
    order = sorted(versions, key=lambda source: hashlib.sha256(f"{seed}\t{source}".encode()).digest())
    chosen = {"val": order[:val_sentences], "test": order[val_sentences:held_out]}
    away = set(order[:held_out])
    splits = {"train": training_split([pair for pair in pairs if pair.source not in away])}
    for name, sources in chosen.items():
        splits[name] = held_out_split([versions[source][0] for source in sources], versions)
    return splits, {f"all: {step}": count for step, count in (steps | dropped).items()}


def check_bearable(name: str, pairs: list[Pair]) -> None:
    for number, pair in enumerate(pairs, start=1):
        longest = max(len(pair.source), len(pair.target))
        if longest > MOST_CHARACTERS:
            raise UserError(
                f"pair {number} of {name} has a side of {longest:,} characters; {name} is read whole, and a model "
                f"bears {MOST_CHARACTERS:,}: shorten or remove it, in both languages"
            )


def drop(pairs: list[Pair], cleaning: Cleaning) -> tuple[list[Pair], dict[str, int]]:
    kept, counts = cleaning.drop(pairs)
    if not kept:
        told = "; ".join(f"{count} {step}" for step, count in counts.items() if count)
        raise UserError(
            f"no sentence pair is left to train on after cleaning ({told}); check data.path or loosen data.cleaning"
        )
    return kept, counts


def training_split(pairs: list[Pair]) -> Split:
    return Split([p.source for p in pairs], [p.target for p in pairs], [[p.reference] for p in pairs])


def held_out_split(pairs: list[Pair], versions: dict[str, list[Pair]] | None = None) -> Split:
    """One row a pair; its references are its own and then the others that `versions` has for its source."""
    versions = group_by_source(pairs) if versions is None else versions
    references = [
        list(dict.fromkeys([pair.reference, *(other.reference for other in versions[pair.source])])) for pair in pairs
    ]
    return Split([p.source for p in pairs], [p.target for p in pairs], references)


def group_by_source(pairs: list[Pair]) -> dict[str, list[Pair]]:
    versions: dict[str, list[Pair]] = {}
    for pair in pairs:
        versions.setdefault(pair.source, []).append(pair)
    return versions


def count_overlap(splits: dict[str, Split]) -> dict[str, int]:
    """Rows of each other split whose source is also trained on; warned of, since they flatter a score."""
    trained = set(splits["train"].sources)
    counts = {}
    for name, split in splits.items():
        if name == "train":
            continue
        counts[f"{name}: sources also in train"] = count = sum(source in trained for source in split.sources)
        if count:
            log.warning(f"{count} of {len(split)} source sentences of {name} are also in train: its score flatters")
    return counts
