"""Tables of trainings with three seeds each: `python -m scripts.benchmarks.seeds run --plan summary --runs RUNS`.

`first_model` has the models of `make train`, `synthesizer` the rows of the Synthesizer's table on Multi30k, `summary`
and `dialogue` the Synthesizers on the included documents and dialogues, `recipes` the recipes of docs/recipes.md with
both test sets, and `variants` and `tatoeba` changes of recipes, scored on the validation set alone. Every run is one of
train.py on one thread. The queue may be killed at any time: the same command resumes it, and no finished run is
repeated. rows.jsonl in the folder of the runs has a line for each finished run, and `page` writes the page of a plan;
on another machine `restore` lets the rows of the committed pages count as finished, without the runs themselves.

The page averages runs of one kind only: on the same device, with equally many updates an epoch.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torchmetrics.functional.regression import spearman_corrcoef

from scripts.benchmarks.home_runs import CPU, ROOT, ROWS, SEEDS, commits_and_processors, devices, rows_of
from scripts.benchmarks.homes import add_run, alone, failures, restore, run_jobs, trained_row
from scripts.benchmarks.pretraining import signed
from scripts.benchmarks.write_aligning_page import table
from scripts.benchmarks.write_homes_page import spread
from seq2seq_attn.comparison.figures import listed
from seq2seq_attn.errors import UserError, reports_user_errors
from seq2seq_attn.markdown import code
from seq2seq_attn.paths import quoted

COMMON = ("num_threads=1", "trainer.enable_progress_bar=false")
PAGES = ROOT / "docs/benchmarks"


class Plan(NamedTuple):
    """A table.

    Attributes:
        about: sentences that say what is trained.
        overrides: of train.py for all runs.
        rows: the further overrides of each row, by its name; the first is the one that the others are compared with.
        figures: a key of results.json, or of the row, and the title of its column; the first is compared.
        corpus: the folder or the file of the corpus within --data; None: one of the included corpora.
        other_test: a further test set.
        averages: how many of the last checkpoints are averaged, by row, where that is part of the recipe.
        published: figures of the paper by row, for each of its test sets.
    """

    title: str
    about: str
    overrides: tuple[str, ...]
    rows: dict[str, tuple[str, ...]]
    figures: dict[str, str]
    corpus: str | None = None
    other_test: str | None = None
    averages: Mapping[str, int] = MappingProxyType({})
    published: Mapping[str, Mapping[str, float]] = MappingProxyType({})


def attentions(*presets: str) -> dict[str, tuple[str, ...]]:
    return {preset: (f"attention={preset}",) for preset in presets}


TASK = (
    "multihead",
    "synthesizer_random",
    "synthesizer_dense",
    "synthesizer_dense_vanilla",
    "synthesizer_random_vanilla",
)
# Provilkov et al. 2020, arXiv:1910.13267; the longer, padded segmentations fill 2.3 times as many batches, which the
# larger budget makes up for: as many sentences in an update as without
DROPPED_MERGES = ("tokenizer.sampling_alpha=0.1", "batch_tokens=18432")
# As in Wu et al. 2021, arXiv:2105.14462
FOUR_HEADS = ("attention=multihead", "attention.num_heads=4", "cross_attention.num_heads=4")
MORE_DROPOUT = ("model.encoder.dropout=0.3", "model.decoder.dropout=0.3")
ROUGE = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L"}
DISTINCT = {"distinct1": "distinct-1", "distinct2": "distinct-2"}
PLANS = {
    "first_model": Plan(
        "The first model with three seeds",
        "The model of `make train`, a recurrent encoder-decoder on the included corpus, with Bahdanau's attention and "
        "without any ([training.md](../training.md#what-attention-contributes)). The figures are those of the test set "
        "and of the second test set, whose combinations of words are not in the training set; greedy search.",
        (),
        attentions("bahdanau", "none"),
        {"bleu": "BLEU, test", "unseen_bleu": "BLEU, unseen combinations", "chrf": "chrF, test"},
    ),
    "summary": Plan(
        "Headlines by attention",
        "A Transformer writes the headlines of the included documents, with each attention as the self-attention of "
        "both sides and `multihead` to the source. The figures are those of 200 test documents.",
        ("experiment=demo_summary",),
        attentions(*TASK),
        ROUGE | {"bleu": "BLEU"},
    ),
    "dialogue": Plan(
        "Answers by attention",
        "A Transformer answers the last question of the included dialogues, with each attention as the self-attention "
        "of both sides and `multihead` to the source. The figures are those of the test set.",
        ("experiment=demo_dialogue",),
        attentions(*TASK),
        {"bleu": "BLEU"} | ROUGE | DISTINCT,
    ),
    "synthesizer": Plan(
        "The Synthesizer's rows on Multi30k over seeds",
        "Table 2 of Tay et al. 2020, arXiv:2005.00743, on the captions of Multi30k, English to French "
        "([synthesizer.md](synthesizer.md)). The figures are those of test_2016_flickr, with greedy search.",
        ("experiment=synthesizer_table", "hydra.mode=RUN"),
        attentions(
            *("multihead", "synthesizer_fixed_random", "synthesizer_random", "synthesizer_factorized_random"),
            *("synthesizer_dense", "synthesizer_factorized_dense", "synthesizer_random_dense"),
            *("synthesizer_dense_vanilla", "synthesizer_random_vanilla"),
        ),
        {"bleu": "BLEU", "chrf": "chrF", "ppl": "perplexity"},
        corpus="multi30k",
        published={  # the rows whose figures could be checked in a public text
            "English–French": {
                "multihead": 41.57,
                "synthesizer_fixed_random": 38.31,
                "synthesizer_random": 41.12,
                "synthesizer_dense": 41.39,
                "synthesizer_random_vanilla": 41.85,
            },
            "English–German": {
                "multihead": 27.67,
                "synthesizer_fixed_random": 23.89,
                "synthesizer_random": 27.27,
                "synthesizer_dense": 27.43,
                "synthesizer_random_dense": 27.68,
                "synthesizer_random_vanilla": 28.47,
            },
        },
    ),
    "recipes": Plan(
        "Recipes with three seeds",
        "The recipes of [docs/recipes.md](../recipes.md) on the tokenized captions of Multi30k, English to French, "
        "text only. BLEU of lower-cased tokens, as the papers report it; beam search.",
        (),
        {
            "multi30k_best": ("experiment=multi30k_best",),
            "multi30k_longer": (
                *("experiment=multi30k_best", *MORE_DROPOUT),
                *("trainer.max_epochs=60", "trainer.max_steps=10000", "callback.ema.decay=0.999"),
            ),
            # updates twice as large as those of docs/recipes.md, as the paper's, and as many
            "multi30k_tiny": ("experiment=multi30k_tiny", "batch_tokens=16384", "trainer.max_epochs=140"),
            "multi30k_rnn": ("experiment=multi30k_rnn",),
        },
        {
            "val_tokenized_bleu": "val",
            "tokenized_bleu": "test_2016_flickr",
            "other_tokenized_bleu": "test_2017_flickr",
            "bleu": "test_2016_flickr, sacreBLEU",
            "other_bleu": "test_2017_flickr, sacreBLEU",
        },
        corpus="multi30k/tok",
        other_test="test_2017_flickr",
        averages={"multi30k_tiny": 10},
    ),
    "variants": Plan(
        "Variants of multi30k_best",
        "`multi30k_best` ([docs/recipes.md](../recipes.md)) and changes of it, on the tokenized captions of "
        "Multi30k, English to French. BLEU of lower-cased tokens on the validation set, with beam search; no test set "
        "was read. After seven epochs, `multihead` went on with two threads.",
        ("experiment=multi30k_best", "trainer.limit_test_batches=0"),
        {
            "multi30k_best": (),
            "bpe_dropout": DROPPED_MERGES,
            "fixed_in_encoder": (
                *("attention=multihead", "attention.num_heads=8", "attention@encoder_attention=fixed_patterns"),
            ),
            "multihead": FOUR_HEADS,
            "multihead_more_dropout": (*FOUR_HEADS, *MORE_DROPOUT),
            "smaller_vocabulary": ("tokenizer.vocab_size=6000",),
            "r_drop": ("r_drop_alpha=5",),
            "bpe_dropout_longer": (*DROPPED_MERGES, "trainer.max_epochs=60", "trainer.max_steps=12000"),
            "small_batches": (
                *("batch_tokens=4096", "trainer.max_steps=10000", "optimizer.lr=0.003", "callback.ema.decay=0.999"),
            ),
        },
        {"val_tokenized_bleu": "BLEU, val"},
        corpus="multi30k/tok",
    ),
    "tatoeba": Plan(
        "Variants of tatoeba_best",
        "`experiment=tatoeba_best` and changes of it on Tatoeba, English to French. BLEU on the validation set, with "
        "greedy search; no test set was read.",
        ("experiment=tatoeba_best", "search=greedy", "trainer.limit_test_batches=0"),
        {
            "tatoeba_best": (),
            "cosine": ("scheduler=cosine", "~scheduler.decay_share"),
            "scaled": ("model.scale_embeddings=true",),
            "less_dropout": ("model.dropout=0.1",),
            "more_dropout": ("model.dropout=0.3", "model.decoder.dropout=0.3"),
            "encoder_dropout": ("model.encoder.dropout=0.2",),
            "subword_sampling": ("tokenizer.sampling_alpha=0.2",),
            "bounded": ("model.decoder.activation=tanh",),
            "bahdanau": ("decoder@model.decoder=rnn", "attention=bahdanau", "~model.decoder.activation"),
            "luong_general": ("attention=luong_general",),
            "lower_rate": ("optimizer.lr=0.002",),
            "higher_rate": ("optimizer.lr=0.004",),
            "large_batches": ("batch_tokens=4096",),
        },
        {"val_bleu": "BLEU, val"},
        corpus="tatoeba/fra.txt",
    ),
}
PAGE = """\
# {title}

