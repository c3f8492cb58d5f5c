"""Page and plot of the figures of `minutes.py`: `python -m scripts.benchmarks.draw_minutes FIGURES.json`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from matplotlib.figure import Figure

from scripts.benchmarks.figures_file import draw_given, read_figures
from scripts.benchmarks.home_runs import ROOT
from scripts.benchmarks.seeds import PLANS
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
USUAL = "tatoeba_minutes"  # name of the usual file of figures
SPEED = ROOT / "docs/benchmarks/training_cpu.json"
TEXT = """\
# BLEU by minutes of training

Tatoeba, English to French, {train:,} training pairs, {threads} threads. Each program trained for at most {minutes:g}
minutes, alone on the machine. ± is the standard deviation over seeds; with one seed, small differences prove nothing.

{table}
{missing}
![BLEU of the validations by minutes]({name}.png)

- The recurrent models have a bidirectional GRU encoder and a GRU decoder whose attention scores by a hidden layer
  (Bahdanau et al. 2015), of width {dim}. All models have one joint vocabulary of {tokens:,} tokens and tied embeddings.
- Ours ends after {epochs} epochs, over which the learning rate falls to zero. The others train until the time is up.
  JoeyNMT's recurrent model halves its rate when validation BLEU has not risen for five validations. OpenNMT-py's halves
  it after 1,600 updates and every 400 from there, numbers that were chosen for about as many updates as half an hour
  gives on two cores (its defaults are 50,000 and 10,000). The rate of the Transformers falls with the square root of
  the updates.
{choices}
- Minutes are counted from the start of the command; all get the tokenizer ready-made. With ours and JoeyNMT they
  include the validations. OpenNMT-py saves its weights while it trains; each checkpoint translates the validation set
  afterwards, and that time is not counted.
- Validation uses {val:,} sentences and greedy search; the test uses {test:,} sentences and beam search, with the
  weights that were best in validation: ours by BLEU against all references of a sentence, the others by BLEU against
  one. The table has sacreBLEU against all references.
{settings}
- Processors: {machines}.{commits}

Made by {command}, which trains what the figures lack; to draw it again from
{name}.json: `python -m scripts.benchmarks.draw_minutes docs/benchmarks/{name}.json`.
"""
# What was chosen for each program
OURS_CHOSEN = {
    "tatoeba_best": "the decoder, its activation, the scale of the embeddings, dropout (0.1, and 0.2 in the decoder), "
    "the rate and the number of epochs, on this validation set, from {variants} variants (plan `tatoeba` of "
    "scripts.benchmarks.seeds; their figures are not recorded)",
    "tatoeba_bahdanau": "the number of epochs, which fits into half an hour on two cores; what else was tried is not "
    "recorded",
}
CHOSEN = {
    "ours": "Chosen for ours: {ours}. Its weights are averaged.",
    "opennmt_rnn": "Chosen for OpenNMT-py's recurrent model: the schedule above, and the rate, on this validation "
    "set; which other rates were tried is not recorded. Dropout is {dropout}. Its weights are averaged.",
    "joeynmt_rnn": "Chosen for JoeyNMT's recurrent model: the rate, on this validation set; which other rates were "
    "tried is not recorded. Dropout is {dropout}. Its weights are not averaged.",
}
UNSORTED = (
    "JoeyNMT does not sort sentences by length. On Multi30k, where tokens were counted "
    "([training_cpu.md](training_cpu.md)), its batches are {padding:.0%} padding: of about as many tokens with "
    "padding, {theirs:,.0f} are text in an update of JoeyNMT, and {ours:,.0f} in one of ours. Its batches are "
    "therefore twice as large here; on Tatoeba the padding was not counted."
)
COMPARED = {
    "batch_tokens", "embed_init_weight", "lr", "warmup_steps", "dropout", "average_decay", "layers", "heads", "ff_dim",
    "smoothing",
}  # fmt: skip


def draw(file: Path) -> Path:
    """Write page and plot next to the figures; return the path of the page."""
    results = read_figures(file, "setting")
    programs = {name: results["programs"][name] for name in NAMES if name in results["programs"]}
    every = [run for runs in programs.values() for run in runs.values()]
    commits = sorted({run["commit"] for run in every if run.get("commit")})
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
            choices=choices(programs, results["experiment"]),
            commits=f" Commits: {', '.join(code(commit[:8] + commit[40:]) for commit in commits)}." if commits else "",
            name=literal(file.stem),
            machines=literal("; ".join(machines)),
            epochs=next((run["epochs"] for run in every if "epochs" in run), "its"),
            command=code(f"python -m scripts.benchmarks.minutes --data fra.txt{changes(results)}{output(file)}"),
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


def output(file: Path) -> str:
    """Return the option of the command that names the figures, which are refused where those of another run lie."""
    return "" if file.stem == USUAL else f" --output docs/benchmarks/{file.stem}.json"


def choices(programs: dict[str, Any], experiment: str) -> str:
    """Return what was chosen for each program, and why JoeyNMT has other batches."""
    lines = []
    for name, text in CHOSEN.items():
        if name in programs:
            given = next(iter(programs[name].values()))["settings"]
            chosen = OURS_CHOSEN.get(experiment, f"what `experiment={experiment}` has")
            chosen = chosen.format(variants=len(PLANS["tatoeba"].rows))
            lines.append(text.format(ours=chosen, dropout=given.get("dropout") if isinstance(given, dict) else None))
    if any(name.startswith("joeynmt") for name in programs):
        turns = read_figures(SPEED, "sizes")["sizes"]["B"]["1"]
        theirs, ours = (mean_per_update(turns[name]["turns"], "tokens") for name in ("joeynmt", "ours"))
        padding = 1 - theirs / mean_per_update(turns["joeynmt"]["turns"], "padded_tokens")
        lines.append(UNSORTED.format(theirs=theirs, ours=ours, padding=padding))
    return "\n".join(fill(f"- {line}", 120, subsequent_indent="  ", break_on_hyphens=False) for line in lines)


def mean_per_update(turns: Sequence[dict[str, Any]], count: str) -> float:
    return float(sum(turn[count] for turn in turns) / sum(turn["updates"] for turn in turns))


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
    """Return the table; the early figure is at a time that all programs reach."""
    until = min([EARLY, *(run["curve"][-1]["minutes"] for runs in programs.values() for run in runs.values())])
    early = f"best validation BLEU within {until:.0f} minutes"
    titles = ["test BLEU", "best validation BLEU", early, "minutes", "updates", "parameters, M"]
    lines = [["", "seeds", *titles]]
    for name, runs in programs.items():
        every = list(runs.values())
        curves = [run["curve"] for run in every]
        columns = [
            spread([run["test_bleu"] for run in every], 1, ".1f"),
            spread(best(curves, float("inf")), 1, ".1f"),
            spread(best(curves, until), 1, ".1f"),
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
