"""The types and shapes of signatures are checked while the tests run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import checked_types
import numpy as np
import pytest
import torch
from checked_types import jaxtyped
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import Bool, Float, Float32, Int, Num, Shaped, TypeCheckError
from jaxtyping._storage import get_shape_memo
from torch import Tensor

from seq2seq_attn.attention.attention import Attention
from seq2seq_attn.nn.linear import matrix
from seq2seq_attn.nn.masked import masked_mean

checked = jaxtyped(typechecker=None)  # it takes beartype


@checked
def shaped(
    query: Float[Tensor, "*batch length"], keys: Float[Tensor, "*batch source"] | None = None
) -> Float[Tensor, "*batch length"]:
    return query if keys is None else keys


@checked
def typed(count: int, rate: float = 0.5) -> str:
    return "more" if count else None  # type: ignore[return-value]


@checked
@dataclass(frozen=True)
class Pair:
    values: Float[Tensor, " batch"]
    lengths: Int[Tensor, " batch"]


def test_what_fits_is_accepted_and_a_call_knows_nothing_of_the_sizes_of_another() -> None:
    for size in (2, 3):
        assert shaped(torch.ones(size, 4), torch.ones(size, 4)).shape == (size, 4)
        assert Pair(torch.ones(size), torch.ones(size).long()).values.shape == (size,)
    assert typed(1) == "more"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: shaped(torch.ones(2, 4).long()),
        lambda: shaped(torch.ones(2, 4), torch.ones(3, 4)),
        lambda: shaped(torch.ones(2, 4), torch.ones(2, 5)),  # what it returns
        lambda: Pair(torch.ones(2), torch.ones(3).long()),
        lambda: typed("1"),
        lambda: typed(1, rate=1),
        lambda: typed(0),  # what it returns
        lambda: masked_mean(torch.ones(2, 3, 4), torch.ones(2, 5).bool()),
    ],
    ids=range(8),
)
def test_what_does_not_fit_is_refused(wrong: object) -> None:
    with pytest.raises(TypeCheckError):
        wrong()  # type: ignore[operator]


ARRAYS = [
    Float[Tensor, "batch length"], Float[Tensor, "length batch"], Int[Tensor, "batch 3"], Bool[Tensor, "*rest length"],
    Float[Tensor, "batch *rest"], Float[Tensor, "... length"], Float[Tensor, "batch _"], Float[Tensor, ""],
    Float[Tensor, "*#rest length"], Float[Tensor, "#batch length"], Shaped[Tensor, "length length"],
    Float32[Tensor, "*rest"], Float[np.ndarray, "batch length"], Num[Tensor, "2 *rest batch"],
]  # fmt: skip


@given(st.data())
def test_an_array_is_what_jaxtyping_takes_it_for_and_the_sizes_that_are_known_then_are_the_same(data: Any) -> None:
    shapes = st.lists(st.sampled_from([0, 1, 2, 3]), max_size=4)
    kinds = st.sampled_from([torch.float32, torch.float64, torch.int64, torch.bool])
    values: list[Any] = [
        torch.zeros(shape, dtype=data.draw(kinds)) for shape in data.draw(st.lists(shapes, max_size=5))
    ]
    asked = [(data.draw(st.sampled_from(ARRAYS)), value) for value in [*values, np.zeros((2, 3)), None]]
    said = []
    for check in (checked_types.check_slowly, checked_types.is_instance):
        with checked_types.slower("context"):
            answers = [check(annotation, value) for annotation, value in asked]
            said.append((answers, *get_shape_memo()[:2]))
    assert said[0] == said[1]


def test_the_package_is_checked_by_it() -> None:
    """A package that a test's helper imports before conftest.py has chosen it is checked twice as slowly."""
    for function in (Attention.forward, matrix, masked_mean):
        assert function.__code__.co_filename == checked_types.__file__


def test_nothing_of_a_call_is_left_after_an_error() -> None:
    with pytest.raises(TypeCheckError):
        shaped(torch.ones(2, 4), torch.ones(3, 4))
    assert isinstance(torch.ones(5), Float[Tensor, " length"])
