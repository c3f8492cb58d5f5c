"""The mode of a search: no gradients, and tanh by way of the sigmoid."""

from __future__ import annotations

import inspect
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from seq2seq_attn.nn.search_mode import rounding_may_differ, search_mode
from seq2seq_attn.nn.tanh import tanh


@search_mode()
def fail() -> None:
    assert rounding_may_differ()
    assert torch.is_inference_mode_enabled()
    raise KeyError


def test_an_error_ends_the_mode() -> None:
    with pytest.raises(KeyError):
        fail()
    assert not rounding_may_differ()
    assert not torch.is_inference_mode_enabled()


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 3e-7), (torch.float64, 1e-15)])
def test_tanh_in_a_search_is_that_of_torch(dtype: torch.dtype, error: float) -> None:
    x = torch.cat([torch.linspace(-20, 20, 10_001), torch.tensor([-torch.inf, -1e30, 1e30, torch.inf])]).to(dtype)
    with search_mode():
        found = tanh(x)
    torch.testing.assert_close(found, torch.tanh(x), rtol=0, atol=error)
    assert torch.equal(tanh(x), torch.tanh(x))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_tanh_of_half_precision_keeps_its_digits(dtype: torch.dtype) -> None:
    x = torch.linspace(-1, 1, 1_001).to(dtype)
    with search_mode():
        assert torch.equal(tanh(x), torch.tanh(x))


def test_a_search_of_one_thread_is_none_of_another() -> None:
    with search_mode(), ThreadPoolExecutor(1) as other:
        assert rounding_may_differ()
        assert not other.submit(rounding_may_differ).result()


def test_a_compiled_program_is_in_one_piece_and_in_no_search() -> None:
    asked = inspect.unwrap(rounding_may_differ)  # without the checks of types in tests, which torch cannot compile
    compiled = torch.compile(lambda x: x + asked(), backend="eager", fullgraph=True)
    with search_mode():
        assert compiled(torch.ones(1)) == 1
