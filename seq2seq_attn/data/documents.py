"""Long texts from short ones: neighbouring sentences of a corpus joined, both sides alike."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import final

from seq2seq_attn.data.corpus import CleaningReport, Corpus, LoadedCorpus, Split
from seq2seq_attn.errors import UserError


@final
class DocumentCorpus(Corpus):
    """Each split is cut, in its order, into runs of sentences; what is left of one at its end is left out.

    A document has one reference, of the first references of its sentences.

    Args:
        corpus: whose sentences are joined, after it has cleaned them.
        min_words, max_words: of the longer side of a document. Its length is drawn between them, and it has as many
            sentences as fit.
        source_language, target_language: those of the corpus.

    Raises:
        UserError: if the limits are none, or a sentence is longer than a document.
    """

    def __init__(
        self, *, corpus: Corpus, min_words: int, max_words: int, seed: int, source_language: str, target_language: str
    ) -> None:
        if not 1 <= min_words <= max_words:
            raise UserError(
                f"data.min_words={min_words} data.max_words={max_words} leave no length; use 1 <= min_words <= "
                "max_words"
            )
        self.corpus, self.min_words, self.max_words, self.seed = corpus, min_words, max_words, seed
        self.source_language, self.target_language = source_language, target_language

    def load(self) -> LoadedCorpus:
        loaded = self.corpus.load()
        splits = {name: self._joined(name, split) for name, split in loaded.splits.items()}
        counts = {f"{name}: documents": len(split) for name, split in splits.items()}
        report = CleaningReport(loaded.report.counts | counts)
        return replace(loaded, splits=splits, report=report)

    def _joined(self, name: str, split: Split) -> Split:
        runs = self._runs(name, split)
        if not runs:
            raise UserError(
                f"the sentences of {name} fill no document of {self.min_words} words; use a smaller data.min_words"
            )
        sources, targets = ([" ".join(side[run]) for run in runs] for side in (split.sources, split.targets))
        firsts = [references[0] for references in split.references]
        return Split(sources, targets, [[" ".join(firsts[run])] for run in runs])

    def _runs(self, name: str, split: Split) -> list[slice]:
        """Where each document begins and ends."""
        draw, runs, start = Random(f"{self.seed}\t{name}"), [], 0
        most, words = draw.randint(self.min_words, self.max_words), (0, 0)
        for position, pair in enumerate(zip(split.sources, split.targets, strict=True)):
            own = tuple(len(side.split()) for side in pair)
            if max(own) > self.min_words:
                raise UserError(
                    f"sentence {position + 1} of {name} has {max(own)} words, more than data.min_words="
                    f"{self.min_words}, so it could fill a document alone; use a larger data.min_words"
                )
            longer = (words[0] + own[0], words[1] + own[1])
            if max(longer) > most:
                runs.append(slice(start, position))
                most, start, longer = draw.randint(self.min_words, self.max_words), position, (own[0], own[1])
            words = longer
        return runs
