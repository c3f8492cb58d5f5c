"""Fine-tuning: a new run that starts from the model, tokenizer, search and weights of another run, its parent."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import DictConfig, OmegaConf

from seq2seq_attn.alignment.guided import guidance, guided_head, guided_shift
from seq2seq_attn.checkpoint.checkpoint_file import corpus_of
from seq2seq_attn.checkpoint.load import Loaded, find_checkpoint, read_checkpoint, rebuild
from seq2seq_attn.checkpoint.resume import Resumed
from seq2seq_attn.data.cleaning import OF_TEXT, text_options
from seq2seq_attn.data.corpus import LoadedCorpus
from seq2seq_attn.data.encoded import EncodedSplit, unknown_shares
from seq2seq_attn.data.splitting import HELD_OUT
from seq2seq_attn.errors import UserError
from seq2seq_attn.files import sha256
from seq2seq_attn.options import typed
from seq2seq_attn.text import printable
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer
from seq2seq_attn.training.parent_config import OPTION, SETTINGS

log = logging.getLogger(__name__)

OF_VOCABULARY = ("split_by_unicode_script", "character_coverage", "byte_fallback", "user_defined_symbols", "min_count")
MANY_UNKNOWN = 0.01  # share of a corpus's tokens


class Parent(NamedTuple):
    """The checkpoint of the parent; an average or a published model has no step.

    Attributes:
        corpus: fingerprint of the corpus that it was trained on; None: the checkpoint does not say.
    """

    file: Path
    loaded: Loaded
    step: int | None
    corpus: str | None = None


def read_parent(composed: DictConfig, resumed: Resumed | None) -> Parent | None:
    """Read the checkpoint from which a new run starts; None: there is none, or the run resumes."""
    if resumed is not None or composed.init_from.run is None:
        return None
    file = find_checkpoint(composed.init_from.run, OPTION)
    checkpoint = read_checkpoint(file)
    loaded = rebuild(checkpoint, file, composed.trust)
    parent = Parent(file, loaded, checkpoint.get("global_step"), corpus_of(checkpoint))
    compare_cleaning(parent, composed.data)
    return parent


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
    if (unread := unread_option(composed.tokenizer, parent.loaded)) is not None:
        raise UserError(
            f"tokenizer.{unread} would change nothing, since the tokenizer of {parent.file} comes along; leave it out, "
            "or train another with init_from.tokenizer=new"
        )
    return parent.loaded.tokenizer.get_state()


def unread_option(options: DictConfig, loaded: Loaded) -> str | None:
    """Return the first option that differs from the kept tokenizer, which does not read it; None: there is none.

    Args:
        options: of the tokenizer of this run.
        loaded: the parent with its tokenizer.
    """
    if options.model:
        return f"model={options.model}"
    state = loaded.tokenizer.get_state()
    for name in SETTINGS:
        if options[name] not in (state[name], "auto"):
            return f"{name}={options[name]}"
    saved = loaded.config.get("tokenizer") or {}
    defaults = inspect.signature(SentencePieceTokenizer).parameters
    given: Any = OmegaConf.to_container(options)
    return next((name for name in OF_VOCABULARY if given.get(name) != saved.get(name, defaults[name].default)), None)


def provenance_of(parent: Parent | None, resumed: Resumed | None) -> dict[str, Any] | None:
    """Return what identifies the parent; of a resumed run it is in its checkpoint."""
    if resumed is not None:
        return resumed.checkpoint.get("parent")
    if parent is None:
        return None
    return {"path": str(parent.file), "sha256": sha256(parent.file), "step": parent.step}


def compare_cleaning(parent: Parent, data: Mapping[Any, Any]) -> None:
    """Log the cleaning of the text that this run has from its parent, and warn of another one."""
    theirs, ours = text_options(parent.loaded.config["data"]), text_options(data)
    if kept := [name for name, usual in OF_TEXT.items() if theirs[name] == ours[name] != usual]:
        log.info(printable(f"The text is cleaned as that of {parent.file}: {named(theirs, kept, data)}"))
    if other := other_cleaning(parent, data):
        log.warning(
            printable(
                f"The text of {parent.file} was cleaned with {other}, and that of this run is not; give the same, "
                "unless the model is to learn other text"
            )
        )


def other_cleaning(parent: Parent, data: Mapping[Any, Any]) -> str:
    """Return the parent's options of the cleaning of text that this run has otherwise, as they are typed."""
    theirs, ours = text_options(parent.loaded.config["data"]), text_options(data)
    return named(theirs, [name for name in theirs if theirs[name] != ours[name]], data)


