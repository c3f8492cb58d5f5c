"""The weights with which a run starts, and which of them it trains."""

from __future__ import annotations

import logging

from seq2seq_attn.checkpoint.resume import Resumed
from seq2seq_attn.data.data_module import TranslationDataModule
from seq2seq_attn.options import typed
from seq2seq_attn.training.freeze import freeze
from seq2seq_attn.training.parameter_groups import without_parameters
from seq2seq_attn.training.parent import (
    Parent,
    provenance_of,
    warn_of_held_out,
    warn_of_lost_guidance,
    warn_of_other_text,
    warn_of_unknown_tokens,
)
from seq2seq_attn.training.parent_weights import copy_weights
from seq2seq_attn.training.translation_module import TranslationModule
from seq2seq_attn.training.word_vectors import copy_word_vectors

log = logging.getLogger(__name__)


def initialize(
    module: TranslationModule, datamodule: TranslationDataModule, parent: Parent | None, resumed: Resumed | None
) -> None:
    """Copy weights of a parent, then word vectors, into the model of a new run, and freeze what is not trained.

    A run that resumes reads neither: its weights are in its own checkpoint.
    """
    module.parent = provenance_of(parent, resumed)
    if parent is not None:
        warn_of_other_text(parent, datamodule.corpus)
        warn_of_held_out(parent, datamodule.corpus, module.config["data"])
        warn_of_lost_guidance(parent, module.config)
        if module.config["init_from"]["tokenizer"] == "keep":
            warn_of_unknown_tokens(parent, datamodule.encoded("train"), module.config["data"])
        copy_weights(parent, module, strict=module.config["init_from"]["strict"])
    if resumed is None:
        copy_word_vectors(module.model, module.tokenizer, module.config["model"])
    freeze(module.model, module.config["freeze"])
    for group in module.parameter_groups():
        if own := ", ".join(f"{name}={typed(value)}" for name, value in without_parameters(group).items()):
            count = sum(parameter.numel() for parameter in group["params"])
            log.info(f"parameter_groups: {own} for {count:,} parameters")
