"""Cleaned splits from sentence pairs: a corpus's own splits, or splits made here by source sentence."""

from __future__ import annotations

import hashlib
import logging

from seq2seq_attn.data.cleaning import Cleaning
from seq2seq_attn.data.corpus import Pair, Split
from seq2seq_attn.errors import UserError

MOST_CHARACTERS = 10_000  # of a side that is not cleaned: the first validation would run out of memory with more

log = logging.getLogger(__name__)


def clean_splits(raw: dict[str, list[tuple[str, str]]], cleaning: Cleaning) -> tuple[dict[str, Split], dict[str, int]]:
    """Return the given splits and the counts of the cleaning.

    Training pairs are cleaned; the others are only normalised, so that scores remain comparable.
    """
    splits: dict[str, Split] = {}
    counts: dict[str, int] = {}
    for name, pairs in raw.items():
        cleaned, steps = cleaning.normalize(pairs)
        if name == "train":
            cleaned, dropped = drop(cleaned, cleaning)
            steps |= dropped
            splits[name] = training_split(cleaned)
        else:
            check_lengths(name, cleaned)
            splits[name] = held_out_split(cleaned)
        counts |= {f"{name}: {step}": count for step, count in steps.items()}
    return splits, counts | count_overlap(splits)


def split_by_source(
    raw: list[tuple[str, str]], cleaning: Cleaning, *, val_sentences: int, test_sentences: int, seed: int
) -> tuple[dict[str, Split], dict[str, int]]:
    """Clean the pairs and split them so that all translations of a source sentence are in the same split.

    The result depends on the seed and the sources alone, not on their order. In "val" and "test" each source
    occurs once, with all its translations as references.

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
            f"data.val_sentences={val_sentences} and data.test_sentences={test_sentences} do not fit a corpus of "
            f"{len(versions)} different source sentences: each must be at least 1 and leave some to train on; "
            f"use data.val_sentences={fit} data.test_sentences={fit}"
        )
    order = sorted(versions, key=lambda source: hashlib.sha256(f"{seed}\t{source}".encode()).digest())
    chosen = {"val": order[:val_sentences], "test": order[val_sentences:held_out]}
    held_out_sources = set(order[:held_out])
    splits = {"train": training_split([pair for pair in pairs if pair.source not in held_out_sources])}
    for name, sources in chosen.items():
        splits[name] = held_out_split([versions[source][0] for source in sources], versions)
    return splits, {f"all: {step}": count for step, count in (steps | dropped).items()}


def check_lengths(name: str, pairs: list[Pair]) -> None:
    for number, pair in enumerate(pairs, start=1):
        longest = max(len(pair.source), len(pair.target))
        if longest > MOST_CHARACTERS:
            raise UserError(
                f"pair {number} of {name} has a side of {longest:,} characters; {name} is not cleaned, and a model "
                f"can read {MOST_CHARACTERS:,}: shorten or remove the pair, in both languages"
            )


def drop(pairs: list[Pair], cleaning: Cleaning) -> tuple[list[Pair], dict[str, int]]:
    kept, counts = cleaning.drop(pairs)
    if not kept:
        reasons = "; ".join(f"{count} {step}" for step, count in counts.items() if count)
        raise UserError(
            f"no sentence pair is left to train on after cleaning ({reasons}); check data.path or loosen data.cleaning"
        )
    return kept, counts


def training_split(pairs: list[Pair]) -> Split:
    return Split([p.source for p in pairs], [p.target for p in pairs], [[p.reference] for p in pairs])


def held_out_split(pairs: list[Pair], versions: dict[str, list[Pair]] | None = None) -> Split:
    """Return one row per pair, with its own reference and then the others that `versions` has for its source."""
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
    """Return how many rows of each held-out split have a source in train; warn, since this raises scores."""
    trained = set(splits["train"].sources)
    counts = {}
    for name, split in splits.items():
        if name == "train":
            continue
        counts[f"{name}: sources also in train"] = count = sum(source in trained for source in split.sources)
        if count:
            log.warning(
                f"{count} of {len(split)} source sentences of {name} are also in train, so its score is too optimistic"
            )
    return counts
