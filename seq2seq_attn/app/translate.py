"""Standard input to standard output, or file to file, a translation for every line."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import Any, BinaryIO, Literal

import torch
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from seq2seq_attn.app.device import choose_device
from seq2seq_attn.data.cleaning import Cleaning
from seq2seq_attn.data.collate import collate_sources
from seq2seq_attn.search.search import Search
from seq2seq_attn.tensors.error import UserError
from seq2seq_attn.training.checkpoint import Loaded, load

WINDOW = 16  # batches read ahead, so that lines of one length meet in a batch


def translate(config: DictConfig) -> None:
    """Translate every line; an empty line stays one, and the order is kept."""
    if OmegaConf.is_missing(config, "ckpt_path"):
        raise UserError("translate.py needs ckpt_path=RUN, a run folder or a .ckpt file")
    if config.num_threads:
        torch.set_num_threads(config.num_threads)
    device = choose_device(config.device)
    loaded = load(config.ckpt_path)
    loaded.model.to(device)
    search: Search = instantiate(
        OmegaConf.to_container(config.search) if "search" in config else loaded.config["search"],
        _convert_="all",
    )
    with (
        opened(config.input, "r", sys.stdin.buffer) as source,
        opened(config.output, "w", sys.stdout.buffer) as target,
    ):
        # At a terminal each line is answered at once.
        window = 1 if source.isatty() else WINDOW * config.batch_sentences
        lines = read_lines(source, config.input or "standard input")
        while block := list(islice(lines, window)):
            translations = translate_lines(loaded, search, block, config.batch_sentences, device)
            target.write("".join(text + "\n" for text in translations).encode())
            target.flush()


def opened(path: str | None, mode: Literal["r", "w"], standard: BinaryIO) -> AbstractContextManager[Any]:
    """The file as a byte stream, packed if its name ends in gz; the standard stream, left open, for None."""
    if path is None:
        return nullcontext(standard)
    try:
        return gzip.open(path, f"{mode}b") if path.endswith(".gz") else open(path, f"{mode}b")
    except OSError as error:
        option, verb = ("input", "read") if mode == "r" else ("output", "written")
        raise UserError(f"{option}={path} cannot be {verb} ({error.strerror})") from error


def translate_lines(
    loaded: Loaded, search: Search, lines: list[str], batch_sentences: int, device: torch.device
) -> list[str]:
    """Translations in the order of the lines; batches are cut from lines sorted by length."""
    tokenizer = loaded.tokenizer
    cleaning: Cleaning = instantiate(loaded.config["data"]["cleaning"], _convert_="all")
    encoded = tokenizer.encode_source([cleaning.normalize_text(line) for line in lines])
    filled = sorted((i for i, pieces in enumerate(encoded) if pieces), key=lambda i: len(encoded[i]))
    found = [""] * len(lines)
    banned = (tokenizer.pad_id, tokenizer.bos_id, tokenizer.unk_id)
    for batch in batched(filled, batch_sentences):
        source, _, mask = collate_sources(
            [encoded[i] for i in batch], pad_id=tokenizer.pad_id, eos_id=tokenizer.eos_id
        )
        hypotheses = search(
            loaded.model, source.to(device), mask.to(device), bos_id=tokenizer.bos_id, eos_id=tokenizer.eos_id,
            banned_ids=banned,
        )  # fmt: skip
        texts = tokenizer.decode_target([hypothesis.pieces for hypothesis in hypotheses])
        for i, text in zip(batch, texts, strict=True):
            found[i] = " ".join(text.split("\n"))
    return found


def batched(rows: Iterable[int], size: int) -> Iterator[list[int]]:
    """Runs of `size` rows; the last may be shorter."""
    rows = iter(rows)
    while batch := list(islice(rows, size)):
        yield batch


def read_lines(stream: BinaryIO, name: str) -> Iterator[str]:
    """Lines of a byte stream, split on line feeds only; what is not UTF-8 is replaced, and said."""
    for number, line in enumerate(stream, 1):
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        try:
            yield line.decode()
        except UnicodeDecodeError:
            print(f"{name}, line {number}: not UTF-8; what cannot be read is replaced", file=sys.stderr)
            yield line.decode(errors="replace")
