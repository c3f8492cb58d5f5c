"""Standard input to standard output, or file to file, a translation for every line."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from seq2seq_attn.alignment.forced_attention import SlotMap
from seq2seq_attn.errors import UserError
from seq2seq_attn.inference.choose_search import choose_search
from seq2seq_attn.inference.interactive import interact
from seq2seq_attn.inference.line_count import line_count
from seq2seq_attn.inference.lines import Line, Stream, count_lines, opened, read_lines, windows
from seq2seq_attn.inference.translation_files import TranslationFiles, WantedFiles
from seq2seq_attn.inference.translator import Translation, Translator
from seq2seq_attn.options import TRANSLATE, check_options
from seq2seq_attn.paths import given_path
from seq2seq_attn.process import is_closed
from seq2seq_attn.text import printable

MODEL_SUFFIXES = (".ckpt", ".safetensors", ".model")  # of what a run or a published folder is rebuilt from
FILES = ("input", "output", "nbest", "prefixes", "alignments", "maps")
AHEAD = ("read_ahead", "batch_sentences", "batch_tokens")
LINE_PIECES = 16  # of a short line: how many may share a batch that is given in tokens


def translate(config: DictConfig) -> None:
    """Translate every line; an empty line stays one, and the order is kept."""
    if OmegaConf.is_missing(config, "ckpt_path"):
        raise UserError("translate.py needs ckpt_path=RUN, a run folder or a .ckpt file")
    check_options(config, TRANSLATE)
    options: Any = OmegaConf.to_container(config, resolve=True)
    options |= {name: str(given_path(options[name], name)) for name in FILES if options[name] is not None}
    check_files(options)
    if options["num_threads"]:
        torch.set_num_threads(options["num_threads"])
    paths = options["ckpt_path"]
    translator = Translator.load(
        paths if isinstance(paths, list) else str(paths),
        device=options["device"],
        engine=options["engine"],
        num_threads=options["num_threads"],
    )
    search = choose_search(options.get("search"), translator.config["search"])
    answer = partial(
        translator.translate,
        search=search,
        batch_sentences=options["batch_sentences"],
        batch_tokens=options["batch_tokens"],
        max_source_tokens=options["max_source_tokens"],
    )
    if options["interactive"]:
        interact(lambda text: answer([text])[0])
    else:
        attention = partial(translator.attention, max_source_tokens=options["max_source_tokens"])
        translate_files(options, answer, attention)


def check_files(options: dict[str, Any]) -> None:
    """Refuse files beside a prompt, a standard stream that is closed, and one file for two things."""
    given = {name: options[name] for name in FILES if options[name] is not None}
    if options["interactive"] and given:
        raise UserError(f"interactive=true answers at the prompt; leave out {', '.join(given)}")
    paths = options["ckpt_path"]
    files: list[tuple[str, Any]] = []
    for path in paths if isinstance(paths, list) else [paths]:
        folder = given_path(path, "ckpt_path")
        models = [file for file in folder.rglob("*") if file.suffix in MODEL_SUFFIXES] if folder.is_dir() else []
        files += [("ckpt_path", str(file)) for file in (folder, *models)]
    files += given.items()
    for option, stream in (("input", sys.stdin), ("output", sys.stdout)):
        if options[option] is None:
            if is_closed(stream):
                raise UserError(f"standard {option} is closed; open it, or give {option}=FILE")
            files.append((f"standard {option}", stream))
    named: dict[str | tuple[int, int], tuple[str, Any]] = {}
    for name, file in files:
        key = identity(file)
        other, other_file = (name, file) if key is None else named.setdefault(key, (name, file))
        if other != name:
            path = next((f", {one}" for one in (file, other_file) if isinstance(one, str)), "")
            raise UserError(f"{other} and {name} are one file{path}; give each its own")


def identity(file: Any) -> str | tuple[int, int] | None:
    """Device and inode of a path or a stream, else where the path leads; None of what several may share: a terminal."""
    try:
        found = os.stat(file if isinstance(file, str) else file.fileno())
    except OSError:
        return os.path.realpath(file) if isinstance(file, str) else None
    shared = stat.S_ISCHR(found.st_mode) or stat.S_ISSOCK(found.st_mode)
    return None if shared else (found.st_dev, found.st_ino)


def translate_files(
    options: dict[str, Any],
    answer: Callable[..., list[Translation]],
    attention: Callable[[str, Translation], list[SlotMap]],
) -> None:
    """From the input to all that is wanted of it."""
    name = options["input"] or "standard input"
    wanted = WantedFiles(**{option: options[option] for option in WantedFiles._fields})
    with ExitStack() as stack:
        source = stack.enter_context(opened("input", options["input"], getattr(sys.stdin, "buffer", None)))
        begun = stack.enter_context(opened("prefixes", options["prefixes"]))
        prefixes = None if begun is None else read_lines(begun, options["prefixes"])
        files = TranslationFiles(wanted, getattr(sys.stdout, "buffer", None), stack, attention)
        at_prompt = source.isatty() or (wanted.output is None and sys.stdout.isatty())
        shown = sys.stderr.isatty() and not at_prompt
        advance = stack.enter_context(line_count(num_lines(options["input"]), shown))
        # At a terminal each line is answered at once.
        most_lines = 1 if source.isatty() else lines_ahead(**{k: options[k] for k in AHEAD})
        for lines, translations in answered(answer, source, name, most_lines, prefixes):
            files.write(lines, translations)
            advance(len(lines))


def answered(
    answer: Callable[..., list[Translation]],
    source: Stream,
    name: str,
    most_lines: int,
    prefixes: Iterator[Line] | None,
) -> Iterator[tuple[list[Line], list[Translation]]]:
    """Lines with their translations, a window at a time; what was changed in a line is said on standard error."""
    for lines in windows(read_lines(source, name), most_lines):
        begun = None if prefixes is None else list(islice(prefixes, len(lines)))
        if begun is not None and len(begun) < len(lines):
            raise UserError(
                f"{name} has more lines than prefixes, which end at line {lines[len(begun)].number - 1}; "
                "give a line for each, empty where the translation is free"
            )
        translations = answer([line.text for line in lines], prefixes=begun and [line.text for line in begun])
        notes = [[]] * len(lines) if begun is None else [line.notes for line in begun]
        for line, of_line, translation in zip(lines, notes, translations, strict=True):
            of_prefix = [f"its prefix: {note}" for note in of_line]
            for note in (*line.notes, *of_prefix, *translation.notes):
                print(printable(f"{name}, line {line.number}: {note}"), file=sys.stderr)
        yield lines, translations
    if prefixes is not None and next(prefixes, None) is not None:
        raise UserError(f"prefixes have more lines than {name}; give a line for each")


def lines_ahead(*, read_ahead: int, batch_sentences: int, batch_tokens: int | None) -> int:
    """Lines of a window, which are sorted by length."""
    if read_ahead < 1:
        raise UserError(f"read_ahead={read_ahead} reads nothing; use 1 or more")
    return read_ahead * (batch_sentences if batch_tokens is None else -(-batch_tokens // LINE_PIECES))


def num_lines(path: str | None) -> int | None:
    """Of a plain file; None where only reading it all would tell."""
    return count_lines(path) if path is not None and not path.endswith(".gz") and Path(path).is_file() else None
