"""Page and plot of the figures of `minutes.py`: `python -m scripts.benchmarks.draw_minutes FIGURES.json`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from scripts.benchmarks.figures_file import draw_given, read_figures
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

Tatoeba, English to French, {train:,} training pairs, {threads} threads. Each program trained for at most {minutes:g}
minutes, alone on the machine. ± is the standard deviation over seeds; with one seed, small differences prove nothing.

{table}
{missing}
![BLEU of the validations by minutes]({name}.png)

- The recurrent models have a bidirectional GRU encoder and a GRU decoder whose attention scores by a hidden layer
  (Bahdanau et al. 2015), of width {dim}. All models have one joint vocabulary of {tokens:,} tokens and tied embeddings.
- Ours has averaged weights, and ends after {epochs} epochs, over which the learning rate falls to zero. The others
  train until the time is up, with schedules that do not depend on it: JoeyNMT's recurrent model halves its rate when
  validation BLEU has not risen for five validations, OpenNMT-py's after 1,600 updates and every 400 from there, and
  the rate of the Transformers falls with the square root of the updates.
- Minutes are counted from the start of the command; all get the tokenizer ready-made. With ours and JoeyNMT they
  include the validations. OpenNMT-py saves its weights while it trains; each checkpoint translates the validation set
  afterwards, and that time is not counted.
- Validation uses {val:,} sentences and greedy search; the test uses {test:,} sentences and beam search, with the
  weights that were best in validation: ours by BLEU against all references of a sentence, the others by BLEU against
  one. The table has sacreBLEU against all references.
{settings}
- Processors: {machines}.

Made by {command}, which trains what the figures lack; to draw it again from
{name}.json: `python -m scripts.benchmarks.draw_minutes docs/benchmarks/{name}.json`.
"""
COMPARED = {
    *("batch_tokens", "lr", "warmup_steps", "dropout", "average_decay", "layers", "heads", "ff_dim", "smoothing")
}


def draw(file: Path) -> Path:
    """Write page and plot next to the figures; return the path of the page."""
    results = read_figures(file, "setting")
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
            missing=missing(programs),
            settings=settings(programs),
            name=literal(file.stem),
            machines=literal("; ".join(machines)),
            epochs=next((run["epochs"] for run in every if "epochs" in run), "its"),
            command=code(f"python -m scripts.benchmarks.minutes --data fra.txt{changes(results)}"),
        ),
        encoding="utf-8",
    )
    plot(programs, file.with_suffix(".png"))
    return page


def changes(results: dict[str, Any]) -> str:
    """Return the options of the command that are not the default ones."""
    usual = {"experiment": "tatoeba_best", "minutes": 30, "threads": 2, "override": [], "setting": []}
    given = {name: results[name] for name, value in usual.items() if results[name] != value}
    return "".join(
        f" --{name} {' '.join(value) if isinstance(value, list) else value}" for name, value in given.items()
    )


def missing(programs: dict[str, Any]) -> str:
    """Return a sentence about the models that have not been trained."""
    names = [title for name, title in NAMES.items() if name not in programs]
    return f"\nNot trained yet: {'; '.join(names)}.\n" if names else ""


def settings(programs: dict[str, Any]) -> str:
    lines = []
    for name, runs in programs.items():
        values = next(iter(runs.values()))["settings"]
        if isinstance(values, dict):
            text = ", ".join(f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}"
                             for key, value in values.items() if key in COMPARED)  # fmt: skip
        else:
            text = " ".join(values)
        lines.append(f"- {NAMES[name]}: {code(text)}.")
    return "\n".join(lines)


def figures(programs: dict[str, Any]) -> str:
    early = f"best validation BLEU within {EARLY} minutes"
    titles = ["test BLEU", "best validation BLEU", early, "minutes", "updates", "parameters, M"]
    lines = [["", "seeds", *titles]]
    for name, runs in programs.items():
        every = list(runs.values())
        curves = [run["curve"] for run in every]
        columns = [
            spread([run["test_bleu"] for run in every], 1, ".1f"),
            spread(best(curves, float("inf")), 1, ".1f"),
            spread(best(curves, EARLY), 1, ".1f"),
            spread([curve[-1]["minutes"] for curve in curves], 1, ".1f"),
            spread([run["updates"] for run in every], 1, ",.0f"),
            f"{every[0]['parameters'] / 1e6:.2f}",
        ]
        lines.append([NAMES[name], str(len(every)), *columns])
    return table(lines)


def best(curves: list[list[dict[str, float]]], minutes: float) -> list[float]:
    """Return the best BLEU of each curve until then; one that has none is left out."""
    early = [[point["bleu"] for point in curve if point["minutes"] <= minutes] for curve in curves]
    return [max(scores) for scores in early if scores]


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
