"""torch.func over every attention, where blocks and kernels would serve: the values and gradients of all pairs."""

from __future__ import annotations

import pytest
import torch
from attention.layers import WIDTH, by_blocks, cross_layer, self_layer
from configs import attentions_at_once
from torch import Tensor
from torch.func import functional_call, grad, jacrev, vmap

from seq2seq_attn.attention.normalizer.entmax import Entmax

PRESETS = attentions_at_once()
V, B, N, T = 3, 2, 9, 5
MASKS = torch.arange(N) < torch.tensor([[9, 4], [5, 9], [0, 7]])[..., None]
pytestmark = [
    pytest.mark.usefixtures("double"),
    pytest.mark.filterwarnings("ignore:There is a performance drop because"),  # of torch, where it has no rule to batch
]


def same(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("preset", PRESETS)
def test_vmap_equals_one_after_the_other(preset: str) -> None:
    layer, x = by_blocks(self_layer(preset)), torch.randn(V, B, N, WIDTH)
    for causal in (False, True):
        expected = [layer(a, m, causal=causal, need_weights=True).context for a, m in zip(x, MASKS, strict=True)]
        same(vmap(lambda a, m, c=causal: layer(a, m, causal=c).context)(x, MASKS), torch.stack(expected))
    cross, query = by_blocks(cross_layer(preset)), torch.randn(V, B, T, WIDTH)
    expected = [cross(q, a, need_weights=True).context for q, a in zip(query, x, strict=True)]
    same(vmap(lambda q, a: cross(q, a).context)(query, x), torch.stack(expected))
    same(layer(x[0]).context, layer(x[0], need_weights=True).context)  # no mask was kept from in there


@pytest.mark.parametrize("preset", PRESETS)
def test_gradients_of_torch_func_are_those_of_autograd(preset: str) -> None:
    layer, x = by_blocks(self_layer(preset)), torch.randn(B, N, WIDTH, requires_grad=True)

    def loss(x: Tensor, **options: bool) -> Tensor:
        return layer(x, MASKS[0], causal=True, **options).context.square().sum()

    (expected,) = torch.autograd.grad(loss(x, need_weights=True), x)
    for transform in (grad, jacrev):
        same(transform(loss)(x.detach()), expected)
    parameters = dict(layer.named_parameters())
    if parameters:
        of_sentences = vmap(
            grad(lambda p, a: functional_call(layer, p, (a[None],)).context.square().sum()), in_dims=(None, 0)
        )(parameters, x.detach())
        whole = torch.autograd.grad(
            layer(x, need_weights=True).context.square().sum(), list(parameters.values()), allow_unused=True
        )
        for name, gradient in zip(parameters, whole, strict=True):
            same(of_sentences[name].sum(0), torch.zeros_like(parameters[name]) if gradient is None else gradient)


@pytest.mark.parametrize("preset", PRESETS)
def test_steps_under_vmap_equal_all_at_once(preset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seq2seq_attn.attention.state.SHORT", 2)
    layer, x = by_blocks(self_layer(preset)), torch.randn(V, B, N, WIDTH)

    def decode(x: Tensor) -> Tensor:
        memory, steps = None, []
        for t in range(N):
            found = layer(x[:, t : t + 1], past=memory, causal=True)
            memory = found.memory
            steps.append(found.context)
        return torch.cat(steps, 1)

    with torch.no_grad():
        same(vmap(decode)(x), layer(x.flatten(0, 1), causal=True).context.unflatten(0, (V, B)))


@pytest.mark.parametrize("alpha", [1.5, 2.0])
def test_entmax_has_its_second_derivative(alpha: float) -> None:
    scores = (3 * torch.randn(5, 7)).requires_grad_()
    assert (Entmax.apply(scores, alpha) == 0).any()
    assert torch.autograd.gradgradcheck(lambda x: Entmax.apply(x, alpha), scores)
    row, upstream = torch.randn(7), torch.randn(7)
    found = jacrev(grad(lambda x: (Entmax.apply(x, alpha) * upstream).sum()))(row)
    expected = torch.autograd.functional.hessian(lambda x: (Entmax.apply(x, alpha) * upstream).sum(), row)
    same(found, expected)
    assert alpha == 2.0 or (found != 0).any()
