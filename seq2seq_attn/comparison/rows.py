"""Runs that may be compared, in groups; those that differ in their seed alone, in one row."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from seq2seq_attn.comparison.read import LeftOut, Run
from seq2seq_attn.errors import UserError
from seq2seq_attn.markdown import one_line

# Options that change no figure, or that name the run.
IGNORED = (
    "seed.", "paths.", "choices.", "task_name.", "ckpt_path.", "resume.", "log_text.", "logger.",
    "callback.attention_map.", "callback.autosave.", "callback.profile.",
    "callback.progress.", "callback.stop_on_signal.", "trainer.enable_progress_bar.", "trainer.enable_model_summary.",
    "trainer.profiler.",
)  # fmt: skip
MOST_NAMED = 6  # options that a warning tells the values of
ORIGIN = {"commit": "commit", "platform": "machine", "threads": "number of threads"}


class Row(NamedTuple):
    """Runs that differ in their seed alone, in its order.

    Attributes:
        label: the attention, and what else is its own, where rows share it; or the folder.
    """

    label: str
    attention: str
    runs: list[Run]


class Group(NamedTuple):
    """One model on one test set.

    Attributes:
        by: what names the rows, `attention` or `folder`.
        warnings: in a sentence each, why its figures may speak of something else than the attention.
    """

    title: str
    rows: list[Row]
    by: str
    warnings: list[str]


def grouped(runs: Sequence[Run], by: str = "attention") -> tuple[list[Group], list[LeftOut]]:
    """Groups by model and test set, as only those have figures that can be compared; and runs that repeat others."""
    found: dict[Any, list[Run]] = {}
    for run in runs:
        test_set = tuple(run.system.sources), tuple(map(tuple, run.system.references))
        found.setdefault((run.results["model"], run.results["data"], test_set), []).append(run)
    titles = [f"{model} on {data}" for model, data, _ in found]
    groups, repeated = [], []
    for position, members in enumerate(found.values()):
        title = titles[position]
        if titles.count(title) > 1:
            title += f", test set {titles[: position + 1].count(title)}"
        rows, twice = rows_of(members) if by == "attention" else rows_of_folders(members)
        groups.append(Group(one_line(title), rows, by, warnings(rows, by)))
        repeated += twice
    return groups, repeated


def rows_of(runs: Iterable[Run]) -> tuple[list[Row], list[LeftOut]]:
    """A row for each attention with its settings; of runs with one seed the last counts."""
    found: dict[Any, dict[Any, Run]] = {}
    repeated = []
    for run in runs:
        own = found.setdefault((run.results["attention"], *sorted(settings(run.config).items())), {})
        repeated += repeats(own, run)
        own[run.seed] = run
    members = [(key[0], in_order(own)) for key, own in found.items()]
    rows = []
    for attention, of_row in members:
        alike = [settings(others[0].config) for name, others in members if name == attention]
        options = settings(of_row[0].config)
        apart = " ".join(f"{option}={options.get(option, '–')}" for option in differing(alike))
        label = one_line(f"{attention} ({apart})" if apart else attention)
        rows.append(Row(label, attention, of_row))
    return rows, repeated


def repeats(own: dict[Any, Run], run: Run) -> list[LeftOut]:
    """The run that has this one's configuration and seed, if there is one."""
    if run.seed not in own:
        return []
    return [LeftOut(own[run.seed].name, f"has the configuration and seed of {run.name}, which comes after it")]


def in_order(own: dict[Any, Run]) -> list[Run]:
    return [own[seed] for seed in sorted(own, key=str)]


def rows_of_folders(runs: Iterable[Run]) -> tuple[list[Row], list[LeftOut]]:
    """A row for each folder given.

    Raises:
        UserError: if runs of a folder differ in more than their seed.
    """
    found: dict[str, dict[Any, Run]] = {}
    repeated = []
    for run in runs:
        own = found.setdefault(run.given, {})
        apart = differing([settings(other.config) for other in (run, *own.values())])
        if apart:
            raise UserError(
                f"runs in {run.given} differ in {', '.join(apart[:MOST_NAMED])}; with --by folder give a folder for "
                "each configuration"
            )
        repeated += repeats(own, run)
        own[run.seed] = run
    rows = [
        Row(one_line(folder), next(iter(own.values())).results["attention"], in_order(own))
        for folder, own in found.items()
    ]
    return rows, repeated


def settings(config: dict[str, Any]) -> dict[str, str]:
    """Options of a run by their dotted names; a slot of the model that repeats the attention says only that."""

    def walk(name: str, node: Any) -> Iterator[tuple[str, str]]:
        key = name.rpartition(".")[2]
        if f"{name}.".startswith(IGNORED):
            return
        if "." in name and isinstance(node, dict) and node == config.get(key):
            yield name, f"${{{key}}}"
        elif "." in name and key in ("attention", "self_attention") and node == config["attention"]:
            yield name, "${attention}"
        elif isinstance(node, dict):
            for inner, value in node.items():
                yield from walk(f"{name}.{inner}" if name else inner, value)
        elif key == "seed" and node == config["seed"]:
            yield name, "${seed}"
        else:
            yield name, without_paths(node, config["paths"])

    return dict(walk("", config))


def without_paths(value: Any, paths: dict[str, Any]) -> str:
    text = str(value)
    for name, path in paths.items():
        text = text.replace(str(path), f"${{paths.{name}}}")
    return text


def differing(alternatives: Sequence[dict[str, str]]) -> list[str]:
    """Options that have not one value in all."""
    options = dict.fromkeys(option for own in alternatives for option in own)
    return [option for option in options if len({own.get(option) for own in alternatives}) > 1]


def warnings(rows: Sequence[Row], by: str) -> list[str]:
    """What the figures hang on beside the attention."""
    found = []
    runs = [run for row in rows for run in row.runs]
    alone = sum(len(row.runs) == 1 for row in rows)
    if alone:
        whose = "Every row has" if alone == len(rows) else f"{alone} of {len(rows)} rows have"
        found.append(
            f"{whose} one seed: how far another seed would move a figure is not known, and no p-value says it."
        )
    own = [settings(row.runs[0].config) for row in rows]
    options = [option for option in differing(own) if by == "folder" or option.partition(".")[0] != "attention"]
    if options:
        where = "" if by == "folder" else "more than their attention: "
        found.append(f"Rows differ in {where}{values_of(options, own)}.")
    for key, what in ORIGIN.items():
        if len({run.provenance.get(key) for run in runs}) > 1:
            found.append(
                f"Runs differ in the {what} ({told(run.provenance.get(key) for run in runs)}): times and memory "
                "may not be comparable."
            )
    if any(run.memory_is_bound for run in runs):
        found.append("≤: a job of a sweep inherits the peak memory of earlier jobs of its process.")
    return found


def values_of(options: Sequence[str], alternatives: Sequence[dict[str, str]]) -> str:
    if len(options) > MOST_NAMED:
        return f"{', '.join(options[:MOST_NAMED])} and {len(options) - MOST_NAMED} more options"
    return "; ".join(f"{option} ({told(own.get(option, '–') for own in alternatives)})" for option in options)


def told(values: Iterable[Any]) -> str:
    """`0.1 in 3, 0.2 in 1`."""
    counts = Counter(value[:8] if is_commit(value) else str(value) for value in values)
    return ", ".join(f"{value} in {number}" for value, number in counts.most_common())


def is_commit(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{40}(-changed)?", value) is not None
