"""The homes of attentions, the runs that each of them gets, and their sizes; `homes.py` trains them."""

from __future__ import annotations

import io
import json
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import zip_longest
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from jaxtyping import Int
from omegaconf import DictConfig, OmegaConf

from scripts.conf_files import presets
from seq2seq_attn.errors import UserError, sentence_of
from seq2seq_attn.files import replacing
from seq2seq_attn.markdown import code
from seq2seq_attn.model.encoder_decoder import EncoderDecoder
from seq2seq_attn.training.check_run import check_positions
from seq2seq_attn.training.guided_alignment import GuidedAlignment

ROOT = Path(__file__).parents[2]
VOCABULARY = 4000
CAPTIONS = 8_000  # so few that the learning curves flatten within the schedule
EPOCHS = 12
COMMON = (
    "data=multi30k", f"tokenizer.vocab_size={VOCABULARY}", "batch_tokens=1024", f"trainer.max_epochs={EPOCHS}",
    "trainer.check_val_every_n_epoch=2", "val_sentences=256", "metric=[bleu,chrf]", "num_threads=1",
    "~callback.attention_map", "~callback.translation_table",
)  # fmt: skip
TWO_LAYERS = ("model.encoder.num_layers=2", "model.decoder.num_layers=2")
ROWS = "rows.jsonl"
MEASURES = "measures.jsonl"
SEEDS = (1, 2, 3)
COMPOSING = Lock()
CPU = "cpu"
BEST = 5  # attentions of each home that are repeated with all seeds


class Home(NamedTuple):
    """A place of a model that takes an attention.

    Attributes:
        slot: the option that selects the attention.
        model: the overrides of all its runs.
        usual: the attention whose number of parameters the others get.
        first: the attentions that run first and with all seeds.
        own: the attentions whose paper has them here.
        widths: the options that make models equally large, with one value; they change no width of the attention.
        only: the attentions that run here; empty: all.
    """

    title: str
    slot: str
    model: tuple[str, ...]
    usual: str
    first: tuple[str, ...]
    own: tuple[str, ...]
    widths: tuple[str, ...]
    only: tuple[str, ...] = ()


LUONG = ("luong_dot", "luong_general", "luong_concat", "luong_location", "local_m", "local_p")
TRANSFORMER = ("model=transformer", *TWO_LAYERS)
OF_TRANSFORMERS = (
    "adaptive_entmax", "alternating", "bigbird", "block_summary", "cosformer", "cosine", "delta", "differential",
    "dilated", "dynamic_conv", "fixed_patterns", "forgetting", "gated", "gated_delta", "gated_linear", "global_local",
    "grouped_query", "l2", "latent", "lightweight_conv", "linear", "lsh", "multi_query", "performer", "qk_norm", "relu",
    "scalable_softmax", "sigmoid", "sink", "soft_cap", "softmax_free", "softmax_one", "sparse", "stick_breaking",
    "synthesizer_dense", "synthesizer_dense_vanilla", "synthesizer_factorized_dense",
    "synthesizer_factorized_random", "synthesizer_fixed_random", "synthesizer_random", "synthesizer_random_dense",
    "synthesizer_random_vanilla", "talking_heads", "top_blocks", "top_k",
)  # fmt: skip
HOMES = {
    "rnn": Home(
        title="Attention to the source in the RNN",
        slot="attention",
        model=("model=rnn",),
        usual="bahdanau",
        first=("none", "bahdanau", "multihead"),
        own=("bahdanau", "coverage", "location_sensitive", "monotonic", "hard", "sparsemax", "entmax15"),
        widths=("model.embedding_dim",),
    ),
    "rnn_luong": Home(
        title="Attention to the source in Luong's RNN, after the recurrent step",
        slot="attention",
        model=("model=rnn", "decoder@model.decoder=rnn_luong"),
        usual="luong_general",
        first=("none", "luong_general", "multihead"),
        own=LUONG,
        widths=("model.embedding_dim",),
        only=("none", "bahdanau", "multihead", "scaled_dot", *LUONG),
    ),
    "conv": Home(
        title="Attention to the source in ConvS2S",
        slot="attention",
        model=("model=conv", *TWO_LAYERS, "model.encoder.dim=160", "model.decoder.dim=160"),
        usual="luong_dot",
        first=("none", "luong_dot", "multihead"),
        own=("luong_dot",),
        widths=("model.encoder.dim", "model.decoder.dim"),
    ),
    "self": Home(
        title="Self-attention in the Transformer",
        slot="attention",
        model=(*TRANSFORMER, "feed_forward.ff_dim=768"),
        usual="multihead",
        first=("none", "multihead", "scaled_dot"),
        own=("multihead", *OF_TRANSFORMERS),
        widths=("feed_forward.ff_dim",),
    ),
    "cross": Home(
        title="Cross-attention in the Transformer",
        slot="attention@cross_attention",
        model=(*TRANSFORMER, "attention=multihead", "feed_forward.ff_dim=768"),
        usual="multihead",
        first=("none", "multihead", "scaled_dot"),
        own=("multihead",),
        widths=("feed_forward.ff_dim",),
    ),
}


