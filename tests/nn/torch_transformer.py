"""Comparison of our Transformer with torch's: factories, the mapping of parameters, and a check of every tensor."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from configs import CONF, built
from omegaconf import OmegaConf
from torch import Tensor, nn

from seq2seq_attn.attention.attention import Attention
from seq2seq_attn.attention.normalizer.softmax import SoftmaxNormalizer
from seq2seq_attn.attention.pattern.full import FullPattern
from seq2seq_attn.attention.score.scaled_dot import ScaledDotScore
from seq2seq_attn.feed_forward.feed_forward import FeedForward

PRECISION = {torch.float32: 1e-5, torch.float64: 1e-12}  # relative to the largest entry of a tensor
Pairs = list[tuple[list[Tensor], Tensor]]  # parameters of ours that, concatenated along the rows, are torch's


def attention_factory(num_heads: int, **options: Any) -> partial[Attention]:
    """Return a factory of Vaswani's attention with the biases that torch has, and the given options."""
    parts = {"score": partial(ScaledDotScore), "pattern": partial(FullPattern)}
    own = {"num_heads": num_heads, "project_values": True, "qkv_bias": True, "qk_scale": None, "backend": "auto"}
    dropouts = {"dropout": 0.0, "projection_dropout": 0.0}
    return partial(Attention, **{**parts, "normalizer": partial(SoftmaxNormalizer), **own, **dropouts, **options})


def feed_forward_factory(ff_dim: int, activation: str = "relu") -> partial[FeedForward]:
    return partial(FeedForward, ff_dim=ff_dim, activation=activation, dropout=0.0)


def position_factory(name: str) -> Any:
    return built(OmegaConf.load(CONF / f"position/{name}.yaml"))


def shaken(module: nn.Module) -> None:
    """Change every parameter, so that no bias is 0 and no gain is 1."""
    for parameter in module.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)


def attention_pairs(ours: Attention, theirs: nn.MultiheadAttention) -> Pairs:
    projections = [ours.score.project_query, ours.score.project_key, ours.project_values]
    return [
        ([p.weight for p in projections], theirs.in_proj_weight),
        ([p.bias for p in projections], theirs.in_proj_bias),
        *module_pairs(ours.project_output[0], theirs.out_proj),
    ]


def module_pairs(ours: nn.Module, theirs: nn.Module) -> Pairs:
    """Return the pairs of a linear layer or a norm, whose parameters have the same names in torch."""
    return [([ours.weight], theirs.weight), ([ours.bias], theirs.bias)]


def rest_pairs(ours: Any, theirs: Any, residuals: list[Any]) -> Pairs:
    """Return the pairs of the feed-forward part and the norms of a layer, in the order of the parts."""
    pairs = module_pairs(ours.feed_forward.expand, theirs.linear1)
    pairs += module_pairs(ours.feed_forward.reduce, theirs.linear2)
    for number, residual in enumerate(residuals, 1):
        (norm,) = (m for m in (residual.before, residual.after) if isinstance(m, nn.LayerNorm))
        pairs += module_pairs(norm, getattr(theirs, f"norm{number}"))
    return pairs


def closing_pairs(ours: Any, theirs: Any) -> Pairs:
    """Return the pairs of the norm after the last layer, if there is one."""
    return [] if theirs.norm is None else module_pairs(ours.norm, theirs.norm)


def copy(pairs: Pairs, ours: nn.Module, theirs: nn.Module) -> None:
    """Copy all our weights to torch's module."""
    for parts, whole in pairs:
        whole.data = torch.cat([part.data for part in parts])
    sizes = [sum(p.numel() for p in module.parameters()) for module in (ours, theirs)]
    assert [sum(whole.numel() for _, whole in pairs)] * 2 == sizes, "a parameter has no counterpart"


def assert_same(found: Tensor, expected: Tensor) -> None:
    """Check that two tensors agree to the precision of their dtype, relative to the largest entry."""
    assert found.shape == expected.shape
    assert (found - expected).abs().max() <= PRECISION[found.dtype] * expected.abs().max()


def assert_same_gradients(pairs: Pairs) -> None:
    for parts, whole in pairs:
        assert_same(torch.cat([part.grad for part in parts]), whole.grad)
