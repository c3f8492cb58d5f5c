"""Image captions of Multi30k, task 1. Elliott et al. 2016, arXiv:1605.00459; French: Elliott et al. 2017."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

from seq2seq_attn.data.cleaning import Cleaning
from seq2seq_attn.data.corpus import CleaningReport, Corpus, LoadedCorpus
from seq2seq_attn.data.download import fetch
from seq2seq_attn.data.reading import read_parallel
from seq2seq_attn.data.splitting import clean_splits
from seq2seq_attn.data.store.pair_source import file_identity
from seq2seq_attn.errors import UserError
from seq2seq_attn.paths import given_path

URL = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/{name}"


@final
class Multi30kCorpus(Corpus):
    """The Multi30k corpus, with its own splits.

    Args:
        path: folder with the files {split}{suffix}.{language}, plain or gzipped, or with a subfolder tok that holds
            them; None: downloaded once into the cache.
        suffix: "" for the raw captions, ".lc.norm.tok" for the tokenized ones.
        test_split: test_2016_flickr, test_2017_flickr or test_2017_mscoco.
    """

    def __init__(
        self,
        *,
        path: str | None,
        suffix: str,
        test_split: str,
        source_language: str,
        target_language: str,
        cleaning: Cleaning,
        cache_dir: str,
    ) -> None:
        for name in (suffix, test_split, source_language, target_language):
            if "/" in name or "\\" in name:
                raise UserError(
                    f"{name} would be part of a file's name, which cannot contain a slash; check data.test_split, "
                    "data.suffix and the languages"
                )
        self.folder = None if path is None else given_path(path, "data.path")
        self.suffix, self.test_split = suffix, test_split
        self.source_language, self.target_language = source_language, target_language
        self.cleaning, self.cache_dir = cleaning, given_path(cache_dir, "data.cache_dir") / "multi30k"

    def load(self) -> LoadedCorpus:
        languages = (self.source_language, self.target_language)
        raw = {
            split: read_parallel(*(self._file(name, language) for language in languages))
            for split, name in {"train": "train", "val": "val", "test": self.test_split}.items()
        }
        splits, counts = clean_splits(raw, self.cleaning)
        return LoadedCorpus(splits, CleaningReport(counts), *languages)

    def training_pairs(self) -> Iterator[list[tuple[str, str] | None]]:
        yield self.cleaning.normalize_pairs(read_parallel(*self._training_files()))

    def training_identity(self) -> list[Any]:
        return [file_identity(file, verify=False) for file in self._training_files()]

    def _training_files(self) -> list[Path]:
        return [self._file("train", language) for language in (self.source_language, self.target_language)]

    def _file(self, split: str, language: str) -> Path:
        name = f"{split}{self.suffix}.{language}"
        if self.folder is None:
            if self.suffix:
                raise UserError(
                    f"files with data.suffix={self.suffix} are not downloaded; set data.path=FOLDER to a folder with "
                    "them"
                )
            return fetch(URL.format(name=f"{name}.gz"), self.cache_dir / f"{name}.gz", "data.path=FOLDER")
        for folder in (self.folder, self.folder / "tok"):
            for file in (folder / name, folder / f"{name}.gz"):
                if os.path.isfile(file):  # Path.is_file raises for a long name or an unreadable folder
                    return file
        raise UserError(
            f"{self.folder} has no {name} or {name}.gz; check data.path, data.suffix, data.test_split and the languages"
        )
