"""Runs of train.py, read from their folders; folders that cannot be compared have a reason, in a sentence each."""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from hydra.utils import get_class

from seq2seq_attn.checkpoint.admitted import NOT_TAKEN, Trust, build, is_class_of, targets
from seq2seq_attn.comparison.system import System, read_system
from seq2seq_attn.errors import UserError
from seq2seq_attn.files import regular
from seq2seq_attn.metric.language import with_language
from seq2seq_attn.metric.names import main_metric
from seq2seq_attn.metric.text_metric import TextMetric
from seq2seq_attn.text import printable

MARKERS = ("config.yaml", "results.json", "evaluation.json", ".hydra")  # a folder with any of them is a run
LOG_CHARACTERS = 160
MOST_NESTED = 100  # lists and groups in a YAML file
DAMAGED = (  # errors of files that no run has written so
    ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError, RecursionError, OSError, csv.Error,
    yaml.YAMLError,
)  # fmt: skip


class LeftOut(NamedTuple):
    """A folder whose figures are not compared."""

    name: str
    reason: str


class Run(NamedTuple):
    """A run that has been tested.

    Attributes:
        name: its folder, relative to the common parent of the folders given.
        given: the folder given that contains it, relative to the same parent.
        results, config, provenance: the contents of its files.
        log: the rows of metrics.csv, each with the figures logged at that step.
        metric: the text metric by which it is compared: the one that it monitors, else BLEU, else its first.
        scorer: what computes it.
        system: its translations of the test set that `stage` names.
        memory_is_bound: whether its peak memory includes earlier runs of the same process.
    """

    name: str
    given: str
    folder: Path
    results: dict[str, Any]
    config: dict[str, Any]
    provenance: dict[str, Any]
    log: list[dict[str, float]]
    metric: str
    scorer: TextMetric
    stage: str
    system: System
    memory_is_bound: bool

    @property
    def seed(self) -> Any:
        return self.results["seed"]

    def curve(self, key: str) -> list[tuple[float, float]]:
        return curve_of(self.log, key)


def read_runs(folders: Sequence[Path], trust: Trust = ()) -> tuple[list[Run], list[LeftOut]]:
    """Read every run in the folders and below them.

    Args:
        trust: packages whose metrics are admitted.

    Raises:
        UserError: if there is no folder, or no run that has finished.
    """
    outcomes = [read_run(name, given, folder, trust) for name, given, folder in named(find_runs(folders), folders)]
    runs = [run for run in outcomes if isinstance(run, Run)]
    left_out = [run for run in outcomes if isinstance(run, LeftOut)]
    if not runs:
        raise no_finished_run(folders, left_out)
    return runs, left_out


def no_finished_run(folders: Sequence[Path], left_out: Sequence[LeftOut]) -> UserError:
    """Return the error of folders in which nothing can be compared, with the first reasons."""
    why = "; ".join(f"{name}: {reason}" for name, reason in left_out[:3])
    return UserError(
        f"there is no finished run in {', '.join(map(str, folders))}{f' ({why})' if why else ''}; give folders of "
        "train.py"
    )


def find_runs(folders: Sequence[Path]) -> list[Path]:
    """Return run folders in natural order, each once, links too; folders inside a run are not searched."""
    runs: dict[Path, Path] = {}
    searched: set[Path] = set()
    given = [folder.resolve() for folder in folders]
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"{folder} is not a folder; give run folders of train.py, or folders of them")
        for run, inner, files in os.walk(folder.resolve(), followlinks=True):
            place = Path(run).resolve()
            if any(mark in (*inner, *files) for mark in MARKERS):
                within = any(place.is_relative_to(around) for around in given)
                runs.setdefault(place, place if within else Path(run))  # a link to a run beside it renames none
                inner.clear()
            elif place in searched:  # a link to a folder around it
                inner.clear()
            searched.add(place)
            inner[:] = sorted((name for name in inner if not name.startswith(".")), key=natural)
    return list(runs.values())


