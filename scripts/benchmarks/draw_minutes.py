"""Page and plot of the figures of `minutes.py`: `python -m scripts.benchmarks.draw_minutes FIGURES.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from scripts.benchmarks.figures_file import draw_given, shown
from seq2seq_attn.markdown import code

NAMES = {"ours": "ours", "joeynmt": "JoeyNMT 2.3"}
STYLES = {"ours": {"color": "black", "marker": "o"}, "joeynmt": {"color": "0.45", "marker": "s", "linestyle": "--"}}
TEXT = """\
# BLEU by minutes of training

Tatoeba, English to French, {train:,} training pairs; {processor}, {threads} threads, torch {torch}.

{table}

![BLEU of the validations by minutes]({name}.png)

- The model is a bidirectional GRU encoder and a GRU decoder with additive attention (Bahdanau et al. 2015), width
  {dim}, one joint vocabulary of {tokens:,} tokens and tied embeddings. Ours is `experiment=tatoeba_best`, with
  averaged weights and a learning rate that falls to the end of training. JoeyNMT feeds its attention back into the
  decoder and halves its learning rate (at first {lr}) when validation BLEU stops rising, as in its own recipes; its
  batches have as many tokens.
- Minutes are counted from the command to the end of a validation, including validations. Each program ran for
  {minutes:g} minutes, alone on the machine, with one seed.
- Validation uses {val:,} sentences and greedy search; the test uses {test:,} sentences and beam search, with the
  weights that were best in validation. Both are scored by sacreBLEU against all references of a sentence.

Made by {command}; to draw it again from {name}.json: `python -m scripts.benchmarks.draw_minutes`.
"""


def draw(file: Path) -> Path:
    """Write page and plot next to the figures; return the path of the page."""
    results = json.loads(file.read_text(encoding="utf-8"))
    programs = results["programs"]
    page = file.with_suffix(".md")
    page.write_text(
        TEXT.format(
            **shown(results | results["machine"] | results["sentences"]) | {"command": code(results["command"])},
            table=table(programs),
            name=file.stem,
            lr=programs["joeynmt"]["lr"],
        ),
        encoding="utf-8",
    )
    plot(programs, file.with_suffix(".png"))
    return page


def table(programs: dict[str, Any]) -> str:
    lines = [
        "| | test BLEU | best validation BLEU | at minute | updates | parameters, M |",
        "|:--|--:|--:|--:|--:|--:|",
    ]
    for name, result in programs.items():
        best = max(result["curve"], key=lambda point: point["bleu"])
        lines.append(
            f"| {NAMES[name]} | {result['test_bleu']:.1f} | {best['bleu']:.1f} | {best['minutes']:.1f} "
            f"| {result['updates']:,} | {result['parameters'] / 1e6:.2f} |"
        )
    return "\n".join(lines)


def plot(programs: dict[str, Any], file: Path) -> None:
    figure = Figure(figsize=(6, 3.4), layout="constrained")
    axes = figure.add_subplot()
    for name, result in programs.items():
        minutes, bleu = ([point[key] for point in result["curve"]] for key in ("minutes", "bleu"))
        axes.plot(minutes, bleu, markersize=3, linewidth=1.2, label=NAMES[name], **STYLES[name])
    axes.set(xlabel="minutes since the command", ylabel="validation BLEU", xlim=(0, None), ylim=(0, None))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, loc="lower right")
    figure.savefig(file, dpi=150)


if __name__ == "__main__":
    draw_given(__doc__, "programs", draw)
