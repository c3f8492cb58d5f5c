"""Linear layers by oneDNN, in training and in a search: the products are MKL's, and nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from inspect import unwrap

import pytest
import torch
from configs import ROOT
from torch import Tensor, nn
from torch.autograd import forward_ad
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
    monkeypatch.setattr(module, "MIN_ROWS", 0)
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


@pytest.mark.parametrize("mode", [search_mode, nullcontext])
def test_only_products_of_float32_are_by_onednn(
    calls: list[int], mode: Callable[[], AbstractContextManager[None]]
) -> None:
    x, layer = torch.randn(5, 13), Linear(13, 17)
    with mode():
        linear(x.double(), layer.weight.double(), None)
        linear(x.bfloat16(), layer.weight.bfloat16(), None)
        linear(x.to("meta"), layer.weight.to("meta"), None)
        with torch.autocast("cpu", torch.bfloat16):
            assert layer(x).dtype == torch.bfloat16
    assert calls == []


@pytest.mark.parametrize("rows", [(), (1,), (63,), (64,), (3, 50), (255,), (256,), (2, 129), (1023,), (1024,), (1541,)])
@pytest.mark.parametrize("bias", [False, True])
def test_products_of_training_and_their_gradients_are_those_of_float64(
    calls: list[int], rows: tuple[int, ...], bias: bool
) -> None:
    x, weight, offset = torch.randn(*rows, 13), torch.randn(37, 13), torch.randn(37) if bias else None
    tensors = [tensor for tensor in (x, weight, offset) if tensor is not None]
    grad = torch.randn(*rows, 37)
    found, expected = (product_and_gradients(way, tensors, grad) for way in (linear, F.linear))
    assert calls
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-4)


def product_and_gradients(way: Callable[..., Tensor], tensors: list[Tensor], grad: Tensor) -> list[Tensor]:
    """Return W x + b and its gradients by x, W and b; `F.linear` computes them in float64."""
    dtype = torch.float64 if way is F.linear else torch.float32
    leaves = [tensor.detach().to(dtype).requires_grad_() for tensor in tensors]
    output = way(*leaves, *[None] * (3 - len(leaves)))
    output.backward(grad.to(dtype))
    return [output.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)]


def test_only_gradients_that_are_wanted_are_computed(calls: list[int]) -> None:
    x, weight = torch.randn(300, 13), torch.randn(17, 13, requires_grad=True)
    linear(x, weight, None).sum().backward()
    assert calls == [256, 17]  # the product and the gradient of W, by W's rows; 44 rows are left to MKL
    calls.clear()
    linear(x.requires_grad_(), weight.detach(), None).sum().backward()
    assert calls == [256, 256]


@pytest.mark.parametrize("rows", [(), (5,), (3, 100), (300,)])
@pytest.mark.parametrize("bias", [False, True])
def test_an_output_may_be_changed_in_place(calls: list[int], rows: tuple[int, ...], bias: bool) -> None:
    x, layer = torch.randn(*rows, 13, requires_grad=True), Linear(13, 17, bias=bias)
    layer(x).mul_(2).relu_().sum().backward()
    found = [x.grad, layer.weight.grad]
    x.grad = layer.weight.grad = None
    (2 * F.linear(x, layer.weight, layer.bias)).relu().sum().backward()
    assert calls
    for one, other in zip(found, [x.grad, layer.weight.grad], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-4)


def test_an_input_that_was_changed_after_its_product_is_refused_as_torch_does(calls: list[int]) -> None:
    x, weight = torch.randn(300, 13), torch.randn(17, 13, requires_grad=True)
    output = linear(x, weight, None)
    x += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()
    assert calls


@pytest.mark.parametrize("wanted", ["x", "weight"])
def test_what_no_gradient_needs_is_not_kept(calls: list[int], wanted: str) -> None:
    kept: list[Tensor] = []
    tensors = {"x": torch.randn(300, 13), "weight": torch.randn(17, 13)}
    tensors[wanted].requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        output = linear(*tensors.values(), torch.randn(17))
    other = "weight" if wanted == "x" else "x"
    assert [tensor.shape for tensor in kept] == [tensors[other].shape]
    (gradient,) = torch.autograd.grad(output.square().sum(), tensors[wanted], create_graph=True)  # and of itself
    assert gradient.requires_grad
    assert calls


@pytest.mark.parametrize(
    ("x", "weight", "bias"), [((50, 13), (17, 12), (17,)), ((50, 13), (17, 13), (16,)), ((50, 13), (17, 12), None)]
)
def test_shapes_that_do_not_agree_are_refused_by_torch(
    calls: list[int], x: tuple[int, ...], weight: tuple[int, ...], bias: tuple[int, ...] | None
) -> None:
    tensors = [None if shape is None else torch.randn(shape) for shape in (x, weight, bias)]
    unchecked = unwrap(linear)  # by jaxtyping, which only the tests have
    with pytest.raises(RuntimeError, match=r"cannot be multiplied|must match the existing|not broadcastable"):
        unchecked(*tensors)
    with pytest.raises(RuntimeError, match="dtype"):
        unchecked(torch.randn(50, 13), torch.randn(17, 13).double(), None)
    assert calls == []


def test_few_rows_are_left_to_torch_in_training(calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MIN_ROWS", 33)
    linear(torch.randn(4, 8, 13), torch.randn(17, 13), None)
    assert calls == []
    linear(torch.randn(3, 11, 13), torch.randn(17, 13), None)
    assert calls == [64]


def test_wide_gradients_are_computed_in_parts_and_weights_may_be_views(calls: list[int]) -> None:
    x, whole, grad = torch.randn(256, 26), torch.randn(2001, 26, requires_grad=True), torch.randn(256, 2001)
    linear(x[:, 13:], whole[:, 13:], None).backward(grad)
    assert whole.grad is not None
    expected = grad.double().mT @ x[:, 13:].double()
    torch.testing.assert_close(whole.grad[:, 13:].double(), expected, rtol=1e-5, atol=1e-4)
    assert calls == [256, 13, 13, 13]  # of 800, 800 and 401 columns


def test_a_weight_between_others_is_copied_since_onednn_is_slow_with_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Tensor] = []
    monkeypatch.setattr(torch.ops.mkldnn._linear_pointwise, "default", lambda x, w, *_: given.append(w) or x @ w.mT)
    whole = torch.randn(17, 26)
    for weight in (whole[:, 13:], whole[:13].mT, torch.randn(17, 13), torch.randn(13, 17).mT, whole[:, :13].mT.mT):
        module.multiply(torch.randn(5, weight.shape[1]), weight, None)
    assert len(given) == 5
    assert all(weight.is_contiguous() or weight.mT.is_contiguous() for weight in given)


def test_second_derivatives_are_those_of_torch(calls: list[int]) -> None:
    def curvature(way: Callable[..., Tensor], dtype: torch.dtype) -> list[Tensor]:
        generator = torch.Generator().manual_seed(1)
        x, weight = (torch.randn(s, generator=generator).to(dtype).requires_grad_() for s in ((300, 5), (7, 5)))
        bias = torch.zeros(7, dtype=dtype, requires_grad=True)
        (first,) = torch.autograd.grad(way(x, weight, bias).square().sum(), x, create_graph=True)
        return list(torch.autograd.grad(first.square().sum(), [x, weight, bias]))

    found, expected = curvature(linear, torch.float32), curvature(F.linear, torch.float64)
    assert calls
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-3)


def test_training_compiles_kernels_of_five_numbers_of_rows(calls: list[int]) -> None:
    with torch.no_grad():
        for rows in range(1, 1400, 3):
            assert linear(torch.ones(rows, 2), torch.ones(3, 2), None).shape == (rows, 3)
    assert set(calls) == {64, 128, 192, 256, 1024}


@pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")  # of forward_ad itself
def test_inside_transforms_and_exported_code_products_are_those_of_torch(calls: list[int]) -> None:
    x, weight = torch.randn(300, 13), torch.randn(17, 13)
    gradient = torch.func.grad(lambda w: linear(x, w, None).square().sum())(weight)
    torch.testing.assert_close(gradient, 2 * weight @ (x.mT @ x), rtol=1e-4, atol=1e-2)
    torch.func.vmap(lambda row: linear(row, weight, None))(x[:, None])
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(linear(forward_ad.make_dual(x, x), weight, None)).tangent
    torch.testing.assert_close(tangent, x @ weight.t())
    rows = torch.export.Dim("rows", min=2, max=4096)
    exported = torch.export.export(Linear(13, 17), (x,), dynamic_shapes=({0: rows},))
    assert exported.module()(torch.randn(40, 13)).shape == (40, 17)
    assert calls == []


def test_a_product_and_its_gradients_can_be_repeated_to_the_last_bit(calls: list[int]) -> None:
    tensors, grad = [torch.randn(700, 64), torch.randn(96, 64), torch.randn(96)], torch.randn(700, 96)
    first, second = (product_and_gradients(linear, tensors, grad) for _ in range(2))
    assert calls
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


def test_small_products_are_not_worth_a_call(calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MIN_PRODUCTS", 5 * 13 * 17)
    with search_mode():
        linear(torch.randn(4, 13), torch.randn(17, 13), None)
        assert calls == []
        linear(torch.randn(5, 13), torch.randn(17, 13), None)
    assert calls == [8]


CPUINFO = "processor\t: 0\nvendor_id\t: {}\ncpu family\t: {}\nmodel\t\t: 2\n"


@pytest.mark.parametrize("lacking", ["oneDNN", "the operator", "AVX-512", "AMD", "Zen 5", "cpuinfo"])
def test_without_onednn_or_its_operator_products_are_as_always(lacking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"AMD": CPUINFO.format("GenuineIntel", 26), "Zen 5": CPUINFO.format("AuthenticAMD", 25)}
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    monkeypatch.setattr(module.Path, "exists", lambda path: True)
    monkeypatch.setattr(module.Path, "read_text", lambda path: CPUINFO.format("AuthenticAMD", 26))
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
        monkeypatch.setattr(module.Path, "read_text", lambda path: said[lacking])
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
