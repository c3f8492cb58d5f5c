"""Benchmark of decoding, in sentences per second, ours and others: `python -m scripts.benchmarks.decoding RUN`.

All programs decode with the weights of the run, a pre-norm Transformer: ours, a plain PyTorch loop with a cache
(`decode_plainly.py`), CTranslate2 in float32 (`pip install 'seq2seq_attn[serve]'`) and, with `--peers joeynmt`, JoeyNMT
2.3 in a separate environment. Times are from text to text. The programs are processes that take turns, so that other
load on the machine affects all of them; the page reports the median and the fastest turn of each.
For a quick run: `--sentences 40 --turns 1 --lengths 25 50 --output /tmp/figures`.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import json
import multiprocessing
import platform
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import OmegaConf
from sacrebleu import corpus_bleu
from torch import Tensor, nn

from scripts.benchmarks import decode_with_joeynmt as decode_with_joeynmt
from scripts.benchmarks.decode_plainly import PlainTransformer
from scripts.benchmarks.draw_decoding import JOEYNMT_TURNS, LENGTHS, NAMES, STEP_TURNS, USUAL, draw
from scripts.benchmarks.peer_environment import made_environment
from scripts.benchmarks.processor import processor
from seq2seq_attn.checkpoint.load import Loaded, load
from seq2seq_attn.data.collate import collate_sources
from seq2seq_attn.data.download import fetch
from seq2seq_attn.data.multi30k import URL
from seq2seq_attn.data.reading import read_lines
from seq2seq_attn.errors import UserError, reports_user_errors
from seq2seq_attn.inference.ctranslate2_engine import CTranslate2Engine
from seq2seq_attn.inference.export_ctranslate2 import export
from seq2seq_attn.inference.translator import Translator, cut_batches
from seq2seq_attn.model.encoder_decoder import EncoderDecoder
from seq2seq_attn.paths import conf_directory
from seq2seq_attn.position.sinusoidal import sinusoids
from seq2seq_attn.process import keep_freed_memory
from seq2seq_attn.search.search import Search, TargetVocabulary
from seq2seq_attn.training.provenance import commit

ROOT = Path(__file__).parents[2]
CACHE = Path("~/.cache/seq2seq_attn")
BEAM_SIZE, ALPHA = 5, 0.6
BEAM = {"beam_size": BEAM_SIZE, "length_penalty.alpha": ALPHA, "patience": 1.0}  # all programs stop after this many
SEARCHES = {"greedy": ["search=greedy"], "beam": ["search=beam", *(f"search.{k}={v}" for k, v in BEAM.items())]}
REST = 0.5  # seconds between turns, for the threads of the last one to become idle
STEPS = 64  # number of sentences for the plot
Tokens = list[list[int]]
Way = Callable[[list[str], str], tuple[float, list[str]]]  # lines and search to seconds and translations
Step = Callable[[list[str], int], float]  # lines and their forced length to seconds per step
PROGRAM: dict[str, Callable[..., Any]] = {}  # of this process: its Way and its Step


@reports_user_errors
def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    results = measured(options)
    options.output.mkdir(parents=True, exist_ok=True)
    file = options.output / f"{options.name}.json"
    file.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {draw(file)}")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="a run folder or a .ckpt file")
    parser.add_argument("--peers", nargs="*", default=["plain", "ctranslate2"], choices=list(NAMES)[1:])
    parser.add_argument("--data", type=Path, help="folder of test_2016_flickr.en.gz and .fr.gz; default: download")
    parser.add_argument("--sentences", type=int, default=USUAL["sentences"])
    parser.add_argument("--most", type=int, default=USUAL["most"], help="greatest length of a translation, in tokens")
    parser.add_argument(
        "--batch", type=int, default=USUAL["batch"], help="sentences per batch, by default as in translate.py"
    )
    parser.add_argument("--threads", type=int, default=USUAL["threads"])
    parser.add_argument("--turns", type=int, default=USUAL["turns"])
    parser.add_argument("--joeynmt-turns", type=int, default=JOEYNMT_TURNS)
    parser.add_argument("--lengths", nargs="+", type=int, default=list(LENGTHS), help="lengths for the plot, in tokens")
    parser.add_argument("--layers", type=int, help="pad each side to this many layers with layers that add zero")
    parser.add_argument("--environments", type=Path, default=CACHE / "peers", help="folder of JoeyNMT's environment")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "benchmarks")
    parser.add_argument("--name", default="decoding_cpu", help="file name of the page, its plot and its figures")
    return parser.parse_args(arguments)


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Measure and return everything that the page reports, as plain data."""
    loaded, layers = load_filled(options)
    cleaning = instantiate(loaded.config["data"]["cleaning"], _convert_="all")
    source, references = (read_lines(file_of(language, options.data))[: options.sentences] for language in ("en", "fr"))
    lines = [cleaning.normalize_text(line) for line in source]
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        if "ctranslate2" in options.peers:
            export(loaded, folder / "ctranslate2")
        programs = {
            program: stack.enter_context(program_process(program, options, folder))
            for program in ("ours", *options.peers)
            if program not in ("processes", "joeynmt")
        }
        ways: dict[str, Way] = {program: partial(asked, process, "way") for program, process in programs.items()}
        if "processes" in options.peers:
            ways["processes"] = several_processes(options)
        if "joeynmt" in options.peers:
            ways["joeynmt"] = joeynmt(loaded, options, folder / "joeynmt")
        searches = {kind: in_turns(ways, lines, references, kind, options) for kind in SEARCHES}
        steps = seconds_per_step(programs, options, lines[:STEPS])
    encoder, decoder = loaded.model.encoder, loaded.model.decoder
    return {
        "commit": commit(),
        "searches": searches,
        "seconds_per_step": steps,
        "model": {
            "layers": f"{len(encoder.layers)}+{len(decoder.layers)}",
            "filled": layers,
            "dim": encoder.key_dim,
            "ff_dim": encoder.layers[0].feed_forward.expand.out_features,
            "heads": decoder.layers[0].cross_attention.num_heads,
            "tokens": loaded.tokenizer.target_vocab_size,
        },
        "beam": {"size": BEAM_SIZE, "alpha": ALPHA},
        "steps": STEPS,
        "options": {name: getattr(options, name) for name in ("sentences", "most", "batch", "threads", "turns")},
        "machine": {"processor": processor(), "python": platform.python_version(), "torch": torch.__version__},
    }


