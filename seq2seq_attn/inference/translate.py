"""The command `translate.py`: load a model, choose the search, and write a translation for every line read."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from seq2seq_attn.alignment.attention_links import Heads
from seq2seq_attn.alignment.guided import changed_options, chosen_extraction
from seq2seq_attn.alignment.word_alignment import chosen_weights
from seq2seq_attn.errors import UserError, command
from seq2seq_attn.inference.choose_search import choose_search
from seq2seq_attn.inference.ctranslate2_engine import NO_PREFIXES
from seq2seq_attn.inference.line_answers import LineAnswers
from seq2seq_attn.inference.lines import Line, count_lines, line_count, opened, read_lines, windows
from seq2seq_attn.inference.output import TranslationFiles, check_maps, model_files, refuse_one_file
from seq2seq_attn.inference.translator import Translation, Translator
from seq2seq_attn.options import TRANSLATE, check_options, in_sweep
from seq2seq_attn.paths import given_path
from seq2seq_attn.process import is_closed
from seq2seq_attn.search.search import Search
from seq2seq_attn.text import printable

FILES = ("input", "output", "nbest", "prefixes", "alignments", "maps")
WRITTEN = ("output", "nbest", "alignments", "maps")
LOADED = ("device", "engine", "num_threads", "num_processes", "precision", "compute_type", "trust")
LIMITS = ("batch_sentences", "batch_tokens", "max_source_tokens")
LINE_TOKENS = 16  # of a short line: how many lines may share a batch whose size is given in tokens
PROMPT = "> "


def translate(config: DictConfig) -> None:
    """Translate every line, in order; an empty line stays one, unless a language model continues it."""
    if OmegaConf.is_missing(config, "ckpt_path"):
        raise UserError(f"{command('translate')} needs ckpt_path=RUN, a run folder or a .ckpt file")
    check_options(config, TRANSLATE)
    options: Any = OmegaConf.to_container(config, resolve=True)
    options |= {name: str(given_path(options[name], name)) for name in FILES if options[name] is not None}
    check_links(options)
    if options["prefixes"] and options["engine"] == "ctranslate2":
        raise UserError(NO_PREFIXES)  # now, and not hours later at the first line that has a prefix
    paths = options["ckpt_path"] if isinstance(options["ckpt_path"], list) else [options["ckpt_path"]]
    check_files(paths, options)
    translator, search = load_translator(options)
    two_sided = [name for name in ("prefixes", "alignments", "placeholders") if options[name]]
    if two_sided and not translator.engine.reads_source:
        raise UserError(f"a language model continues each line and has no source; leave out {', '.join(two_sided)}")
    heads = linking_heads(options, translator)
    answers = LineAnswers(
        translator,
        search,
        limits={name: options[name] for name in LIMITS},
        heads=heads,
        extraction=chosen_extraction(options, translator.config),
        placeholders=options["placeholders"],
        alternatives=options["interactive"] or options["nbest"] is not None,
    )
    check_attention(options, translator, heads)
    with closing(translator.engine):
        if options["interactive"]:
            interact(lambda text: answers.translate([text])[0])
        else:
            translate_files(options, answers)


def wants_links(options: dict[str, Any]) -> bool:
    return bool(options["alignments"] or options["placeholders"])


def check_links(options: dict[str, Any]) -> None:
    """Refuse options of word links where none are asked for."""
    linking = changed_options(options)
    if linking and not wants_links(options):
        raise UserError(
            f"word links are read as {', '.join(linking)} says, but none are asked for; add alignments=FILE or "
            "placeholders=true, or leave these options out"
        )


def linking_heads(options: dict[str, Any], translator: Translator) -> Heads:
    """Return the heads that link words: those of the options, or else the one that guided alignment taught."""
    heads = Heads(options["alignment_layer"], options["alignment_head"])
    if heads != Heads() or not wants_links(options) or translator.guided_head is None:
        return heads
    others = "alignment_layer and alignment_head choose another"
    print(f"words are linked by {translator.guided_head}, which guided alignment taught; {others}", file=sys.stderr)
    return translator.guided_head


def check_attention(options: dict[str, Any], translator: Translator, heads: Heads) -> None:
    """Refuse, before the first line is read, links and maps of weights that the attention does not have."""
    if not (wants_links(options) or options["maps"]):
        return
    maps = translator.attention("a", "a")
    if wants_links(options):
        translator.tokenizer.check_words()
        chosen_weights(maps, *heads)
    if options["maps"] and not maps:
        raise UserError("this model's attention has no weights to draw; leave out maps")
    if options["maps"]:
        check_maps(Path(options["maps"]), [one.slot for one in maps])


def load_translator(options: dict[str, Any]) -> tuple[Translator, Search]:
    """Return the model that the options name, and the search."""
    if options["num_threads"]:
        torch.set_num_threads(options["num_threads"])
    given = {name: options[name] for name in LOADED if name in options}
    translator = Translator.load(options["ckpt_path"], **given)
    return translator, choose_search(options.get("search"), translator.config["search"])


def translate_files(options: dict[str, Any], answers: LineAnswers) -> None:
    """Read the input in windows, and write all that is wanted of each line."""
    name = options["input"] or "standard input"
    with ExitStack() as stack:
        source = stack.enter_context(opened("input", options["input"], getattr(sys.stdin, "buffer", None)))
        given = stack.enter_context(opened("prefixes", options["prefixes"]))
        prefixes = None if given is None else read_lines(given, options["prefixes"])
        wanted = {option: options[option] for option in WRITTEN}
        files = TranslationFiles(stack, getattr(sys.stdout, "buffer", None), answers.attention, answers.links, **wanted)
        at_prompt = source.isatty() or (options["output"] is None and sys.stdout.isatty())
        shown = sys.stderr.isatty() and not at_prompt
        total = count_lines(options["input"]) if shown else None
        advance = stack.enter_context(line_count(total, shown))
        most_lines = 1 if source.isatty() else lines_ahead(options)  # a terminal is answered line by line
        for lines, translations in translated_windows(answers.translate, source, name, most_lines, prefixes):
            files.write(lines, translations)
            advance(len(lines))


def lines_ahead(options: dict[str, Any]) -> int:
    """Return the lines of a window, which are sorted by length."""
    tokens = options["batch_tokens"]
    return options["read_ahead"] * (options["batch_sentences"] if tokens is None else -(-tokens // LINE_TOKENS))


def translated_windows(
    translate: Callable[..., list[Translation]],
    source: Any,
    name: str,
    most_lines: int,
    prefixes: Iterator[Line] | None,
) -> Iterator[tuple[list[Line], list[Translation]]]:
    """Yield each window of lines with its translations; changes to a line are noted on standard error."""
    for lines in windows(read_lines(source, name), most_lines):
        begun = None if prefixes is None else list(islice(prefixes, len(lines)))
        if begun is not None and len(begun) < len(lines):
            raise UserError(
                f"{name} has more lines than prefixes, which end at line {lines[len(begun)].number - 1}; "
                "give a line for each, empty where the translation is free"
            )
        texts, prefix_texts = [line.text for line in lines], None if begun is None else [line.text for line in begun]
        translations = translate(texts, prefixes=prefix_texts)
        for number, (line, translation) in enumerate(zip(lines, translations, strict=True)):
            prefix_notes = [f"its prefix: {note}" for note in begun[number].notes] if begun else []
            for note in (*line.notes, *prefix_notes, *translation.notes):
                print(printable(f"{name}, line {line.number}: {note}"), file=sys.stderr)
        yield lines, translations
    if prefixes is not None and next(prefixes, None) is not None:
        raise UserError(f"prefixes have more lines than {name}; give a line for each")


def interact(translate: Callable[[str], Translation]) -> None:
    """Answer each line at a prompt until the input ends (Ctrl-D), every translation after its score."""
    with suppress(ImportError):  # on Windows
        import readline  # noqa: F401, input() then edits lines and keeps those before
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    while True:
        try:
            text = input(PROMPT)
        except EOFError:
            print()
            return
        best = translate(text)
        for note in best.notes:
            print(note, file=sys.stderr)
        for one in (best, *best.alternatives) if text.strip() or best.tokens else ():
            print(f"{one.score:8.3f}  {printable(one.text)}")


def check_files(paths: list[str], options: dict[str, Any]) -> None:
    """Refuse files at a prompt, a standard stream that is closed, and one file under two options."""
    given = {name: options[name] for name in FILES if options[name] is not None}
    if options["interactive"] and given:
        raise UserError(f"interactive=true answers at the prompt; leave out {', '.join(given)}")
    if in_sweep() and "input" not in given and not options["interactive"]:
        raise UserError("the first job of a sweep would read all of standard input; give input=FILE")
    files: list[tuple[str, Any]] = []
    for path in paths:
        files += [("ckpt_path", file) for file in model_files(path, "ckpt_path")]
    files += given.items()
    for option, stream in (("input", sys.stdin), ("output", sys.stdout)):
        if options[option] is None:
            if is_closed(stream):
                raise UserError(f"standard {option} is closed; open it, or give {option}=FILE")
            files.append((f"standard {option}", stream))
    refuse_one_file(files)
