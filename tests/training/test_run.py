"""One command end to end: what it leaves behind, and that its figures are what they say."""

from __future__ import annotations

import csv
import gzip
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from beartype.roar import BeartypeDecorHintPep585DeprecationWarning
from child import done
from configs import CONF, ROOT
from hydra import compose, initialize_config_dir
from shared_folder import shared_folder
from small_run import run_here
from torchmetrics import Metric

from seq2seq_attn.checkpoint.load import load
from seq2seq_attn.errors import UserError
from seq2seq_attn.training import run as training
from seq2seq_attn.training.environment import logged_warnings

with warnings.catch_warnings():
    # OmegaConf's DictConfig, in our annotations, derives from names of `typing` that are deprecated.
    warnings.simplefilter("ignore", BeartypeDecorHintPep585DeprecationWarning)
    from seq2seq_attn.inference.translate import translate

SMALL = [
    "tokenizer.vocab_size=500",
    "model.embedding_dim=32",
    "model.encoder.dim=32",
    "model.decoder.dim=32",
    "trainer.enable_progress_bar=false",
    "callback=[seeding,throughput,checkpoint,autosave,early_stopping,attention_map,validation_line]",
    "num_threads=1",
]


STEPS = 30


def command(*arguments: str, stdin: bytes = b"", cwd: Path = ROOT) -> subprocess.CompletedProcess[bytes]:
    environment = os.environ | {"COLUMNS": "120"}
    return subprocess.run(
        [sys.executable, *arguments], input=stdin, capture_output=True, cwd=cwd, env=environment, timeout=300
    )


def train(folder: Path, *overrides: str) -> Path:
    answer = command("train.py", f"hydra.run.dir={folder}", *SMALL, *overrides)
    assert answer.returncode == 0, answer.stderr.decode()
    return folder