def natural(name: str) -> tuple[int, int, str]:
    """Return a sort key: numbers before words, and 9 before 10."""
    return (0, int(name), name) if name.isdecimal() else (1, 0, name)


def named(runs: Sequence[Path], folders: Sequence[Path]) -> list[tuple[str, str, Path]]:
    """Return the names of the runs and of the given folders that contain them, without the path on this machine."""
    given = [folder.resolve() for folder in folders]
    root = os.path.commonpath([folder.parent for folder in given])

    def name(run: Path) -> str:
        return printable(run.relative_to(root).as_posix())

    def innermost(run: Path) -> Path:
        return max((folder for folder in given if run.is_relative_to(folder)), key=lambda folder: len(folder.parts))

    return [(name(run), name(innermost(run)), run) for run in runs]


def read_run(name: str, given: str, folder: Path, trust: Trust = ()) -> Run | LeftOut:
    reason = unfinished(folder)
    if reason:
        return LeftOut(name, reason)
    try:
        results, config = json.loads(text_of(folder / "results.json")), parsed(folder / "config.yaml")
        provenance = folder / "provenance.json"
        origin = json.loads(text_of(provenance)) if provenance.is_file() else {}
        metric = compared_metric(config, results, trust)
        if metric is None:
            return LeftOut(name, "has no text metric that is higher for better texts and has an interval")
        target = config["metric"][metric]["_target_"]
        if not is_class_of("metric", target, trust):
            return LeftOut(name, f"{target} computes its {metric}; if you trust that package, name it with --trust")
        stages = [key.removesuffix(f"/{metric}") for key in results if key.endswith(f"/{metric}")]
        stage = "test" if "test" in stages else stages[0]
        system = read_system(folder, stage)
        options = with_language(config["metric"][metric], (versions[0] for versions in system.references))
        scorer: TextMetric = build(options, "metric", folder / "config.yaml", trust)
        figures = {"seed": results["seed"], f"{stage}/{metric}": results[f"{stage}/{metric}"] + 0.0}
        needed = figures | {"paths": config["paths"], "attention": config["attention"]}
        missing = [name for name, part in needed.items() if part is None]
        missing += [name for name in ("model", "attention", "data") if not isinstance(results[name], str)]
        missing += [] if isinstance(results["seed"], int | str) else ["seed"]
        log = read_log(folder / "metrics.csv")
        if missing or not isinstance(origin.get("versions", {}), dict):
            raise ValueError(f"{(missing or ['versions'])[0]} is not what a run writes")
    except UserError as error:
        return LeftOut(name, str(error).replace(f"{folder}{os.sep}", "").partition(";")[0])
    except DAMAGED as error:
        return LeftOut(
            name, f"results.json, config.yaml, provenance.json or metrics.csv is damaged ({first_line(error)})"
        )
    return Run(name, given, folder, results, config, origin, log, metric, scorer, stage, system, follows_others(folder))


def compared_metric(
    config: dict[str, Any], results: dict[str, Any], trust: Trust = (), *, resampled: bool = True
) -> str | None:
    """Return the metric by which a run is compared, one of texts, of which more is better; None if it has none.

    Args:
        resampled: whether to leave out metrics without an interval, whose score of a resampled test set is meaningless.
    """
    scored = {key.rpartition("/")[2] for key in results}

    def can_be_compared(target: str) -> bool:
        if not is_class_of("metric", target, trust):
            return True  # the class is not imported, and the run will be left out
        metric: Any = get_class(target)
        return bool(metric.higher_is_better) and (metric.has_interval or not resampled)

    taken = {
        name: options["_target_"]
        for name, options in config["metric"].items()
        if name in scored and NOT_TAKEN.isdisjoint(map(str, targets(options)))
    }
    return main_metric([name for name, target in taken.items() if can_be_compared(target)], config.get("monitor"))