class Job(NamedTuple):
    """A run of the queue; its folder is HOME/PRESET/SEED."""

    home: str
    preset: str
    seed: int

    def folder(self, runs: Path) -> Path:
        return runs / self.home / self.preset / str(self.seed)


class RefusedError(Exception):
    """An attention that a model or guided alignment does not take, with the sentence that says why."""


def first_jobs(homes: Sequence[str]) -> list[Job]:
    """Return every attention of every home with the first seed: the usual ones, those at home there, the others."""
    chosen = [HOMES[name] for name in homes]
    everything = [home.only or tuple(presets()) for home in chosen]
    rounds = [[home.first for home in chosen], [home.own for home in chosen], everything]
    order = [
        Job(name, preset, SEEDS[0])
        for home_presets in rounds
        for row in zip_longest(*home_presets)
        for name, preset in zip(homes, row, strict=True)
        if preset is not None
    ]
    return list(dict.fromkeys(order))


def later_jobs(homes: Sequence[str], rows: Sequence[dict[str, Any]]) -> list[Job]:
    """Return the jobs of the other seeds: of the usual attentions, of those at home there, and of each home's best."""
    order = []
    for seed in SEEDS[1:]:
        for name in homes:
            scores = {
                row["preset"]: row["bleu"]
                for row in rows
                if row["home"] == name and row.get("seed") == SEEDS[0] and "bleu" in row
            }
            best = sorted(scores, key=lambda preset: -scores[preset])[:BEST]
            order += [Job(name, preset, seed) for preset in (*HOMES[name].first, *best, *HOMES[name].own)]
    return list(dict.fromkeys(order))


def command(job: Job) -> list[str]:
    """Return the overrides of train.py for a run, without those that depend on the machine.

    Raises:
        RefusedError: if the home does not take the attention.
    """
    home = HOMES[job.home]
    width = equal_width(job.home, job.preset)
    widths = [f"{option}={width}" for option in home.widths]
    return [*COMMON, *home.model, f"{home.slot}={job.preset}", *widths, f"seed={job.seed}"]


@cache
def equal_width(name: str, preset: str) -> int:
    """Return the width with which the model of an attention is nearest in size to that of the home's usual one.

    Raises:
        RefusedError: if the home does not take the attention.
    """
    home = HOMES[name]
    width: int = OmegaConf.select(composed(name, home.usual), home.widths[0])
    target = num_parameters(name, home.usual, width)
    sizes = {width: num_parameters(name, preset, width)}
    while True:
        ordered = sorted(sizes, key=lambda known: abs(sizes[known] - target))
        best = ordered[0]
        beside = best + (1 if sizes[best] < target else -1)
        if sizes[best] == target or beside in sizes:
            return best
        if len(sizes) > 1:  # along the line through two points
            slope = (sizes[best] - sizes[ordered[1]]) / (best - ordered[1])
            along = best + round((target - sizes[best]) / slope)
            beside = beside if along in sizes else along
        if beside < 1:
            raise RefusedError(f"{preset} has more parameters than a whole model with {home.usual}")
        sizes[beside] = num_parameters(name, preset, beside)


def num_parameters(name: str, preset: str, width: int) -> int:
    """Return the number of parameters of a model.

    Raises:
        RefusedError: if the home does not take the attention.
    """
    config = composed(name, preset).copy()
    for option in HOMES[name].widths:
        OmegaConf.update(config, option, width)
    return sum(weight.numel() for weight in build_or_refuse(config).parameters())


def build_or_refuse(config: DictConfig) -> EncoderDecoder:
    """Return the model of a run.

    Raises:
        RefusedError: if the model, or guided alignment where it is on, does not take an attention.
    """
    try:
        model: EncoderDecoder = instantiate(OmegaConf.to_container(config.model, resolve=True), _convert_="all")
        check_positions(model)
        guided: GuidedAlignment = instantiate(config.guided_alignment, _convert_="all")
        if guided.is_on:
            guided.check(model)
    except Exception as error:
        sentence = sentence_of(error)
        if sentence is None:
            raise
        raise RefusedError(sentence) from error
    return model


@cache
def composed(name: str, preset: str) -> DictConfig:
    home = HOMES[name]
    return compose_train([*COMMON, *home.model, f"{home.slot}={preset}"], VOCABULARY)


def compose_train(overrides: Sequence[str], vocabulary: int) -> DictConfig:
    """Return the configuration of a training; threads may call this at once, which Hydra itself does not allow."""
    sizes = [f"model.{side}_vocab_size={vocabulary}" for side in ("source", "target")]
    with COMPOSING, initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        return compose("train", [*overrides, *sizes])


