"""Page and plot of the figures of `decoding.py`: `python -m scripts.benchmarks.draw_decoding FIGURES.json`."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

from matplotlib.figure import Figure

from scripts.benchmarks.figures_file import commit_text, draw_given, shown

JOEYNMT_TURNS = 2
USUAL = {"sentences": 1000, "most": 54, "batch": 128, "threads": 2, "turns": 7}  # options of the command
LENGTHS = (25, 50, 100, 200, 300, 400)
STEP_TURNS = 3  # at most; the fastest counts
NAMES = {
    "ours": "ours",
    "processes": "ours, a process for each thread",
    "plain": "plain cached loop",
    "ctranslate2": "CTranslate2, float32",
    "joeynmt": "JoeyNMT 2.3",
}
TEXT = """\
# Decoding on a CPU

{greedy}

{beam}

Multi30k test_2016_flickr, English to French: {sentences:,} sentences, from text to text, at most {most} tokens per
translation. All programs have the same weights: one pre-norm Transformer of {layers} layers, width {dim}, {heads}
heads, feed-forward width {ff_dim}, {tokens:,} tokens. Float32, {threads} threads, {processor}, torch {torch}, Python
{python}; {commit}. How the run with these weights was trained is not recorded.

Each program is a process of its own, since torch and CTranslate2 slow each other down in one. They take turns, whose
number is in the tables. No turn is left out as a warm-up, so a single turn includes what only the first one takes. The
speed of a shared machine changes from second to second, and a fastest turn may be a lucky one; the tables are therefore
sorted by the median of the seconds. The first ratio is the median of the ratios to ours in the same turn, which may
differ from the ratio of two medians. The beam has {size} hypotheses and Wu's length penalty with alpha {alpha}, and
ends with {size} finished hypotheses (`search.patience=1.0`).

- Ours and the plain loop use batches of {batch} sentences sorted by length, as in `translate.py`. A process for each
  thread is `num_processes={threads}`; the start of the processes is not counted. CTranslate2 forms its own batches of
  the same size. JoeyNMT uses batches of the same size in the order of the file, as in its `translate`.
- The plain loop is scripts/benchmarks/decode_plainly.py: its caches grow by `torch.cat`, every hypothesis has a copy
  of the source, `index_select` reorders them, and finished sentences are removed. CTranslate2's hypotheses are ranked
  by our length penalty.
- JoeyNMT gets our bias of the output layer and our epsilon, which its checkpoint format does not contain. It does not
  cache keys and values: each step reads all tokens again. Its finished hypotheses stay in the beam.
{filled}
## Cost of a step

{steps} sentences, greedy search, all forced to the same length, the fastest of {step_turns} turns. The time of the
encoder is included, which weighs most on the shortest length. The last column is the time at the greatest length
divided by the least one of the row. If every step read all tokens again, the time per step would grow in proportion to
the length.

![Milliseconds a step against the length of the translations]({name}.png)

{step_table}

