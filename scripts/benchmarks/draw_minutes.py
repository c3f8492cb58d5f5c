"""Page and plot of the figures of `minutes.py`: `python -m scripts.benchmarks.draw_minutes FIGURES.json`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from matplotlib.figure import Figure

from scripts.benchmarks.figures_file import commit_text, draw_given, read_figures
from scripts.benchmarks.home_runs import ROOT
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
TITLES = {
    "tatoeba_minutes": "BLEU by minutes of training: batches of 4,096 tokens",
    "tatoeba_minutes_small_batches": "BLEU by minutes of training: the best recipe, batches of 2,048 tokens",
    "tatoeba_minutes_earlier": "BLEU by minutes of training: the previous recipe",
    "tatoeba_minutes_bahdanau": "BLEU by minutes of training: Bahdanau's model",
    "tatoeba_minutes_zen5": "BLEU by minutes of training: Bahdanau's model on a faster machine",
}
TWO_MACHINES = (
    "The records name the processors of this page and of [{other}.md]({other}.md) alike, but they are two machines: "
    "on that of tatoeba_minutes_zen5.md the updates of ours take less than half of the time."
)
OTHER_MACHINE = {
    "tatoeba_minutes": "JoeyNMT made 1,297 updates with seed 1, and 1,621 and 1,751 with seeds 2 and 3, on another "
    "day: machines of one name differ in speed, so minutes of different days compare roughly.",
    "tatoeba_minutes_small_batches": "Seed 1 of ours took 29.8 minutes, and seeds 2 and 3, on another day, 25.4 and "
    "25.6 for as many updates. OpenNMT-py made 7,354 updates with seed 3, and 6,339 and 6,384 with seeds 1 and 2, on "
    "another day: machines of one name differ in speed, so minutes of different days compare roughly.",
    "tatoeba_minutes_bahdanau": TWO_MACHINES.format(other="tatoeba_minutes_zen5"),
    "tatoeba_minutes_zen5": TWO_MACHINES.format(other="tatoeba_minutes_bahdanau"),
}
TEXT = """\
# {title}

Tatoeba, English to French, {train:,} training pairs, {threads} threads. Each program trained for at most {minutes:g}
minutes, alone on the machine. ± is the standard deviation over seeds; with one seed, small differences prove nothing.

{table}
{missing}
![BLEU of the validations by minutes]({name}.png)

{notes}
{settings}
{machines}

