"""No position encoding: an RNN does not need it, and attention without it reads a bag of words."""

from __future__ import annotations

from typing import final

from seq2seq_attn.position.position_encoding import PositionEncoding


@final
class NonePosition(PositionEncoding):
    """The identity: embeddings without positions."""
