"""Alternating pattern: one pattern a layer, in turn. Child et al. 2019, eq. 6, arXiv:1904.10509."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, final

from jaxtyping import Bool, Int
from torch import Tensor

from seq2seq_attn.attention.build_part import build_part
from seq2seq_attn.attention.pattern.pattern import Pattern
from seq2seq_attn.errors import UserError


@final
class AlternatingPattern(Pattern):
    """A list from which each layer takes its own: what is built, and trained, is only that one.

    A local layer gathers neighbours, an atrous one carries them far: two layers join any two positions, if the
    window is no narrower than the stride.

    Args:
        patterns: a pattern for layer 0, 1, ..., then from the start again; the names serve overrides.

    Raises:
        UserError: for an empty list.
    """

    def __init__(self, *, query_dim: int, key_dim: int, num_heads: int, patterns: Mapping[str, partial[Any]]) -> None:
        super().__init__()
        if not patterns:
            raise UserError(
                "attention.pattern.patterns is empty, so a layer has none to take; name one, as "
                "+attention/pattern@attention.pattern.patterns.local=local"
            )
        self.patterns = list(patterns.values())
        self.sizes = {"query_dim": query_dim, "key_dim": key_dim, "num_heads": num_heads}

    def for_layer(self, layer: int) -> Pattern:
        turn, chosen = divmod(layer, len(self.patterns))
        # A list in the list takes its own turns.
        return build_part(self.patterns[chosen], **self.sizes).for_layer(turn)

    def allowed(self, centre: Tensor, key_position: Int[Tensor, "source"]) -> Bool[Tensor, "#batch target source"]:
        raise NotImplementedError("a list sees nothing itself; ask the pattern of a layer: for_layer(layer)")
