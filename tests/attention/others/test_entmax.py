"""sparsemax and 1.5-entmax against the package of the authors of entmax. Peters et al. 2019, arXiv:1905.05702."""

from __future__ import annotations

import pytest
import torch
from attention.others.package import package
from configs import CONF, built
from omegaconf import OmegaConf

entmax = package("entmax")


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
@pytest.mark.parametrize(("option", "theirs"), [("sparsemax", "sparsemax"), ("entmax15", "entmax15")])
@pytest.mark.parametrize("keys", [1, 2, 11, 67])
def test_weights_and_gradients_equal_theirs(option: str, theirs: str, scale: float, keys: int) -> None:
    normalizer = built(OmegaConf.load(CONF / f"attention/normalizer/{option}.yaml"))()
    scores, upstream = (scale * torch.randn(3, 5, keys)).requires_grad_(), torch.randn(3, 5, keys)
    found, expected = normalizer(scores, None).weights, getattr(entmax, theirs)(scores, dim=-1)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    gradients = [torch.autograd.grad(weights, scores, upstream)[0] for weights in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-12)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize(("option", "theirs"), [("sparsemax", "sparsemax"), ("entmax15", "entmax15")])
def test_the_weights_of_the_keys_seen_equal_theirs_of_scores_of_minus_infinity(option: str, theirs: str) -> None:
    """Ours hides keys by a mask."""
    normalizer = built(OmegaConf.load(CONF / f"attention/normalizer/{option}.yaml"))()
    scores, allowed = torch.randn(3, 5, 13), torch.rand(3, 5, 13) > 0.4
    allowed[..., 2] = True
    expected = getattr(entmax, theirs)(scores.masked_fill(~allowed, -1e9), dim=-1)
    torch.testing.assert_close(normalizer(scores, allowed).weights, expected, rtol=0, atol=1e-12)
