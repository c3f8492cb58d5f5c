"""Everyday sentences of tatoeba.org, as manythings.org/anki exports them: `fra.txt`, split here by source."""

from __future__ import annotations

from pathlib import Path
from typing import final

from seq2seq_attn.data.cleaning import Cleaning
from seq2seq_attn.data.corpus import Corpus, LoadedCorpus
from seq2seq_attn.data.reading import read_pairs, turn
from seq2seq_attn.data.report import CleaningReport
from seq2seq_attn.data.splitting import split_by_source
from seq2seq_attn.tensors.error import UserError


@final
class TatoebaCorpus(Corpus):
    """Args:
    path: the raw file of two or three columns: English, French, attribution.
    val_sentences, test_sentences: source sentences held out.
    """

    def __init__(
        self, *, path: str | None, source_language: str, target_language: str, cleaning: Cleaning,
        val_sentences: int = 1000, test_sentences: int = 1000, seed: int,
    ) -> None:  # fmt: skip
        self.path = path
        self.source_language, self.target_language = source_language, target_language
        self.cleaning = cleaning
        self.val_sentences, self.test_sentences, self.seed = val_sentences, test_sentences, seed

    def load(self) -> LoadedCorpus:
        if self.path is None:
            raise UserError(
                "data=tatoeba needs data.path=FILE, the fra.txt of https://www.manythings.org/anki/fra-eng.zip"
            )
        languages = (self.source_language, self.target_language)
        splits, counts = split_by_source(
            turn(read_pairs(Path(self.path).expanduser()), *languages), self.cleaning,
            val_sentences=self.val_sentences, test_sentences=self.test_sentences, seed=self.seed,
        )  # fmt: skip
        return LoadedCorpus(splits, CleaningReport(counts), *languages)
