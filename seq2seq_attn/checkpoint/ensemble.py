"""From checkpoint files to one model, or to several that decide together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from seq2seq_attn.checkpoint.load import find_checkpoint, load
from seq2seq_attn.errors import UserError
from seq2seq_attn.model.encoder_decoder import EncoderDecoder
from seq2seq_attn.model.ensemble import Ensemble
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer


class LoadedEnsemble(NamedTuple):
    """As `Loaded`; one checkpoint gives its own model, and the configuration is that of the first."""

    model: EncoderDecoder | Ensemble
    tokenizer: SentencePieceTokenizer
    config: dict[str, Any]


def load_ensemble(paths: Sequence[str]) -> LoadedEnsemble:
    """Rebuild the trained models of some run folders or .ckpt files, which must have one tokenizer.

    Raises:
        UserError: if two tokenizers differ, or there is no path.
    """
    if not paths:
        raise UserError("ckpt_path=[] names no checkpoint; give a run folder or a .ckpt file, or several")
    files = [find_checkpoint(path) for path in paths]
    loaded = [load(str(file)) for file in files]
    first = loaded[0]
    for file, other in zip(files, loaded, strict=True):
        if other.tokenizer.fingerprint != first.tokenizer.fingerprint:
            raise UserError(
                f"{files[0]} and {file} have different tokenizers, and an ensemble needs one; give runs of the same "
                "data and tokenizer options"
            )
    models = [member.model for member in loaded]
    return LoadedEnsemble(models[0] if len(models) == 1 else Ensemble(models).eval(), first.tokenizer, first.config)
