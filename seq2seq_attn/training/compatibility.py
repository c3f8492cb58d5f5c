"""Refuse, before training, what a model has no slot or no positions for."""

from __future__ import annotations

from torch import nn

from seq2seq_attn.attention.attention import Attention
from seq2seq_attn.errors import UserError
from seq2seq_attn.position.position_encoding import PositionEncoding

SLOTS = {
    "self_attention": "a Transformer's encoder or decoder",
    "cross_attention": "a Transformer's decoder",
    "position": "a Transformer or ConvS2S",
    "feed_forward": "a Transformer",
}


def check_slots(model: str, overrides: list[str]) -> None:
    """Args:
        model: its configuration as YAML, references unresolved. overrides: the command line's, as typed.

    Raises:
        UserError: if one of them fills or changes a slot that no part of the model reads.
    """
    for override in overrides:
        slot = slot_of(override)
        if slot in SLOTS and f"${{{slot}" not in model and f":{slot}," not in model:
            raise UserError(
                f"{override} would change nothing: this model has no {slot.replace('_', '-')}, which "
                f"{SLOTS[slot]} has; leave it out, or use model=transformer"
            )


def check_positions(model: nn.Module) -> None:
    """Refuse a relative position that no attention is told of: ConvS2S attends to the source alone.

    Raises:
        UserError: with the positions that do something there.
    """
    parts = [p.relative(num_heads=1, head_dim=2) for p in model.modules() if isinstance(p, PositionEncoding)]
    options = {part.option for part in parts if part is not None}
    told = any(part.relative is not None for part in model.modules() if isinstance(part, Attention))
    if options and not told:
        raise UserError(
            f"position={options.pop()} tells self-attention how far apart two positions are, and this model has no "
            "self-attention; use position=sinusoidal, learned or none"
        )


def check_lengths(max_length: int | None, longest: dict[str, tuple[int, int]]) -> None:
    """Args:
        max_length: positions that the model has; None: any.
        longest: tokens of the longest source and target of each split, specials included.

    Raises:
        UserError: with the number of positions that the data needs.
    """
    needed = max(max(lengths) for lengths in longest.values())
    if max_length is not None and needed > max_length:
        split = next(name for name, lengths in longest.items() if max(lengths) == needed)
        raise UserError(
            f"the model has positions for {max_length} tokens, and a sentence of {split} has {needed}; give the option "
            f"max_length={needed} or more (attention.score.max_length, position.max_length), or drop long sentences "
            "with data.cleaning"
        )


def slot_of(override: str) -> str:
    """`attention@self_attention=sparse`, `self_attention.dropout=0.1`: the slot is self_attention."""
    key = override.partition("=")[0].lstrip("+~")
    return key.rpartition("@")[2].partition(".")[0].partition("/")[0]