def train_here(folder: Path, *overrides: str) -> dict[str, Any]:
    """Train as the command does, without a process to start."""
    given = [f"paths.run_dir='{folder}'", *(f"choices.{name}=null" for name in ("attention", "model", "data"))]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return training.train(compose("train", [*SMALL, "debug=fast", *given, *overrides]))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a few updates, validated at its end, of a process of its own."""
    steps = ["debug=fast", "scheduler=constant", "optimizer.lr=0.01", f"trainer.max_steps={STEPS}"]
    tested = ["trainer.limit_test_batches=null", "search.limits.min_length=3", "search.limits.max_length=7"]
    tested.append("eval_batch_tokens=8192")
    return shared_folder(tmp_path_factory, "command_run", lambda folder: train(folder, *steps, *tested))


def rows(run: Path) -> list[dict[str, str]]:
    with (run / "metrics.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_run_folder_holds_everything_named(run: Path) -> None:
    for name in ("config.yaml", "provenance.json", "metrics.csv", "results.json", "translations.tsv"):
        assert (run / name).is_file(), name
    found = {path.name for path in (run / "checkpoints").iterdir()}
    assert found == {"best.ckpt", "last.ckpt", "previous.ckpt"}  # saved before and after the validation at the end
    assert not [path for path in run.rglob("*") if "=" in path.name]
    provenance = json.loads((run / "provenance.json").read_text())
    assert {"commit", "data_fingerprint", "versions", "command"} <= set(provenance)
    assert (provenance["device"], provenance["devices"]) == ("cpu", 1)


def test_metrics_have_a_row_for_each_logged_step_and_the_names_promised(run: Path) -> None:
    found = rows(run)
    assert {"step", "train/loss", "train/tokens_per_second", "val/loss", "val/ppl", "val/bleu", "val/chrf"} <= set(
        found[0]
    )
    assert {"test/bleu", "test/chrf", "test_unseen/bleu"} <= set(found[0])
    assert [int(row["step"]) for row in found if row["train/loss"]] == list(range(STEPS))
    assert [float(row["lr"]) for row in found if row["train/loss"]] == pytest.approx([0.01] * STEPS)
    (validated,) = [row for row in found if row["val/bleu"]]
    assert float(validated["val/ppl"]) > 1


def test_the_log_has_a_line_for_the_validation_and_one_for_the_end(run: Path) -> None:
    (validated,) = [row for row in rows(run) if row["val/bleu"]]
    lines = [line[20:] for line in (run / "train.log").read_text("utf-8").splitlines()]
    end, header, line = lines[-3:]  # an epoch that is cut short is validated after the training
    assert (header.split()[:4], len(header)) == (["epoch", "step", "loss", "val/loss"], len(line))
    assert line.split()[:3] == ["epoch", "1/1", str(STEPS)]
    assert line.endswith(" 0:00:00")
    trained = [row for row in rows(run) if row["train/loss"]]
    figures = [f"{float(x):#.4g}" for x in (trained[-1]["train/loss"], validated["val/loss"], validated["val/bleu"])]
    assert line.split()[3:6] == figures
    assert end == f"The training ends in epoch 1 after step {STEPS}: trainer.max_steps={STEPS} is reached"


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("trainer.val_check_interval=1000", "is more than the 7 batches of an epoch"),
        ("trainer.limit_train_batches=0.001", "of 7 batches is less than one"),
        ("trainer.max_epochs=-1", "^scheduler=cosine must know how long the run is"),
        ("trainer.accelerator=gpu", "trainer=cpu needs no GPU$"),
    ],
)
def test_a_run_that_is_refused_writes_nothing_into_its_folder(
    override: str, sentence: str, pairs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytorch_lightning.accelerators.cuda.num_cuda_devices", lambda: 0)
    with pytest.raises(UserError, match=sentence):
        run_here(tmp_path, *pairs, override)
    assert [path.name for path in tmp_path.iterdir()] == ["run.lock"]


def test_a_warning_of_a_library_is_a_line_of_the_log_too(caplog: pytest.LogCaptureFixture) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        with logged_warnings():
            warnings.warn("said by torch", stacklevel=1)
    assert "UserWarning: said by torch" in caplog.text


def test_results_hold_every_figure_promised(run: Path) -> None:
    results = json.loads((run / "results.json").read_text())
    for name in (
        "test/bleu",
        "test/chrf",
        "test/bleu_signature",
        "test/chrf_signature",
        "seed",
        "attention",
        "model",
        "num_parameters",
        "tokens_per_second",
        "train_seconds",
        "decode_sentences_per_second",
        "peak_memory_bytes",
        "attention_entropy",
    ):
        assert results[name] not in (None, ""), name
    assert results["attention"] == "bahdanau"
    assert results["steps"] == STEPS


@pytest.mark.usefixtures("quiet")
def test_a_run_without_callbacks_and_loggers_is_tested_too(tmp_path: Path, pairs: list[str]) -> None:
    assert "test/bleu" in run_here(tmp_path, *pairs, "callback=[]", "trainer.max_steps=2")
    assert (tmp_path / "results.json").is_file()
    assert (tmp_path / "checkpoints" / "best.ckpt").is_file()


@pytest.mark.usefixtures("quiet")
def test_once_the_test_is_over_no_process_waits_for_another(
    tmp_path: Path, pairs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By then the model is on the CPU, where processes with GPUs cannot gather."""
    collect = training.collect_results

    def with_metrics_that_are_gone(trainer: Any, module: Any) -> dict[str, Any]:
        for metric in (part for part in module.modules() if isinstance(part, Metric)):
            monkeypatch.setattr(metric, "compute", None)
        return collect(trainer, module)

    monkeypatch.setattr(training, "collect_results", with_metrics_that_are_gone)
    found = run_here(tmp_path, *pairs, "callback=[]", "trainer.max_steps=2", "attention=bahdanau")
    assert 0 < found["attention_entropy"] < 5


def test_translations_are_in_the_order_of_the_split(run: Path) -> None:
    sources = [line.split("\t")[0] for line in (run / "translations.tsv").read_bytes().decode().split("\n")[:-1]]
    expected = [line.split("\t")[0] for line in (ROOT / "data/demo/test.tsv").read_bytes().decode().split("\n")[:-1]]
    assert sources == expected


def test_bleu_and_chrf_equal_the_sacrebleu_command_on_the_written_files(run: Path, tmp_path: Path) -> None:
    lines = (run / "translations.tsv").read_bytes().decode().removesuffix("\n").split("\n")
    columns = [line.split("\t") for line in lines]
    assert {len(line) for line in columns} == {3}
    for number, name in ((1, "references"), (2, "hypotheses")):
        (tmp_path / name).write_bytes("".join(line[number] + "\n" for line in columns).encode())
    results = json.loads((run / "results.json").read_text())
    files = [str(tmp_path / "references"), "-i", str(tmp_path / "hypotheses")]
    answer = command("-m", "sacrebleu", *files, "-m", "bleu", "chrf", "-w", "14")
    for said, metric in zip(json.loads(answer.stdout), ("bleu", "chrf"), strict=True):
        assert said["score"] == round(results[f"test/{metric}"], 14)
        assert f"{said['signature']}" == results[f"test/{metric}_signature"]


def test_attention_maps_are_drawn_for_each_validation(run: Path) -> None:
    (folder,) = (run / "attention_maps").iterdir()
    assert sorted(path.suffix for path in folder.iterdir()) == [".npz"] * 4 + [".png"] * 4
    saved = np.load(folder / "cross_0_0.npz")
    assert saved["weights"].shape[-2:] == (len(saved["target_tokens"]), len(saved["source_tokens"]))
    np.testing.assert_allclose(saved["weights"].sum(-1), 1, atol=1e-5)


