"""What loggers are given, read back from their files."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_run import run_here
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.summary.writer import event_file_writer
from wandb.proto import wandb_internal_pb2

from seq2seq_attn.logger.tensorboard_logger import TensorBoardRun
from seq2seq_attn.logger.wandb_logger import end_process

pytestmark = pytest.mark.usefixtures("quiet")

BLOCK, FILE_HEADER, RECORD_HEADER = 32768, 7, 7


def records(file: Path) -> Iterator[wandb_internal_pb2.Record]:
    """Records of a .wandb file: LevelDB's log format behind a header of seven bytes."""
    content, position, parts = file.read_bytes(), FILE_HEADER, b""
    while position + RECORD_HEADER <= len(content):
        left = BLOCK - position % BLOCK
        if left < RECORD_HEADER:
            position += left
            continue
        _, length, kind = struct.unpack("<IHB", content[position : position + RECORD_HEADER])
        parts += content[position + RECORD_HEADER : position + RECORD_HEADER + length]
        position += RECORD_HEADER + length
        if kind in (1, 4):  # whole, or last
            record = wandb_internal_pb2.Record()
            record.ParseFromString(parts)
            parts = b""
            yield record


@pytest.fixture(scope="module", params=[True, pytest.param(False, marks=pytest.mark.slow)])
def logged(
    request: pytest.FixtureRequest, pairs: list[str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, bool]:
    """A short run with both loggers, with and without sentences."""
    folder = tmp_path_factory.mktemp("logged")
    chosen = ["logger=[tensorboard,wandb]", "logger.wandb.offline=true", "logger.wandb.name=any", "log_text=false"]
    shown = "callback=[attention_map,translation_table,checkpoint,autosave]"
    chosen = ["search.limits.max_length=7", *chosen[: 3 if request.param else 4]]
    run_here(folder, *pairs, *chosen, shown, "attention=bahdanau", "choices.attention=bahdanau", "trainer.max_steps=2")
    end_process()
    return folder, request.param


def test_an_offline_wandb_run_holds_scalars_config_table_and_maps(logged: tuple[Path, bool]) -> None:
    run, with_text = logged
    (file,) = run.glob("wandb/offline-run-*/run-*.wandb")
    found = list(records(file))
    history: dict[str, object] = {}
    for record in found:
        for item in record.history.item:
            history["/".join(item.nested_key) or item.key] = json.loads(item.value_json)
    results = json.loads((run / "results.json").read_text())
    assert history["test/bleu"] == pytest.approx(results["test/bleu"])
    assert {"train/loss", "val/bleu", "val/ppl"} <= set(history)
    config = {update.key: update.value_json for record in found for update in record.run.config.update}
    config |= {update.key: update.value_json for record in found for update in record.config.update}
    assert json.loads(config["choices"])["attention"] == "bahdanau"
    metrics = [record.metric for record in found if record.HasField("metric")]
    best = {metric.name: [field.name for field, chosen in metric.summary.ListFields() if chosen] for metric in metrics}
    assert (best["val/bleu"], best["val/loss"]) == (["max"], ["min"])
    media = {path.suffix for path in (file.parent / "files").rglob("*") if path.is_file() and "media" in path.parts}
    assert (".png" in media) == with_text
    assert any("translations" in key for key in history) == with_text
    everything = file.read_bytes()
    assert (b"translations.table" in everything or b"table-file" in everything) == with_text


def test_a_tensorboard_run_holds_scalars_table_and_maps(logged: tuple[Path, bool]) -> None:
    run, with_text = logged
    events = EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    tags = events.Tags()
    results = json.loads((run / "results.json").read_text())
    assert events.Scalars("test/bleu")[-1].value == pytest.approx(results["test/bleu"], rel=1e-6)
    assert {"train/loss", "val/bleu"} <= set(tags["scalars"])
    assert bool(tags["images"]) == with_text
    assert any("translations" in tag for tag in tags["tensors"]) == with_text


def test_files_of_one_second_hide_nothing_of_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tenth file of a process is read before the ninth."""
    monkeypatch.setattr(event_file_writer, "_global_uid", event_file_writer.AtomicCounter(9))
    monkeypatch.setattr(event_file_writer.time, "time", lambda: 1.8e9)
    logger = TensorBoardRun(save_dir=str(tmp_path), resume=None)
    for step in (1, 2):
        logger.log_metrics({"loss": 1.0}, step)
        logger.finalize("success")  # the next event opens another file
    assert [event.step for event in EventAccumulator(str(tmp_path / "tensorboard")).Reload().Scalars("loss")] == [2, 1]


def test_metrics_csv_is_written_beside_other_loggers(logged: tuple[Path, bool]) -> None:
    assert (logged[0] / "metrics.csv").is_file()


def test_a_sentence_of_a_table_in_tensorboard_is_no_markup(tmp_path: Path) -> None:
    logger = TensorBoardRun(save_dir=str(tmp_path), resume=None)
    logger.log_table("val/translations", ["source", "hypothesis"], [["<b>x</b> | [y](z)", "two\nlines"]], step=3)
    logger.finalize("success")
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    (text,) = events.Tensors("val/translations/text_summary")
    rows = text.tensor_proto.string_val[0].decode().splitlines()
    assert rows == ["source | hypothesis", "--- | ---", r"&lt;b&gt;x&lt;/b&gt; \| \[y\](z) | two lines"]
