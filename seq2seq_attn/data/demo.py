"""The small generated English-French corpus that the package includes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import final

from seq2seq_attn.data.cleaning import Cleaning
from seq2seq_attn.data.corpus import CleaningReport, Corpus, LoadedCorpus
from seq2seq_attn.data.reading import orient, read_pairs
from seq2seq_attn.data.splitting import clean_splits
from seq2seq_attn.errors import UserError
from seq2seq_attn.paths import demo_directory, given_path

FILES = {"train": "train.tsv", "val": "val.tsv", "test": "test.tsv", "test_unseen": "unseen.tsv"}


@final
class DemoCorpus(Corpus):
    """The demo corpus.

    Args:
        path: folder with train.tsv, val.tsv, test.tsv and unseen.tsv; None: the included one.
    """

    def __init__(self, *, path: str | None, source_language: str, target_language: str, cleaning: Cleaning) -> None:
        self.folder = demo_directory() if path is None else given_path(path, "data.path")
        self.source_language, self.target_language = source_language, target_language
        self.cleaning = cleaning

    def load(self) -> LoadedCorpus:
        if not os.path.isdir(self.folder):  # Path.is_dir raises for a name that is too long
            raise UserError(
                f"data=demo: the folder {self.folder} does not exist; set data.path=FOLDER to "
                f"a folder with {', '.join(FILES.values())}"
            )
        languages = (self.source_language, self.target_language)
        raw = {name: orient(read_pairs(self.folder / file), *languages) for name, file in FILES.items()}
        splits, counts = clean_splits(raw, self.cleaning)
        return LoadedCorpus(splits, CleaningReport(counts), *languages)

    def training_pairs(self) -> Iterator[list[tuple[str, str] | None]]:
        pairs = orient(read_pairs(self.folder / FILES["train"]), self.source_language, self.target_language)
        yield self.cleaning.normalize_pairs(pairs)