Made by `python -m scripts.benchmarks.decoding RUN{arguments}`;
to draw it again: `python -m scripts.benchmarks.draw_decoding docs/benchmarks/{name}.json`.
"""
FILLED = """- Layers that change nothing in the result, appended to those of the run for their cost: {} on each side.
"""


def draw(file: Path) -> Path:
    """Write page and plot next to the figures; return the path of the page."""
    results = json.loads(file.read_text(encoding="utf-8"))
    model, steps = results["model"], results["seconds_per_step"]
    sentences = results["options"]["sentences"]
    text = TEXT.format(
        **shown(model | results["options"] | results["machine"] | results["beam"])
        | {
            "greedy": table("Greedy", results["searches"]["greedy"], sentences),
            "beam": table(f"Beam of {results['beam']['size']}", results["searches"]["beam"], sentences),
            "filled": FILLED.format(model["filled"]) if model["filled"] else "",
            "step_table": step_table(steps),
            "steps": results["steps"],
            "step_turns": min(STEP_TURNS, results["options"]["turns"]),
            "commit": commit_text([results.get("commit")]),
            "name": file.stem,
            "arguments": arguments(results),
        }
    )
    page = file.with_suffix(".md")
    page.write_text(text, encoding="utf-8")
    plot(
        steps,
        f"greedy, {results['steps']} sentences, {results['options']['threads']} threads",
        file.with_suffix(".png"),
    )
    return page


def arguments(results: dict[str, Any]) -> str:
    """Return the arguments of the command that differ from the defaults."""
    filled, layers = results["model"]["filled"], results["model"]["layers"].split("+")[0]
    peers = [name for name in results["searches"]["greedy"] if name != "ours"]
    joeynmt = len(results["searches"]["greedy"].get("joeynmt", {"seconds": range(JOEYNMT_TURNS)})["seconds"])
    given = {name: results["options"][name] for name in USUAL if results["options"][name] != USUAL[name]}
    lengths = [int(length) for length in next(iter(results["seconds_per_step"].values()))]
    return (
        (f" --layers {layers}" if filled else "")
        + "".join(f" --{name} {value}" for name, value in given.items())
        + (f" --lengths {' '.join(map(str, lengths))}" if lengths != list(LENGTHS) else "")
        + (f" --peers {' '.join(peers)}" if peers else "")
        + (f" --joeynmt-turns {joeynmt}" if joeynmt != JOEYNMT_TURNS else "")
    )


def table(title: str, ways: dict[str, Any], sentences: int) -> str:
    """Return the table of a search, the fastest median first; the first ratio is the median of those of each turn."""
    lines = [
        f"| {title} | turns | seconds, ours = 1: median of the turns | fastest turn | sentences/s: median | fastest | "
        "same as ours | BLEU |",
        "|:--|--:|--:|--:|--:|--:|--:|--:|",
    ]
    ours = ways["ours"]["seconds"]
    for name, result in sorted(ways.items(), key=lambda item: median(item[1]["seconds"])):
        usual, best, turns = median(result["seconds"]), min(result["seconds"]), len(result["seconds"])
        ratio = median(theirs / own for theirs, own in zip(result["seconds"], ours, strict=False))  # JoeyNMT has fewer
        fastest = (f"{best / min(ours):.2f}", f"{sentences / best:,.0f}") if turns > 1 else ("–", "–")
        lines.append(
            f"| {NAMES[name]} | {turns} | {ratio:.2f} | {fastest[0]} | "
            f"{sentences / usual:,.0f} | {fastest[1]} | {result['same']:.1%} | {result['bleu']:.2f} |"
        )
    return "\n".join(lines)


def step_table(steps: dict[str, dict[str, float]]) -> str:
    """Return the table of milliseconds per step, with the ratio of the greatest length to the least time."""
    lengths = list(next(iter(steps.values())))
    lines = [f"| tokens | {' | '.join(lengths)} | last over least |", "|:--|" + "--:|" * (len(lengths) + 1)]
    for name, seconds in steps.items():
        values = list(seconds.values())
        cells = [*(f"{1e3 * value:.2f} ms" for value in values), f"{values[-1] / min(values):.2f}"]
        lines.append(f"| {NAMES[name]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def plot(steps: dict[str, dict[str, float]], title: str, file: Path) -> None:
    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.subplots()
    for (name, seconds), style in zip(steps.items(), ("o-", "s--", "^:"), strict=False):
        axes.plot([int(length) for length in seconds], [1e3 * s for s in seconds.values()], style, label=NAMES[name])
    axes.set(xlabel="tokens of each translation", ylabel="ms a step", title=title, xlim=(0, None), ylim=(0, None))
    axes.legend(loc="lower right")
    figure.savefig(file, dpi=120)


if __name__ == "__main__":
    draw_given(__doc__, "searches", draw)