def read_rows(file: Path) -> list[dict[str, Any]]:
    """Return the rows of a file of JSON lines; without a file there are none."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.is_file() else []


def rows_of(file: Path, fields: Sequence[str]) -> list[dict[str, Any]]:
    """Return the rows of a file, which are of jobs with these fields.

    Raises:
        UserError: if they are of another script.
    """
    rows = read_rows(file)
    if not all(field in row for row in rows for field in fields):
        raise UserError(f"{file} has rows of another script; give another folder of --runs")
    return rows


def write_rows(file: Path, rows: Iterable[dict[str, Any]]) -> None:
    with replacing(file) as stream:
        stream.write("".join(f"{json.dumps(row)}\n" for row in rows).encode())


def unfinished(jobs: Iterable[Any], rows: Sequence[dict[str, Any]]) -> list[Any]:
    """Return the jobs that have no row, in their order."""
    return [job for job in jobs if not any(job._asdict().items() <= row.items() for row in rows)]


def pack(counts: Int[np.ndarray, "sentences counts"]) -> str:
    """Return the counts of a run's sentences in a few thousand letters."""
    stream = io.BytesIO()
    np.savez_compressed(stream, counts=counts.T.astype(np.min_scalar_type(int(counts.max()))))
    return b64encode(stream.getvalue()).decode()


def unpack(text: str) -> Int[np.ndarray, "sentences counts"]:
    with np.load(io.BytesIO(b64decode(text)), allow_pickle=False) as arrays:
        counts: Int[np.ndarray, "sentences counts"] = arrays["counts"].T.astype(np.int64)
    return counts


def command_of_home(home: Home) -> str:
    """Return the command of the runs of a home, with PRESET and WIDTH for the attention and the width."""
    widths = (f"{option}=WIDTH" for option in home.widths)
    return " ".join(["python train.py", *COMMON, *home.model, f"{home.slot}=PRESET", *widths])


def commits_and_processors(rows: Iterable[dict[str, Any]]) -> str:
    """Return the commits of rows, with the word of one whose files had been changed, and what a CPU's rows lack.

    After them come the overrides of runs that were trained with other options than the page names.
    """
    trained = [row for row in rows if "refused" not in row]
    commits = ", ".join(code(commit[:8] + commit[40:]) for commit in sorted({str(row["commit"]) for row in trained}))
    on_cpu = any(row.get("device", CPU) == CPU for row in trained)
    processors = "; processor not recorded" if on_cpu else ""  # which no row has
    further = Counter(row["overrides"] for row in trained if "overrides" in row)
    others = (f"; {number} of {len(trained)} runs had {code(words)} in addition" for words, number in further.items())
    return "".join([commits, processors, *others])


def devices(rows: Iterable[dict[str, Any]]) -> str:
    """Return the devices that runs were trained on; rows that name none are of a CPU."""
    counts = Counter(row.get("device", CPU) for row in rows if "refused" not in row)
    names = {name: "one thread of a CPU" if name == CPU else f"one {name}" for name in counts}
    return ", ".join(f"{names[name]} ({count} runs)" for name, count in counts.most_common())


def restore_rows(page: Path, runs: Path, fields: Sequence[str]) -> None:
    """Add the rows and measures of a page's .json to a folder of runs, where they count as finished.

    Args:
        fields: of a row, which say what job it is of; a job that has a row keeps it.

    Raises:
        UserError: if there is no such file, or it is of another script.
    """
    file = page.with_suffix(".json")
    if not file.is_file():
        raise UserError(f"{file} is missing, so there are no rows to restore")
    figures = json.loads(file.read_text(encoding="utf-8"))
    if not all(field in row for row in figures.get("rows", [{}]) for field in fields):
        raise UserError(f"{file} has no rows of this script; give its own page")
    for name in (ROWS, MEASURES):
        rows = rows_of(runs / name, fields)
        known = [tuple(row[field] for field in fields) for row in rows]
        restored = figures.get(name.removesuffix(".jsonl"), [])
        restored = [row for row in restored if tuple(row[field] for field in fields) not in known]
        if restored:
            write_rows(runs / name, [*rows, *restored])
            print(f"{runs / name}: {len(restored)} rows from {file}")


def forget_lost(needed: Iterable[Any], runs: Path) -> None:
    """Drop the rows and measures of those jobs whose folder is lost, so that they run again."""
    lost = [job._asdict() for job in needed if is_lost(job, runs)]
    for file in (runs / ROWS, runs / MEASURES):
        rows = read_rows(file)
        kept = [row for row in rows if not any(job.items() <= row.items() for job in lost)]
        if len(kept) < len(rows):
            write_rows(file, kept)


def is_lost(job: Any, runs: Path) -> bool:
    """Return whether a job has no results in a folder of runs, whether it has a row or not."""
    return not (job.folder(runs) / "results.json").is_file()
