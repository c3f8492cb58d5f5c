"""What synthetic pairs gain: `python -m scripts.benchmarks.synthetic_pairs run --data FOLDER --runs RUNS`.

A Transformer learns from the first captions of Multi30k, and from them together with pairs of which a model wrote one
side: distillation, self-training and back-translation. All runs have as many updates, and are on one thread. The models
that write have no synthetic pairs. The queue may be killed at any time: the same command resumes it, and no finished
run is repeated. rows.jsonl in the folder of the runs has a line for each finished run, and `page` writes the page of
what has finished; on another machine `restore` brings the rows of that page back, without the runs themselves: a model
is trained again if one that reads what it writes is left.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from filelock import FileLock

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
from scripts.benchmarks.homes import add_restore, add_run, alone, failures, run_jobs, trained_row
from scripts.benchmarks.seeds import Plan, score_table
from seq2seq_attn.data.reading import read_lines
from seq2seq_attn.errors import UserError, reports_user_errors
from seq2seq_attn.files import replacing
from seq2seq_attn.markdown import code
from seq2seq_attn.paths import quoted

CAPTIONS = 5_000  # pairs that are real; of the other captions one side alone is used
UPDATES = 5_400
COMMON = (
    "experiment=regularisers", "data=mixture", "recipe=multi30k_transformer", "metric=[bleu,chrf]", "num_threads=1",
    "trainer.enable_progress_bar=false", "trainer.max_epochs=-1", f"trainer.max_steps={UPDATES}",
    "trainer.check_val_every_n_epoch=null", f"trainer.val_check_interval={UPDATES // 15}", "~callback.attention_map",
    "~callback.translation_table",
)  # fmt: skip
PLAIN, REVERSE, ALL = "plain", "reverse", "all_real"
BEAM = ("search=beam", "search/length_penalty=mean")
SAMPLES = ("search=sampling", "search.top_k=10")
TEST = "test_2016_flickr"
TAG = "synthetic "  # Caswell et al. 2019, arXiv:1906.06442
PAGE_FILE = ROOT / "docs/benchmarks/synthetic_pairs.md"


class Synthetic(NamedTuple):
    """Pairs of which a model wrote one side.

    Attributes:
        writer: the row of the model that wrote it.
        reads: the captions that the model read: "first", those of the real pairs, or "other", the remaining ones.
        search: the overrides of translate.py.
        tag: what each source begins with.
        ensemble: whether the writers of all seeds wrote it together.
        weight: how often a real pair occurs in an epoch.
    """

    about: str
    writer: str
    reads: str
    search: tuple[str, ...] = BEAM
    tag: str = ""
    ensemble: bool = False
    weight: int = 1


SYNTHETIC = {
    "distilled": Synthetic(
        "these, and the same captions as translated by an ensemble of the three `plain` models (Kim and Rush 2016, "
        "arXiv:1606.07947)",
        *(PLAIN, "first"),
        ensemble=True,
    ),
    "self_trained": Synthetic(
        "these, and 24,000 other English captions as translated by `plain` (Zhang and Zong 2016)",
        PLAIN,
        "other",
        weight=5,
    ),
    "back_translated": Synthetic(
        "these, and 24,000 other French captions as translated by a model of French to English that is otherwise like "
        "`plain` "
        "(Sennrich et al. 2016, arXiv:1511.06709)",
        *(REVERSE, "other"),
        weight=5,
    ),
    "back_translated_samples": Synthetic(
        "as `back_translated`, but each translation is sampled from the ten most probable tokens (Edunov et al. 2018, "
        "arXiv:1808.09381)",
        *(REVERSE, "other", SAMPLES),
        weight=5,
    ),
    "back_translated_tagged": Synthetic(
        "as `back_translated`, with a first word that tells the synthetic sources from the real ones (Caswell et al. "
        "2019, arXiv:1906.06442)",
        *(REVERSE, "other"),
        tag=TAG,
        weight=5,
    ),
}
ABOUT = {PLAIN: f"the first {CAPTIONS:,} captions alone", **{name: row.about for name, row in SYNTHETIC.items()}}
ABOUT[ALL] = "all 29,000 captions with their real translations, for comparison"
PAGE = """\
# What synthetic pairs gain

A Transformer (`experiment=regularisers`: two layers on each side, width 128, English to French) is trained on the first
{captions:,} captions of Multi30k, and on them together with pairs of which a model wrote one side
([synthetic_data.md](../synthetic_data.md)). Each model has {updates:,} updates. The scores are those of
test_2016_flickr, with greedy search and the weights that were best in validation.

