"""One command end to end: what it leaves behind, and that its figures are what they say."""

from __future__ import annotations

import csv
import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from configs import ROOT

from seq2seq_attn.checkpoint.load import load

SMALL = [
    "tokenizer.vocab_size=500",
    "model.embedding_dim=32",
    "model.encoder.dim=32",
    "model.decoder.dim=32",
    "trainer.enable_progress_bar=false",
    "callback=[seeding,throughput,checkpoint,autosave,early_stopping,attention_map]",
    "num_threads=1",
]


def command(*arguments: str, stdin: bytes = b"", cwd: Path = ROOT) -> subprocess.CompletedProcess[bytes]:
    environment = os.environ | {"COLUMNS": "120"}
    return subprocess.run(
        [sys.executable, *arguments], input=stdin, capture_output=True, cwd=cwd, env=environment, timeout=300
    )


def train(folder: Path, *overrides: str) -> Path:
    done = command("train.py", f"hydra.run.dir={folder}", *SMALL, *overrides)
    assert done.returncode == 0, done.stderr.decode()
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a few updates, validated at its end."""
    return train(
        tmp_path_factory.mktemp("run"), "debug=fast", "trainer.max_steps=150", "trainer.limit_test_batches=null"
    )


def rows(run: Path) -> list[dict[str, str]]:
    with (run / "metrics.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_run_folder_holds_everything_named(run: Path) -> None:
    for name in ("config.yaml", "provenance.json", "metrics.csv", "results.json", "translations.tsv"):
        assert (run / name).is_file(), name
    found = {path.name for path in (run / "checkpoints").iterdir()}
    assert found == {f"{name}.ckpt{end}" for name in ("best", "last") for end in ("", ".sha256")}
    assert not [path for path in run.rglob("*") if "=" in path.name]
    provenance = json.loads((run / "provenance.json").read_text())
    assert {"commit", "data_fingerprint", "versions", "command"} <= set(provenance)


def test_metrics_have_a_row_for_each_logged_step_and_the_names_promised(run: Path) -> None:
    found = rows(run)
    assert {"step", "train/loss", "train/tokens_per_second", "val/loss", "val/ppl", "val/bleu", "val/chrf"} <= set(
        found[0]
    )
    assert {"test/bleu", "test/chrf", "test_unseen/bleu"} <= set(found[0])
    assert [int(row["step"]) for row in found if row["train/loss"]] == list(range(150))
    (validated,) = [row for row in found if row["val/bleu"]]
    assert float(validated["val/ppl"]) > 1


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
    assert results["steps"] == 150


def test_a_run_without_callbacks_and_loggers_is_tested_too(tmp_path: Path) -> None:
    options = [option for option in SMALL if not option.startswith("callback=")]
    done = command("train.py", f"hydra.run.dir={tmp_path}", *options, "debug=fast", "callback=[]")
    assert done.returncode == 0, done.stderr.decode()
    run = tmp_path
    assert "test/bleu" in json.loads((run / "results.json").read_text())
    assert (run / "checkpoints" / "best.ckpt").is_file()


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
    for metric in ("bleu", "chrf"):
        done = command(
            "-m",
            "sacrebleu",
            str(tmp_path / "references"),
            "-i",
            str(tmp_path / "hypotheses"),
            "-m",
            metric,
            "-w",
            "14",
        )
        said = json.loads(done.stdout)
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


def test_a_checkpoint_of_another_vocabulary_is_refused(run: Path, tmp_path: Path) -> None:
    file = run / "checkpoints" / "best.ckpt"
    options = [option for option in SMALL if not option.startswith("tokenizer.")]
    done = command(
        "train.py", *options, "tokenizer.vocab_size=400", "debug=fast", f"ckpt_path={file}", f"hydra.run.dir={tmp_path}"
    )
    assert done.returncode == 2
    assert done.stderr.decode() == (
        f"{file} was trained with another vocabulary (500 and 500 tokens, here 400 and 400); give that run's data and "
        "tokenizer options, or leave out ckpt_path\n"
    )


SENTENCES = ["The cat sleeps.", "", "I see a big house and a small dog.", "  ", "She sings!", "We are tired."]


def translated(checkpoint: Path, cwd: Path, *overrides: str, sentences: list[str] = SENTENCES) -> list[str]:
    done = command(
        str(ROOT / "translate.py"),
        f"ckpt_path={checkpoint}",
        *overrides,
        cwd=cwd,
        stdin="".join(sentence + "\n" for sentence in sentences).encode(),
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stderr == b""
    lines = done.stdout.decode().split("\n")
    assert lines.pop() == ""
    return lines


def test_translation_needs_the_checkpoint_alone_and_keeps_lines(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "alone.ckpt"
    copy.write_bytes((run / "checkpoints" / "best.ckpt").read_bytes())
    lines = translated(copy, tmp_path)
    assert len(lines) == len(SENTENCES)
    assert [line for line, sentence in zip(lines, SENTENCES, strict=True) if not sentence.strip()] == ["", ""]
    assert any(lines)
    assert not (set(tmp_path.iterdir()) - {copy})


def test_files_are_translated_as_standard_input_is_and_gz_too(run: Path, tmp_path: Path) -> None:
    expected = translated(run, tmp_path)
    content = "".join(sentence + "\n" for sentence in SENTENCES).encode()
    (tmp_path / "in.txt").write_bytes(content)
    (tmp_path / "in.txt.gz").write_bytes(gzip.compress(content))
    for source, target in (("in.txt", "out.txt.gz"), ("in.txt.gz", "out.txt")):
        files = (f"input={tmp_path / source}", f"output={tmp_path / target}")
        done = command(str(ROOT / "translate.py"), f"ckpt_path={run}", *files, cwd=tmp_path)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
        written = (tmp_path / target).read_bytes()
        written = gzip.decompress(written) if target.endswith("gz") else written
        assert written.decode().split("\n") == [*expected, ""]


def test_a_missing_input_is_one_sentence(run: Path, tmp_path: Path) -> None:
    done = command(str(ROOT / "translate.py"), f"ckpt_path={run}", "input=nowhere.txt", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, b"input=nowhere.txt cannot be read (No such file or directory)\n")


def test_translations_do_not_depend_on_batch_size_or_order(run: Path, tmp_path: Path) -> None:
    expected = translated(run, tmp_path, "batch_sentences=64")
    assert translated(run, tmp_path, "batch_sentences=1") == expected
    assert translated(run, tmp_path, sentences=SENTENCES[::-1]) == expected[::-1]


def test_a_seed_gives_one_run(run: Path, tmp_path: Path) -> None:
    again = train(tmp_path / "again", "debug=fast", "trainer.max_steps=150", "trainer.limit_test_batches=1")
    ours, theirs = ([row["train/loss"] for row in rows(folder) if row["train/loss"]] for folder in (run, again))
    assert ours == theirs


def test_the_scores_of_hard_attention_learn_by_their_reward_alone_and_the_model_is_printed(tmp_path: Path) -> None:
    rewarded = ["attention=hard", "attention.normalizer.soft_probability=0.0"]
    done = command(
        "train.py", f"hydra.run.dir={tmp_path}", *SMALL, "debug=fast", *rewarded, "trainer.limit_test_batches=1"
    )
    assert done.returncode == 0, done.stderr.decode()
    assert "Model: RNNEncoder → RNNDecoder" in done.stdout.decode()
    checkpoint = torch.load(tmp_path / "checkpoints" / "last.ckpt", weights_only=True)
    assert checkpoint["state_dict"]["reinforce.running_tokens"] > 0
    # Adam keeps a state for each parameter that got a gradient; a drawn position passes none on to its score.
    weights = [name for name in checkpoint["state_dict"] if name.startswith("model.")]
    tied = "model.output.weight"
    assert len(checkpoint["optimizer_states"][0]["state"]) == len(set(weights) - {tied})


def test_a_truncated_checkpoint_is_named(run: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.ckpt"
    broken.write_bytes((run / "checkpoints" / "best.ckpt").read_bytes()[:10_000])
    done = command("translate.py", f"ckpt_path={broken}")
    assert done.returncode == 2
    assert done.stderr.decode() == (
        f"{broken} is not a readable checkpoint (truncated, damaged or of another program); use another one, such as "
        "last.ckpt beside it, or train again\n"
    )


def test_a_checkpoint_that_asks_for_foreign_code_is_refused_and_nothing_runs(run: Path, tmp_path: Path) -> None:
    checkpoint = torch.load(run / "checkpoints" / "best.ckpt", weights_only=True)
    checkpoint["config"]["model"]["_target_"] = "os.mkdir"
    checkpoint["config"]["model"]["path"] = str(tmp_path / "ran")
    hostile = tmp_path / "hostile.ckpt"
    torch.save(checkpoint, hostile)
    done = command("translate.py", f"ckpt_path={hostile}")
    assert done.returncode == 2
    assert (
        done.stderr.decode()
        == f"{hostile} asks for os.mkdir, which is not a class of seq2seq_attn for model; it was not run\n"
    )
    assert not (tmp_path / "ran").exists()
