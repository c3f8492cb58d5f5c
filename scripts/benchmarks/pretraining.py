"""What pre-training gains, by attention: `python -m scripts.benchmarks.pretraining run --data FOLDER --runs RUNS`.

A Transformer is pre-trained by span corruption on the English and the French of Tatoeba and Multi30k, and fine-tuned on
the first captions of Multi30k. It is compared with one of the same vocabulary whose parent had no update, by the same
command. The attention is the self-attention of both sides. All runs are on one thread. The queue may be killed at any
time: the same command resumes it, and no finished run is repeated. rows.jsonl in the folder of the runs has a line for
each finished run, and `page` writes the page of what has finished; on another machine `restore` brings the rows of that
page back, without the runs themselves: a parent is trained again if one of its fine-tunings is left.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from scripts.benchmarks.home_runs import (
    ROOT,
    ROWS,
    SEEDS,
    commits_and_processors,
    forget_lost,
    read_rows,
    rows_of,
    unfinished,
)
from scripts.benchmarks.homes import add_restore, add_run, alone, cut_captions, failures, run_jobs, trained_row
from scripts.benchmarks.write_aligning_page import table
from scripts.benchmarks.write_homes_page import minus, spread
from seq2seq_attn.data.reading import read_lines
from seq2seq_attn.errors import UserError, reports_user_errors
from seq2seq_attn.files import replacing
from seq2seq_attn.markdown import code
from seq2seq_attn.paths import quoted

ATTENTIONS = ("multihead", "synthesizer_random", "synthesizer_random_vanilla")
PARENTS = ("untrained", "pretrained")
EPOCHS = {1_000: 60, 5_000: 24}  # of fine-tuning, by the number of captions
UPDATES = 2_500  # of pre-training
COMMON = ("num_threads=1", "trainer.enable_progress_bar=false", "val_sentences=256")
PARENT = (
    "data=text", "model=transformer", "objective=denoising", "tokenizer.vocab_size=4000", "model.tie_embeddings=all",
    "attention.num_heads=4", "cross_attention.num_heads=4",
)  # fmt: skip
NO_UPDATE = ("trainer.max_epochs=0", "trainer.limit_val_batches=0", "trainer.limit_test_batches=0")
CHILD = (
    "data=multi30k", "metric=[bleu,chrf]", "optimizer.lr=0.002", "~callback.attention_map",
    "~callback.translation_table",
)  # fmt: skip
CORPUS, CAPTIONS = "tatoeba/fra.txt", "multi30k"
PAGE_FILE = ROOT / "docs/benchmarks/pretraining.md"
TEXT, VALIDATION = "text.txt", "validation.txt"
PAGE = """\
# What pre-training gains, by attention

