"""Documents made of consecutive sentences of another corpus, joined on both sides."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Annotated, final

from seq2seq_attn.data.corpus import CleaningReport, Corpus, LoadedCorpus, Split, read
from seq2seq_attn.data.splitting import HELD_OUT
from seq2seq_attn.data.store.shard import BLOCK_ROWS, SHARD_ROWS
from seq2seq_attn.errors import UserError
from seq2seq_attn.text import num_words

log = logging.getLogger(__name__)


@final
class DocumentCorpus(Corpus):
    """A corpus of documents: each split is cut, in order, into runs of sentences; an incomplete last run is dropped.

    A document has one reference, the joined first references of its sentences.

    Args:
        corpus: the corpus of sentences, which cleans them.
        min_words, max_words: limits for the longer side of a document, in words as `text.num_words` counts them. Its
            length is drawn uniformly between them, and it has as many sentences as fit.
        seed: seed of the lengths.
        source_language, target_language: those of the corpus.

    Raises:
        UserError: if the limits are not in order, or a sentence has more than `min_words` words.
    """

    def __init__(
        self,
        *,
        corpus: Corpus,
        min_words: Annotated[int, "[1, 1000000]"],
        max_words: Annotated[int, "[1, 1000000]"],
        seed: Annotated[int, "[0, 4294967295]"],
        source_language: str,
        target_language: str,
    ) -> None:
        if not 1 <= min_words <= max_words:
            raise UserError(
                f"data.min_words={min_words} and data.max_words={max_words} are not 1 <= min_words <= max_words; use "
                "for example 200 and 400"
            )
        self.corpus, self.min_words, self.max_words, self.seed = corpus, min_words, max_words, seed
        self.source_language, self.target_language = source_language, target_language
        self.has_one_side = corpus.has_one_side

    def load(self) -> LoadedCorpus:
        loaded = read(self.corpus)
        languages = loaded.source_language, loaded.target_language
        if (self.source_language, self.target_language) != languages:
            raise UserError(
                f"data.source_language={self.source_language} and data.target_language={self.target_language} are not "
                f"those of the sentences, {languages[0]} and {languages[1]}; choose data.corpus.source_language= and "
                "data.corpus.target_language="
            )
        warn_of_gaps(loaded.report.counts)
        warn_of_blocks(loaded.splits)
        splits = {name: self._joined(name, split) for name, split in loaded.splits.items()}
        counts = {f"{name}: documents": len(split) for name, split in splits.items()}
        report = CleaningReport(loaded.report.counts | counts)
        return replace(loaded, splits=splits, report=report, stored=None, stored_train=None)

    def _joined(self, name: str, split: Split) -> Split:
        runs = self._runs(name, split)
        if not runs:
            raise UserError(
                f"{name} has too few sentences for a document of {self.min_words} words; use a smaller data.min_words"
            )
        sources, targets = ([" ".join(side[run]) for run in runs] for side in (split.sources, split.targets))
        firsts = [references[0] for references in split.references]
        return Split(sources, targets, [[" ".join(firsts[run])] for run in runs])

    def _runs(self, name: str, split: Split) -> list[slice]:
        """Return the range of sentences of each document."""
        draw, runs, start = Random(f"{self.seed}\t{name}"), [], 0
        most, words = draw.randint(self.min_words, self.max_words), (0, 0)
        for number, (source, target) in enumerate(zip(split.sources, split.targets, strict=True)):
            pair_words = (num_words(source), num_words(target))
            if max(pair_words) > self.min_words:
                raise UserError(
                    f"sentence {number + 1} of {name} has {max(pair_words)} words, more than data.min_words="
                    f"{self.min_words}, so it could fill a document alone; use a larger data.min_words"
                )
            longer = (words[0] + pair_words[0], words[1] + pair_words[1])
            if max(longer) > most:
                runs.append(slice(start, number))
                most, start, longer = draw.randint(self.min_words, self.max_words), number, pair_words
            words = longer
        return runs


def warn_of_gaps(counts: Mapping[str, int]) -> None:
    """Warn of sentences that are joined though others were between them.

    Args:
        counts: of the cleaning and the split of the sentences, by step.
    """
    for part, ways_out in (
        (HELD_OUT, "data.corpus.val=FILE and data.corpus.test=FILE"),
        (": dropped, ", "data.corpus.cleaning.deduplicate=false and wider limits of data.corpus.cleaning"),
    ):
        steps = {step: count for step, count in counts.items() if part in step and count}
        if steps:
            named = ", ".join(f"{step} ({count:,})" for step, count in steps.items())
            log.warning(
                f"data=documents joins sentences that are not neighbours, since others were taken from between them: "
                f"{named}; give {ways_out}"
            )


def warn_of_blocks(splits: Mapping[str, Split]) -> None:
    """Warn of splits of several shards, over which blocks of neighbours are spread in random order."""
    for name, split in splits.items():
        if split.shards is not None and len(split.shards) > 1:
            log.warning(
                f"data=documents joins sentences that are not neighbours where blocks of {BLOCK_ROWS:,} lines meet, "
                f"since the {len(split):,} pairs of {name} are stored in such blocks, in random order; at most "
                f"{SHARD_ROWS:,} pairs keep their order"
            )
