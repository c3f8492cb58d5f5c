"""What half precision is converted to, and when."""

from __future__ import annotations

import pytest
import torch

from seq2seq_attn.nn.precision import as_autocast, at_least_float32

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def test_sums_are_of_float32_at_least() -> None:
    found = [at_least_float32(torch.ones(2, dtype=dtype)).dtype for dtype in DTYPES]
    assert found == [torch.float32] * 3 + [torch.float64]


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_a_factor_is_cast_within_autocast_alone_and_float64_never(half: torch.dtype) -> None:
    def found() -> list[torch.dtype]:
        return [as_autocast(torch.ones(2, dtype=dtype)).dtype for dtype in DTYPES]

    assert found() == list(DTYPES)
    with torch.autocast("cpu", half):
        assert found() == [half] * 3 + [torch.float64]