def test_a_checkpoint_is_tensors_and_plain_data(run: Path) -> None:
    checkpoint = torch.load(run / "checkpoints" / "best.ckpt", weights_only=True)
    assert checkpoint["config"]["attention"]["_target_"] == "seq2seq_attn.attention.attention.Attention"
    assert checkpoint["tokenizer"]["source_model"].dtype == torch.uint8
    assert checkpoint["format"] == 3
    loaded = load(str(run))
    assert loaded.model.embed_source.num_embeddings == loaded.tokenizer.source_vocab_size


@pytest.mark.slow
def test_a_checkpoint_of_another_vocabulary_is_refused(run: Path, tmp_path: Path) -> None:
    file = run / "checkpoints" / "best.ckpt"
    says = (
        rf"^{file} holds another model or vocabulary than the run to train, by tokenizer.vocab_size 500 → 400; give "
        r"the options and the data of its run, or leave out ckpt_path and resume$"
    )
    with pytest.raises(UserError, match=says):
        train_here(tmp_path, "tokenizer.vocab_size=400", f"ckpt_path={file}")


UNREAD = ["trainer.limit_val_batches=0", "trainer.limit_test_batches=0"]
SENTENCES = ["The cat sleeps.", "", "I see a big house and a small dog.", "  ", "She sings!", "We are tired."]


def test_translation_needs_the_checkpoint_alone_and_keeps_lines_in_files_too(run: Path, tmp_path: Path) -> None:
    copy, content = tmp_path / "alone.ckpt", "".join(f"{sentence}\n" for sentence in SENTENCES).encode()
    copy.write_bytes((run / "checkpoints" / "best.ckpt").read_bytes())
    answer = done(ROOT / "translate.py", f"ckpt_path={copy}", folder=tmp_path, stdin=content)
    assert answer.returncode == 0
    assert all("its translation may be cut" in line for line in answer.stderr.splitlines())  # by an untrained model
    assert not (set(tmp_path.iterdir()) - {copy})
    lines = answer.stdout.removesuffix("\n").split("\n")
    assert [line for line, sentence in zip(lines, SENTENCES, strict=True) if not sentence.strip()] == ["", ""]
    assert any(lines)
    (tmp_path / "in.txt").write_bytes(content)
    (tmp_path / "in.txt.gz").write_bytes(gzip.compress(content))
    for source, target in (("in.txt", "out.txt.gz"), ("in.txt.gz", "out.txt")):
        translate_here(run, f"input={tmp_path / source}", f"output={tmp_path / target}", "batch_sentences=1")
        written = (tmp_path / target).read_bytes()
        assert (gzip.decompress(written) if target.endswith("gz") else written).decode() == answer.stdout


def translate_here(run: Path, *overrides: str) -> None:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        translate(compose("translate", [f"ckpt_path={run}", "device=cpu", *overrides]))


def test_a_missing_input_is_one_sentence(run: Path) -> None:
    with pytest.raises(UserError, match=r"^input=nowhere.txt cannot be read \(No such file or directory\)$"):
        translate_here(run, "input=nowhere.txt")


@pytest.mark.usefixtures("quiet")
def test_a_seed_gives_one_run_in_any_process(run: Path, tmp_path: Path) -> None:
    train_here(tmp_path, "scheduler=constant", "optimizer.lr=0.01", "trainer.max_steps=5", *UNREAD)
    ours, theirs = ([row["train/loss"] for row in rows(folder) if row["train/loss"]] for folder in (run, tmp_path))
    assert ours[:5] == theirs


@pytest.mark.usefixtures("quiet")
def test_the_scores_of_hard_attention_learn_by_their_reward_alone_and_the_model_is_printed(
    tmp_path: Path, pairs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    rewarded = ["attention=hard", "attention.normalizer.soft_probability=0.0"]
    run_here(tmp_path, *pairs, *rewarded, "trainer.max_steps=2", "trainer.limit_test_batches=0")
    assert "Model: ConvEncoder → ConvDecoder" in capsys.readouterr().out
    checkpoint = torch.load(tmp_path / "checkpoints" / "last.ckpt", weights_only=True)
    assert checkpoint["state_dict"]["reinforce.running_tokens"] > 0
    # Adam keeps a state for each parameter that got a gradient; a drawn position passes none on to its score.
    weights = [name for name in checkpoint["state_dict"] if name.startswith("model.")]
    tied = "model.output.weight"
    assert len(checkpoint["optimizer_states"][0]["state"]) == len(set(weights) - {tied})
