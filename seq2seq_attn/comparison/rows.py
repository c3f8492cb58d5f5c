"""Groups of runs that can be compared; runs that differ in their seed alone share a row."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from seq2seq_attn.comparison.read import LeftOut, Run, definition_of
from seq2seq_attn.errors import UserError
from seq2seq_attn.markdown import one_line
from seq2seq_attn.metric.names import title_of

# Options that change no figure, or that name the run.
IGNORED = (
    "seed.", "paths.", "choices.", "task_name.", "ckpt_path.", "resume.", "log_text.", "logger.",
    "callback.attention_map.", "callback.autosave.", "callback.best_checkpoints.", "callback.history.",
    "callback.memory_probe.", "callback.profile.", "callback.progress.", "callback.seeding.",
    "callback.stop_on_signal.", "callback.throughput.", "callback.translation_table.", "callback.validation_line.",
    "trainer.enable_progress_bar.", "trainer.enable_model_summary.", "trainer.profiler.",
)  # fmt: skip
IGNORED_OF_DATA = {"num_processes", "verify", "copy_to"}  # of a corpus, or of those within it
OF_TOKENS = ("tokenizer.", "model.source_vocab_size", "model.target_vocab_size")  # options by which tokens differ
MOST_NAMED = 6  # options whose values a warning tells
ORIGIN = {
    "commit": "commit", "platform": "machine", "device": "device", "devices": "number of devices",
    "threads": "number of threads",
}  # fmt: skip


class Row(NamedTuple):
    """Runs that differ in their seed alone, in its order.

    Attributes:
        label: the attention, with the settings that tell it from other rows of that attention; or the folder.
    """

    label: str
    attention: str
    runs: list[Run]


class Group(NamedTuple):
    """One model on one test set, by one metric.

    Attributes:
        by: what names the rows, `attention` or `folder`.
        warnings: in a sentence each, why its figures may depend on more than the attention.
    """

    title: str
    rows: list[Row]
    by: str
    warnings: list[str]


def grouped(runs: Sequence[Run], by: str = "attention") -> tuple[list[Group], list[LeftOut]]:
    """Return groups by model, test set and options of the metric, whose figures can be compared, and repeated runs."""
    members: dict[Any, list[Run]] = {}
    for run in runs:
        test_set = run.stage, tuple(run.system.sources), tuple(map(tuple, run.system.references))
        key = run.results["model"], run.results["data"], run.metric, definition_of(run.scorer), test_set
        members.setdefault(key, []).append(run)
    titles = []
    for model, data, metric, definition, _ in members:
        alike = [key[3] for key in members if key[:3] == (model, data, metric)]
        titles.append(f"{model} on {data}{by_metric(title_of(metric), definition, alike)}")
    groups, repeated = [], []
    for position, group_runs in enumerate(members.values()):
        title = titles[position]
        if titles.count(title) > 1:
            title += f", test set {titles[: position + 1].count(title)}"
        rows, twice = make_rows(group_runs, by)
        groups.append(Group(one_line(title), rows, by, warnings(rows, by)))
        repeated += twice
    return groups, repeated


def by_metric(title: str, definition: str, alike: Sequence[str]) -> str:
    """Return the end of a title: the metric if it is not BLEU, or is defined otherwise in other groups.

    Args:
        definition: its signature.
        alike: the signatures of that metric in all groups of the model and the data.
    """
    own = [field for field in definition.split("|") if any(field not in other.split("|") for other in alike)]
    named = f"{title} ({', '.join(own)})" if own else title
    return "" if named == "BLEU" else f", by {named}"


def make_rows(runs: Iterable[Run], by: str) -> tuple[list[Row], list[LeftOut]]:
    """Return a row for each attention with its settings, or for each folder; of runs with one seed the last counts.

    Raises:
        UserError: if runs of a folder differ in more than their seed.
    """
    members: dict[Any, dict[Any, Run]] = {}
    repeated = []
    for run in runs:
        options = settings(run.config)
        key = run.given if by == "folder" else (run.results["attention"], *sorted(options.items()))
        by_seed = members.setdefault(key, {})
        apart = differing([options, *(settings(other.config) for other in by_seed.values())])
        if apart:
            raise UserError(
                f"runs in {run.given} differ in {', '.join(apart[:MOST_NAMED])}; with --by folder give a folder for "
                "each configuration"
            )
        if run.seed in by_seed:
            reason = f"has the configuration and seed of {run.name}, which comes after it"
            repeated.append(LeftOut(by_seed[run.seed].name, reason))
        by_seed[run.seed] = run
    rows = [[by_seed[seed] for seed in sorted(by_seed, key=str)] for by_seed in members.values()]
    firsts = [row_runs[0] for row_runs in rows]
    names = [run.given if by == "folder" else attention_label(run, firsts) for run in firsts]
    named = zip(names, firsts, rows, strict=True)
    return [Row(one_line(name), first.results["attention"], row_runs) for name, first, row_runs in named], repeated


def attention_label(run: Run, others: Sequence[Run]) -> str:
    """Return the attention of a row, with the settings that tell it from other rows of that attention."""
    attention, options = run.results["attention"], settings(run.config)
    alike = [settings(other.config) for other in others if other.results["attention"] == attention]
    apart = " ".join(f"{option}={options.get(option, '–')}" for option in differing(alike))
    return f"{attention} ({apart})" if apart else attention


def settings(config: dict[str, Any]) -> dict[str, str]:
    """Return the options of a run by their dotted names; a slot that repeats the attention is a reference to it."""

    def walk(name: str, node: Any) -> Iterator[tuple[str, str]]:
        key = name.rpartition(".")[2]
        if f"{name}.".startswith(IGNORED) or (name.startswith("data.") and key in IGNORED_OF_DATA):
            return
        same = [slot for slot in groups_of(name) if isinstance(node, dict) and node == config.get(slot)]
        if "." in name and same:
            yield name, f"${{{same[0]}}}"
        elif isinstance(node, dict):
            for inner, value in node.items():
                yield from walk(f"{name}.{inner}" if name else inner, value)
        else:
            yield name, without_paths(node, config["paths"])

    return dict(walk("", config))


def groups_of(name: str) -> list[str]:
    """Return the groups that an option of the model can repeat; an attention takes the first one that is chosen."""
    key = name.rpartition(".")[2]
    if key not in ("attention", "self_attention"):
        return [key]
    return [*(["encoder_attention"] if name.endswith("encoder.self_attention") else []), key, "attention"]


def without_paths(value: Any, paths: dict[str, Any]) -> str:
    text = str(value)
    for name, path in paths.items():
        text = text.replace(str(path), f"${{paths.{name}}}")
    return text


def differing(alternatives: Sequence[dict[str, str]]) -> list[str]:
    """Return the options whose values differ."""
    options = dict.fromkeys(option for alternative in alternatives for option in alternative)
    return [option for option in options if len({alternative.get(option) for alternative in alternatives}) > 1]


def warnings(rows: Sequence[Row], by: str) -> list[str]:
    """Return what the figures depend on besides the attention."""
    notes = []
    runs = [run for row in rows for run in row.runs]
    alone = sum(len(row.runs) == 1 for row in rows)
    if alone:
        whose = "Every row has" if alone == len(rows) else f"{alone} of {len(rows)} rows have"
        notes.append(f"{whose} one seed: the spread between seeds is unknown, and no p-value accounts for it.")
    configs = [settings(row.runs[0].config) for row in rows]
    options = [option for option in differing(configs) if by == "folder" or option.partition(".")[0] != "attention"]
    if options:
        where = "" if by == "folder" else "more than their attention: "
        notes.append(f"Rows differ in {where}{values_of(options, configs)}.")
    if not share_tokens(rows):
        notes.append(
            "Rows have, or may have, different tokenizers, so their perplexities and tokens/s cannot be compared."
        )
    if read_other_sentences(runs):
        notes.append(
            "Runs with the same options of data read different sentences, as if a file had changed between them: their "
            "scores may differ for that reason, too."
        )
    for key, what in ORIGIN.items():
        if len({run.provenance.get(key) for run in runs}) > 1:
            notes.append(
                f"Runs differ in the {what} ({told(run.provenance.get(key) for run in runs)}): times and memory "
                "may not be comparable."
            )
    if any(run.memory_is_bound for run in runs):
        notes.append("≤: an upper bound, because the jobs of a sweep share one process and its peak memory.")
    return notes


def share_tokens(rows: Sequence[Row]) -> bool:
    """Return whether all rows cut text into the same tokens, so that figures of a token can be compared."""
    differ = differing([settings(row.runs[0].config) for row in rows])
    alike = not any(option.startswith(OF_TOKENS) and option != "tokenizer.sampling_alpha" for option in differ)
    return alike and len({origin_of_tokens(row.runs[0]) for row in rows}) == 1


def origin_of_tokens(run: Run) -> str | None:
    """Return what a run has its tokens from: a parent that it was fine-tuned from, or its data; None: a file."""
    options = settings(run.config)
    if options.get("init_from.tokenizer") == "keep" and options.get("init_from.run") not in (None, "None"):
        return options["init_from.run"]
    given = options.get("tokenizer.model") not in (None, "None")
    return None if given else str(run.provenance.get("data_fingerprint"))


def read_other_sentences(runs: Iterable[Run]) -> bool:
    """Return whether the fingerprints of the data differ between runs with the same options of data."""
    fingerprints: dict[Any, set[Any]] = {}
    for run in runs:
        of_data = tuple(sorted(entry for entry in settings(run.config).items() if entry[0].startswith("data.")))
        fingerprints.setdefault(of_data, set()).add(run.provenance.get("data_fingerprint"))
    return any(len(found - {None}) > 1 for found in fingerprints.values())


def values_of(options: Sequence[str], alternatives: Sequence[dict[str, str]]) -> str:
    if len(options) > MOST_NAMED:
        return f"{', '.join(options[:MOST_NAMED])} and {len(options) - MOST_NAMED} more options"
    return "; ".join(f"{option} ({told(values.get(option, '–') for values in alternatives)})" for option in options)


def told(values: Iterable[Any]) -> str:
    """Return `0.1 in 3, 0.2 in 1`."""
    counts = Counter(value[:8] if is_commit(value) else str(value) for value in values)
    return ", ".join(f"{value} in {number}" for value, number in counts.most_common())


def is_commit(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{40}(-changed)?", value) is not None
