"""What a corpus larger than memory costs: `python -m scripts.benchmarks.large_corpus TASK... --folder FOLDER`.

The corpora are written here: sentences of made-up words with the frequencies of natural text. Tasks: prepare (time and
memory of a first start), start (a later start, and the order of an epoch), encode (beside sentencepiece alone), peer
(beside OpenNMT-py), step (a training step with the large and with the small corpus), kill (kill -9 in preparation and
in training).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import OmegaConf

from scripts.benchmarks.peer_environment import made_environment
from scripts.benchmarks.processor import processor
from scripts.benchmarks.training import ROOT
from seq2seq_attn.errors import UserError, reports_user_errors
from seq2seq_attn.paths import quoted
from seq2seq_attn.training.provenance import commit

OUTPUT = ROOT / "docs/benchmarks/large_corpus.json"
SMALL = 100_000  # pairs of the corpus that the large one is compared with
KILLED = 1_000_000  # pairs of the corpus whose preparation is killed
WORDS = 30_000
MODEL = ["model=rnn", "recipe=none", "model.embedding_dim=64", "model.encoder.dim=64", "model.decoder.dim=64"]
SHORT = [
    "trainer.limit_val_batches=1", "trainer.limit_test_batches=1", "trainer.enable_progress_bar=false", "num_threads=1",
    "val_sentences=100", "seed=1",
]  # fmt: skip


def write_corpus(folder: Path, pairs: int) -> list[Path]:
    """Write two line-aligned files, unless they are there, of about 90 bytes a line."""
    files = [folder / f"{pairs}.en", folder / f"{pairs}.fr"]
    if all(file.exists() for file in files):
        return files
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(0)
    syllables = [a + b for a in "bcdfglmnprst" for b in "aeiou"]
    words = ["".join(draw.choices(syllables, k=draw.randint(1, 4))) for _ in range(WORDS)]
    random_numbers = np.random.default_rng(0)
    part = [file.with_suffix(f"{file.suffix}.part") for file in files]
    with part[0].open("w") as source, part[1].open("w") as target:
        for start in range(0, pairs, 50_000):
            lengths = random_numbers.integers(4, 28, min(50_000, pairs - start)).tolist()
            drawn = [words[i] for i in (random_numbers.zipf(1.3, 2 * sum(lengths)) % WORDS).tolist()]
            for stream in (source, target):
                rest = iter(drawn)
                drawn = drawn[sum(lengths) :]
                stream.writelines(" ".join([next(rest) for _ in range(length)]) + "\n" for length in lengths)
    for done, file in zip(part, files, strict=True):
        done.replace(file)
    return files


def data_of(files: Sequence[Path], cache: Path) -> list[str]:
    return ["data=parallel", f"data.train=[{quoted(files[0])},{quoted(files[1])}]", f"paths.cache_dir={quoted(cache)}"]


class Memory(threading.Thread):
    """The largest sum of the proportional set sizes of a process and its descendants, in bytes."""

    def __init__(self, process: int) -> None:
        super().__init__(daemon=True)
        self.process, self.peak, self.stopped = process, 0, threading.Event()

    def run(self) -> None:
        while not self.stopped.wait(0.1):
            self.peak = max(self.peak, sum(map(proportional, family(self.process))))


def family(process: int) -> Iterator[int]:
    """Yield a process and its descendants."""
    yield process
    try:
        for tasks in Path(f"/proc/{process}/task").iterdir():
            for child in (tasks / "children").read_text().split():
                yield from family(int(child))
    except OSError:
        pass  # it has ended


def proportional(process: int) -> int:
    try:
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return 1024 * int(line.split()[1])
    except OSError:
        pass
    return 0


def command(name: str, *overrides: str) -> list[str]:
    return [sys.executable, "-m", "seq2seq_attn", name, *MODEL, *overrides]


def started(arguments: Sequence[str]) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        arguments, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True,
    )  # fmt: skip


def measured(arguments: Sequence[str]) -> dict[str, float]:
    """Run a command; return its seconds, CPU-seconds and peak memory in bytes."""
    before = os.times()
    start = time.monotonic()
    process = started(arguments)
    memory = Memory(process.pid)
    memory.start()
    output, _ = process.communicate()
    seconds = time.monotonic() - start
    memory.stopped.set()
    memory.join()
    if process.returncode:
        raise UserError(f"{' '.join(arguments[2:])} failed: {' '.join(output.strip().splitlines()[-1:])}")
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return {"seconds": seconds, "cpu_seconds": cpu, "peak_bytes": memory.peak}


def prepare(options: argparse.Namespace, figures: dict[str, Any]) -> None:
    """Prepare the small and the large corpus from nothing."""
    for pairs in (SMALL, options.pairs):
        files, cache = write_corpus(options.folder, pairs), options.folder / f"cache_{pairs}"
        shutil.rmtree(cache, ignore_errors=True)
        done = measured(command("prepare", *data_of(files, cache)))
        done["text_bytes"] = sum(file.stat().st_size for file in files)
        done["disk_bytes"] = sum(file.stat().st_size for file in cache.rglob("*") if file.is_file())
        figures.setdefault("prepare", {})[str(pairs)] = done


def start(options: argparse.Namespace, figures: dict[str, Any]) -> None:
    """Start trainings of one update on prepared corpora, one after the other; then time the order of an epoch."""
    times: dict[str, list[dict[str, float]]] = {}
    for run in range(options.repetitions + 1):
        for pairs in (SMALL, options.pairs):
            files, cache = write_corpus(options.folder, pairs), options.folder / f"cache_{pairs}"
            folder = options.folder / "runs" / f"start_{pairs}_{run}"
            shutil.rmtree(folder, ignore_errors=True)
            given = [*data_of(files, cache), *SHORT, "trainer.max_steps=1", f"hydra.run.dir={quoted(folder)}"]
            done = measured(command("train", *given))
            times.setdefault(str(pairs), []).append(done)
    figures["start"] = {pairs: middle(runs[1:]) for pairs, runs in times.items()}  # the first reads cold files
    figures["train"] = {}
    for pairs in (SMALL, options.pairs):
        files, cache = write_corpus(options.folder, pairs), options.folder / f"cache_{pairs}"
        folder = options.folder / "runs" / f"train_{pairs}"
        shutil.rmtree(folder, ignore_errors=True)
        given = [*data_of(files, cache), *SHORT, "trainer.max_steps=100", f"hydra.run.dir={quoted(folder)}"]
        figures["train"][str(pairs)] = measured(command("train", *given))
        figures.setdefault("order", {})[str(pairs)] = child("order", options, pairs)


def order(options: argparse.Namespace) -> dict[str, float]:
    """Return the seconds until the first batch of a new epoch, and the bytes of all that an epoch's order needs."""
    import tracemalloc

    datamodule, _ = data_module(options)
    sampler = datamodule._sampler("train")
    next(iter(sampler))
    seconds = []
    for epoch in range(1, options.repetitions + 1):
        sampler.set_epoch(epoch)
        begin = time.monotonic()
        next(iter(sampler))
        seconds.append(time.monotonic() - begin)
    sampler.set_epoch(0)
    tracemalloc.start()
    for _ in zip(sampler, range(len(sampler) // 10), strict=False):
        pass
    held = sum(plan.cuts.nbytes for plan in sampler._plans)
    return {
        "first_batch_seconds": statistics.median(seconds),
        "bytes_per_pair": (tracemalloc.get_traced_memory()[1] + held) / options.pairs,
        "padding_share": sampler.padding_share,
        "batches": len(sampler),
    }


def data_module(options: argparse.Namespace) -> tuple[Any, Any]:
    """Return the data module of the corpus and the model's module, as a training has them."""
    from hydra import compose, initialize_config_dir
    from hydra.core.hydra_config import HydraConfig

    from seq2seq_attn.paths import conf_directory
    from seq2seq_attn.training.build import build

    files = write_corpus(options.folder, options.pairs)
    overrides = [*MODEL, *data_of(files, options.folder / f"cache_{options.pairs}"), *SHORT]
    with initialize_config_dir(str(conf_directory()), version_base="1.3"):
        config = compose("train", overrides, return_hydra_config=True)
    HydraConfig.instance().set_config(config)  # the names of the choices are taken from it
    OmegaConf.set_readonly(config, False)
    OmegaConf.set_struct(config, False)
    del config["hydra"]
    module, datamodule = build(config)
    return datamodule, module


def encode(options: argparse.Namespace, figures: dict[str, Any]) -> None:
    """Encode sentences by sentencepiece alone and as the preparation does, on one and on two cores, interleaved."""
    figures["encode"] = child("encode", options, SMALL)


def encode_both(options: argparse.Namespace) -> dict[str, float]:
    from seq2seq_attn.data.encoded import encode_split

    datamodule, _ = data_module(options)
    split, tokenizer = datamodule.corpus.splits["train"], datamodule.tokenizer
    sources, targets = list(split.sources), list(split.targets)
    throughputs: dict[str, list[float]] = {}
    for run in range(options.repetitions):
        for cores in (1, 2):
            begin = time.monotonic()
            tokenizer.source_model.encode(sources, num_threads=cores)
            tokenizer.target_model.encode(targets, num_threads=cores)
            throughputs.setdefault(f"sentencepiece_{cores}", []).append(2 * len(split) / (time.monotonic() - begin))
            os.sched_setaffinity(0, range(cores))
            folder = options.folder / "encoded" / f"{cores}_{run}"
            shutil.rmtree(folder, ignore_errors=True)
            begin = time.monotonic()
            encode_split(split, tokenizer, folder)
            throughputs.setdefault(f"prepare_{cores}", []).append(2 * len(split) / (time.monotonic() - begin))
            os.sched_setaffinity(0, range(2))
    return {name: statistics.median(speeds) for name, speeds in throughputs.items()} | {
        f"ratio_{cores}": statistics.median(
            ours / theirs
            for ours, theirs in zip(throughputs[f"prepare_{cores}"], throughputs[f"sentencepiece_{cores}"], strict=True)
        )
        for cores in (1, 2)
    }


def peer(options: argparse.Namespace, figures: dict[str, Any]) -> None:
    """Prepare a corpus with a given SentencePiece model: this project, and OpenNMT-py's build_vocab, interleaved.

    Ours cleans, drops duplicates, holds sets out and writes text and ids; theirs counts tokens and writes them as text.
    """
    files, folder = write_corpus(options.folder, KILLED), options.folder / "peer"
    folder.mkdir(exist_ok=True)
    model = next((options.folder / f"cache_{SMALL}").rglob("*.model"))
    python = made_environment("opennmt", options.environments.resolve())
    for module in ("ahocorasick", "fasttext", "spacy"):  # imported by transforms that are not used here
        (folder / f"{module}.py").touch()
    speeds: dict[str, list[float]] = {}
    for _ in range(options.repetitions):
        for cores in (1, 2):
            shutil.rmtree(folder / "cache", ignore_errors=True)
            ours = command("prepare", *data_of(files, folder / "cache"), f"tokenizer.model={model}")
            config = folder / "opennmt.yaml"
            config.write_text(json.dumps(opennmt(files, model, folder)))
            theirs = [
                "env",
                f"PYTHONPATH={folder}",
                str(python),
                "-m",
                "onmt.bin.build_vocab",
                "-config",
                str(config),
                "-n_sample",
                "-1",
            ]
            theirs += ["-dump_samples", "-num_threads", str(cores)]
            for name, arguments in (("prepare", ours), ("opennmt", theirs)):
                seconds = measured(["taskset", "-c", ",".join(map(str, range(cores))), *arguments])["seconds"]
                speeds.setdefault(f"{name}_{cores}", []).append(2 * KILLED / seconds)
    figures["peer"] = {name: statistics.median(throughputs) for name, throughputs in speeds.items()}


def opennmt(files: Sequence[Path], model: Path, folder: Path) -> dict[str, Any]:
    """Return the configuration of OpenNMT-py's build_vocab."""
    corpus = {"path_src": str(files[0]), "path_tgt": str(files[1]), "transforms": ["sentencepiece"]}
    vocabularies = {f"{side}_vocab": str(folder / f"vocab.{side}") for side in ("src", "tgt")}
    models = {f"{side}_subword_model": str(model) for side in ("src", "tgt")}
    return {
        "data": {"train": corpus},
        "save_data": str(folder / "samples"),
        "overwrite": True,
        **vocabularies,
        **models,
    }


def step(options: argparse.Namespace, figures: dict[str, Any]) -> None:
    """Train on batches of both corpora in turn, twenty steps each, and compare the seconds per token."""
    figures["step"] = child("step", options, options.pairs)


def step_both(options: argparse.Namespace) -> dict[str, float]:
    import torch

    torch.set_num_threads(1)
    large, module = data_module(options)
    small, _ = data_module(argparse.Namespace(**vars(options) | {"pairs": SMALL}))
    optimizer = torch.optim.Adam(module.parameters(), 1e-4)
    batches = {name: iter(module.train_dataloader()) for name, module in (("large", large), ("small", small))}

    def twenty(name: str) -> tuple[float, float]:
        tokens, loading, begin = 0, 0.0, time.monotonic()
        for _ in range(20):
            wait = time.monotonic()
            batch = next(batches[name])
            loading += time.monotonic() - wait
            optimizer.zero_grad()
            loss, _ = module.loss(batch)
            (loss.smoothed / loss.tokens).backward()
            optimizer.step()
            tokens += batch.source.numel() + batch.target_input.numel()
        return (time.monotonic() - begin) / tokens, loading / tokens

    rounds = [(twenty("large"), twenty("small")) for _ in range(4 * options.repetitions + 1)][1:]
    return {
        "ratio": statistics.median(large[0] / small[0] for large, small in rounds),
        "large_loading_share": statistics.median(large[1] / large[0] for large, _ in rounds),
        "small_loading_share": statistics.median(small[1] / small[0] for _, small in rounds),
    }


def kill(options: argparse.Namespace, figures: dict[str, Any]) -> None:
    """Kill preparations and trainings at random moments, and compare what they make in the end."""
    draw = random.Random(1)
    files = write_corpus(options.folder, KILLED)
    whole, cut = (options.folder / f"cache_{name}" for name in ("whole", "cut"))
    for cache in (whole, cut):
        shutil.rmtree(cache, ignore_errors=True)
    seconds = measured(command("prepare", *data_of(files, whole)))["seconds"]
    killed = killed_often(command("prepare", *data_of(files, cut)), options.kills, lambda: draw.uniform(2, seconds / 3))
    figures["kill"] = {"preparations_killed": killed, "same_shards": digests(whole) == digests(cut)}
    runs = options.folder / "runs"
    losses = []
    for name, kills in (("whole", 0), ("cut", options.kills)):
        shutil.rmtree(runs / f"kill_{name}", ignore_errors=True)
        given = [*data_of(files, whole), *SHORT, "trainer.max_steps=200", "trainer.log_every_n_steps=1"]
        given += [f"hydra.run.dir={quoted(runs / f'kill_{name}')}", "resume=auto", "callback.autosave.every_steps=5"]
        killed = killed_often(command("train", *given), kills, lambda: draw.uniform(5, 25))
        losses.append(loss_columns(runs / f"kill_{name}" / "metrics.csv"))
    figures["kill"] |= {"trainings_killed": killed, "same_losses": losses[0] == losses[1], "losses": len(losses[0])}


def killed_often(arguments: Sequence[str], kills: int, after: Callable[[], float]) -> int:
    """Start a command, kill it and its children with SIGKILL, so often or until it ends, and then let it end."""
    killed = 0
    while killed < kills:
        process = started(arguments)
        try:
            process.communicate(timeout=after())
            break
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            killed += 1
    measured(arguments)
    return killed


def digests(cache: Path) -> dict[str, str]:
    """Return the SHA-256 of the shards of text and of ids."""
    files = [file for end in ("*.arrow", "*.npy") for file in sorted(cache.rglob(end))]
    return {str(file.relative_to(cache)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def loss_columns(file: Path) -> list[tuple[str, str]]:
    """Return step and loss of each update, the last one written of those that a resumed run repeats."""
    header, *rows = [line.split(",") for line in file.read_text().splitlines()]
    at = header.index("step"), header.index("train/loss")
    return sorted({row[at[0]]: row[at[1]] for row in rows if row[at[1]]}.items())


def middle(measurements: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(row[name] for row in measurements) for name in measurements[0]}


def child(task: str, options: argparse.Namespace, pairs: int) -> Any:
    """Run a task of this script in a fresh process, which prints its figures."""
    arguments = [sys.executable, "-m", "scripts.benchmarks.large_corpus", f"_{task}", "--folder", str(options.folder)]
    process = started([*arguments, "--pairs", str(pairs), "--repetitions", str(options.repetitions)])
    output, _ = process.communicate()
    if process.returncode:
        raise UserError(f"the task {task} failed: {' '.join(output.strip().splitlines()[-1:])}")
    return json.loads(output.strip().splitlines()[-1])


TEXT = """\
# What a corpus larger than memory costs

Corpora of sentence pairs of {bytes:.0f} bytes, written by the benchmark from 30,000 made-up words, are prepared, and
small recurrent models are trained on them. Memory is the largest sum of the proportional set sizes of all processes of
a command.

| | {small:,} pairs | {large:,} pairs |
|:--|--:|--:|
{rows}

{encode}{peer}{step}{kill}
```
python -m scripts.benchmarks.large_corpus --folder FOLDER --pairs {large}
```

Commit {commit}, {processor}, {cores} cores.
"""
ENCODE = """\
Encoding {small:,} pairs by the preparation runs at {prepare_1:,.0f} sentences a second on one core and
{prepare_2:,.0f} on two; sentencepiece's own encoder with as many threads, which writes nothing, at
{sentencepiece_1:,.0f} and {sentencepiece_2:,.0f}. The medians of the ratios of the rounds are {ratio_1:.2f} and
{ratio_2:.2f} (the ratios of these medians are {of_medians_1:.2f} and {of_medians_2:.2f}).

"""
PEER = """\
The whole command `prepare`, given a SentencePiece model, takes in {prepare_1:,.0f} sentences a second on one core and
{prepare_2:,.0f} on two, of a corpus of {pairs:,} pairs. OpenNMT-py's `build_vocab`, which tokenizes the same text with
the same model and writes it as text, takes in {opennmt_1:,.0f} and {opennmt_2:,.0f}.

"""
STEP = """\
A training step takes {ratio:.3f} times as long for each token with the large corpus as with the small one (median of
rounds of twenty steps in turn); reading the batches is {large_loading_share:.1%} and {small_loading_share:.1%} of it.

"""
KILL = """\
A preparation of {pairs:,} pairs that was killed with SIGKILL at {preparations_killed} random moments and started again
left {shards} an undisturbed one, by SHA-256. A training of {number} updates that was killed {trainings_killed} times
left {losses} an undisturbed one.

"""


def page(figures: dict[str, Any]) -> str:
    """Return the text of the page, as far as the tasks have run."""
    small, large = str(SMALL), str(figures["pairs"])
    rows = []
    for title, task, name, shown in (
        ("preparation: minutes", "prepare", "seconds", lambda value: f"{value / 60:.1f}"),
        ("CPU-minutes", "prepare", "cpu_seconds", lambda value: f"{value / 60:.1f}"),
        ("memory, GB", "prepare", "peak_bytes", gigabytes),
        ("text, GB", "prepare", "text_bytes", gigabytes),
        ("prepared on disk, GB", "prepare", "disk_bytes", gigabytes),
        ("later command with one update: seconds", "start", "seconds", lambda value: f"{value:.1f}"),
        ("CPU-seconds", "start", "cpu_seconds", lambda value: f"{value:.1f}"),
        ("training, 100 updates: memory, GB", "train", "peak_bytes", gigabytes),
        ("first batch of a new epoch: seconds", "order", "first_batch_seconds", lambda value: f"{value:.2f}"),
        (
            "order of an epoch, with one shard in memory: bytes a pair",
            "order",
            "bytes_per_pair",
            lambda value: f"{value:.1f}",
        ),
        ("padding", "order", "padding_share", lambda value: f"{value:.1%}"),
    ):
        if task in figures:
            rows.append(f"| {title} | {shown(figures[task][small][name])} | {shown(figures[task][large][name])} |")
    kill = figures.get("kill", {})
    return TEXT.format(
        bytes=figures["prepare"][large]["text_bytes"] / figures["pairs"],
        small=SMALL,
        large=figures["pairs"],
        rows="\n".join(rows),
        encode=ENCODE.format(small=SMALL, **figures["encode"], **ratios_of_medians(figures["encode"]))
        if "encode" in figures
        else "",
        peer=PEER.format(pairs=KILLED, **figures["peer"]) if "peer" in figures else "",
        step=STEP.format(**figures["step"]) if "step" in figures else "",
        kill=KILL.format(
            pairs=KILLED,
            shards="the same shards as" if kill["same_shards"] else "other shards than",
            number=kill["losses"],
            **kill | {"losses": "the same losses as" if kill["same_losses"] else "other losses than"},
        )
        if kill
        else "",
        commit=figures["commit"],
        processor=figures["processor"],
        cores=os.cpu_count(),
    )


def ratios_of_medians(encode: dict[str, float]) -> dict[str, float]:
    return {f"of_medians_{cores}": encode[f"prepare_{cores}"] / encode[f"sentencepiece_{cores}"] for cores in (1, 2)}


def gigabytes(value: float) -> str:
    return f"{value / 1e9:.2f}"


TASKS = {"prepare": prepare, "start": start, "encode": encode, "peer": peer, "step": step, "kill": kill}
CHILDREN = {"_order": order, "_encode": encode_both, "_step": step_both}


@reports_user_errors
def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", metavar="TASK", default=list(TASKS), help="default: all")
    parser.add_argument("--folder", type=Path, required=True, help="folder for the corpora, of 1 GB per million pairs")
    parser.add_argument("--pairs", type=int, default=20_000_000, help="pairs of the large corpus")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--environments", type=Path, default=Path("runs/peers"), help="folder for OpenNMT-py")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--output", type=Path, default=OUTPUT, help="figures; the page is written beside them")
    options = parser.parse_args(arguments)
    options.folder = options.folder.resolve()
    if options.tasks[0] in CHILDREN:
        print(json.dumps(CHILDREN[options.tasks[0]](options)))
        return
    figures = json.loads(options.output.read_text()) if options.output.exists() else {}
    for what, value in (("pairs", options.pairs), ("processor", processor())):
        if figures.get(what, value) != value:
            raise UserError(
                f"{options.output} has figures of {what} {figures[what]}, not {value}; give another --output"
            )
    for task in options.tasks:
        if task not in TASKS:
            raise UserError(f"there is no task {task}; choose from: {', '.join(TASKS)}")
        TASKS[task](options, figures)
        figures |= {"pairs": options.pairs, "processor": processor(), "commit": (commit() or "unknown")[:7]}
        options.output.write_text(json.dumps(figures, indent=1) + "\n")
        print(f"{task}: {json.dumps(figures.get(task, {}))}", flush=True)
    options.output.with_suffix(".md").write_text(page(figures), encoding="utf-8")


if __name__ == "__main__":
    main()
