"""Attention maps as the arguments of BertViz's views of encoder-decoder models. Vig 2019, arXiv:1906.05714."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch

from seq2seq_attn.alignment.forced_attention import SlotMap
from seq2seq_attn.errors import UserError

ARGUMENTS = {"encoder": "encoder_attention", "self": "decoder_attention", "cross": "cross_attention"}


def to_bertviz(maps: Sequence[SlotMap], kinds: Collection[str] = tuple(ARGUMENTS)) -> dict[str, Any]:
    """Return the arguments of `bertviz.head_view` and `bertviz.model_view`: `head_view(**to_bertviz(maps))`.

    A decoder's row is named by the token that is read there, as its columns are; the token that it predicts is the next
    one. Each attention is a list over layers of (1, heads, rows, columns).

    Args:
        kinds: which attentions to return, of encoder, self (the decoder's) and cross. BertViz 1.4 shows several at once
            only if they have equally many layers, and a list only if its layers have equally many heads.

    Raises:
        UserError: if there is no map of these kinds.
    """
    arguments: dict[str, Any] = {}
    for kind, name in ARGUMENTS.items():
        chosen = [one for one in maps if one.slot.startswith(f"{kind}/")] if kind in kinds else []
        if not chosen:
            continue
        arguments[name] = [torch.from_numpy(one.weights)[None] for one in chosen]
        if kind != "self":
            arguments["encoder_tokens"] = list(chosen[0].columns)
        if kind != "encoder":
            arguments["decoder_tokens"] = ["<s>", *chosen[0].rows[:-1]]
    if not arguments:
        raise UserError(
            f"there is no map of {', '.join(kinds)}; translate with maps=True a text that is not empty, and choose "
            f"kinds from: {', '.join(ARGUMENTS)}"
        )
    return arguments
