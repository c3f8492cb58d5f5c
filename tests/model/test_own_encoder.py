"""An encoder of a user's own: which widths it states, and what is said where it does not."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from configs import built, composed
from torch import Tensor

from seq2seq_attn.encoder.encoder import Encoded, Encoder
from seq2seq_attn.errors import UserError
from seq2seq_attn.model.encoder_decoder import EncoderDecoder


class Unchanged(Encoder):
    """The embeddings themselves."""

    def __init__(self, *, input_dim: int, stated: tuple[str, ...]) -> None:
        super().__init__()
        for name in stated:
            setattr(self, name, input_dim)

    def forward(self, embedded: Tensor, mask: Tensor, *, need_weights: bool = False) -> Encoded:
        return Encoded(embedded, embedded, mask, embedded.mean(dim=1))


def model_with(*stated: str) -> EncoderDecoder:
    sizes = ("model.source_vocab_size=7", "model.target_vocab_size=11", "model.embedding_dim=6", "model.decoder.dim=10")
    whole = composed("model=rnn", "attention=bahdanau", *sizes).model
    options: dict[str, Any] = {name: value for name, value in whole.items() if not name.startswith("_")}
    given = options | {"encoder": partial(Unchanged, stated=stated), "decoder": built(options["decoder"])}
    return EncoderDecoder(**given)


def test_it_is_read_by_the_widths_that_it_states() -> None:
    model = model_with("key_dim", "value_dim", "summary_dim")
    source, target = torch.tensor([[4, 5, 6]]), torch.tensor([[1, 4]])
    decoded = model(source, torch.ones_like(source, dtype=torch.bool), target)
    decoded.hidden.sum().backward()
    assert all((parameter.grad != 0).any() for parameter in model.embed_source.parameters())


def test_missing_widths_are_named() -> None:
    with pytest.raises(UserError, match=r"^Unchanged lacks key_dim, summary_dim, which tell the decoder how wide"):
        model_with("value_dim")