def named(options: dict[str, Any], names: Sequence[str], data: Mapping[Any, Any]) -> str:
    group = "data.cleaning" if "cleaning" in data else "data.corpus.cleaning"
    return " ".join(f"{group}.{name}={typed(options[name])}" for name in names)


def warn_of_other_text(parent: Parent, corpus: LoadedCorpus) -> None:
    """Warn of a corpus in other languages."""
    data = parent.loaded.config["data"]
    if parent.loaded.config.get("objective") is not None:
        data = {"source_language": corpus.source_language, "target_language": corpus.target_language}
    languages = f"{data['source_language']} → {data['target_language']}"
    if languages != (corpus_languages := f"{corpus.source_language} → {corpus.target_language}"):
        log.warning(printable(f"{parent.file} translates {languages}, and this corpus is {corpus_languages}"))


def warn_of_lost_guidance(parent: Parent, config: Mapping[str, Any]) -> None:
    """Warn of a parent whose guided head this run guides no more, so that no command reads its links by itself.

    Args:
        config: of this run.
    """
    head = guided_head(parent.loaded.config, parent.loaded.model)
    if head is None or guidance(config) is not None or config["model"].get("encoder") is None:
        return
    shift = " alignment_shift=true" if guided_shift(parent.loaded.config) else ""
    log.warning(
        printable(
            f"guided_alignment taught {head} of {parent.file} to align words, and this run guides no head, so its "
            "links are those of the mean of all heads; give guided_alignment.links of this corpus, or read that head "
            f"by alignment_layer={head.layer} alignment_head={head.head}{shift}"
        )
    )


def warn_of_held_out(parent: Parent, corpus: LoadedCorpus, data: Mapping[Any, Any]) -> None:
    """Warn of sets that are held out of files of which the parent was trained on other pairs, perhaps on these.

    Args:
        data: the options of the corpus.
    """
    held_out = [
        name for name in corpus.splits if any(step.startswith(f"{name}: {HELD_OUT}") for step in corpus.report.counts)
    ]
    shared = sorted(training_files(data) & training_files(parent.loaded.config["data"]))
    if held_out and shared and parent.corpus not in (None, corpus.fingerprint):
        log.warning(
            printable(
                f"{parent.file} was trained on {shared[0]}, too, with other sentences held out, so it may have been "
                f"trained on those of {' and '.join(held_out)} here, whose scores are then too good; give the options "
                "of data that its run had (config.yaml), or sets in files of their own"
            )
        )


def training_files(data: Any) -> set[str]:
    """Return the files and folders of the training pairs of a corpus as they are typed, or the class that knows them.

    Args:
        data: options of a corpus, or what names its files.
    """
    if isinstance(data, str):
        return {data}
    if isinstance(data, Mapping):
        corpora = data.get("corpora")
        inner = corpora.values() if isinstance(corpora, Mapping) else [corpora]
        path = data["_target_"] if data.get("path", "") is None else data.get("path")
        data = [path, data.get("train"), data.get("corpus"), *inner]
    return set().union(*map(training_files, data or []))


def warn_of_unknown_tokens(parent: Parent, train: EncodedSplit, data: Mapping[Any, Any]) -> None:
    """Warn of a corpus with many tokens that the vocabulary of a parent does not have.

    Args:
        data: the options of the corpus.
    """
    other = other_cleaning(parent, data)
    way_out = f"{other} cleans the text as that of the parent, and " if other else ""
    for side, share in unknown_shares(train).items():
        if share > MANY_UNKNOWN:
            log.warning(
                f"{share:.0%} of the {side} tokens of the training set are unknown to the vocabulary; {way_out}"
                "init_from.tokenizer=new trains a tokenizer on this corpus"
            )
