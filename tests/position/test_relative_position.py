"""Shaw's relative positions, compared with the sums of the paper pair by pair."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from seq2seq_attn.errors import UserError
from seq2seq_attn.position.relative import DistanceTables, RelativePosition

B, H, T, S, WIDTH, K = 2, 3, 5, 7, 11, 2
QUERY_POSITION, KEY_POSITION = torch.tensor([0, 3, 4, 6, 13]), torch.arange(S)


def tables(values: bool = True, max_distance: int = K, width: int = WIDTH) -> DistanceTables:
    positions = RelativePosition(dim=H * width, max_distance=max_distance, values=values)
    part = positions.relative(num_heads=H, head_dim=width)
    assert isinstance(part, DistanceTables)
    return part


def vector(table: Tensor, query: int, key: int) -> Tensor:
    """Return w of clip(key - query, k), eq. 5 and 6."""
    return table[max(-K, min(K, key - query)) + K]


@pytest.mark.usefixtures("double")
def test_keys_and_values_equal_the_papers_sums_values_and_gradients() -> None:
    part, query = tables(), torch.randn(B, H, T, WIDTH, requires_grad=True)
    weights = torch.rand(B, H, T, S, requires_grad=True)
    bias, context = torch.zeros(B, H, T, S), torch.zeros(B, H, T, WIDTH)
    for b in range(B):
        for h in range(H):
            for t, position in enumerate(QUERY_POSITION.tolist()):
                for s in range(S):
                    bias[b, h, t, s] = query[b, h, t] @ vector(part.key_table, position, s)
                    context[b, h, t] += weights[b, h, t, s] * vector(part.value_table, position, s)
    found = part.bias(query, QUERY_POSITION, KEY_POSITION), part.context(weights, QUERY_POSITION, KEY_POSITION)
    of = [query, weights, part.key_table, part.value_table]
    upstream = torch.randn_like(bias), torch.randn_like(context)
    gradients = []
    for result in (found, (bias, context)):
        loss = sum((x * up).sum() for x, up in zip(result, upstream, strict=True))
        gradients.append(torch.autograd.grad(loss, of))
    for ours, theirs in zip([*found, *gradients[0]], [bias, context, *gradients[1]], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_tables_by_hand() -> None:
    part = tables(max_distance=1, width=2)
    part.key_table.data = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])  # distances -1, 0, 1
    part.value_table.data = torch.tensor([[10.0, 0.0], [0.0, 100.0], [5.0, 5.0]])
    query, position = torch.tensor([[[[3.0, 4.0]]]]), torch.tensor([2])
    assert part.bias(query, position, torch.arange(5)).tolist() == [[[[3.0, 3.0, 4.0, 7.0, 7.0]]]]
    weights = torch.tensor([[[[0.5, 0.25, 0.125, 0.0, 0.125]]]])
    assert part.context(weights, position, torch.arange(5)).tolist() == [[[[8.125, 13.125]]]]


def test_without_values_there_is_one_table() -> None:
    part = tables(values=False)
    assert [(name, p.shape) for name, p in part.named_parameters()] == [("key_table", (2 * K + 1, WIDTH))]
    assert not part.adds_context
    assert tables().adds_context


def test_weights_in_half_precision_are_summed_in_float32() -> None:
    # On a GPU, adding up 1/1024 in bfloat16 stops at 1/4; a CPU always sums in float32, so the call is inspected.
    class Sums(TorchDispatchMode):
        dtypes: tuple[torch.dtype, ...] = ()

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if "scatter_add" in str(function):
                self.dtypes = (*self.dtypes, args[0].dtype)
            return function(*args, **(kwargs or {}))

    part = tables().bfloat16()
    part.value_table.data.fill_(1.0)
    weights = torch.full((1, H, 1, 1024), 1 / 1024).bfloat16()
    with Sums() as sums:
        found = part.context(weights, torch.tensor([1023]), torch.arange(1024))
    assert sums.dtypes == (torch.float32,)
    assert found.dtype == torch.bfloat16
    assert (found == 1).all()


def test_no_tensor_has_target_source_and_width_together() -> None:
    class Largest(TorchDispatchMode):
        found = 0

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = function(*args, **(kwargs or {}))
            self.found = max([self.found, *(x.untyped_storage().size() for x in tree_leaves(result))])
            return result

    part, position, length, width = tables(width=128), torch.arange(61), 61, 128
    with Largest() as largest:
        part.bias(torch.randn(1, H, length, width), position, position)
        part.context(torch.rand(1, H, length, length), position, position)
    query_bytes = 4 * H * length * width
    assert query_bytes <= largest.found < 4 * length * length * width


def test_a_distance_of_zero_is_refused() -> None:
    sentence = r"^position\.max_distance=0 must be at least 1; use 16$"
    with pytest.raises(UserError, match=sentence):
        RelativePosition(dim=H * WIDTH, max_distance=0, values=True)