def program_process(name: str, options: argparse.Namespace, folder: Path) -> ProcessPoolExecutor:
    """Return a process that holds one program, with the weights of the run.

    Each has its own: in one process, torch and CTranslate2 take about twice as long once both have started threads.
    """
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, context, initializer=begin, initargs=(name, options, folder))


def begin(name: str, options: argparse.Namespace, folder: Path) -> None:
    """Make the program of this process."""
    torch.set_num_threads(options.threads)
    keep_freed_memory()  # as translate.py does
    make = {"ours": ours, "plain": plain, "ctranslate2": partial(ctranslate2, folder=folder)}
    PROGRAM["way"], PROGRAM["step"] = make[name](options)


def asked(process: ProcessPoolExecutor, what: str, *arguments: Any) -> Any:
    """Return what the program of the process returns."""
    return process.submit(answered, what, *arguments).result()


def answered(what: str, *arguments: Any) -> Any:
    return PROGRAM[what](*arguments)


def load_filled(options: argparse.Namespace) -> tuple[Loaded, int]:
    """Load the run; also return how many layers were added to each side."""
    loaded = load(options.run)
    return loaded, fill_up(loaded.model, options.layers) if options.layers else 0


def file_of(language: str, folder: Path | None) -> Path:
    name = f"test_2016_flickr.{language}.gz"
    if folder is not None:
        return folder / name
    return fetch(URL.format(name=name), CACHE.expanduser() / "multi30k" / name, "--data FOLDER")


