"""Page and plot of the figures of `training.py`: `python -m scripts.benchmarks.draw_training FIGURES.json`."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from textwrap import fill
from typing import Any

from matplotlib.figure import Figure

from scripts.benchmarks.figures_file import commit_text, draw_given, shown
from seq2seq_attn.markdown import code, literal

NAMES = {
    "ours": "ours", "plain_chunked": "plain loop, our loss", "plain_cross_entropy": "plain loop, F.cross_entropy",
    "joeynmt": "JoeyNMT 2.3", "hf": "HF Marian, plain loop", "opennmt": "OpenNMT-py 3.5.1", "eole": "eole 0.6",
}  # fmt: skip
TITLES = {
    "transformer": "Transformer of {layers}+{layers} layers, {dim} wide, {ff_dim} between, {heads} heads",
    "rnn": "bidirectional GRU, GRU decoder, {dim} wide, additive attention, input feeding",
}
TEXT = """\
# Training on a CPU

{tables}

Multi30k, English to French, with one vocabulary of {tokens:,} tokens and batches of about {batch_tokens:,} source and
target tokens, padding included. The speed in tokens/s counts the tokens of both sides without padding. All embeddings
are tied; dropout {dropout}, label smoothing {smoothing}, gradients clipped at {clip}, Adam; float32, {processor},
torch {torch}, Python {python}; {commit}.{note}

- Every program is a process that waits for its turn. The programs run one after the other.
  The turns, after at least {warm_up} updates: {turns}.
  With one thread a turn is measured in processor time, with two in wall-clock time.
- Tokens/s are those of the median turn. The seconds are per token, as the median of the ratios to our turn of the same
  round, with the least and the greatest of these ratios in parentheses. Within a round, ours and the plain loops read
  the same batches in the same order.
- The time of the first update is counted from the command to the end of that update, with the vocabulary and the
  encoded corpus already present, and is that of the fastest start. Memory is the peak of the process.
- Ours is `train.py` with its defaults, except that validation is off. The plain loop is
  scripts/benchmarks/train_plainly.py: the same mathematics with PyTorch's own modules, without logging, progress bar
  or schedule. On an AMD processor of Zen 5 or later ours multiplies by oneDNN, and the plain loop with our loss does so
  in the loss. On other processors both multiply by MKL ([figures of Zen 4](training_without_gain.md)).
{notes}
![Tokens per second by program]({name}.png)

