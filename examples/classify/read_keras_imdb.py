"""A safe reader of Keras' `imdb.npz` (x_train, y_train, x_test, y_test), which executes no code from the file.

Its reviews are an array of lists, which NumPy stores as a pickle. A pickle may call any function, so `np.load` needs
`allow_pickle=True` for it. This module reads the lists without calling anything. It also reads reviews padded to one
matrix, which need no pickle.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from seq2seq_attn.errors import UserError

PAD, START, RARE, FIRST = 0, 1, 2, 3  # Keras adds FIRST to a word's rank
OF_AN_ARRAY = {("numpy", "ndarray"), ("numpy", "dtype")} | {
    (f"numpy.{core}.multiarray", "_reconstruct") for core in ("core", "_core")
}
Split = tuple[list[list[int]], list[int]]


def read_keras_imdb(path: Path, *, num_words: int, length: int) -> dict[str, Split]:
    """Return reviews and labels of `train` and `test` as `imdb.load_data(num_words)` and `pad_sequences(maxlen)` do.

    A review starts with START, words from rank `num_words` - 3 on become RARE, and the last `length` tokens are kept.

    Raises:
        UserError: if the file is not an npz file with these arrays.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            arrays = {name.removesuffix(".npy"): archive.read(name) for name in archive.namelist()}
    except (OSError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} cannot be read as npz ({error}); use Keras' imdb.npz") from error
    missing = [name for name in ("x_train", "y_train", "x_test", "y_test") if name not in arrays]
    if missing:
        raise UserError(f"{path} has no {missing[0]}; use an npz file with x_train, y_train, x_test and y_test")
    splits = {}
    for split in ("train", "test"):
        reviews, labels = (read_array(arrays[f"{kind}_{split}"], path) for kind in "xy")
        tokens = [[START, *(word + FIRST for word in review if word != PAD)] for review in reviews]
        kept = [[token if token < num_words else RARE for token in review][-length:] for review in tokens]
        splits[split] = (kept, labels)
    return splits


def read_array(content: bytes, path: Path) -> list[Any]:
    """Return the numbers, or lists of numbers, of an npy file."""
    file = io.BytesIO(content)
    try:
        version = np.lib.format.read_magic(file)
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        if not header(file)[2].hasobject:
            file.seek(0)
            return np.lib.format.read_array(file, allow_pickle=False).tolist()
        rows = ListsOnly(file).load().state[-1]
    except (pickle.UnpicklingError, EOFError, ValueError, AttributeError, TypeError, IndexError) as error:
        raise UserError(f"{path} does not contain plain lists ({error}); use Keras' imdb.npz") from error
    if not all(type(row) is list and all(type(word) is int for word in row) for row in rows):
        raise UserError(f"{path} does not contain lists of integers; use Keras' imdb.npz")
    return rows


class Inert:
    """A replacement for every class and function that a pickled array names; it only stores the state."""

    def __init__(self, *arguments: Any) -> None:
        self.state: Any = ()

    def __setstate__(self, state: Any) -> None:
        self.state = state


class ListsOnly(pickle.Unpickler):
    """An unpickler that loads no classes and functions."""

    def find_class(self, module: str, name: str) -> type:
        if (module, name) not in OF_AN_ARRAY:
            raise pickle.UnpicklingError(f"it refers to {module}.{name}")
        return Inert
