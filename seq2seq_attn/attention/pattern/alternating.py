"""Alternating pattern: one pattern a layer, in turn. Child et al. 2019, eq. 6, arXiv:1904.10509."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, final

from seq2seq_attn.attention.pattern.pattern import Pattern
from seq2seq_attn.errors import UserError
from seq2seq_attn.factory import build_part


@final
class AlternatingPattern(Pattern):
    """A list of patterns, of which each layer takes one in turn; only that one is built and trained.

    A local layer connects neighbours, an atrous one distant positions: two layers connect any two positions, if the
    window is no narrower than the stride.

    Args:
        patterns: patterns of layers 0, 1, ... by name, repeated from the start; the names serve overrides.

    Raises:
        UserError: for an empty list.
    """

    def __init__(
        self, *, query_dim: int, key_dim: int, num_heads: int, head_dim: int, patterns: Mapping[str, partial[Any]]
    ) -> None:
        super().__init__()
        if not patterns:
            raise UserError(
                "attention.pattern.patterns is empty, so there is none for a layer; name one, as "
                "attention/pattern@attention.pattern.patterns.local=local"
            )
        self.patterns = list(patterns.values())
        self.sizes = {"query_dim": query_dim, "key_dim": key_dim, "num_heads": num_heads, "head_dim": head_dim}

    def for_layer(self, layer: int) -> Pattern:
        turn, chosen = divmod(layer, len(self.patterns))
        # a list inside the list alternates by itself
        return build_part(self.patterns[chosen], **self.sizes, layer=layer).for_layer(turn)
