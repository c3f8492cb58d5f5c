"""A sweep that is logged to Weights & Biases offline, read back: its files hold all that docs/wandb.md promises.

The sweep takes long; test_loggers.py reads one run back always.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from child import done
from configs import ROOT
from google.protobuf.message import DecodeError
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from logger.test_loggers import records
from shared_folder import shared_folder
from small_run import SMALL

from seq2seq_attn.logger import wandb_logger
from seq2seq_attn.logger.wandb_logger import end_process

AXIS = "trainer/global_step"
SHOWN = "gradient_norm,throughput,attention_entropy,attention_map,translation_table"


class Logged(NamedTuple):
    """A run folder and what its W&B file says of the run."""

    folder: Path
    run: Any
    config: dict[str, Any]
    history: list[dict[str, Any]]
    summaries: dict[str, str]


def read(file: Path) -> Logged:
    found: list[Any] = []
    with suppress(DecodeError):  # the last record was cut off
        for record in records(file):
            found.append(record)
    (run,) = [record.run for record in found if record.HasField("run")]
    updates = [update for record in found for update in (*record.run.config.update, *record.config.update)]
    history = [nested(record.history.item) for record in found if record.HasField("history")]
    summaries = {
        record.metric.name: field.name
        for record in found
        for field, chosen in record.metric.summary.ListFields()
        if chosen
    }
    config = {update.key: json.loads(update.value_json) for update in updates}
    return Logged(file.parents[2], run, config, history, summaries)


def nested(items: Any) -> dict[str, Any]:
    """A line of the history; what is no number is a dictionary of its own."""
    row: dict[str, Any] = {}
    for item in items:
        *outer, name = item.nested_key
        (row.setdefault(outer[0], {}) if outer else row)[name] = json.loads(item.value_json)
    return row


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("wandb/offline-run-*/run-*.wandb"))


def values(history: list[dict[str, Any]], name: str) -> dict[int, Any]:
    """Of one figure, by the step where it stands; it stands there once."""
    found = [(row[AXIS], row[name]) for row in history if name in row]
    assert len(dict(found)) == len(found)
    return dict(found)


@pytest.fixture(scope="module")
def sweep(pairs: list[str], tmp_path_factory: pytest.TempPathFactory) -> list[Logged]:
    """Two jobs of one process; each is validated after its second and fourth update."""
    chosen = ["logger=wandb", "logger.wandb.offline=true", "seed=1,2", "attention=luong_dot"]
    steps = ["trainer.max_steps=4", "trainer.val_check_interval=2", "search.limits.max_length=7"]
    callbacks = f"callback=[seeding,{SHOWN},checkpoint,autosave]"

    def make(folder: Path) -> None:
        end_process()  # W&B's process of these tests, which a child would speak to
        given = ["-m", f"hydra.sweep.dir={folder}", *SMALL, *pairs, *steps, *chosen, callbacks]
        answer = done(ROOT / "train.py", *given, folder=ROOT)
        assert answer.returncode == 0, answer.stderr

    folder = shared_folder(tmp_path_factory, "of_seeds", make)
    (first,), (second,) = files(folder / "0"), files(folder / "1")
    return [read(first), read(second)]


def test_a_job_of_a_sweep_is_in_the_group_of_the_sweeps_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    job = SimpleNamespace(mode=RunMode.MULTIRUN, sweep=SimpleNamespace(dir="runs/of_seeds"))
    monkeypatch.setattr(HydraConfig, "initialized", lambda: True)
    monkeypatch.setattr(HydraConfig, "get", lambda: job)
    assert wandb_logger.sweep_name() == "of_seeds"


@pytest.mark.slow
def test_jobs_of_a_sweep_are_runs_of_their_own_in_its_group(sweep: list[Logged]) -> None:
    assert [job.run.run_group for job in sweep] == ["of_seeds", "of_seeds"]
    assert [job.run.display_name for job in sweep] == ["conv-luong_dot-parallel-1", "conv-luong_dot-parallel-2"]
    assert [list(job.run.tags) for job in sweep] == [["luong_dot", "conv", "parallel"]] * 2
    assert len({job.run.run_id for job in sweep}) == 2
    assert [job.config["seed"] for job in sweep] == [1, 2]
    for job in sweep:
        results = json.loads((job.folder / "results.json").read_text("utf-8"))
        assert values(job.history, "test/bleu") == {4: pytest.approx(results["test/bleu"])}
        assert job.config["choices"] == {"attention": "luong_dot", "model": "conv", "data": "parallel"}


@pytest.mark.slow
def test_each_figure_stands_once_at_each_of_its_steps(sweep: list[Logged]) -> None:
    for job in sweep:
        for name in ("loss", "gradient_norm", "tokens_per_second", "padding_share"):
            assert list(values(job.history, f"train/{name}")) == [0, 1, 2, 3]
        for name in ("loss", "ppl", "bleu", "chrf", "accuracy", "attention_entropy"):
            assert list(values(job.history, f"val/{name}")) == [1, 3]
        assert all(norm > 0 for norm in values(job.history, "train/gradient_norm").values())
        assert all(0 <= share < 1 for share in values(job.history, "train/padding_share").values())


@pytest.mark.slow
def test_the_summary_is_of_the_best_validation(sweep: list[Logged]) -> None:
    expected = {f"val/{name}": "max" for name in ("bleu", "chrf", "accuracy")}
    expected |= {f"val/{name}": "min" for name in ("loss", "ppl", "attention_entropy")}
    for job in sweep:
        assert job.summaries.items() >= expected.items()


@pytest.mark.slow
def test_maps_are_images_with_the_sentence_and_its_translation_below(sweep: list[Logged]) -> None:
    for job in sweep:
        (file,) = files(job.folder)
        maps = [values(job.history, f"attention/cross_0_{number}") for number in range(4)]
        assert [list(shown) for shown in maps] == [[1, 3]] * 4
        for shown in (image for by_step in maps for image in by_step.values()):
            assert (file.parent / "files" / shown["filenames"][0]).read_bytes().startswith(b"\x89PNG")
            slot, _, pair = shown["captions"][0].partition(": ")
            assert slot == "cross/0"
            assert " → " in pair
        assert len({shown[1]["captions"][0].partition(" → ")[0] for shown in maps}) == 4


@pytest.mark.slow
def test_the_table_of_translations_grows_by_the_same_sentences_at_each_validation(sweep: list[Logged]) -> None:
    for job in sweep:
        (file,) = files(job.folder)
        shown = values(job.history, "val/translations")
        tables = [json.loads((file.parent / "files" / table["path"]).read_text("utf-8")) for table in shown.values()]
        assert [table["columns"] for table in tables] == [["epoch", "step", "source", "reference", "hypothesis"]] * 2
        first, both = (table["data"] for table in tables)
        assert list(shown) == [1, 3]
        assert both[:8] == first
        assert [row[1] for row in both] == [1] * 8 + [3] * 8
        assert [row[2:4] for row in both[8:]] == [row[2:4] for row in first]
        assert len({row[2] for row in first}) == 8