{table}

{legend}

Means over seeds, ± the standard deviation. The column *above plain* is the difference of BLEU, taken seed by seed. A
row of fewer than {seeds} seeds is neither better nor worse than another. {finished} of {all} runs have finished.

- Models that translate use beam search with five hypotheses, unless the row says otherwise. Where there are 24,000
  synthetic pairs, a real pair occurs five times in an epoch, so that half of the pairs are real.
- The rows with 24,000 synthetic pairs read text that `plain` does not have: one side of the other captions.
- Each row learns its vocabulary of 4,000 tokens from its own pairs. None of the options was tuned on these runs.
- {reverse}
- BLEU: {signature}
- Commits of the runs: {commits}.

## Commands

One of the runs; its synthetic side was written by the second command:

```
{commands}
```

For all runs and this page, `FOLDER` having the folder `multi30k`:

```
python -m scripts.benchmarks.synthetic_pairs run --data FOLDER --runs RUNS
python -m scripts.benchmarks.synthetic_pairs page --runs RUNS
```

The first command resumes after an interruption. The raw figures are in [{name}.json]({name}.json).
"""


class Run(NamedTuple):
    """A training of a row."""

    row: str
    seed: int

    def folder(self, runs: Path) -> Path:
        return runs / self.row / str(self.seed)

    @property
    def writers(self) -> list[Run]:
        """The runs whose models write what this one reads."""
        if self.row not in SYNTHETIC:
            return []
        made = SYNTHETIC[self.row]
        return [Run(made.writer, seed) for seed in (SEEDS if made.ensemble else (self.seed,))]


def stages() -> list[list[Run]]:
    """Return the runs in their order, seed by seed, a model that writes in an earlier list than those that read it."""
    single = [row for row, made in SYNTHETIC.items() if not made.ensemble]
    lists = [[Run(row, seed) for row in rows] for seed in SEEDS for rows in ((PLAIN, REVERSE), (*single, ALL))]
    return [*lists, [Run(row, seed) for row in SYNTHETIC if row not in single for seed in SEEDS]]


def text(runs: Path, part: str, language: str) -> Path:
    """Return the file of one side of a part of the captions: first, other, all, val or test."""
    return runs / "captions" / f"{part}.{language}"


def written_side(run: Run, runs: Path) -> Path:
    made = SYNTHETIC[run.row]
    language = "en" if made.writer == REVERSE else "fr"
    return runs / "captions" / f"{run.row}.{'all' if made.ensemble else run.seed}.{language}"


def command(run: Run, runs: Path) -> list[str]:
    """Return the overrides of train.py for a run."""
    languages = ("fr", "en") if run.row == REVERSE else ("en", "fr")

    def pair(part: str) -> list[Path]:
        return [text(runs, part, language) for language in languages]

    corpora, weight = {"real": pair("all" if run.row == ALL else "first")}, []
    if run.row in SYNTHETIC:
        made = SYNTHETIC[run.row]
        source, target = pair(made.reads)
        side = written_side(run, runs)
        corpora["synthetic"] = [source, side] if side.suffix == ".fr" else [side, target]
        weight = [f"data.weights.real={made.weight}"] if made.weight > 1 else []
    named = ",".join(f"{name}:{{train:{files(pair)}}}" for name, pair in corpora.items())
    splits = [f"data.{split}={files(pair(split))}" for split in ("val", "test")]
    sides = [f"data.source_language={languages[0]}", f"data.target_language={languages[1]}"]
    return [*COMMON, f"data.corpora={{{named}}}", *weight, *splits, *sides, f"seed={run.seed}"]


def files(pair: Sequence[Path]) -> str:
    return f"[{','.join(map(quoted, pair))}]"


def translation_command(run: Run, runs: Path) -> list[str]:
    """Return the overrides of translate.py that write the synthetic side of a run's pairs."""
    made, side = SYNTHETIC[run.row], written_side(run, runs)
    models = ",".join(quoted(writer.folder(runs)) for writer in run.writers)
    read = text(runs, made.reads, "fr" if side.suffix == ".en" else "en")
    options = [f"input={quoted(read)}", f"output={quoted(side)}", *made.search, "batch_sentences=256", "num_threads=1"]
    return [f"ckpt_path=[{models}]", *options]


@reports_user_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    options.act(options)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    run = add_run(commands, run_queue)
    run.add_argument("--data", type=Path, required=True, help="folder with the folder multi30k")
    page = commands.add_parser("page", help="write the page of what has been trained")
    page.add_argument("--output", type=Path, default=PAGE_FILE, help="%(default)s")
    page.set_defaults(act=write_page)
    add_restore(commands, PAGE_FILE, Run._fields)
    for choice in commands.choices.values():
        choice.add_argument("--runs", type=Path, required=True, help="folder of the runs")
    return parser.parse_args(arguments)


