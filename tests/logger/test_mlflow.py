"""What MLflow is given, read back from its store; the test needs its package."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from small_run import KilledError, run_here

from seq2seq_attn.errors import UserError
from seq2seq_attn.logger.mlflow_logger import MlflowRun, WhileAnswered

pytestmark = pytest.mark.usefixtures("quiet")
SHOWN = "callback=[attention_map,translation_table,checkpoint,autosave]"
GIVEN = ["search.limits.max_length=7", SHOWN, "attention=bahdanau", "callback.autosave.every_steps=2"]


def resumed_run(folder: Path, *overrides: str) -> dict[str, float]:
    """Stop a run within its training, and resume it; return its results."""
    killer = "+callback.killed={_target_:small_run.Killed,hook:backward,step:3}"
    given = [*GIVEN, *overrides, "trainer.max_steps=4"]
    with pytest.raises(KilledError):
        run_here(folder, *given, killer)
    run_here(folder, *given, "resume=auto")
    return json.loads((folder / "results.json").read_text())


@pytest.mark.parametrize("log_text", [True, False])
def test_mlflow_holds_scalars_options_maps_and_tables_of_one_run(
    log_text: bool, pairs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow", reason="pip install 'seq2seq_attn[mlflow]'")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    given = ["logger=mlflow", f"logger.mlflow.store={tmp_path / 'store'}", f"log_text={log_text}"]
    results = resumed_run(tmp_path / "run", *pairs, *given)
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path / 'store' / 'mlflow.db'}")
    (experiment,) = (e for e in client.search_experiments() if e.name == "seq2seq-attn")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.metrics["test/bleu"] == pytest.approx(results["test/bleu"])
    assert {"train/loss", "val/bleu"} <= run.data.metrics.keys()
    assert {m.step for m in client.get_metric_history(run.info.run_id, "train/loss")} == {0, 1, 2, 3}
    assert run.data.params["attention/num_heads"] == "1"
    files = {path.name for path in (tmp_path / "store" / "artifacts").rglob("*") if path.is_file()}
    assert any(name.endswith(".png") for name in files) == log_text
    assert ("translations.md" in files) == log_text


class Client:
    """A client whose server answers a number of calls."""

    def __init__(self, answers: int) -> None:
        self.left = answers

    def log_batch(self, run_id: str, *, metrics: list[float]) -> int:
        self.left -= 1
        if self.left < 0:
            raise ConnectionError("no route to host\nor whatever")
        return len(metrics)


def test_a_client_that_fails_once_is_not_called_again(caplog: pytest.LogCaptureFixture) -> None:
    client = Client(answers=2)
    answered = WhileAnswered(client)
    assert [answered.log_batch("a", metrics=[0.5]) for _ in range(5)] == [1, 1, None, None, None]
    assert client.left == -1
    (warned,) = caplog.messages
    assert warned.startswith("MLflow does not answer any more (no route to host), and is sent nothing more; the run ")


def test_a_run_goes_on_without_a_store_that_is_lost(
    pairs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    mlflow = pytest.importorskip("mlflow", reason="pip install 'seq2seq_attn[mlflow]'")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    calls, log_batch = [], mlflow.MlflowClient.log_batch

    def lost(*args: Any, metrics: Any = (), **named: Any) -> Any:
        if not metrics:  # but the options of the run
            return log_batch(*args, **named)
        calls.append(metrics)
        raise mlflow.exceptions.MlflowException("the server is gone")

    monkeypatch.setattr(mlflow.MlflowClient, "log_batch", lost)
    given = ["logger=mlflow", f"logger.mlflow.store={tmp_path / 'store'}", *GIVEN, "trainer.max_steps=4"]
    run_here(tmp_path / "run", *pairs, *given)
    assert (tmp_path / "run" / "results.json").exists()
    assert len(calls) == 1
    assert "MLflow does not answer any more (the server is gone)" in caplog.text


@pytest.mark.parametrize("lost", ["run", "store"])
def test_a_lost_run_of_mlflow_is_one_sentence_and_without_its_id_a_new_one_starts(
    lost: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow", reason="pip install 'seq2seq_attn[mlflow]'")
    id_file = tmp_path / "run" / "mlflow_run_id"

    def started(store: Path) -> MlflowRun:
        monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)  # which MLflow sets
        logger = MlflowRun(
            save_dir=str(tmp_path / "run"),
            store=str(store),
            tracking_uri=None,
            experiment="of tests",
            name="a run",
            resume="auto",
        )
        logger.log_hyperparams({"seed": 1})
        return logger

    first = started(tmp_path / "store").run_id
    assert started(tmp_path / "store").run_id == first
    if lost == "run":
        mlflow.MlflowClient(f"sqlite:///{tmp_path / 'store' / 'mlflow.db'}").delete_run(first)
    store = tmp_path / ("store" if lost == "run" else "new store")
    sentence = (
        rf"^MLflow cannot continue the run that {re.escape(str(id_file))} names \(.+\); restore it, or delete this "
    )
    with pytest.raises(UserError, match=sentence):
        started(store)
    id_file.unlink()
    assert started(store).run_id != first