def fill_up(model: EncoderDecoder, layers: int) -> int:
    """Add layers with zero output to both sides, up to `layers`; return how many were added to each.

    The translations stay the same, and the cost is that of a deeper model.
    """
    added = layers - len(model.decoder.layers)
    for side in (model.encoder, model.decoder):
        while len(side.layers) < layers:
            layer = copy.deepcopy(side.layers[-1])
            parts = [getattr(layer, name, None) for name in ("attention", "self_attention", "cross_attention")]
            outputs = [part.project_output[0] for part in parts if part is not None]
            for linear in (*outputs, layer.feed_forward.reduce):
                for parameter in linear.parameters():
                    nn.init.zeros_(parameter)
            side.layers.append(layer)
    return added


def ours(options: argparse.Namespace) -> tuple[Way, Step]:
    loaded, _ = load_filled(options)
    target = TargetVocabulary.of(loaded.tokenizer)
    searches = {kind: search_of(kind, options.most) for kind in SEARCHES}

    def decode(source: Tensor, mask: Tensor, kind: str) -> Tokens:
        return [best.token_ids for best, *_ in searches[kind](loaded.model, source, mask, target)]

    def step(lines: list[str], length: int) -> float:
        source, _, mask = collated(loaded.tokenizer, loaded.tokenizer.encode_source(lines))
        return seconds(partial(search_of("greedy", length, length), loaded.model, source, mask, target)) / length

    return from_text(loaded.tokenizer, in_batches(loaded.tokenizer, options.batch, decode)), step


def several_processes(options: argparse.Namespace) -> Way:
    """Start a process of ours for each thread, before time is taken."""
    if options.layers:
        raise UserError("--peers processes translates with the layers of the run; leave out --layers")
    torch.set_num_threads(options.threads)
    translator = Translator.load(options.run, device="cpu", num_processes=options.threads)
    searches = {kind: search_of(kind, options.most) for kind in SEARCHES}
    translator.translate(["a", "b"], search=searches["greedy"], batch_sentences=1)

    def way(lines: list[str], kind: str) -> tuple[float, list[str]]:
        began = time.perf_counter()
        translations = translator.translate(lines, search=searches[kind], batch_sentences=options.batch)
        return time.perf_counter() - began, [one.text for one in translations]

    return way


def plain(options: argparse.Namespace) -> tuple[Way, Step]:
    loaded, _ = load_filled(options)
    loop = PlainTransformer(loaded.model, TargetVocabulary.of(loaded.tokenizer))

    def decode(source: Tensor, mask: Tensor, kind: str) -> Tokens:
        if kind == "greedy":
            return loop.greedy(source, mask, options.most)
        return loop.beam(source, mask, options.most, BEAM_SIZE, ALPHA)

    def step(lines: list[str], length: int) -> float:
        source, _, mask = collated(loaded.tokenizer, loaded.tokenizer.encode_source(lines))
        return seconds(partial(loop.greedy, source, mask, length, length)) / length

    return from_text(loaded.tokenizer, in_batches(loaded.tokenizer, options.batch, decode)), step


def ctranslate2(options: argparse.Namespace, folder: Path) -> tuple[Way, Step]:
    """Load the exported folder alone, so that torch starts no threads."""
    searches = {kind: search_of(kind, options.most) for kind in SEARCHES}
    exported = CTranslate2Engine([str(folder / "ctranslate2")], device=torch.device("cpu"), num_threads=options.threads)

    def decode(sources: Tokens, kind: str) -> Tokens:
        token_ids, lengths = [list[int]()] * len(sources), [len(tokens) + 1 for tokens in sources]
        for rows in cut_batches(lengths, batch_sentences=options.batch, batch_tokens=None, hypotheses=1):
            decoded = exported([sources[row] for row in rows], searches[kind])
            for row, (best, *_) in zip(rows, decoded, strict=True):
                token_ids[row] = best.token_ids
        return token_ids

    def step(lines: list[str], length: int) -> float:
        sources = exported.tokenizer.encode_source(lines)
        return seconds(partial(exported, sources, search_of("greedy", length, length))) / length

    return from_text(exported.tokenizer, decode), step