{about}

{table}

{spread}{few} The column *above {usual}* is the difference of the first
figure, taken seed by seed between runs on the same device. Minutes are those of a processor core, of the runs on a CPU
that were not interrupted. {finished} of {all} runs have finished.{left_out}

{ranks}- Commits of the runs: {commits}. Trained on {devices}, {updates} updates.{signature}

## Commands

A run:

```
{example}
```

All runs and this page{data}:

```
{commands}
```

The first command resumes after an interruption. The raw figures are in [{name}.json]({name}.json).
"""
FEW = " † Fewer than {seeds} seeds: too few to call the row better or worse."
LEFT_OUT = """

Runs of a row that were trained on different devices, or with different numbers of updates an epoch, are not averaged:
the table shows the largest group. The other runs are only in the .json:
{runs}.
"""
RANKS = """\
- Spearman's rank correlation of {first} with the paper's, {rows} rows, {test}: {means:.2f} for the means over seeds
  {seeds}, {spread} for single seeds.
"""


class Run(NamedTuple):
    """A training of a row of a plan."""

    plan: str
    row: str
    seed: int

    def folder(self, runs: Path) -> Path:
        return runs / self.plan / self.row / str(self.seed)


def planned(plan: str) -> list[Run]:
    """Return the runs of a plan, all rows of one seed before the next seed."""
    return [Run(plan, row, seed) for seed in SEEDS for row in PLANS[plan].rows]


def command(run: Run, corpus: Path | None) -> list[str]:
    """Return the overrides of train.py for a run."""
    plan = PLANS[run.plan]
    path = [] if corpus is None else [f"data.path={quoted(corpus)}"]
    return [*plan.overrides, *plan.rows[run.row], *COMMON, *path, f"seed={run.seed}"]


@reports_user_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    options.act(options)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    run = add_run(commands, run_queue)
    run.add_argument("--data", type=Path, help="folder with multi30k and tatoeba, for plans that need them")
    names = sorted({row for plan in PLANS.values() for row in plan.rows})
    run.add_argument("--rows", nargs="+", default=names, choices=names, metavar="ROW", help="all rows of the plans")
    run.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS), choices=SEEDS, metavar="SEED", help="1 2 3")
    page = commands.add_parser("page", help="write the pages of what has been trained")
    page.set_defaults(act=write_pages)
    restored = commands.add_parser("restore", help="let the runs of the committed pages count as finished elsewhere")
    restored.set_defaults(act=restore_pages)
    for choice in commands.choices.values():
        choice.add_argument("--plan", nargs="+", default=list(PLANS), choices=list(PLANS), metavar="PLAN")
        choice.add_argument("--runs", type=Path, required=True, help="folder of the runs")
    for choice in (page, restored):
        choice.add_argument("--pages", type=Path, default=PAGES, help="folder of the pages (%(default)s)")
    return parser.parse_args(arguments)


def run_queue(options: argparse.Namespace) -> None:
    """Run everything that has no row, the first seed of every plan first; what failed is tried once more."""
    for plan in options.plan:
        corpus_of(plan, options)  # which refuses --data without it
    options.runs.mkdir(parents=True, exist_ok=True)
    with alone(options.runs):
        runs = [run for plan in options.plan for run in planned(plan)]
        runs = [run for run in runs if run.row in options.rows and run.seed in options.seeds]
        runs.sort(key=lambda run: run.seed)
        failed = run_jobs(run_jobs(runs, options, run_one), options, run_one)
    if failed:
        sys.exit(failures(failed))


def corpus_of(plan: str, options: argparse.Namespace) -> Path | None:
    """Return the folder or the file of the corpus of a plan.

    Raises:
        UserError: if there is none.
    """
    name = PLANS[plan].corpus
    if name is None:
        return None
    if options.data is None or not (options.data / name).exists():
        raise UserError(f"--plan {plan} needs --data FOLDER with {name}")
    corpus: Path = (options.data / name).resolve()
    return corpus


def run_one(run: Run, options: argparse.Namespace) -> dict[str, Any] | None:
    """Run or resume a training; return its row with all its scores, or None if it failed."""
    corpus = corpus_of(run.plan, options)
    row = trained_row(run, [*command(run, corpus), *options.override], options.runs)
    if row is None:
        return None
    results = json.loads((run.folder(options.runs) / "results.json").read_text(encoding="utf-8"))
    scores = {key.removeprefix("test/"): value for key, value in results.items() if key.startswith("test/")}
    scores |= {
        key.removeprefix("test_").replace("/", "_"): value for key, value in results.items() if key.startswith("test_")
    }
    try:
        return row | scores | evaluated(run, corpus, run.folder(options.runs.resolve()))
    except subprocess.CalledProcessError as error:
        print(f"{' '.join(error.cmd[1:])} failed", file=sys.stderr)
        return None


def evaluated(run: Run, corpus: Path | None, folder: Path) -> dict[str, Any]:
    """Return the scores that train.py does not compute: of averages, of the validation set and of another test set."""
    plan, model = PLANS[run.plan], folder
    scores: dict[str, Any] = {}
    if run.row in plan.averages:
        model = folder / "average.ckpt"
        last = str(plan.averages[run.row])
        if not model.is_file():  # which a queue that was killed has left, whole
            python("-m", "seq2seq_attn", "average", str(folder), "--last", last, "--output", str(model))
        scores |= evaluation(model, folder / "average", "splits=[test]")["test"]
    if any(figure.startswith("val_") for figure in plan.figures):
        validation = evaluation(model, folder / "validation", "splits=[val]")["val"]
        scores |= {f"val_{name}": value for name, value in validation.items()}
    if plan.other_test is not None:
        options = [f"data={data_of(folder)}", f"data.path={quoted(corpus)}", f"data.test_split={plan.other_test}"]
        (other,) = evaluation(model, folder / plan.other_test, *options).values()
        scores |= {f"other_{name}": value for name, value in other.items()}
    return scores


def data_of(folder: Path) -> str:
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    return str(results["data"])


def evaluation(model: Path, folder: Path, *options: str) -> dict[str, dict[str, Any]]:
    """Return the scores of evaluate.py for each split."""
    words = [f"ckpt_path={quoted(model)}", "bootstrap=0", "num_threads=1", f"hydra.run.dir={quoted(folder)}", *options]
    python("evaluate.py", *words)
    splits: dict[str, dict[str, Any]] = json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))["splits"]
    return splits


def python(*words: str) -> None:
    subprocess.run([sys.executable, *words], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def page_of(plan: str, pages: Path) -> Path:
    return pages / f"seeds_{plan}.md"


def restore_pages(options: argparse.Namespace) -> None:
    """Let the rows of those pages that are there count as finished."""
    for plan in options.plan:
        page = page_of(plan, options.pages)
        if page.with_suffix(".json").is_file():
            restore(page, options.runs, Run._fields)


def write_pages(options: argparse.Namespace) -> None:
    """Write the page of each plan of which a run has finished, and its rows as .json beside it."""
    rows = rows_of(options.runs / ROWS, Run._fields)
    finished = [plan for plan in options.plan if any(row["plan"] == plan for row in rows)]
    if not finished:
        raise UserError(f"{options.runs} has no finished run; start `scripts.benchmarks.seeds run` first")
    options.pages.mkdir(parents=True, exist_ok=True)
    for plan in finished:
        page, chosen = page_of(plan, options.pages), [row for row in rows if row["plan"] == plan]
        page.write_text(page_text(plan, chosen, page.stem), encoding="utf-8")
        page.with_suffix(".json").write_text(json.dumps({"rows": chosen}, indent=1) + "\n", encoding="utf-8")
        print(f"wrote {page}: {number_finished(chosen)} of {len(planned(plan))} runs")


def page_text(name: str, rows: Sequence[dict[str, Any]], page: str) -> str:
    plan, finished = PLANS[name], number_finished(rows)
    rows, others = comparable_runs(plan, rows)
    signatures = sorted({row["bleu_signature"] for row in rows if "bleu_signature" in row})
    trained = [row for row in plan.rows if any(run["row"] == row for run in rows)]
    example = command(Run(name, trained[-1], SEEDS[0]), None if plan.corpus is None else Path("CORPUS"))
    data = "" if plan.corpus is None else " --data FOLDER"
    scores = score_table(plan, rows)
    return PAGE.format(
        title=plan.title,
        about=plan.about,
        table=scores,
        spread="Means over seeds, ± the standard deviation." if len({row["seed"] for row in rows}) > 1 else "One seed.",
        usual=next(iter(plan.rows)),
        finished=finished,
        all=len(planned(name)),
        left_out=LEFT_OUT.format(runs=described(others)).rstrip() if others else "",
        ranks="".join(rank_lines(plan, rows)),
        commits=commits_and_processors(rows),
        devices=devices(rows),
        updates=span([row["updates"] for row in rows]),
        few=FEW.format(seeds=len(SEEDS)) if "†" in scores else "",
        signature=f"\n- BLEU: {', '.join(map(code, signatures))}" if signatures else "",
        example=f"python train.py {' '.join(example)}",
        data="" if plan.corpus is None else f", where `FOLDER` has `{plan.corpus}`",
        commands=f"python -m scripts.benchmarks.seeds run --plan {name}{data} --runs RUNS\n"
        f"python -m scripts.benchmarks.seeds page --plan {name} --runs RUNS",
        name=page,
    )


def number_finished(rows: Sequence[dict[str, Any]]) -> int:
    """Return the number of runs of a plan that have a row; some have one for each of several devices."""
    return len({(row["row"], row["seed"]) for row in rows})


def comparable_runs(plan: Plan, rows: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the runs that a page averages, of each row those of the kind with the most seeds, and the others."""
    kinds = {name: kinds_of([row for row in rows if row["row"] == name]) for name in plan.rows}
    usual = max(kinds[next(iter(plan.rows))], key=len, default=[])
    device = device_of(usual[0]) if usual else None
    largest = {
        name: max(some, key=lambda runs: (len(runs), device_of(runs[0]) == device))
        for name, some in kinds.items()
        if some
    }
    chosen = [row for row in rows if any(row is run for run in largest[row["row"]])]
    return chosen, [row for row in rows if not any(row is run for run in chosen)]


