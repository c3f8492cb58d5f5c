"""An option that is a number answers for a word with a sentence."""

from __future__ import annotations

from typing import Any

import pytest
from omegaconf import OmegaConf

from seq2seq_attn.tensors.error import UserError
from seq2seq_attn.training.option_types import check_numbers

GOOD = {
    "seed": 1,
    "batch_tokens": 64,
    "num_threads": None,
    "val_sentences": 5,
    "label_smoothing": 0,
    "r_drop_alpha": 0.5,
}


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("seed", "abc", "a whole number"),
        ("batch_tokens", "abc", "a whole number"),
        ("num_threads", 1.5, "a whole number"),
        ("val_sentences", 2.5, "a whole number"),
        ("val_sentences", True, "a whole number"),
        ("label_smoothing", "abc", "a number"),
        ("r_drop_alpha", "abc", "a number"),
    ],
)
def test_what_is_no_number_is_refused_by_its_name(name: str, value: Any, kind: str) -> None:
    check_numbers(OmegaConf.create(GOOD))
    with pytest.raises(UserError, match=f"^{name}={value} is to be {kind}; "):
        check_numbers(OmegaConf.create(GOOD | {name: value}))
