"""No positions: an RNN counts by itself, attention alone reads a bag of words."""

from __future__ import annotations

from typing import final

from seq2seq_attn.position.position_encoding import PositionEncoding


@final
class NonePosition(PositionEncoding):
    """Embeddings stay as they are."""