def definition_of(scorer: TextMetric) -> str:
    """Return the signature of a metric, which names its options, for a sentence with one reference."""
    scorer.update(["a"], [["a"]], ["a"])
    signature = scorer.signature()
    scorer.reset()
    return signature


def chosen_by(config: dict[str, Any]) -> tuple[str, str | None]:
    """Return the figure that chose the checkpoint of a run, and whether it is best at its `max` or `min`."""
    callback = (config.get("callback") or {}).get("checkpoint") or {}
    figure = callback.get("monitor") or config.get("monitor") or "val/bleu"
    return str(figure), callback.get("mode") or config.get("monitor_mode")


def unfinished(folder: Path) -> str | None:
    """Return why there are no results, with the last line of the run's log; None if there are results."""
    if (folder / "results.json").is_file() and (folder / "config.yaml").is_file():
        return None
    if (folder / "evaluation.json").is_file():
        return "a folder of evaluate.py; give that of the run"
    if (folder / "results.json").is_file():
        return "config.yaml is missing"
    log = read_log(folder / "metrics.csv")
    steps = [row["step"] for row in log if "train/loss" in row and "step" in row]
    if steps:
        reason = f"stopped after {max(steps) + 1:,.0f} updates or more, before its test"
    elif (folder / "config.yaml").is_file():
        reason = "stopped before anything was logged"
    else:
        reason = "stopped before training began"
    text = next((text_of(file) for file in sorted(folder.glob("*.log")) if file.is_file()), "")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"{reason}; its log ends: {lines[-1][:LOG_CHARACTERS]}" if lines else reason


def read_log(file: Path) -> list[dict[str, float]]:
    """Return the rows of metrics.csv; one that a kill has truncated keeps its whole cells."""
    if not file.is_file():
        return []
    return [
        {key: float(value) for key, value in row.items() if isinstance(value, str) and is_number(key, value)}
        for row in csv.DictReader(text_of(file).replace("\0", "").splitlines())
    ]


def curve_of(log: list[dict[str, float]], key: str) -> list[tuple[float, float]]:
    """Return the logged values of a figure, each with the number of updates, of which the last may be unfinished."""
    return [(row["step"] + 1, row[key]) for row in log if key in row and "step" in row]


def is_number(key: str, text: str) -> bool:
    """Return whether a cell holds a figure, which may be NaN, but not where it counts updates."""
    try:
        return math.isfinite(float(text)) or (math.isnan(float(text)) and key not in ("step", "epoch"))
    except ValueError:
        return False


def follows_others(folder: Path) -> bool:
    """Return whether Hydra ran other jobs in the same process before; only submitit's launchers do not."""
    file = folder / ".hydra" / "hydra.yaml"
    if not file.is_file():
        return False
    try:
        hydra = parsed(file)["hydra"]
        together = hydra["mode"] == "MULTIRUN" and "submitit" not in hydra["launcher"]["_target_"]
        return together and int(hydra["job"]["num"]) > 0
    except (ValueError, KeyError, TypeError, yaml.YAMLError):
        return False


def parsed(file: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file.

    Raises:
        ValueError: if it holds none, or what a run does not write: references, which could mean more than memory holds,
            and lists in many lists, which the parser does not survive.
        OSError, yaml.YAMLError: if it cannot be read.
    """
    text, loader, depth = text_of(file), getattr(yaml, "CSafeLoader", yaml.SafeLoader), 0
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, yaml.AliasEvent):
            raise ValueError(f"{file.name} holds the reference *{event.anchor}")
        opens = isinstance(event, yaml.CollectionStartEvent)
        depth += opens - isinstance(event, yaml.CollectionEndEvent)
        if depth > MOST_NESTED:
            raise ValueError(f"{file.name} nests more than {MOST_NESTED} lists")
    content = yaml.load(text, Loader=loader)
    if not isinstance(content, dict):
        raise ValueError(f"{file.name} is no mapping")
    return content


def text_of(file: Path) -> str:
    return regular(file).read_text(encoding="utf-8", errors="replace")


def first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
