"""Cleaned splits from sentence pairs: a corpus's own splits, or splits made here by source sentence."""

from __future__ import annotations

import hashlib
import logging
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from seq2seq_attn.data.cleaning import Cleaning
from seq2seq_attn.data.columns import readable
from seq2seq_attn.data.corpus import LoadedCorpus, Pair, Split
from seq2seq_attn.errors import UserError

MOST_CHARACTERS = 10_000  # of a side that is not cleaned: the first validation would run out of memory with more
HELD_OUT = "pairs held out"  # the count of a split that is made of pairs of the training file
MOST_HELD_OUT = 1000  # source sentences of a split, unless its number is given

log = logging.getLogger(__name__)


def clean_splits(
    raw: dict[str, list[tuple[str, str]]],
    cleaning: Cleaning,
    held_out: dict[str, int | None] | None = None,
    seed: int = 0,
) -> tuple[dict[str, Split], dict[str, int]]:
    """Return the given splits and those held out of the training split, and the counts of the cleaning.

    Training pairs are cleaned; given validation and test pairs are only normalised, so that scores remain comparable.

    Args:
        raw: the pairs of each given split; without "train", nothing is held out.
        held_out: the splits to hold out of "train", with their number of source sentences; None: see `held_out_sizes`.
        seed: of the choice of held-out sentences, which depends on it and on the sources alone, not on their order.

    Raises:
        UserError: if nothing is left to train on.
    """
    splits: dict[str, Split] = {}
    counts: dict[str, int] = {}
    training: list[Pair] = []
    for name, pairs in raw.items():
        cleaned, steps = cleaning.normalize(pairs)
        if name == "train":
            training, dropped = drop(cleaned, cleaning)
            steps |= dropped
        else:
            check_lengths(name, cleaned)
            splits[name] = one_reference_each(cleaned)
        label = "all" if list(raw) == ["train"] else name
        counts |= {f"{label}: {step}": count for step, count in steps.items()}
    given = list(splits)
    if held_out:
        unseen = {source for split in splits.values() for source in split.sources}
        training, chosen, taken = hold_out(training, held_out, seed, unseen)
        splits |= chosen
        counts |= taken
    if "train" in raw:
        splits["train"] = one_reference_each(training)
        counts |= count_overlap(splits["train"], {name: splits[name] for name in given})
    order = [name for name in dict.fromkeys(["train", "val", "test", *splits]) if name in splits]
    return {name: splits[name] for name in order}, counts


def hold_out(
    pairs: list[Pair], held_out: dict[str, int | None], seed: int, unseen: set[str]
) -> tuple[list[Pair], dict[str, Split], dict[str, int]]:
    """Hold out source sentences, and return the remaining pairs, the held-out splits and how many pairs they took.

    All translations of a source are in the same split. A held-out split has each source once, with all its
    translations as references.

    Args:
        unseen: sources of the other splits, which are not held out once more.
    """
    versions = group_by_source(pairs)
    free = versions.keys() - unseen
    sizes = held_out_sizes(held_out, len(free))
    order = sorted(free, key=lambda source: hashlib.sha256(f"{seed}\t{source}".encode()).digest())
    splits, counts, start = {}, {}, 0
    for name, size in sizes.items():
        sources = order[start : start + size]
        start += size
        splits[name] = held_out_split([versions[source][0] for source in sources], versions)
        share = f" ({size / len(free):.0%} of the sources)" if size < (held_out[name] or MOST_HELD_OUT) else ""
        counts[f"{name}: {HELD_OUT}{share}"] = sum(len(versions[source]) for source in sources)
    taken = set(order[:start])
    return [pair for pair in pairs if pair.source not in taken], splits, counts


