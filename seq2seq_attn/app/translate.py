"""Standard input to standard output, or file to file, a translation for every line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from seq2seq_attn.app.interactive import interact
from seq2seq_attn.app.line_count import line_count
from seq2seq_attn.app.lines import Line, count_lines, opened, read_lines, windows
from seq2seq_attn.app.translation_files import TranslationFiles, Wanted
from seq2seq_attn.app.translator import Translation, Translator
from seq2seq_attn.tensors.error import UserError

SENTENCES = 64  # of a batch that is given in tokens, for the lines that are read ahead of it
FILES = ("input", "output", "nbest", "prefixes", "alignments", "maps")


def translate(config: DictConfig) -> None:
    """Translate every line; an empty line stays one, and the order is kept."""
    if OmegaConf.is_missing(config, "ckpt_path"):
        raise UserError(
            "translate.py needs ckpt_path=RUN, a run folder or a .ckpt file; [RUN,RUN] translate together"
        )
    if config.num_threads:
        torch.set_num_threads(config.num_threads)
    paths = OmegaConf.to_container(config).get("ckpt_path")
    translator = Translator.load(
        paths, device=config.device, engine=config.engine, num_threads=config.num_threads
    )
