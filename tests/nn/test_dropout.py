"""Dropout on a CPU: the share dropped, the scale, the gradient, and masks that are a function of torch's seed."""

from __future__ import annotations

import re

import pytest
import torch
from configs import ROOT
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from seq2seq_attn.nn import dropout as module
from seq2seq_attn.nn.dropout import LEVELS, Dropout, dropout


def seeded(x: Tensor, p: float, seed: int = 3) -> Tensor:
    torch.manual_seed(seed)
    return dropout(x, p)


@pytest.mark.parametrize("p", [0.001, 0.1, 0.5, 0.9])
def test_the_share_dropped_is_p_and_the_mean_stays(p: float) -> None:
    size, dropped = 2**20, round(p * LEVELS)
    y = seeded(torch.ones(size), p)
    deviation = (size * p * (1 - p)) ** 0.5
    assert abs(int((y == 0).sum()) - size * dropped / LEVELS) < 4 * deviation
    factor = torch.tensor(LEVELS / (LEVELS - dropped), dtype=torch.float32)
    assert torch.equal(y, torch.where(y == 0, 0.0, factor))


def test_calls_and_neighbours_are_independent() -> None:
    size, p = 2**18, 0.5
    first, second = (dropout(torch.ones(size), p) == 0 for _ in range(2))
    for one, other in ((first, second), *((first[shift:], first[:-shift]) for shift in (1, 2, 3, 4, 8))):
        assert abs((one & other).float().mean().item() - p * p) < 5 * (p * p * (1 - p * p) / size) ** 0.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_the_gradient_has_the_mask_and_the_factor_of_the_output(dtype: torch.dtype) -> None:
    # drawn in float64: torch 2.11 draws zeros in half precision, which would count as dropped
    x, grad = (torch.randn(17, 29, 23, dtype=torch.float64).mT.to(dtype) for _ in range(2))
    x.requires_grad_()
    y = dropout(x, 0.3)
    y.backward(grad)
    kept, factor = y != 0, LEVELS / (LEVELS - round(0.3 * LEVELS))
    assert y.dtype == dtype
    assert 0.5 < kept.float().mean() < 0.9
    assert torch.equal(y, torch.where(kept, x * factor, 0.0))
    assert x.grad is not None
    assert torch.equal(x.grad, torch.where(kept, grad * factor, 0.0))


def test_the_mask_is_a_function_of_the_seed_of_torch_of_which_a_call_takes_one_draw() -> None:
    x = torch.ones(61, 97)
    assert torch.equal(seeded(x, 0.5), seeded(x, 0.5))
    assert not torch.equal(seeded(x, 0.5), seeded(x, 0.5, seed=4))
    drawn = []
    for shape in ((7919,), (61, 97)):
        seeded(torch.ones(shape), 0.5)
        drawn.append(torch.rand(5))
    assert torch.equal(*drawn)


def test_recomputed_activations_have_the_same_mask() -> None:
    x = torch.randn(61, 97, requires_grad=True)

    def output(recompute: bool) -> tuple[Tensor, Tensor]:
        torch.manual_seed(3)
        y = checkpoint(lambda x: dropout(x * x, 0.5), x, use_reentrant=False) if recompute else dropout(x * x, 0.5)
        return y, torch.autograd.grad(y.sum(), x)[0]

    for plain, recomputed in zip(output(recompute=False), output(recompute=True), strict=True):
        assert torch.equal(plain, recomputed)


def test_a_byte_a_number_is_kept_for_the_gradient() -> None:
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
        dropout(torch.ones(61, 97, requires_grad=True), 0.5)
    assert sum(x.numel() * x.element_size() for x in kept) < 61 * 97 + 16


@pytest.mark.parametrize("p", [0.0, 1.0, 0.3])
def test_where_there_is_nothing_to_draw_it_is_torchs(p: float) -> None:
    x = torch.randn(61, 97)
    assert Dropout(p).eval()(x) is x
    assert dropout(x[:0], p).shape == (0, 97)
    assert Dropout(p)(x.to("meta")).shape == x.shape
    if p in (0.0, 1.0):
        assert torch.equal(Dropout(p)(x), F.dropout(x, p))


def test_compiled_code_and_func_transforms_get_torchs_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(61, 97)
    by_row = torch.vmap(lambda row: dropout(row, 0.5), randomness="different")(torch.randn(2, 61, 97))
    assert 0.4 < (by_row == 0).float().mean() < 0.6
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    monkeypatch.setattr(module, "MIN_NUMBERS", None)  # nobody asks for a size, which would be compiled in
    ours = seeded(x, 0.3)
    torch.manual_seed(3)
    assert torch.equal(ours, F.dropout(x, 0.3))


def test_a_subclass_of_tensor_gets_torchs_operation() -> None:
    class Wrapped(Tensor):
        pass

    x = torch.randn(61, 97).as_subclass(Wrapped)
    ours = seeded(x, 0.3)
    torch.manual_seed(3)
    assert torch.equal(ours, F.dropout(x, 0.3))


def test_no_other_dropout_is_in_the_package() -> None:
    files = [file for file in (ROOT / "seq2seq_attn").rglob("*.py") if file != ROOT / "seq2seq_attn/nn/dropout.py"]
    assert len(files) > 100
    assert not [file.name for file in files if re.search(r"\b(nn\.Dropout|F\.dropout)\(", file.read_text("utf-8"))]