def held_out_sizes(held_out: dict[str, int | None], num_sources: int) -> dict[str, int]:
    """Return the number of source sentences of each held-out split; None is 1,000, or a tenth if that is less.

    Raises:
        UserError: if they do not fit the corpus.
    """
    share = max(1, num_sources // 10)
    sizes = {name: min(MOST_HELD_OUT, share) if size is None else size for name, size in held_out.items()}
    if min(sizes.values()) >= 1 and sum(sizes.values()) < num_sources:
        return sizes
    fit = max(1, num_sources // 20)
    if fit * len(sizes) >= num_sources:
        raise UserError(
            f"{num_sources} different source sentences are too few to hold out {' and '.join(sizes)}; give more, or "
            f"{' and '.join(f'data.{name}=FILE' for name in sizes)}"
        )
    raise UserError(
        f"{' and '.join(f'data.{name}_sentences={size}' for name, size in sizes.items())} do not fit a corpus of "
        f"{num_sources} different source sentences: each must be at least 1 and leave some to train on; use "
        + " ".join(f"data.{name}_sentences={fit}" for name in sizes)
    )


def with_test_set(corpus: LoadedCorpus) -> LoadedCorpus:
    """Return the corpus, with training pairs as the test set `test_train` where nothing is held out for a test.

    These are at most `MOST_HELD_OUT` pairs, evenly spread over the training split.
    """
    if "train" not in corpus.splits or any(name.startswith("test") for name in corpus.splits):
        return corpus
    train = corpus.splits["train"]
    size = min(MOST_HELD_OUT, len(train))
    rows = [row * len(train) // size for row in range(size)]
    log.warning(
        f"No pairs are held out for a test, so {size:,} training pairs are scored, as test_train: this says what the "
        "model remembers, not how well it translates"
    )
    sources, targets = ([side[row] for row in rows] for side in (train.sources, train.targets))
    chosen = Split(sources, targets, [train.references[row] for row in rows])
    return replace(corpus, splits=corpus.splits | {"test_train": chosen})


def warn_of_decomposed(corpus: LoadedCorpus, names: Iterable[str]) -> None:
    """Warn of references that are not in Unicode's NFC, as translations are: `é` as two characters matches none.

    Args:
        names: the splits to be scored.
    """
    for name in names:
        references = [text for texts in corpus.splits[name].references for text in texts]
        count = sum(not unicodedata.is_normalized("NFC", text) for text in references)
        if count:
            log.warning(
                f"{count:,} of {len(references):,} references of {name} are not in Unicode's NFC, as translations are, "
                "so equal letters count as different; convert the file, as by `uconv -f utf-8 -t utf-8 -x nfc`"
            )


def check_lengths(name: str, pairs: list[Pair], first: int = 1, files: Sequence[Path] = ()) -> None:
    """Refuse sides of a split without cleaning that are longer than `MOST_CHARACTERS`.

    Args:
        first: the number of the first pair.
        files: that the pairs are of.
    """
    where = f" ({', '.join(map(str, files))})" if files else ""
    for number, pair in enumerate(pairs, start=first):
        longest = max(len(pair.source), len(pair.target))
        if longest > MOST_CHARACTERS:
            raise UserError(
                f"pair {number} of {name}{where} has a side of {longest:,} characters (the source begins with "
                f"'{readable(pair.source, 40)}'); {name} is not cleaned, and a model can read {MOST_CHARACTERS:,}: "
                "shorten or remove the pair, in both languages"
            )


def drop(pairs: list[Pair], cleaning: Cleaning) -> tuple[list[Pair], dict[str, int]]:
    kept, counts = cleaning.drop(pairs)
    if not kept:
        reasons = "; ".join(f"{count} {step}" for step, count in counts.items() if count)
        raise UserError(
            f"no sentence pair is left to train on after cleaning ({reasons}); check data.path or loosen data.cleaning"
        )
    return kept, counts


def one_reference_each(pairs: list[Pair]) -> Split:
    return Split([p.source for p in pairs], [p.target for p in pairs], [[p.reference] for p in pairs])


def held_out_split(pairs: list[Pair], versions: dict[str, list[Pair]]) -> Split:
    """Return one row per pair, with its own reference and then the others that `versions` has for its source."""
    references = [
        list(dict.fromkeys([pair.reference, *(other.reference for other in versions[pair.source])])) for pair in pairs
    ]
    return Split([p.source for p in pairs], [p.target for p in pairs], references)


def group_by_source(pairs: list[Pair]) -> dict[str, list[Pair]]:
    versions: dict[str, list[Pair]] = {}
    for pair in pairs:
        versions.setdefault(pair.source, []).append(pair)
    return versions


def count_overlap(train: Split, given: dict[str, Split]) -> dict[str, int]:
    """Return how many rows of each given split have a source in train; warn, since this raises scores."""
    trained = set(train.sources)
    counts = {}
    for name, split in given.items():
        counts[f"{name}: sources also in train"] = count = sum(source in trained for source in split.sources)
        warn_of_overlap(name, count, len(split))
    return counts


def warn_of_overlap(name: str, shared: int, rows: int) -> None:
    if shared:
        log.warning(f"{shared} of {rows} source sentences of {name} are also in train, so its score is too optimistic")
