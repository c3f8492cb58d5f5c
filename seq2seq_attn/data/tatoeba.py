"""Everyday sentences from tatoeba.org as exported by manythings.org/anki (`fra.txt`), split here by source."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, final

from seq2seq_attn.data.cleaning import Cleaning
from seq2seq_attn.data.corpus import CleaningReport, Corpus, LoadedCorpus
from seq2seq_attn.data.download import fetch
from seq2seq_attn.data.reading import orient, read_pairs
from seq2seq_attn.data.splitting import clean_splits
from seq2seq_attn.data.store.pair_source import file_identity
from seq2seq_attn.errors import UserError
from seq2seq_attn.files import replacing
from seq2seq_attn.paths import given_path

URL = "https://www.manythings.org/anki/fra-eng.zip"
UNZIP_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, KeyError, RuntimeError)  # the last for one with a password


@final
class TatoebaCorpus(Corpus):
    """The Tatoeba corpus.

    Args:
        path: the raw file with two or three columns: English, French, attribution; None: downloaded once into the
            cache.
        num_pairs: read this number of pairs, from the first line; None: all.
        val_sentences, test_sentences: number of source sentences held out for validation and test; 0: there is no such
            split.
        seed: seed of the split.
    """

    def __init__(
        self,
        *,
        path: str | None,
        source_language: str,
        target_language: str,
        cleaning: Cleaning,
        val_sentences: Annotated[int, "[0, 1000000]"],
        test_sentences: Annotated[int, "[0, 1000000]"],
        seed: Annotated[int, "[0, 4294967295]"],
        cache_dir: str,
        num_pairs: Annotated[int | None, "[1, 1000000]"] = None,
    ) -> None:
        self.path, self.num_pairs = path, num_pairs
        self.source_language, self.target_language = source_language, target_language
        self.cleaning = cleaning
        self.val_sentences, self.test_sentences, self.seed = val_sentences, test_sentences, seed
        self.cache_dir = given_path(cache_dir, "data.cache_dir") / "tatoeba"

    def load(self) -> LoadedCorpus:
        languages = (self.source_language, self.target_language)
        sizes = {"val": self.val_sentences, "test": self.test_sentences}
        held_out: dict[str, int | None] = {split: size for split, size in sizes.items() if size != 0}
        raw = {"train": orient(read_pairs(self._file())[: self.num_pairs], *languages)}
        splits, counts = clean_splits(raw, self.cleaning, held_out, self.seed)
        return LoadedCorpus(splits, CleaningReport(counts), *languages)

    def training_pairs(self) -> Iterator[list[tuple[str, str] | None]]:
        pairs = orient(read_pairs(self._file())[: self.num_pairs], self.source_language, self.target_language)
        yield self.cleaning.normalize_pairs(pairs)

    def training_identity(self) -> list[Any]:
        return [self.num_pairs, *file_identity(self._file(), verify=False)]

    def _file(self) -> Path:
        if self.path is not None:
            return given_path(self.path, "data.path")
        file = self.cache_dir / "fra.txt"
        if not file.exists():
            archive = fetch(URL, self.cache_dir / "fra-eng.zip", "data.path=FILE, its fra.txt")
            try:
                with zipfile.ZipFile(archive) as zipped, replacing(file) as stream:
                    stream.write(zipped.read("fra.txt"))
            except UNZIP_ERRORS as error:
                archive.unlink()
                raise UserError(
                    f"{URL} is not a zip file with fra.txt in it ({error}); try again, or set data.path=FILE"
                ) from error
        return file
