"""Named tuples with other fields."""

from __future__ import annotations

import pytest
import torch

from seq2seq_attn.attention.state import Attended
from seq2seq_attn.nn.named_tuple import with_fields


def test_a_copy_with_other_fields_is_that_of_replace() -> None:
    attended = Attended(torch.ones(1, 2, 3), weights=torch.zeros(1, 1, 2, 4))
    changes = {"weights": None, "entropy": torch.ones(1, 2)}
    ours, theirs = with_fields(attended, **changes), attended._replace(**changes)
    assert type(ours) is Attended
    assert all(one is other for one, other in zip(ours, theirs, strict=True))
    assert attended.weights is not None


def test_a_field_that_is_not_there_is_named() -> None:
    with pytest.raises(KeyError, match="Attended has no memories"):
        with_fields(Attended(torch.ones(1, 2, 3), None), memories=None)