Made by {commands}; to draw it again:
`python -m scripts.benchmarks.draw_training docs/benchmarks/{name}.json`.{folder}
"""
FOLDER = "`FOLDER` contains the captions of Multi30k."
NOTES = {
    "joeynmt": "JoeyNMT cuts batches by number of tokens without sorting the sentences, so {padding:.0%} of their "
    "tokens are padding. It computes these, too, but they are not among the tokens by which its seconds are divided.",
    "hf": "HF Marian is the model of the library transformers in the plain loop, with our batches and "
    "`F.cross_entropy`; it is post-norm.",
    "opennmt": "OpenNMT-py reads sentences that are already cut into tokens and groups them by length.",
    "eole": "eole reads sentences that are already cut into tokens and groups them by length.",
}


def draw(file: Path) -> Path:
    """Write page and plot next to the figures; return the path of the page."""
    results = json.loads(file.read_text(encoding="utf-8"))
    sizes, settings = results["sizes"], results["settings"]
    tables = [
        table(TITLES[settings[size]["model"]].format(**shown(settings[size])), by_threads)
        for size, by_threads in sizes.items()
    ]
    measured = {name for by_threads in sizes.values() for by_program in by_threads.values() for name in by_program}
    every = [by_program for by_threads in sizes.values() for by_program in by_threads.values()]
    joeynmt = next((padding(by_program["joeynmt"]) for by_program in every if "joeynmt" in by_program), 0.0)
    text = TEXT.format(
        **shown(results["options"] | results["machine"] | next(iter(settings.values())))
        | {
            "tables": "\n\n".join(tables),
            "name": file.stem,
            "tokens": results["options"]["tokens"],
            "turns": turns_of(sizes),
            "commands": ", then ".join(map(code, results["commands"])),
            "commit": commit_text([results.get("commit"), *results.get("kept_commits", [])]),
            "note": f"\n{fill(results['note'], 120, break_on_hyphens=False)}" if results.get("note") else "",
            "folder": f" {FOLDER}" if any("FOLDER" in command for command in results["commands"]) else "",
            "notes": "".join(f"- {note.format(padding=joeynmt)}\n" for name, note in NOTES.items() if name in measured),
        }
    )
    page = file.with_suffix(".md")
    page.write_text(text, encoding="utf-8")
    plot(sizes, settings, file.with_suffix(".png"))
    return page


def turns_of(sizes: dict[str, Any]) -> str:
    """Describe the number of turns and updates, for each size and number of threads if they differ."""
    groups: dict[str, list[str]] = {}
    for size, by_threads in sizes.items():
        for threads, by_program in by_threads.items():
            turns = by_program["ours"]["turns"]
            many = f"{len(turns)} turns of {turns[0]['updates']} updates each"
            groups.setdefault(many, []).append(f"{literal(size)} with {threads} thread{'s' * (threads != '1')}")
    if len(groups) == 1:
        return next(iter(groups))
    return "; ".join(f"{many} ({', '.join(which)})" for many, which in groups.items())


def table(title: str, by_threads: dict[str, Any]) -> str:
    """Return the table of a size, the fastest program first, with ratios before figures."""
    titles = {"1": "one thread"} | {n: f"{n} threads" for n in by_threads if n != "1"}
    heads = [
        head for n in by_threads for head in (f"{titles[n]}: seconds, ours = 1 (least–most)", f"{titles[n]}: tokens/s")
    ]
    lines = [
        f"| {title} | {' | '.join(heads)} | peak memory, GB | padding | first update, s |",
        "|:--" + "|--:" * (len(heads) + 3) + "|",
    ]
    first = next(iter(by_threads.values()))
    for name in sorted(first, key=lambda name: -speed(first[name], next(iter(by_threads)))):
        cells = [
            cell
            for n, by_program in by_threads.items()
            for cell in (
                compared(ratios(by_program[name], by_program["ours"], n)),
                f"{speed(by_program[name], n):,.0f}",
            )
        ]
        programs = [by_program[name] for by_program in by_threads.values()]
        memory = max(program["peak_memory_bytes"] for program in programs) / 1e9
        started = min(program["start_seconds"] for program in programs)
        lines.append(
            f"| {NAMES[name]} | {' | '.join(cells)} | {memory:.2f} | {padding(programs[0]):.0%} | {started:.1f} |"
        )
    return "\n".join(lines)


def seconds_per_token(turn: dict[str, Any], threads: str) -> float:
    return turn["cpu_seconds" if threads == "1" else "seconds"] / turn["tokens"]


def speed(program: dict[str, Any], threads: str) -> float:
    return 1 / median(seconds_per_token(turn, threads) for turn in program["turns"])


def ratios(program: dict[str, Any], ours: dict[str, Any], threads: str) -> list[float]:
    """Return the ratio of the seconds per token to ours in each round; above 1 means slower."""
    rounds = zip(program["turns"], ours["turns"], strict=True)
    return [seconds_per_token(turn, threads) / seconds_per_token(our, threads) for turn, our in rounds]


def compared(ratios: list[float]) -> str:
    """Return the median, and the least and the greatest ratio if they differ from it."""
    text = f"{median(ratios):.2f}"
    return text if min(ratios) == max(ratios) else f"{text} ({min(ratios):.2f}–{max(ratios):.2f})"


def padding(program: dict[str, Any]) -> float:
    tokens, padded = (sum(turn[name] for turn in program["turns"]) for name in ("tokens", "padded_tokens"))
    return 1 - tokens / padded


def plot(sizes: dict[str, Any], settings: dict[str, Any], file: Path) -> None:
    """Draw a bar for each program and number of threads."""
    most = max(len(by_program) for by_threads in sizes.values() for by_program in by_threads.values())
    figure = Figure(figsize=(4.5 * len(sizes) + 1.5, 0.5 * most + 1.5), layout="constrained")
    axes = figure.subplots(1, len(sizes), squeeze=False)[0]
    for axis, (size, by_threads) in zip(axes, sizes.items(), strict=True):
        for bar, (threads, by_program) in enumerate(by_threads.items()):
            names = list(by_program)[::-1]
            height = 0.8 / len(by_threads)
            positions = [row - 0.4 + height * (bar + 0.5) for row in range(len(names))]
            by = "processor time" if threads == "1" else "the clock"
            label = f"{threads} thread{'s' if threads != '1' else ''}, by {by}"
            axis.barh(positions, [speed(by_program[name], threads) for name in names], height, label=label)
            axis.set_yticks(range(len(names)), [NAMES[name] for name in names])
        axis.set(xlabel="tokens a second", title=settings[size]["model"])
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(by_threads))
    figure.savefig(file, dpi=120)


if __name__ == "__main__":
    draw_given(__doc__, "sizes", draw)