Transformers (`attention=` is the self-attention of both sides, the attention to the source is `multihead`; d = 128,
three layers on each side, four heads) are fine-tuned on the first captions of Multi30k, English to French, from two
parents: one pre-trained by span corruption ([tasks.md](../tasks.md#pre-training-on-text)) for {updates:,} updates on
the English and the French of Tatoeba and Multi30k, and one with the same vocabulary of 4,000 tokens and no update. The
figures are sacreBLEU on test_2016_flickr, with greedy search and the weights that were best in validation.

{table}

Mean over seeds, ± the standard deviation. Gains are taken seed by seed. The last column is the gain minus that of
`multihead`: below 0, the attention gains less. A row of fewer than {seeds} seeds is neither better nor worse than
another. {finished} of {all} runs have finished.

- The text has both sides of all 29,000 training captions, those of the fine-tuning among them, in no order that
  pairs them.
- All fine-tunings have the options of the command below; none was tuned on these runs.
- BLEU: {signature}
- Commits of the runs: {commits}. Processor time of the {timed} runs that were not interrupted: {hours:.1f} hours.

## Commands

A parent, and a fine-tuning from it:

```
{commands}
```

For all runs and this page, `FOLDER` having the folders `multi30k` and `tatoeba`:

```
python -m scripts.benchmarks.pretraining run --data FOLDER --runs RUNS
python -m scripts.benchmarks.pretraining page --runs RUNS
```

The first command resumes after an interruption. The raw figures are in [{name}.json]({name}.json).
"""


class Run(NamedTuple):
    """A run of the queue: a parent, or with a number of pairs a fine-tuning from it."""

    attention: str
    parent: str
    pairs: int
    seed: int

    def folder(self, runs: Path) -> Path:
        return runs / self.attention / (f"{self.parent}_{self.pairs}" if self.pairs else self.parent) / str(self.seed)

    @property
    def origin(self) -> Run:
        return self._replace(pairs=0)


def parents() -> list[Run]:
    """Return the parents, all attentions of one seed before the next seed."""
    return [Run(attention, parent, 0, seed) for seed in SEEDS for attention in ATTENTIONS for parent in PARENTS]


def children() -> list[Run]:
    """Return the fine-tunings in the order of their parents, those of fewer pairs first."""
    return [run._replace(pairs=pairs) for seed in SEEDS for pairs in EPOCHS for run in parents() if run.seed == seed]


def command(run: Run, runs: Path) -> list[str]:
    """Return the overrides of train.py for a run."""
    overrides = [*COMMON, f"seed={run.seed}", f"paths.cache_dir={quoted(runs / 'cache')}"]
    if run.pairs:
        epochs = EPOCHS[run.pairs]
        files = [
            f"data.path={quoted(runs / f'captions_{run.pairs}')}",
            f"init_from.run={quoted(run.origin.folder(runs))}",
        ]
        steps = [f"trainer.max_epochs={epochs}", f"trainer.check_val_every_n_epoch={epochs // 12}"]
        return [*overrides, *CHILD, *files, *steps]
    names = {"train": TEXT, "val": VALIDATION, "test": VALIDATION}
    files = [f"data.{split}={quoted(runs / name)}" for split, name in names.items()]
    steps = [f"trainer.max_steps={UPDATES}"] if run.parent == "pretrained" else list(NO_UPDATE)
    return [*overrides, *PARENT, f"attention={run.attention}", *files, *steps]


@reports_user_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    options.act(options)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    run = add_run(commands, run_queue)
    run.add_argument("--data", type=Path, required=True, help="folder with multi30k and tatoeba/fra.txt")
    page = commands.add_parser("page", help="write the page of what has been trained")
    page.add_argument("--output", type=Path, default=PAGE_FILE, help="%(default)s")
    page.set_defaults(act=write_page)
    add_restore(commands, PAGE_FILE, Run._fields)
    for choice in commands.choices.values():
        choice.add_argument("--runs", type=Path, required=True, help="folder of the runs")
    return parser.parse_args(arguments)


def run_queue(options: argparse.Namespace) -> None:
    """Run all that have no row, seed by seed: the parents, then the fine-tunings of those that have finished."""
    check_data(options.data)
    options.runs.mkdir(parents=True, exist_ok=True)
    with alone(options.runs):
        write_texts(options.data, options.runs)
        left = unfinished(children(), read_rows(options.runs / ROWS))
        forget_lost({run.origin for run in left}, options.runs)
        failed: list[Run] = []
        for seed in SEEDS:
            failed += run_jobs([run for run in parents() if run.seed == seed], options, run_one)
            ready = [run for run in children() if run.seed == seed and run.origin not in failed]
            failed += run_jobs(ready, options, run_one)
    if failed:
        sys.exit(failures(failed))


def check_data(data: Path) -> None:
    if not (data / CORPUS).is_file() or not (data / CAPTIONS).is_dir():
        raise UserError(f"--data {data} lacks {CORPUS} or the folder {CAPTIONS}; give the folder that has both")


def write_texts(data: Path, runs: Path) -> None:
    """Write what is missing of the text of the pre-training, its validation and the captions of the fine-tunings."""
    corpus, captions = data / CORPUS, data / CAPTIONS
    for pairs in EPOCHS:
        cut_captions(captions, runs / f"captions_{pairs}", pairs)
    text = [side for line in read_lines(corpus) for side in line.split("\t")[:2]]
    for name, lines in ((TEXT, [*text, *both_sides(captions, "train")]), (VALIDATION, both_sides(captions, "val"))):
        if not (runs / name).is_file():
            with replacing(runs / name) as stream:
                stream.write("".join(f"{line}\n" for line in dict.fromkeys(lines)).encode())


def both_sides(captions: Path, split: str) -> list[str]:
    return [line for language in ("en", "fr") for line in read_lines(captions / f"{split}.{language}.gz")]


def run_one(run: Run, options: argparse.Namespace) -> dict[str, Any] | None:
    """Run or resume a training; return its row, or None if it failed."""
    return trained_row(run, [*command(run, options.runs.resolve()), *options.override], options.runs)


def write_page(options: argparse.Namespace) -> None:
    """Write the page, and the rows as .json beside it."""
    rows = rows_of(options.runs / ROWS, Run._fields)
    scored = [row for row in rows if row["pairs"]]
    if not scored:
        raise UserError(f"{options.runs} has no finished fine-tuning; start `scripts.benchmarks.pretraining run` first")
    example = Run(ATTENTIONS[-1], PARENTS[1], min(EPOCHS), SEEDS[0])
    commands = [f"python train.py {' '.join(command(run, Path('RUNS')))}" for run in (example.origin, example)]
    minutes = [row["processor_minutes"] for row in rows if row["processor_minutes"] is not None]
    page: Path = options.output
    page.parent.mkdir(parents=True, exist_ok=True)
    text = PAGE.format(
        updates=UPDATES,
        table=gain_table(scored),
        seeds=len(SEEDS),
        finished=len(rows),
        all=len(parents()) + len(children()),
        signature=", ".join(code(one) for one in sorted({row["bleu_signature"] for row in scored})),
        commits=commits_and_processors(rows),
        timed=len(minutes),
        hours=sum(minutes) / 60,
        commands="\n".join(commands),
        name=page.stem,
    )
    page.write_text(text, encoding="utf-8")
    page.with_suffix(".json").write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {page}: {len(rows)} runs")


def gain_table(rows: Sequence[dict[str, Any]]) -> str:
    """Return BLEU by attention and number of captions, with what pre-training gains."""
    bleu = {Run(*(row[field] for field in Run._fields)): row["bleu"] for row in rows}
    lines = [["attention", "captions", "seeds", *PARENTS, "gain", f"gain above {ATTENTIONS[0]}"]]
    for pairs in EPOCHS:
        gains: dict[str, dict[int, float]] = {}
        for attention in ATTENTIONS:
            parent_bleu = {
                parent: {seed: bleu[run] for seed in SEEDS if (run := Run(attention, parent, pairs, seed)) in bleu}
                for parent in PARENTS
            }
            without, pretrained = (parent_bleu[parent] for parent in PARENTS)
            gains[attention] = {seed: pretrained[seed] - without[seed] for seed in pretrained if seed in without}
            seed_gains, usual = gains[attention], gains[ATTENTIONS[0]]
            above = [seed_gains[seed] - usual[seed] for seed in seed_gains if seed in usual]
            scores = [spread(list(values.values()), 1, ".1f") for values in (without, pretrained)]
            differences = [signed(list(seed_gains.values())), signed(above)]
            if attention == ATTENTIONS[0]:
                differences[1] = ""
            lines.append([attention, f"{pairs:,}", str(len(seed_gains)), *scores, *differences])
    return table(lines)


def signed(gains: list[float]) -> str:
    text = spread(gains, 1, ".1f")
    return f"+{text}" if gains and not text.startswith("-") else minus(text)


if __name__ == "__main__":
    main()
