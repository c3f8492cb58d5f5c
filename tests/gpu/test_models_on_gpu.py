"""Models on a GPU: losses, gradients, steps and translations are those of the CPU."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch
from configs import built, composed, options
from model.test_model_contract import MODELS, SOURCE, SOURCE_MASK, TARGET, build
from search.test_greedy import CROSSINGS, MASK, peaked
from search.test_greedy import SOURCE as SENTENCES
from search.test_greedy import TARGET as VOCABULARY
from torch import Tensor, nn

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("double")]
SEARCHES = [name for name in options("search") if name not in ("sampling", "mbr")]  # which draw


def tolerance(*parts: str) -> float:
    """torch's weight normalisation, a part of the convolutions, takes roots in float32 on a GPU."""
    return 1e-4 if "conv" in parts else 1e-10


def outputs(model: Any, *tensors: Tensor) -> list[Tensor]:
    """Return the hidden states and the gradients of the parameters."""
    for part in model.modules():
        part.train(isinstance(part, nn.RNNBase))  # cuDNN has no gradients in evaluation
    hidden = model(*tensors).hidden
    upstream = torch.linspace(-1, 1, hidden.numel()).view_as(hidden).to(hidden)
    found = torch.autograd.grad((hidden * upstream).sum(), list(model.parameters()), allow_unused=True)
    return [tensor.detach().cpu() for tensor in (hidden, *found) if tensor is not None]


@pytest.mark.parametrize(("encoder", "decoder", "attention"), MODELS)
def test_hidden_states_and_gradients_are_those_of_the_cpu(encoder: str, decoder: str, attention: str) -> None:
    model = deepcopy(build(encoder, decoder, attention))
    expected = outputs(model, SOURCE, SOURCE_MASK, TARGET)
    found = outputs(model.cuda(), SOURCE.cuda(), SOURCE_MASK.cuda(), TARGET.cuda())
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=tolerance(encoder, decoder))


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize(("encoder", "decoder"), [crossing.values for crossing in CROSSINGS])
def test_translations_are_those_of_the_cpu(encoder: str, decoder: str, name: str) -> None:
    model, search = peaked(encoder, decoder), built(composed(f"search={name}").search)
    expected = search(model, SENTENCES, MASK, VOCABULARY)
    found = search(model.cuda(), SENTENCES.cuda(), MASK.cuda(), VOCABULARY)
    for ours, theirs in zip(found, expected, strict=True):
        assert [one.token_ids for one in ours] == [one.token_ids for one in theirs]
        assert [one.log_prob for one in ours] == pytest.approx(
            [one.log_prob for one in theirs], rel=tolerance(encoder, decoder)
        )
