"""Page and plot of the figures of `minutes.py`: `python -m scripts.benchmarks.draw_minutes FIGURES.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from scripts.benchmarks.figures_file import draw_given
from scripts.benchmarks.write_aligning_page import table
from scripts.benchmarks.write_homes_page import spread
from seq2seq_attn.markdown import code, literal

NAMES = {
    "ours": "ours, recurrent",
    "joeynmt_rnn": "JoeyNMT 2.3, recurrent",
    "joeynmt_transformer": "JoeyNMT 2.3, Transformer",
    "opennmt_rnn": "OpenNMT-py 3.5.1, recurrent",
    "opennmt_transformer": "OpenNMT-py 3.5.1, Transformer",
}
STYLES: dict[str, dict[str, str]] = {
    "ours": {"color": "black", "marker": "o"},
    "joeynmt_rnn": {"color": "0.45", "marker": "s", "linestyle": "--"},
    "joeynmt_transformer": {"color": "0.45", "marker": "^", "linestyle": "-."},
    "opennmt_rnn": {"color": "0.7", "marker": "s", "linestyle": "--"},
    "opennmt_transformer": {"color": "0.7", "marker": "^", "linestyle": "-."},
}
EARLY = 20  # minutes
TEXT = """\
# BLEU by minutes of training

Tatoeba, English to French, {train:,} training pairs, {threads} threads. Each run trained for {minutes:g} minutes, alone
on the machine. ± is the standard deviation over seeds; a row of one seed is neither better nor worse than another.

{table}

![BLEU of the validations by minutes]({name}.png)

- The recurrent models have a bidirectional GRU encoder and a GRU decoder with additive attention (Bahdanau et al.
  2015), of width {dim}. All models have one joint vocabulary of {tokens:,} tokens and tied embeddings. Ours is
  `experiment=tatoeba_best`, with averaged weights and a learning rate that falls to the end of training.
- Minutes are counted from the command. With ours and JoeyNMT they include the validations. OpenNMT-py saves its weights
  while it trains, and translates the validation set with all of them afterwards, which does not count.
- Validation uses {val:,} sentences and greedy search; the test uses {test:,} sentences and beam search, with the
  weights that were best in validation. All are scored by sacreBLEU against all references of a sentence.
- Settings of the others, which have the schedules of their own recipes:
{settings}
- Processors: {machines}.

Made by `python -m scripts.benchmarks.minutes --data fra.txt{changes}`; to draw it again from {name}.json:
`python -m scripts.benchmarks.draw_minutes docs/benchmarks/{name}.json`.
"""
COMPARED = {
    *("batch_tokens", "lr", "learning_rate", "decay_method", "warmup_steps", "dropout", "average_decay"),
    *("layers", "heads", "ff_dim", "smoothing"),
}


def draw(file: Path) -> Path:
    """Write page and plot next to the figures; return the path of the page."""
    results = json.loads(file.read_text(encoding="utf-8"))
    programs = {name: results["programs"][name] for name in NAMES if name in results["programs"]}
    every = [run for runs in programs.values() for run in runs.values()]
    machines = sorted({f"{run['machine']['processor']}, torch {run['machine']['torch']}" for run in every})
    page = file.with_suffix(".md")
    page.write_text(
        TEXT.format(
            **every[0]["sentences"],
            **{key: results[key] for key in ("minutes", "threads", "dim")},
            tokens=every[0]["tokens"],
            table=figures(programs),
            settings=settings(programs),
            name=literal(file.stem),
            machines=literal("; ".join(machines)),
            changes=changes(results),
        ),
        encoding="utf-8",
    )
    plot(programs, file.with_suffix(".png"))
    return page


def changes(results: dict[str, Any]) -> str:
    """Return the options of the command that are not the default ones."""
    usual = {"minutes": 30, "threads": 2, "override": [], "setting": []}
    given = {name: results[name] for name, value in usual.items() if results[name] != value}
    return "".join(
        f" --{name} {' '.join(value) if isinstance(value, list) else format(value, 'g')}"
        for name, value in given.items()
    )


def settings(programs: dict[str, Any]) -> str:
    lines = []
    for name, runs in programs.items():
        values = next(iter(runs.values()))["settings"]
        if isinstance(values, dict):
            chosen = [f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}"
                      for key, value in values.items() if key in COMPARED]  # fmt: skip
            lines.append(f"  - {NAMES[name]}: {code(', '.join(chosen))}")
    return "\n".join(lines)


def figures(programs: dict[str, Any]) -> str:
    titles = ["test BLEU", "best validation BLEU", f"within {EARLY} minutes", "updates", "parameters, M"]
    lines = [["", "seeds", *titles]]
    for name, runs in programs.items():
        every = list(runs.values())
        curves = [run["curve"] for run in every]
        columns = [
            spread([run["test_bleu"] for run in every], 1, ".1f"),
            spread([best(curve, float("inf")) for curve in curves], 1, ".1f"),
            spread([best(curve, EARLY) for curve in curves], 1, ".1f"),
            spread([run["updates"] for run in every], 1, ",.0f"),
            f"{every[0]['parameters'] / 1e6:.2f}",
        ]
        lines.append([NAMES[name], str(len(every)), *columns])
    return table(lines)


def best(curve: list[dict[str, float]], minutes: float) -> float:
    return max((point["bleu"] for point in curve if point["minutes"] <= minutes), default=0.0)


def plot(programs: dict[str, Any], file: Path) -> None:
    figure = Figure(figsize=(6.5, 3.8), layout="constrained")
    axes = figure.add_subplot()
    for name, runs in programs.items():
        for number, run in enumerate(runs.values()):
            minutes, bleu = ([point[key] for point in run["curve"]] for key in ("minutes", "bleu"))
            label = NAMES[name] if number == 0 else None
            axes.plot(minutes, bleu, markersize=3, linewidth=1, label=label, **STYLES[name])  # type: ignore[arg-type]
    axes.set(xlabel="minutes since the command", ylabel="validation BLEU", xlim=(0, None), ylim=(0, None))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, loc="lower right", fontsize="small")
    figure.savefig(file, dpi=150)


if __name__ == "__main__":
    draw_given(__doc__, "programs", draw)
