"""Fine-tuning: a new run that starts from the model, tokenizer, search and weights of another run, its parent."""

from __future__ import annotations

import inspect
import logging
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import DictConfig, OmegaConf

from seq2seq_attn.checkpoint.load import Loaded, find_checkpoint, read_checkpoint, rebuild
from seq2seq_attn.checkpoint.resume import Resumed
from seq2seq_attn.data.corpus import LoadedCorpus
from seq2seq_attn.data.encoded import EncodedSplit, unknown_shares
from seq2seq_attn.errors import UserError
from seq2seq_attn.files import sha256
from seq2seq_attn.text import printable
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer
from seq2seq_attn.training.parent_config import OPTION, SETTINGS

log = logging.getLogger(__name__)

OF_VOCABULARY = ("split_by_unicode_script", "character_coverage", "byte_fallback", "user_defined_symbols", "min_count")
MANY_UNKNOWN = 0.01  # share of a corpus's tokens


class Parent(NamedTuple):
    """The checkpoint of the parent; an average or a published model has no step."""

    file: Path
    loaded: Loaded
    step: int | None


def read_parent(composed: DictConfig, resumed: Resumed | None) -> Parent | None:
    """Read the checkpoint from which a new run starts; None: there is none, or the run resumes."""
    if resumed is not None or composed.init_from.run is None:
        return None
    file = find_checkpoint(composed.init_from.run, OPTION)
    checkpoint = read_checkpoint(file)
    return Parent(file, rebuild(checkpoint, file, composed.trust), checkpoint.get("global_step"))


def kept_tokenizer(composed: DictConfig, resumed: Resumed | None, parent: Parent | None) -> dict[str, Any] | None:
    """Return the state of the tokenizer that comes with a checkpoint; None: a tokenizer is to be trained.

    A resumed run has a tokenizer that was not trained, but given, in its own checkpoint.

    Raises:
        UserError: if options ask for a tokenizer other than the one that is kept.
    """
    keeps = composed.init_from.run is not None and composed.init_from.tokenizer == "keep"
    if resumed is not None:
        return resumed.checkpoint["tokenizer"] if keeps or composed.tokenizer.model else None
    if parent is None or not keeps:
        return None
    state, options = parent.loaded.tokenizer.get_state(), composed.tokenizer
    for name in SETTINGS:
        if options[name] not in (state[name], "auto") or options.model:
            given = f"model={options.model}" if options.model else f"{name}={options[name]}"
            raise UserError(
                f"tokenizer.{given} would change nothing, since the tokenizer of {parent.file} comes along; leave it "
                "out, or train another with init_from.tokenizer=new"
            )
    saved = parent.loaded.config.get("tokenizer") or {}
    defaults = inspect.signature(SentencePieceTokenizer).parameters
    typed: Any = OmegaConf.to_container(options)
    for name in OF_VOCABULARY:
        if typed.get(name) != saved.get(name, defaults[name].default):
            raise UserError(
                f"tokenizer.{name} would change nothing, since the tokenizer of {parent.file} comes along; leave it "
                "out, or train another with init_from.tokenizer=new"
            )
    return state


def provenance_of(parent: Parent | None, resumed: Resumed | None) -> dict[str, Any] | None:
    """Return what identifies the parent; of a resumed run it is in its checkpoint."""
    if resumed is not None:
        return resumed.checkpoint.get("parent")
    if parent is None:
        return None
    return {"path": str(parent.file), "sha256": sha256(parent.file), "step": parent.step}


def warn_of_other_text(parent: Parent, corpus: LoadedCorpus) -> None:
    """Warn of a corpus in other languages."""
    data = parent.loaded.config["data"]
    if parent.loaded.config.get("objective") is not None:
        data = {"source_language": corpus.source_language, "target_language": corpus.target_language}
    languages = f"{data['source_language']} → {data['target_language']}"
    if languages != (corpus_languages := f"{corpus.source_language} → {corpus.target_language}"):
        log.warning(printable(f"{parent.file} translates {languages}, and this corpus is {corpus_languages}"))


def warn_of_unknown_tokens(train: EncodedSplit) -> None:
    """Warn of a corpus with many tokens that the vocabulary of a parent does not have."""
    for side, share in unknown_shares(train).items():
        if share > MANY_UNKNOWN:
            log.warning(
                f"{share:.0%} of the {side} tokens of the training set are unknown to the vocabulary; "
                "init_from.tokenizer=new trains a tokenizer on this corpus"
            )
