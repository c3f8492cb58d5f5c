"""The small generated corpora that the package includes: English-French sentences, and two tasks in English."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Literal, final

from seq2seq_attn.data.cleaning import Cleaning
from seq2seq_attn.data.corpus import CleaningReport, Corpus, LoadedCorpus
from seq2seq_attn.data.reading import orient, read_pairs
from seq2seq_attn.data.splitting import clean_splits
from seq2seq_attn.data.store.pair_source import file_identity
from seq2seq_attn.errors import UserError
from seq2seq_attn.paths import demo_directory, given_path

FILES = {"train": "train.tsv", "val": "val.tsv", "test": "test.tsv"}
TRANSLATION = FILES | {"test_unseen": "unseen.tsv"}


@final
class DemoCorpus(Corpus):
    """The demo corpus.

    Args:
        path: folder with train.tsv, val.tsv and test.tsv, and unseen.tsv of sentences; None: the included one.
        task: `summary` for documents and their headlines, `dialogue` for dialogues and their next turn; None:
            sentences and their translations.
    """

    def __init__(
        self,
        *,
        path: str | None,
        source_language: str,
        target_language: str,
        cleaning: Cleaning,
        task: Literal["summary", "dialogue"] | None = None,
    ) -> None:
        self.task, self.files = task, TRANSLATION if task is None else FILES
        self.folder = demo_directory() / (task or "") if path is None else given_path(path, "data.path")
        self.source_language, self.target_language = source_language, target_language
        self.cleaning = cleaning

    def load(self) -> LoadedCorpus:
        if not os.path.isdir(self.folder):  # Path.is_dir raises for a name that is too long
            raise UserError(
                f"data=demo: the folder {self.folder} does not exist; set data.path=FOLDER to "
                f"a folder with {', '.join(self.files.values())}"
            )
        languages = (self.source_language, self.target_language)
        raw = {name: self._pairs(file) for name, file in self.files.items()}
        splits, counts = clean_splits(raw, self.cleaning)
        return LoadedCorpus(splits, CleaningReport(counts), *languages)

    def training_pairs(self) -> Iterator[list[tuple[str, str] | None]]:
        yield self.cleaning.normalize_pairs(self._pairs(self.files["train"]))

    def training_identity(self) -> list[Any]:
        return file_identity(self.folder / self.files["train"], verify=False)

    def _pairs(self, file: str) -> list[tuple[str, str]]:
        pairs = read_pairs(self.folder / file)
        return orient(pairs, self.source_language, self.target_language) if self.task is None else pairs