{made}; to draw it again from
{name}.json: `python -m scripts.benchmarks.draw_minutes docs/benchmarks/{name}.json`.
"""
MODELS = (
    "The recurrent models have a bidirectional GRU encoder and a GRU decoder whose attention scores by a hidden layer "
    "(Bahdanau et al. 2015), of width {dim}. All models have one joint vocabulary of {tokens:,} tokens and tied "
    "embeddings."
)
UNRECORDED_DECAY = {"decay_after": 1600, "decay_every": 400}  # settings of the runs of OpenNMT-py that record none
# When each program ends, and how its rate falls
SCHEDULES = {
    "ours": "Ours ends after {epochs} epochs, when its learning rate has fallen to zero.",
    "joeynmt_rnn": "JoeyNMT's recurrent model halves its rate when validation BLEU has not risen for five validations.",
    "opennmt_rnn": "OpenNMT-py's recurrent model halves its rate after {decay_after:,} updates and every "
    "{decay_every:,} from there, numbers that were chosen for about as many updates as half an hour gives on two cores "
    "(its defaults are 50,000 and 10,000).",
    "transformer": "The rate of the Transformers falls with the square root of the updates.",
}
# What was chosen for each program; for ours by page
EPOCHS_CHOSEN = "the number of epochs, which fits into half an hour on two cores; what else was tried is not recorded"
OURS_CHOSEN = {
    "tatoeba_minutes": "the scale of the embeddings, dropout and the schedule, on this validation set. This is "
    "`tatoeba_best` as it was up to commit `115a5a37`, with batches of 4,096 tokens; [with smaller "
    "ones](tatoeba_minutes_small_batches.md) three seeds have 52.5 ± 0.5 on the test set after 26.9 ± 2.5 "
    "minutes, and those of OpenNMT-py 51.2 ± 0.7 after 30.1. With seed 3 and eleven epochs its best BLEU is 48.9 "
    "(`python train.py experiment=tatoeba_best search=greedy "
    "batch_tokens=4096 trainer.max_epochs=11 num_threads=1 seed=3`); with scaled embeddings, dropout of the encoder's "
    "output and a cosine, 47.7 (`model.scale_embeddings=true model.encoder.dropout=0.2 scheduler=cosine "
    "~scheduler.decay_share` in addition); with dropout 0.3 (`model.dropout=0.3 model.decoder.dropout=0.3`) it was "
    "behind after six epochs (45.4 and 46.8), and was stopped ([curves](tatoeba_choices.png), "
    "[figures](tatoeba_choices.tsv)). The decoder, its activation and the rate are those of [the previous "
    "recipe](tatoeba_minutes_earlier.md). The number of epochs fits into half an hour on two cores",
    "tatoeba_minutes_small_batches": "the size of the batches, on this validation set. With seed 3, fifteen epochs and "
    "one thread its best BLEU is 52.2 with batches of 2,048 tokens, and 50.3 with 4,096. A rate of 0.004 was level "
    "after seven epochs (48.8 both), a rate of 0.002 was behind after five (45.4 and 47.1), and subword sampling, with "
    "4,096 tokens, after four (37.0 and 43.4); these three were stopped ([curves](tatoeba_batches.png) by updates, of "
    "which an epoch has 603 with 2,048 tokens, 303 with 4,096 and 802 with subword sampling; "
    "[figures](tatoeba_batches.tsv)). Seed 3 is also one of the table, so its BLEU in validation is not independent of "
    "this choice. All else is as with [batches of 4,096 tokens](tatoeba_minutes.md). The number of epochs fits into "
    "half an hour on two cores",
    "tatoeba_minutes_earlier": "the decoder, its activation, the scale of the embeddings, dropout (0.1, and 0.2 in the "
    "decoder), the rate and the number of epochs, on this validation set, from the variants of plan `tatoeba` of "
    "scripts.benchmarks.seeds (their figures are not recorded). This is `tatoeba_best` as it was up to commit "
    "`941d6a7b`",
    "tatoeba_minutes_bahdanau": EPOCHS_CHOSEN,
    "tatoeba_minutes_zen5": EPOCHS_CHOSEN,
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
    "therefore twice as large as those of OpenNMT-py; on Tatoeba the padding was not counted."
)
CLOCK = (
    "Minutes are counted from the start of the command; all get the tokenizer ready-made. With {validated} they "
    "include the validations. Programs validate at different intervals, so a score within some minutes is interpolated "
    "between two validations."
)
CLOCK_OF_OPENNMT = (
    "OpenNMT-py saves its weights while it trains; each checkpoint translates the validation set afterwards, and that "
    "time is not counted."
)
SEARCH = (
    "Validation uses {val:,} sentences and greedy search; the test uses {test:,} sentences and beam search, with the "
    "weights that were best in validation: ours by BLEU against all references of a sentence{others}. The table has "
    "sacreBLEU against all references."
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
    page = file.with_suffix(".md")
    page.write_text(
        TEXT.format(
            **every[0]["sentences"],
            **{key: results[key] for key in ("minutes", "threads")},
            title=TITLES.get(file.stem, f"BLEU by minutes of training: {literal(file.stem)}"),
            table=figures(programs),
            missing=missing(programs),
            notes=listed(notes(programs, results, file.stem)),
            settings=settings(programs),
            machines=listed([*machines(programs), *different_machines(programs, file.stem)]),
            name=literal(file.stem),
            made=made(programs, results, file),
        ),
        encoding="utf-8",
    )
    plot(programs, file.with_suffix(".png"))
    return page


def listed(lines: Sequence[str]) -> str:
    return "\n".join(fill(f"- {line}", 120, subsequent_indent="  ", break_on_hyphens=False) for line in lines)


def notes(programs: dict[str, Any], results: dict[str, Any], page: str) -> list[str]:
    """Return what a reader has to know of the programs of the page."""
    every = [run for runs in programs.values() for run in runs.values()]
    schedules = [text for name, text in SCHEDULES.items() if any(given.endswith(name) for given in programs)]
    if len(programs) > 1:
        schedules.insert(1, "The others train until the time is up.")
    numbers = {"epochs": "its", **UNRECORDED_DECAY}
    for run in every:
        numbers |= {name: of[name] for of in (run, run["settings"]) for name in numbers if name in of}
    is_beside = {program: any(name.startswith(program) for name in programs) for program in ("joeynmt", "opennmt")}
    clock = CLOCK.format(validated="ours and JoeyNMT" if is_beside["joeynmt"] else "ours")
    others = ", the others by BLEU against one" if len(programs) > 1 else ""
    return [
        MODELS.format(dim=results["dim"], tokens=every[0]["tokens"]),
        " ".join(schedules).format(**numbers),
        *choices(programs, page, results["experiment"]),
        f"{clock} {CLOCK_OF_OPENNMT}" if is_beside["opennmt"] else clock,
        SEARCH.format(**every[0]["sentences"], others=others),
    ]


def machines(programs: dict[str, Any]) -> list[str]:
    """Return the processor and the commit of each program."""
    lines = []
    for name, runs in programs.items():
        processors = [processor_text(machine) for machine in machines_of(runs)]
        commits = commit_text([run.get("commit") for run in runs.values()])
        lines.append(f"{NAMES[name]}: {' and '.join(processors)}; {commits}.")
    return lines


def machines_of(runs: dict[str, Any]) -> list[tuple[str, str]]:
    return sorted({(run["machine"]["processor"], run["machine"]["torch"]) for run in runs.values()})


def processor_text(machine: tuple[str, str]) -> str:
    processor, torch = machine
    unknown = "" if is_of_known_model(processor) else " (family and model not recorded)"
    return f"{literal(processor)}{unknown}, torch {literal(torch)}"


def is_of_known_model(processor: str) -> bool:
    return "family" in processor


def different_machines(programs: dict[str, Any], page: str) -> list[str]:
    """Return a sentence about what was timed on another machine, by the records or by another page."""
    first, *others = programs
    names = [NAMES[name] for name in others if machines_of(programs[name]) != machines_of(programs[first])]
    if not names:
        return [OTHER_MACHINE[page]] if page in OTHER_MACHINE else []
    return [
        f"By these records the machine of {' and of '.join(names)} may be another than that of {NAMES[first]}: its "
        "minutes, and what it reached in them, are not comparable with those of the other programs."
    ]


def made(programs: dict[str, Any], results: dict[str, Any], file: Path) -> str:
    """Return the command that made the figures; one of a processor without a model is that of no machine of today."""
    command = f"python -m scripts.benchmarks.minutes --data fra.txt{changes(results)}"
    every = [run for runs in programs.values() for run in runs.values()]
    if all(is_of_known_model(run["machine"]["processor"]) for run in every):
        return f"Made by {code(command + output(file))}, which trains what the figures lack"
    if any("decay_after" not in run["settings"] for run in programs.get("opennmt_rnn", {}).values()):
        command += " --setting " + " ".join(f"{name}={number}" for name, number in UNRECORDED_DECAY.items())
    return (
        f"Made by an earlier version of {code(f'{command} --output FILE.json')}, which adds no run to these figures, "
        "since they do not record the model of the processor"
    )


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


def choices(programs: dict[str, Any], page: str, experiment: str) -> list[str]:
    """Return what was chosen for each program, and why JoeyNMT has other batches."""
    lines = []
    for name, text in CHOSEN.items():
        if name in programs:
            given = next(iter(programs[name].values()))["settings"]
            chosen = OURS_CHOSEN.get(page, f"what `experiment={experiment}` has")
            lines.append(text.format(ours=chosen, dropout=given.get("dropout") if isinstance(given, dict) else None))
    if any(name.startswith("joeynmt") for name in programs):
        turns = read_figures(SPEED, "sizes")["sizes"]["B"]["1"]
        theirs, ours = (mean_per_update(turns[name]["turns"], "tokens") for name in ("joeynmt", "ours"))
        padding = 1 - theirs / mean_per_update(turns["joeynmt"]["turns"], "padded_tokens")
        lines.append(UNSORTED.format(theirs=theirs, ours=ours, padding=padding))
    return lines


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
    early = f"best validation BLEU within {until:.0f} minutes, interpolated"
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
    """Return the best BLEU of each curve up to that time, at which it is interpolated between two validations.

    Programs validate at different intervals, so the last score of one may be minutes older than that of another. A
    curve that has no score by then is left out.
    """
    scores = []
    for curve in curves:
        early = [point for point in curve if point["minutes"] <= minutes]
        for last, after in zip(early[-1:], curve[len(early) :], strict=False):
            share = (minutes - last["minutes"]) / (after["minutes"] - last["minutes"])
            early.append({"bleu": last["bleu"] + share * (after["bleu"] - last["bleu"])})
        scores += [max(point["bleu"] for point in early)] if early else []
    return scores


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