def seconds(run: Callable[[], Any]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def search_of(kind: str, most: int, least: int = 0) -> Search:
    """Build a search as the command line does, with one length limit for all sentences."""
    limits = {"max_length": most, "min_length": least, "max_relative_length": 0.0, "max_extra_length": most}
    overrides = [*SEARCHES[kind], *(f"search.limits.{name}={value}" for name, value in limits.items())]
    with initialize_config_dir(str(conf_directory()), version_base="1.3"):
        config = compose("translate", overrides=overrides)
    return instantiate(OmegaConf.to_container(config.search, resolve=True), _convert_="all")


def in_batches(
    tokenizer: Any, size: int, decode: Callable[[Tensor, Tensor, str], Tokens]
) -> Callable[[Tokens, str], Tokens]:
    """Decode in batches of sentences sorted by length, as the command does."""

    def decoded(sources: Tokens, kind: str) -> Tokens:
        order, results = sorted(range(len(sources)), key=lambda i: len(sources[i])), [[]] * len(sources)
        for start in range(0, len(order), size):
            rows = order[start : start + size]
            source, _, mask = collated(tokenizer, [sources[i] for i in rows])
            for i, tokens in zip(rows, decode(source, mask, kind), strict=True):
                results[i] = tokens
        return results

    return decoded


def collated(tokenizer: Any, sources: Tokens) -> tuple[Tensor, Tensor, Tensor]:
    return collate_sources(sources, pad_id=tokenizer.pad_id, eos_id=tokenizer.eos_id)


def from_text(tokenizer: Any, decode: Callable[[Tokens, str], Tokens]) -> Way:
    def way(lines: list[str], kind: str) -> tuple[float, list[str]]:
        began = time.perf_counter()
        texts = tokenizer.decode_target(decode(tokenizer.encode_source(lines), kind))
        return time.perf_counter() - began, texts

    return way


def joeynmt(loaded: Loaded, options: argparse.Namespace, folder: Path) -> Way:
    """Start JoeyNMT; it decodes sentences unsorted, as its command does."""
    table = sinusoids(decode_with_joeynmt.POSITIONS, loaded.model.encoder.key_dim, loaded.model.encoder.position.base)
    decode_with_joeynmt.write_model(
        loaded.model, loaded.tokenizer, table.float(), folder, most=options.most, batch=options.batch
    )
    python = made_environment("joeynmt", options.environments.expanduser())
    ask = decode_with_joeynmt.started(python, folder, options.threads)
    return lambda lines, kind: ask(lines, BEAM_SIZE if kind == "beam" else 1, ALPHA)


def in_turns(
    ways: dict[str, Way], lines: list[str], references: list[str], kind: str, options: argparse.Namespace
) -> dict[str, dict[str, Any]]:
    """Return the seconds of every turn, the share of translations equal to ours, and BLEU, by program."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    texts: dict[str, list[str]] = {}
    for turn in range(options.turns):
        for name, way in ways.items():
            if name == "joeynmt" and turn >= options.joeynmt_turns:
                continue
            time.sleep(REST)
            took, texts[name] = way(lines, kind)
            seconds[name].append(took)
            print(f"{kind}, turn {turn + 1}, {NAMES[name]}: {len(lines) / took:.1f} sentences/s", flush=True)
    return {
        name: {
            "seconds": seconds[name],
            "bleu": corpus_bleu(texts[name], [references]).score,
            "same": sum(a == b for a, b in zip(texts[name], texts["ours"], strict=True)) / len(lines),
        }
        for name in ways
    }


def seconds_per_step(
    programs: dict[str, ProcessPoolExecutor], options: argparse.Namespace, lines: list[str]
) -> dict[str, dict[int, float]]:
    """Return the seconds per step of greedy search with a fixed length, encoder included, by program and length.

    It is the fastest of up to three turns.
    """
    fastest: dict[str, dict[int, float]] = {name: {} for name in programs}
    for length in options.lengths:
        for name in [*fastest] * min(STEP_TURNS, options.turns):
            time.sleep(REST)
            took = asked(programs[name], "step", lines, length)
            fastest[name][length] = min(took, fastest[name].get(length, took))
        times = ", ".join(f"{name} {1e3 * took[length]:.2f} ms" for name, took in fastest.items())
        print(f"{length} tokens, per step: {times}", flush=True)
    return fastest


if __name__ == "__main__":
    main()