def kinds_of(runs: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Divide the runs of a row into those that may be averaged: on one device, with equally many updates an epoch."""
    kinds: list[list[dict[str, Any]]] = []
    for run in runs:
        kind = next((some for some in kinds if device_of(some[0]) == device_of(run) and same_epochs([*some, run])), [])
        if not kind:
            kinds.append(kind)
        kind.append(run)
    return kinds


def device_of(run: dict[str, Any]) -> str:
    return str(run.get("device", CPU))


def same_epochs(runs: Sequence[dict[str, Any]]) -> bool:
    """Return whether the updates of all runs are whole epochs of one size, of which early stopping may leave out some.

    The number of an epoch's updates is not in a row. It divides those of all runs, and no run has more epochs than
    planned: 4,520 and 4,407 updates of at most 40 epochs may be 40 and 39 epochs of 113; 1,210 and 1,155 of at most 5
    have no such number.
    """
    updates = [run["updates"] for run in runs]
    return math.gcd(*updates) * min(run["epochs"] for run in runs) >= max(updates)


def described(runs: Sequence[dict[str, Any]]) -> str:
    """Return the seeds and rows of runs, by device and updates."""
    groups: dict[tuple[int, str], list[str]] = {}
    for run in sorted(runs, key=lambda run: run["seed"]):
        where = "on one thread of a CPU" if device_of(run) == CPU else f"on one {device_of(run)}"
        groups.setdefault((run["seed"], f"{where}, {run['updates']:,} updates"), []).append(code(run["row"]))
    return "; ".join(f"seed {seed} of {listed(names)} ({how})" for (seed, how), names in groups.items())


def span(numbers: Sequence[int]) -> str:
    least, most = min(numbers), max(numbers)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def scores_of(plan: Plan, rows: Sequence[dict[str, Any]], figure: str) -> dict[str, dict[int, float]]:
    """Return a figure of each row by seed."""
    scores: dict[str, dict[int, float]] = {name: {} for name in plan.rows}
    for row in rows:
        scores[row["row"]][row["seed"]] = row[figure]
    return scores


def score_table(plan: Plan, rows: Sequence[dict[str, Any]]) -> str:
    """Return the figures of each row that has a run, and the difference of the first from that of the usual row.

    Differences are taken between runs on the same device.
    """
    figures = {figure: scores_of(plan, rows, figure) for figure in plan.figures}
    compared, usual = figures[next(iter(figures))], next(iter(plan.rows))
    lines = [["", "seeds", *plan.figures.values(), f"above {usual}", "parameters, M", "minutes"]]
    for name, seeds in compared.items():
        if seeds:
            cells = [spread(list(by_row[name].values()), 1, ".1f") for by_row in figures.values()]
            ours = [row for row in rows if row["row"] == name]
            comparable = {row["seed"] for row in rows if row["row"] == usual and device_of(row) == device_of(ours[0])}
            above = [score - compared[usual][seed] for seed, score in seeds.items() if seed in comparable]
            minutes = [row["processor_minutes"] for row in ours if row["processor_minutes"] is not None]
            size = f"{ours[0]['parameters'] / 1e6:.2f}"
            cells += ["" if name == usual else signed(above), size, spread(minutes, 1, ".0f")]
            lines.append([code(name), f"{len(seeds)}{' †' if len(seeds) < len(SEEDS) else ''}", *cells])
    return table(lines)


def rank_lines(plan: Plan, rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return how far the order of the rows is that of the paper, over the means and with each complete seed.

    There is no order of runs on different devices.
    """
    first = next(iter(plan.figures))
    scores = scores_of(plan, rows, first)
    lines: list[str] = []
    if len({device_of(row) for row in rows if any(row["row"] in some for some in plan.published.values())}) > 1:
        return lines
    for test, published in plan.published.items():
        seeds = [seed for seed in SEEDS if all(seed in scores[name] for name in published)]
        if seeds:
            means = [fmean(scores[name][seed] for seed in seeds) for name in published]
            single = [correlation([scores[name][seed] for name in published], published) for seed in seeds]
            lines.append(
                RANKS.format(
                    first=plan.figures[first], rows=len(published), test=test, seeds=listed([*map(str, seeds)]),
                    means=correlation(means, published), spread=spread(single, 1, ".2f"),
                )
            )  # fmt: skip
    return lines


def correlation(scores: Sequence[float], published: Mapping[str, float]) -> float:
    ours, theirs = (torch.tensor(list(values), dtype=torch.float64) for values in (scores, published.values()))
    return float(spearman_corrcoef(ours, theirs))


if __name__ == "__main__":
    main()
