"""The mode of a search: no gradients, a normalised weight computed once, and the fastest products and tanh."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from configs import built, composed, model_of, options
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils import parametrize
from torch.overrides import TorchFunctionMode

from seq2seq_attn.attention.backend.fused import FEW_QUERIES, masked_product
from seq2seq_attn.nn.heads import matmul_heads
from seq2seq_attn.nn.search_mode import rounding_may_differ, search_mode
from seq2seq_attn.nn.tanh import tanh
from seq2seq_attn.search.search import TargetVocabulary


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


class Calls(TorchFunctionMode):
    """Record the functions of torch that are called, and the first argument of each."""

    def __init__(self) -> None:
        super().__init__()
        self.functions: list[Any] = []
        self.first: dict[Any, Any] = {}

    def __torch_function__(
        self, function: Any, types: Any, arguments: Sequence[Any] = (), options: Mapping[str, Any] | None = None
    ) -> Any:
        self.functions.append(function)
        self.first[function] = arguments[0] if arguments else None
        return function(*arguments, **(options or {}))


@pytest.mark.parametrize(
    ("queries", "kv_heads", "transposed", "plain"),
    [
        (1, 2, False, True),
        (FEW_QUERIES, 2, False, True),
        (FEW_QUERIES + 1, 2, False, False),
        (1, 1, False, False),  # a product would copy shared heads
        (1, 2, True, False),  # and keys whose heads are neighbours
    ],
)
def test_only_few_queries_of_a_search_are_plain_products(
    queries: int, kv_heads: int, transposed: bool, plain: bool
) -> None:
    query, keys, values = torch.randn(3, 2, queries, 5), *torch.randn(2, 3, kv_heads, 11, 5)
    keys = keys.transpose(1, 2).contiguous().transpose(1, 2) if transposed else keys
    mask = (torch.arange(11) < torch.tensor([[11], [7], [1]]))[:, None, None]
    with Calls() as outside:
        expected = masked_product(query, keys, values, mask)
    with search_mode(), Calls() as inside:
        context = masked_product(query, keys, values, mask)
    assert F.scaled_dot_product_attention in outside.functions
    assert (F.scaled_dot_product_attention not in inside.functions) == plain
    torch.testing.assert_close(context, expected, rtol=0, atol=1e-5)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("sinks", [1, 2])
@pytest.mark.parametrize("kv_heads", [1, 2])
@pytest.mark.parametrize(("queries", "plain"), [(1, True), (FEW_QUERIES, True), (FEW_QUERIES + 1, False)])
def test_few_queries_of_a_search_meet_a_sink_without_a_copy_of_all_keys(
    queries: int, plain: bool, kv_heads: int, sinks: int
) -> None:
    query, keys, values = torch.randn(3, 2, queries, 5), *torch.randn(2, 3, kv_heads, 11, 5)
    sink = torch.randn(sinks)
    for mask in (None, (torch.arange(11) < torch.tensor([[11], [7], [0]]))[:, None, None]):
        with Calls() as outside:
            expected = masked_product(query, keys, values, mask, sink)
        with search_mode(), Calls() as inside:
            context = masked_product(query, keys, values, mask, sink)
        assert F.scaled_dot_product_attention in outside.functions
        assert (F.scaled_dot_product_attention not in inside.functions) == plain
        torch.testing.assert_close(context, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("rows", "one_product"), [(1, True), (2, False)])
def test_in_a_step_of_a_search_sentences_are_rows_of_one_product_a_head(rows: int, one_product: bool) -> None:
    x, weight = torch.randn(3, 2, rows, 5), torch.randn(2, 5, 7)
    with Calls() as outside:
        expected = matmul_heads(x, weight)
    with search_mode(), Calls() as inside:
        product = matmul_heads(x, weight)
    shapes = [calls.first[Tensor.matmul].shape for calls in (outside, inside)]
    assert shapes == [x.shape, (2, 3, 5) if one_product else x.shape]
    torch.testing.assert_close(product, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in options("search") if name != "mbr"])  # which has one of them
def test_a_normalised_weight_is_computed_once_in_a_search(name: str) -> None:
    model = model_of("model=conv").eval()
    computed: list[Any] = []
    weights = [module.parametrizations.weight for module in model.modules() if parametrize.is_parametrized(module)]
    for weight in weights:
        weight.register_forward_hook(lambda module, *_: computed.append(module))
    source = torch.tensor([[4, 5, 6, 3]])
    limits = ("search.limits.max_length=5", "search.limits.min_length=3")
    search = built(composed(f"search={name}", *limits).search)
    search(model, source, source != 0, TargetVocabulary(2, 3, (0, 1, 2), list))
    assert weights
    assert computed
    assert {id(module) for module in computed} <= {id(weight) for weight in weights}
    assert len(computed) == len({id(module) for module in computed})
