"""Data sets in the forms of Hugging Face: Parquet and Arrow files in a folder, `save_to_disk`, or a name of the hub."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, final

from seq2seq_attn.data.cleaning import Cleaning
from seq2seq_attn.data.columns import Column
from seq2seq_attn.data.corpus import Corpus, LoadedCorpus
from seq2seq_attn.data.pair_formats import is_pair_file, without_empty
from seq2seq_attn.data.parallel import ParallelCorpus
from seq2seq_attn.errors import UserError, one_line
from seq2seq_attn.paths import given_path

SPLITS = ("train", "validation", "test")
INSTALL = "pip install 'seq2seq_attn[hub]'"

log = logging.getLogger(__name__)


@final
class HuggingfaceCorpus(Corpus):
    """A parallel corpus in the form of a Hugging Face data set, local or of the hub, whose text stays on disk.

    Args:
        path, name: see `data_set_files`.
        train_split, val_split, test_split: names of the splits; None: none. A validation or test split that is not
            there is held out of the training split by source sentence.
        source_language, target_language, source_column, target_column, cleaning: as for `ParallelCorpus`.
        val_sentences, test_sentences, seed, cache_dir, max_rejected, num_processes, verify, copy_to: the same.

    Raises:
        UserError: if there is no such data set, split or column.
    """

    def __init__(
        self,
        *,
        path: str | None,
        name: str | None,
        train_split: str | None,
        val_split: str | None,
        test_split: str | None,
        source_language: str,
        target_language: str,
        source_column: Column,
        target_column: Column,
        cleaning: Cleaning,
        val_sentences: Annotated[int | None, "[0, 1000000]"],
        test_sentences: Annotated[int | None, "[0, 1000000]"],
        seed: Annotated[int, "[0, 4294967295]"],
        cache_dir: str,
        max_rejected: Annotated[float, "[0, 1]"] = 0.01,
        num_processes: Annotated[int | None, "[1, 1000]"] = None,
        verify: bool = False,
        copy_to: str | None = None,
    ) -> None:
        self.path, self.name = path, name
        self.splits = {"train": train_split, "val": val_split, "test": test_split}
        self.options: dict[str, Any] = {
            "source_language": source_language,
            "target_language": target_language,
            "source_column": source_column,
            "target_column": target_column,
            "cleaning": cleaning,
            "val_sentences": val_sentences,
            "test_sentences": test_sentences,
            "seed": seed,
            "cache_dir": cache_dir,
            "max_rejected": max_rejected,
            "num_processes": num_processes,
            "verify": verify,
            "copy_to": copy_to,
        }

    def load(self) -> LoadedCorpus:
        """Open or prepare the corpus; with `train_split=null`, the other splits alone, for an evaluation."""
        if self.path is None:
            raise UserError("data=huggingface needs data.path=FOLDER, FILE or the name of a data set of the hub")
        given = tuple(split for split in self.splits.values() if split is not None)
        there = data_set_files(self.path, self.name, given)
        files = {ours: there.get(split) for ours, split in self.splits.items() if split is not None}
        listed = ", ".join(there)
        if self.splits["train"] is not None and files["train"] is None:
            raise UserError(
                f"{self.path} has no split '{self.splits['train']}' (splits: {listed}); set data.train_split"
            )
        if all(some is None for some in files.values()):
            raise UserError(f"{self.path} has none of the splits {', '.join(given)} (splits: {listed})")
        missing = [str(self.splits[ours]) for ours, some in files.items() if some is None]
        if missing and "train" in files:
            unread = [split for split in there if split not in given]
            level = logging.WARNING if unread else logging.INFO
            not_read = f", and {' and '.join(unread)} not read" if unread else ""
            log.log(level, f"{self.path} has the splits {listed}; {' and '.join(missing)}: held out of train{not_read}")
        return ParallelCorpus(**{"train": None, "val": None, "test": None} | files | self.options).load()


def data_set_files(path: str, name: str | None, splits: tuple[str, ...] = SPLITS) -> dict[str, list[str]]:
    """Return the files of each split of a data set.

    Args:
        path: a file of pairs, which is the split "train"; a folder that `save_to_disk` has written; a folder of
            Parquet, Arrow or other files of pairs, each in the split whose name is a word of its path, as in
            `train-00000-of-00002.parquet`, or all in "train" where none is; or a name of the hub.
        name: of a configuration of the data set, such as "fr-en", which is a subfolder of a folder.
        splits: names of splits that are looked for in paths, besides train, validation and test.

    Raises:
        UserError: if there is no such data set.
    """
    place = given_path(path, "data.path")
    if place.is_file():
        if not is_pair_file(path):
            raise UserError(
                f"data.path={path} does not end in .parquet, .arrow, .jsonl, .csv or .tsv; rename it, or use "
                "data=parallel data.train=FILE"
            )
        if name is not None:
            raise UserError(
                f"data.name={name} chooses a part of a data set, and data.path={path} is a file; leave it out"
            )
        return {"train": [str(place)]}
    if place.is_dir():
        return folder_files(place if name is None else place / name, splits)
    if path.startswith(("/", ".", "~")) or path.count("/") > 1 or is_pair_file(path):
        raise UserError(f"data.path={path} does not exist; give a folder, a file or the name of a data set of the hub")
    return hub_files(path, name)


def folder_files(folder: Path, splits: tuple[str, ...]) -> dict[str, list[str]]:
    """Return the files of each split in a folder."""
    if not folder.is_dir():
        inside = ", ".join(sorted(path.name for path in folder.parent.iterdir() if path.is_dir())) or "none"
        raise UserError(f"{folder} is no folder (folders beside it: {inside}); check data.name")
    if (folder / "state.json").is_file():
        return {"train": saved_files(folder)}
    if (folder / "dataset_dict.json").is_file():
        names = read_json_or_refuse(folder / "dataset_dict.json").get("splits", [])
        return {split: saved_files(folder / split) for split in names}
    paths = [path for path in folder.rglob("*") if not path.is_dir()]  # Spark writes folders such as train.parquet
    pair_files = [path for path in paths if is_pair_file(path.name) and ".json" not in path.suffixes]
    files = sorted(str(path.relative_to(folder)) for path in pair_files)  # in a folder, .json describes the data set
    files = [file for file in files if not any(part.startswith(".") for part in Path(file).parts)]  # hidden ones
    if not files:
        raise UserError(f"{folder} has no .parquet, .arrow, .jsonl, .csv or .tsv file; check data.path and data.name")
    by_split: dict[str, list[str]] = {}
    known = sorted({*splits, *SPLITS}, key=len, reverse=True)  # test_2017 before test
    for file in files:
        by_split.setdefault(split_of(file, known), []).append(str(folder / file))
    if set(by_split) == {""}:
        return {"train": not_empty(by_split[""], f"a split of {folder}")}
    if others := by_split.pop("", []):
        log.warning(
            f"{len(others)} files of {folder} are in none of the splits {', '.join(splits)}, and are not read, such as "
            f"{os.path.relpath(others[0], folder)}; set data.val_split=... or data.test_split=..."
        )
    given = {split: not_empty(by_split[split], f"a split of {folder}") for split in splits if split in by_split}
    return given | {split: files for split, files in by_split.items() if split not in given}


def not_empty(files: list[str], given: str) -> list[str]:
    return [str(file) for file in without_empty([Path(file) for file in files], given)]


def split_of(file: str, known: Sequence[str]) -> str:
    """Return the split that a path names in its last part that names one; "" if none does.

    Args:
        known: names of splits; of two that are named, one that is a part of the other does not count.

    Raises:
        UserError: if a part names two.
    """
    for part in reversed(Path(file).parts):
        named = [split for split in known if names_split(part, split)]
        longest = [split for split in named if not any(split != other and names_split(other, split) for other in named)]
        if len(longest) > 1:
            raise UserError(f"{file}: {part} names the splits {' and '.join(sorted(longest))}; rename it after one")
        if longest:
            return longest[0]
    return ""


def names_split(file: str, split: str) -> bool:
    """Return whether a path has the name of a split, as a word of it."""
    return re.search(rf"(?<![a-z0-9]){re.escape(split.lower())}(?![a-z0-9])", file.lower()) is not None


def saved_files(folder: Path) -> list[str]:
    """Return the files of a split that `save_to_disk` has written, in their order."""
    files = [
        str(folder / entry["filename"]) for entry in read_json_or_refuse(folder / "state.json").get("_data_files", [])
    ]
    if not files:
        raise UserError(f"{folder / 'state.json'} names no files; write the data set again")
    return not_empty(files, str(folder))


def read_json_or_refuse(file: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(file.read_text("utf-8")))
    except (OSError, ValueError) as error:
        raise UserError(f"{file} cannot be read ({one_line(error)}); write the data set again") from error


def hub_files(path: str, name: str | None) -> dict[str, list[str]]:
    """Return the Arrow files of a data set of the hub, downloaded once into the cache of `datasets`."""
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise UserError(
            f"data.path={path} is no file or folder; a data set of the hub needs the package datasets: {INSTALL}"
        ) from error
    try:
        loaded = load_dataset(path, name)
    except Exception as error:  # of the network, of the hub, and of whatever reads the files
        raise UserError(
            f"the data set {path} cannot be loaded ({type(error).__name__}: {one_line(error)}); check data.path, "
            "data.name and the network"
        ) from error
    files = {str(split): [file["filename"] for file in data_set.cache_files] for split, data_set in loaded.items()}
    return {split: not_empty(some, f"the split {split} of {path}") for split, some in files.items()}
