"""Keras' reviews are read as Keras does, and a file with code is refused without executing it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples.classify.read_keras_imdb import read_array, read_keras_imdb
from seq2seq_attn.errors import UserError

REVIEWS = [[1, 14, 7], [5, 9, 2, 6, 3]]


class Trap:
    """Return the call that unpickling would make."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def objects(rows: list[Any]) -> np.ndarray:
    array = np.empty(len(rows), dtype=object)
    array[:] = rows
    return array


def saved(path: Path, **changed: Any) -> Path:
    arrays = {
        "x_train": objects(REVIEWS),
        "y_train": np.array([1, 0]),
        "x_test": objects(REVIEWS[:1]),
        "y_test": np.array([1]),
    } | changed
    np.savez(path, **arrays)
    return path


def test_reviews_are_those_of_load_data_and_pad_sequences(tmp_path: Path) -> None:
    # A word is its rank + 3, and rare (2) from 10 on; a start token (1) comes first; the last four tokens are kept.
    found = read_keras_imdb(saved(tmp_path / "imdb.npz"), num_words=10, length=4)
    assert found == {"train": ([[1, 4, 2, 2], [2, 5, 9, 6]], [1, 0]), "test": ([[1, 4, 2, 2]], [1])}


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_every_pickle_protocol_that_numpy_has_written_is_read(protocol: int) -> None:
    pickled = pickle.dumps(objects(REVIEWS), protocol=max(protocol, 3))
    if protocol == 2:  # from Python 2, which had no bytes, and NumPy 1
        for new, old in ((b"\x80\x03", b"\x80\x02"), (b"numpy._core", b"numpy.core"), (b"C\x01b", b"U\x01b")):
            assert pickled.count(new) == 1
            pickled = pickled.replace(new, old)
    text = b"{'descr': '|O', 'fortran_order': False, 'shape': (2,)}\n"
    content = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + pickled
    assert read_array(content, Path("imdb.npz")) == REVIEWS


def test_a_padded_matrix_needs_no_pickle(tmp_path: Path) -> None:
    matrix = np.array([[0, 0, 1, 14, 7], [5, 9, 2, 6, 3]])
    path = saved(tmp_path / "imdb.npz", x_train=matrix, x_test=matrix[:1])
    assert np.load(path, allow_pickle=False)["x_train"].shape == (2, 5)
    plain = read_keras_imdb(path, num_words=20, length=9)
    assert plain == read_keras_imdb(saved(tmp_path / "lists.npz"), num_words=20, length=9)


def test_a_file_with_code_is_refused_without_executing_it(tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    path = saved(tmp_path / "imdb.npz", x_train=objects([[1], Trap(touched)]))
    with pytest.raises(UserError, match=r"imdb.npz does not contain plain lists \(it refers to pathlib.Path.touch\)"):
        read_keras_imdb(path, num_words=10, length=4)
    assert not touched.exists()
    assert np.load(path, allow_pickle=True)["x_train"][0] == [1]
    assert touched.exists(), "the trap is none"


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"x_train": objects([[1], "two"])}, "does not contain lists of integers; use Keras' imdb.npz"),
        ({"x_train": objects([[1], [2.5]])}, "does not contain lists of integers; use Keras' imdb.npz"),
        ({"x_train": objects([np.array([1]), [2]])}, "does not contain"),
    ],
)
def test_arrays_without_lists_of_words_are_refused(tmp_path: Path, changed: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        read_keras_imdb(saved(tmp_path / "imdb.npz", **changed), num_words=10, length=4)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "half.npz", x_train=objects(REVIEWS))
    with pytest.raises(UserError, match="has no y_train; use an npz file with x_train, y_train, x_test and y_test"):
        read_keras_imdb(tmp_path / "half.npz", num_words=10, length=4)
    (tmp_path / "text.npz").write_text("no archive")
    for name in ("text.npz", "absent.npz"):
        with pytest.raises(UserError, match=rf"{name} cannot be read as npz \(.*; use Keras' imdb.npz"):
            read_keras_imdb(tmp_path / name, num_words=10, length=4)