def run_queue(options: argparse.Namespace) -> None:
    """Run all that have no row, those of models that write before those that read what they have written."""
    captions = options.data / "multi30k"
    if not captions.is_dir():
        raise UserError(f"--data {options.data} has no folder multi30k; give the folder that contains it")
    options.runs.mkdir(parents=True, exist_ok=True)
    with alone(options.runs):
        write_texts(captions, options.runs)
        left = unfinished(chain(*stages()), read_rows(options.runs / ROWS))
        forget_lost({writer for run in left for writer in run.writers}, options.runs)
        failed: list[Run] = []
        for runs in stages():
            failed += run_jobs([run for run in runs if not set(run.writers) & set(failed)], options, run_one)
    if failed:
        sys.exit(failures(failed))


def write_texts(captions: Path, runs: Path) -> None:
    """Write what is missing of the captions: of the training set all, the first ones and the others."""
    text(runs, "all", "en").parent.mkdir(exist_ok=True)
    for language in ("en", "fr"):
        split = {name: list(read_lines(captions / f"{name}.{language}.gz")) for name in ("train", "val", TEST)}
        train = split["train"]
        parts = {"all": train, "first": train[:CAPTIONS], "other": train[CAPTIONS:]}
        for part, lines in (parts | {"val": split["val"], "test": split[TEST]}).items():
            if not text(runs, part, language).is_file():
                with replacing(text(runs, part, language)) as stream:
                    stream.write("".join(f"{line}\n" for line in lines).encode())


def run_one(run: Run, options: argparse.Namespace) -> dict[str, Any] | None:
    """Have the synthetic side of a run's pairs written, and train it or resume it; return None if that failed."""
    runs = options.runs.resolve()
    if run.row in SYNTHETIC:
        try:
            write_side(run, runs)
        except subprocess.CalledProcessError as error:
            print(f"{' '.join(error.cmd[1:])} failed", file=sys.stderr)
            return None
    return trained_row(run, [*command(run, runs), *options.override], options.runs)


def write_side(run: Run, runs: Path) -> None:
    """Translate the synthetic side, if it is not there; rows of several seeds may share one."""
    side = written_side(run, runs)
    with FileLock(f"{side}.lock"):
        if side.is_file():
            return
        if SYNTHETIC[run.row].tag:
            plain = run._replace(row="back_translated")
            write_side(plain, runs)
            lines = [f"{TAG}{line}\n" for line in read_lines(written_side(plain, runs))]
            with replacing(side) as stream:
                stream.write("".join(lines).encode())
        else:
            words = [sys.executable, "translate.py", *translation_command(run, runs)]
            subprocess.run(words, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def write_page(options: argparse.Namespace) -> None:
    """Write the page, and the rows as .json beside it."""
    rows = rows_of(options.runs / ROWS, Run._fields)
    scored = [row for row in rows if row["row"] != REVERSE]
    if not scored:
        raise UserError(f"{options.runs} has no finished run; start `scripts.benchmarks.synthetic_pairs run` first")
    plan = Plan("", "", (), dict.fromkeys(ABOUT, ()), {"bleu": "BLEU", "chrf": "chrF"})
    reverse = [row["bleu"] for row in rows if row["row"] == REVERSE]
    example = Run("back_translated", SEEDS[0])
    commands = [("train.py", command), ("translate.py", translation_command)]
    page: Path = options.output
    page.parent.mkdir(parents=True, exist_ok=True)
    content = PAGE.format(
        captions=CAPTIONS,
        updates=UPDATES,
        table=score_table(plan, scored),
        legend="\n".join(f"- {code(name)}: {about}" for name, about in ABOUT.items()),
        seeds=len(SEEDS),
        finished=len(rows),
        all=sum(map(len, stages())),
        reverse=f"The models of French to English have {', '.join(f'{bleu:.1f}' for bleu in reverse) or 'no'} BLEU.",
        signature=", ".join(code(one) for one in sorted({row["bleu_signature"] for row in scored})),
        commits=commits_and_processors(rows),
        commands="\n".join(shlex.join(["python", program, *act(example, Path("RUNS"))]) for program, act in commands),
        name=page.stem,
    )
    page.write_text(content, encoding="utf-8")
    page.with_suffix(".json").write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {page}: {len(rows)} runs")


if __name__ == "__main__":
    main()
