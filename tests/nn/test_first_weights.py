"""How weights are drawn: Glorot and Bengio 2010, uniform within ± sqrt(6 / (inputs + outputs)), with biases of 0."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from configs import model_of
from torch import Tensor

from seq2seq_attn.feed_forward.feed_forward import FeedForward
from seq2seq_attn.feed_forward.gated import GatedFeedForward
from seq2seq_attn.nn.heads import HeadLinear
from seq2seq_attn.nn.projections import glorot_projection, query_key_projections
from seq2seq_attn.position.join import Join
from seq2seq_attn.position.relative import DistanceTables
from seq2seq_attn.position.t5 import T5Position

IN, OUT = 60, 140


def gated() -> list[Tensor]:
    part = GatedFeedForward(dim=IN, ff_dim=OUT, dropout=0.0)
    return [*part.expand.weight.chunk(2), part.reduce.weight]


def plain() -> list[Tensor]:
    part = FeedForward(dim=IN, ff_dim=OUT, activation="relu", dropout=0.0)
    assert not part.expand.bias.any()
    assert not part.reduce.bias.any()
    return [part.expand.weight, part.reduce.weight]


def projections() -> list[Tensor]:
    query, key = query_key_projections(IN, OUT, OUT, IN, bias=True)
    one = glorot_projection(IN, OUT, bias=True)
    assert not any(projection.bias.any() for projection in (query, key, one))
    return [query.weight, key.weight, one.weight]


def heads() -> list[Tensor]:
    part = HeadLinear(num_heads=3, input_dim=IN, output_dim=OUT, bias=True)
    assert not part.bias.any()
    return [*part.weight]


def joined() -> list[Tensor]:
    return [Join(dim=IN, join="concat").project.weight]


def relative() -> list[Tensor]:
    part = DistanceTables(head_dim=IN, max_distance=70, values=True)
    return [part.key_table, part.value_table]


@pytest.mark.parametrize("drawn", [gated, plain, projections, heads, joined, relative])
def test_each_matrix_is_drawn_by_its_own_inputs_and_outputs(drawn: Callable[[], list[Tensor]]) -> None:
    for weight in drawn():
        bound = math.sqrt(6 / sum(weight.shape))
        assert 0.98 * bound < weight.abs().max() <= bound
        assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)


@pytest.mark.parametrize(("tie", "width"), [("none", 144), ("target", 64)])
def test_embeddings_and_the_output_layer_are_drawn_by_the_root_of_their_width(tie: str, width: int) -> None:
    sizes = ("model.embedding_dim=64", "model.decoder.dim=144", f"model.tie_embeddings={tie}")
    of_transformer = ("decoder@model.decoder=transformer", "model.decoder.num_layers=1")
    model = model_of(*of_transformer, *sizes, source_vocab_size=301, target_vocab_size=307)
    for weight, dim in ((model.embed_source.weight, 64), (model.embed_target.weight, 64), (model.output.weight, width)):
        assert weight.std().item() == pytest.approx(dim**-0.5, rel=0.05)
    assert not model.output.bias.any()


def test_the_biases_of_t5_are_drawn_like_embeddings() -> None:
    part = T5Position(dim=64, num_buckets=64, max_distance=200).relative(num_heads=64, head_dim=1)
    (table,) = part.parameters()
    assert table.std().item() == pytest.approx(1 / 8, rel=0.1)
    assert torch.isfinite(table).all()
