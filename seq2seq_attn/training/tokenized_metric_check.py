"""Refuse to tokenize once more what is tokenized: its marks would fall apart into tokens that match too easily."""

from __future__ import annotations

from typing import Any

from seq2seq_attn.errors import UserError

BLEU, TOKENIZED_BLEU = ("seq2seq_attn.metric.bleu.BLEU", "seq2seq_attn.metric.tokenized_bleu.TokenizedBLEU")


def check_tokenized(data: dict[str, Any], metrics: dict[str, Any]) -> None:
    """Args:
        data, metrics: their options, metrics by name.

    Raises:
        UserError: for a BLEU that would split the tokens of a corpus whose suffix says that they are tokens.
    """
    suffix = data.get("suffix") or ""
    if "tok" not in suffix.split("."):
        return
    for name, options in metrics.items():
        splits = options["_target_"] == BLEU and options["tokenize"] != "none"
        if splits or options["_target_"] == TOKENIZED_BLEU:
            raise UserError(
                f"data.suffix={suffix} is tokenized text, and metric.{name} would tokenize it once more; use "
                "data=multi30k_tok, or metric=[tokenized_text]"
            )
