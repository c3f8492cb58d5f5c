"""The command `seq2seq-attn serve`: load a model, choose the search, and translate what is asked for over HTTP."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from omegaconf import DictConfig, OmegaConf

from seq2seq_attn.errors import UserError, command
from seq2seq_attn.inference.ctranslate2_engine import NO_PREFIXES
from seq2seq_attn.inference.translate import LIMITS, load_translator
from seq2seq_attn.inference.translation_server import listen, serve_translations
from seq2seq_attn.inference.translator import CONTINUES, Translation
from seq2seq_attn.options import SERVE, check_options


def serve(config: DictConfig) -> None:
    """Answer requests until a signal ends the process."""
    if OmegaConf.is_missing(config, "ckpt_path"):
        raise UserError(f"{command()} needs ckpt_path=RUN, a run folder or a .ckpt file")
    check_options(config, SERVE)
    options: Any = OmegaConf.to_container(config, resolve=True)
    with listen(options["host"], options["port"]) as listener:
        translator, search = load_translator(options)
        limits = {name: options[name] for name in LIMITS}

        def translate(texts: list[str], prefixes: list[str] | None = None) -> list[Translation]:
            return translator.translate(texts, search=search, prefixes=prefixes, **limits)

        with closing(translator.engine):
            translate(["a"])  # what the engine cannot do is refused now, and the first request is as fast as the others
            no_prefixes = NO_PREFIXES if options["engine"] == "ctranslate2" else None
            serve_translations(
                translate,
                listener,
                batch_sentences=options["batch_sentences"],
                most_hypotheses=search.most_hypotheses,
                no_prefixes=no_prefixes if translator.engine.reads_source else CONTINUES,
            )
