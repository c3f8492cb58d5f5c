"""Coverage and location-sensitive attention against ESPnet's, step by step. Watanabe et al. 2018, arXiv:1804.00015."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from configs import attention_of
from torch import Tensor

espnet = pytest.importorskip("espnet.nets.pytorch_backend.rnn.attentions", reason="pip install --no-deps espnet")

B, T, S, QUERY, KEY, HIDDEN = 3, 4, 7, 5, 6, 11
LENGTHS = [7, 4, 1]
MASK = torch.arange(S) < torch.tensor(LENGTHS)[:, None]
pytestmark = pytest.mark.usefixtures("double")


def ours(preset: str, *overrides: str) -> Any:
    overrides = (f"attention.score.hidden_dim={HIDDEN}", *overrides)
    return attention_of(preset, *overrides, query_dim=QUERY, key_dim=KEY, value_dim=KEY).eval()


def copy_additive(theirs: Any, additive: Any) -> None:
    for weight, own in (
        (theirs.mlp_enc.weight, additive.project_key.weight),
        (theirs.mlp_dec.weight, additive.project_query.weight),
        (theirs.gvec.weight, additive.vector),
    ):
        weight.data = own.detach().clone()


def compare(attention: Any, step: Any) -> None:
    """Compare contexts, weights and gradients; `step` maps keys, a query and the weights so far to theirs."""
    query, keys = torch.randn(B, T, QUERY).requires_grad_(), torch.randn(B, S, KEY).requires_grad_()
    found = attention(query, attention.prepare(keys, mask=MASK), need_weights=True)
    contexts, weights = [], [torch.zeros(B, S)]  # before the first step ESPnet's are uniform, unless given
    for t in range(T):
        context, now = step(keys, query[:, t], weights)
        contexts.append(context)
        weights.append(now)
    expected, upstream = torch.stack(contexts, 1), torch.randn(B, T, KEY)
    torch.testing.assert_close(found.context, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(found.weights[:, 0], torch.stack(weights[1:], 1), rtol=0, atol=1e-12)
    gradients = [torch.autograd.grad((x * upstream).sum(), (query, keys)) for x in (found.context, expected)]
    for own, other in zip(*gradients, strict=True):
        torch.testing.assert_close(own, other, rtol=0, atol=1e-12)


def test_coverage_without_fertility_is_theirs() -> None:
    attention = ours("coverage", "attention.score.max_fertility=null")
    theirs = espnet.AttCov(KEY, QUERY, HIDDEN)
    copy_additive(theirs, attention.score.additive)
    theirs.wvec.weight.data = attention.score.from_coverage.detach().mT.clone()
    for bias in (theirs.mlp_enc.bias, theirs.wvec.bias):
        bias.data.zero_()

    def step(keys: Tensor, query: Tensor, weights: list[Tensor]) -> tuple[Tensor, Tensor]:
        context, after = theirs(keys, LENGTHS, query, list(weights), scaling=1.0)
        return context, after[-1]

    compare(attention, step)


@pytest.mark.parametrize("reach", [0, 1, 3])
def test_the_location_sensitive_score_is_theirs(reach: int) -> None:
    attention = ours(
        "location_sensitive", "attention.score.num_filters=3", f"attention.score.kernel_size={2 * reach + 1}"
    )
    theirs = espnet.AttLoc(KEY, QUERY, HIDDEN, aconv_chans=3, aconv_filts=reach)
    score = attention.score
    torch.nn.init.normal_(score.from_features.bias)
    copy_additive(theirs, score.additive)
    theirs.mlp_enc.bias.data = score.from_features.bias.detach()[0].clone()
    theirs.mlp_att.weight.data = score.from_features.weight.detach()[0].clone()
    theirs.loc_conv.weight.data = score.convolution.weight.detach()[:, :, None].clone()

    def step(keys: Tensor, query: Tensor, weights: list[Tensor]) -> tuple[Tensor, Tensor]:
        return theirs(keys, LENGTHS, query, weights[-1], scaling=1.0)

    compare(attention, step)
