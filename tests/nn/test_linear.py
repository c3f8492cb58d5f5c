"""Linear layers of a search: oneDNN's products are MKL's, and nothing else changes."""

from __future__ import annotations

import pytest
import torch
from configs import ROOT
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq_attn.nn import linear as module
from seq2seq_attn.nn.linear import Linear, linear, onednn_is_faster
from seq2seq_attn.nn.search_mode import search_mode

OPERATOR = torch.ops.mkldnn._linear_pointwise.default


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let oneDNN be the faster one for every product; return the numbers of rows that it is given."""
    rows: list[int] = []

    def counted(x: Tensor, *others: object) -> Tensor:
        rows.append(len(x.flatten(0, -2)))
        return OPERATOR(x, *others)

    monkeypatch.setattr(module, "onednn_is_faster", lambda: True)
    monkeypatch.setattr(module, "MIN_PRODUCTS", 0)
    monkeypatch.setattr(torch.ops.mkldnn._linear_pointwise, "default", counted)
    return rows


def test_the_private_operator_is_that_of_torch_2_13() -> None:
    assert str(OPERATOR._schema) == (
        "mkldnn::_linear_pointwise(Tensor X, Tensor W, Tensor? B, str attr, Scalar?[] scalars, str? algorithm) "
        "-> Tensor Y"
    )


@pytest.mark.parametrize("shape", [(1, 13), (7, 13), (64, 13), (4, 2, 13), (3, 11, 13), (131, 1, 13)])
@pytest.mark.parametrize("bias", [False, True])
def test_a_product_in_a_search_is_that_outside(calls: list[int], shape: tuple[int, ...], bias: bool) -> None:
    layer, x = Linear(13, 17, bias=bias), torch.randn(*shape)
    with torch.no_grad():
        expected = F.linear(x, layer.weight, layer.bias)
    with search_mode():
        found = [layer(x), layer(x.mT.contiguous().mT)]
    for one in found:
        assert one.shape == expected.shape
        torch.testing.assert_close(one, expected, rtol=0, atol=1e-5)
    assert len(calls) == 2


def test_tensors_may_be_views(calls: list[int]) -> None:
    x, bias = torch.randn(13, 8).mT, torch.randn(34)[::2]
    with search_mode():
        for weight in (torch.randn(13, 17).mT, torch.randn(17, 20)[:, 7:]):  # as those of concat, half of a matrix
            torch.testing.assert_close(linear(x, weight, bias), F.linear(x, weight, bias), rtol=0, atol=1e-5)
    assert calls == [8, 8]


def test_few_different_numbers_of_rows_are_compiled(calls: list[int]) -> None:
    with search_mode():
        for rows in range(1, 513):
            assert linear(torch.ones(rows, 2), torch.ones(3, 2), None).shape == (rows, 3)
    assert len(set(calls)) == 16 + 8 + 8  # up to 128, 256 and 512
    assert all(given < rows + 8 + rows / 8 for rows, given in enumerate(calls, 1))


def test_only_products_of_float32_in_a_search_are_by_onednn(calls: list[int]) -> None:
    x, layer = torch.randn(5, 13), Linear(13, 17)
    layer(x).sum().backward()
    assert layer.weight.grad is not None
    with torch.no_grad():
        layer(x)
    with search_mode():
        linear(x.double(), layer.weight.double(), None)
        linear(x.bfloat16(), layer.weight.bfloat16(), None)
        linear(x.to("meta"), layer.weight.to("meta"), None)
        with torch.autocast("cpu", torch.bfloat16):
            assert layer(x).dtype == torch.bfloat16
    assert calls == []


def test_small_products_are_not_worth_a_call(calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MIN_PRODUCTS", 5 * 13 * 17)
    with search_mode():
        linear(torch.randn(4, 13), torch.randn(17, 13), None)
        assert calls == []
        linear(torch.randn(5, 13), torch.randn(17, 13), None)
    assert calls == [8]


@pytest.mark.parametrize("lacking", ["oneDNN", "the operator", "AVX-512", "a vendor but Intel", "cpuinfo"])
def test_without_onednn_or_its_operator_products_are_as_always(lacking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    monkeypatch.setattr(module.Path, "exists", lambda path: True)
    monkeypatch.setattr(module.Path, "read_text", lambda path: "vendor_id : AuthenticAMD")
    assert onednn_is_faster.__wrapped__()
    if lacking == "oneDNN":
        monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    elif lacking == "the operator":
        monkeypatch.setattr(torch.ops, "mkldnn", nn.Module())
    elif lacking == "AVX-512":
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    elif lacking == "cpuinfo":
        monkeypatch.setattr(module.Path, "exists", lambda path: False)
    else:
        monkeypatch.setattr(module.Path, "read_text", lambda path: "vendor_id : GenuineIntel")
    assert not onednn_is_faster.__wrapped__()


def test_no_other_linear_layer_or_tanh_is_in_the_package() -> None:
    own = {"nn.Linear(": "linear.py", "F.linear(": "linear.py", "torch.tanh(": "tanh.py"}
    files = list((ROOT / "seq2seq_attn").rglob("*.py"))
    assert len(files) > 100
    for file in files:
        text = file.read_text("utf-8")
        assert [call for call, owner in own.items() if call in text and file.name != owner] == [], file


def test_a_layer_is_exported_as_torch_exports_its_own() -> None:
    layer = Linear(13, 17)
    exported = torch.export.export(layer, (torch.randn(5, 13),))
    assert list(exported.state_dict) == ["weight", "bias"]
    assert any(node.target is torch.ops.aten.linear.default for node in exported.graph.nodes)
