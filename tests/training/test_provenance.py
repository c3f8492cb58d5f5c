"""The parameters that are printed when a run starts."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from configs import model_of
from small_run import KilledError, run_here

from seq2seq_attn.training import provenance
from seq2seq_attn.training.provenance import model_counts, parameters_by_part


@pytest.mark.parametrize("tie", ["none", "target", "all"])
def test_parts_add_up_and_a_shared_matrix_counts_once(tie: str) -> None:
    model = model_of(f"model.tie_embeddings={tie}", source_vocab_size=17, target_vocab_size=17)
    counts = parameters_by_part(model)
    whole = sum(p.numel() for p in model.parameters())
    assert counts.pop("all") == whole
    assert counts.pop("of which attention") == sum(p.numel() for p in model.decoder.attention.parameters())
    assert sum(counts.values()) == whole
    assert counts["output"] == {"none": 17 * 11 + 17, "target": 17, "all": 17}[tie]


def test_training_takes_four_float32_numbers_per_parameter() -> None:
    model = model_of()
    whole = sum(p.numel() for p in model.parameters())
    counts = model_counts(model)
    assert counts["all"] == f"{whole:,}"
    assert counts["MiB of weights, gradients, Adam"] == f"{16 * whole / 2**20:,.1f}"


@pytest.mark.usefixtures("quiet")
def test_a_run_that_is_killed_while_its_records_are_written_may_be_begun_again(
    tmp_path: Path, pairs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KilledError

    monkeypatch.setattr(provenance, "OmegaConf", SimpleNamespace(create=dict, to_yaml=killed))
    with pytest.raises(KilledError):
        run_here(tmp_path, *pairs, "trainer.max_steps=1")
    assert (tmp_path / "provenance.json").exists()
    assert not (tmp_path / "config.yaml").exists()


def test_the_commit_of_a_checkout_is_read_without_a_lock_on_its_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    module = tmp_path / "seq2seq_attn" / "training" / "provenance.py"
    module.parent.mkdir(parents=True)
    module.write_text("a = 1\n")
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "a"]):
        subprocess.run([*git, *words], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    monkeypatch.setattr(provenance, "__file__", str(module))
    os.utime(module, (10**9, 10**9))  # which has git refresh its index, if it takes the lock
    before = (tmp_path / ".git" / "index").read_bytes()
    commit = getattr(provenance.commit, "__wrapped__", provenance.commit)  # not what small_run keeps of it
    assert commit() == head
    assert (tmp_path / ".git" / "index").read_bytes() == before
    module.write_text("a = 2\n")
    assert commit() == f"{head}-changed"
