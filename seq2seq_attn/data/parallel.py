"""User-supplied sentence pairs: two line-aligned files per split, or one of tab-separated columns or JSON lines."""

from __future__ import annotations

from pathlib import Path
from typing import final

from seq2seq_attn.data.cleaning import Cleaning
from seq2seq_attn.data.corpus import CleaningReport, Corpus, LoadedCorpus
from seq2seq_attn.data.reading import read_json_lines, read_pairs, read_parallel
from seq2seq_attn.data.splitting import clean_splits, split_by_source
from seq2seq_attn.errors import UserError
from seq2seq_attn.paths import given_path

Files = str | list[str] | None


@final
class ParallelCorpus(Corpus):
    """A parallel corpus read from the user's files.

    Args:
        train, val, test: [SOURCE, TARGET], two line-aligned files, or one .tsv or .jsonl file; each may be gzipped.
            Without `val` and `test`, both are held out of `train` by source sentence.
        source_language, target_language: names of the two sides; they do not swap columns or files.
        source_column, target_column: column numbers in a .tsv file, from 1.
        source_field, target_field: field names in a .jsonl file; None: the names of the languages.
        val_sentences, test_sentences, seed: sizes and seed of the held-out splits.

    Raises:
        UserError: if the files, columns or fields do not make a corpus.
    """

    def __init__(
        self,
        *,
        train: Files,
        val: Files,
        test: Files,
        source_language: str,
        target_language: str,
        source_field: str | None,
        target_field: str | None,
        cleaning: Cleaning,
        val_sentences: int,
        test_sentences: int,
        seed: int,
        source_column: int = 1,
        target_column: int = 2,
    ) -> None:
        self.files = {"train": train, "val": val, "test": test}
        self.source_language, self.target_language = source_language, target_language
        self.fields = (source_field or source_language, target_field or target_language)
        self.columns = (source_column, target_column)
        if source_column == target_column or not {source_column, target_column} <= {1, 2, 3}:
            raise UserError(
                f"data.source_column={source_column} and data.target_column={target_column} are not two columns of the "
                "file; use two different numbers from 1 to 3"
            )
        self.cleaning = cleaning
        self.val_sentences, self.test_sentences, self.seed = val_sentences, test_sentences, seed

    def load(self) -> LoadedCorpus:
        if self.files["train"] is None:
            raise UserError("data=parallel needs data.train=[SOURCE,TARGET] or data.train=FILE, a .tsv or .jsonl file")
        given = [name for name, files in self.files.items() if files is not None]
        if given == ["train"]:
            splits, counts = split_by_source(
                self._read("train"),
                self.cleaning,
                val_sentences=self.val_sentences,
                test_sentences=self.test_sentences,
                seed=self.seed,
            )
        elif len(given) == len(self.files):
            splits, counts = clean_splits({name: self._read(name) for name in given}, self.cleaning)
        else:
            missing = next(name for name in self.files if name not in given)
            raise UserError(
                f"data.{missing} is missing; set both data.val and data.test, or neither to hold them out of data.train"
            )
        languages = (self.source_language, self.target_language)
        return LoadedCorpus(splits, CleaningReport(counts), *languages, self._origins())

    def _read(self, name: str) -> list[tuple[str, str]]:
        files = self.files[name]
        if isinstance(files, list):
            if len(files) != 2:
                raise UserError(f"data.{name} lists {len(files)} files; use [SOURCE,TARGET] or one file")
            return read_parallel(*(given_path(file, f"data.{name}") for file in files))
        assert files is not None
        file = given_path(files, f"data.{name}")
        if is_json(file):
            return read_json_lines(file, *self.fields)
        return read_pairs(file, "source, target, anything", self.columns)

    def _origins(self) -> tuple[str, str]:
        """Return the file, field or column of each side of the training split."""
        files = self.files["train"]
        if isinstance(files, list):
            source, target = (Path(file).name for file in files)
        elif is_json(files):
            source, target = (f"field {field}" for field in self.fields)
        else:
            source, target = (f"column {column}" for column in self.columns)
        return source, target


def is_json(file: str | Path | None) -> bool:
    return str(file).removesuffix(".gz").endswith((".jsonl", ".json"))
