"""`train.py ckpt_path=` with another run's checkpoint: nothing is destroyed, and what does not fit is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from small_run import CALLBACKS, run_here

from seq2seq_attn.checkpoint.load import read_checkpoint
from seq2seq_attn.checkpoint.published import write_published
from seq2seq_attn.errors import UserError

pytestmark = pytest.mark.usefixtures("quiet")
SHORT = ["trainer.max_steps=1", "trainer.val_check_interval=1", "metric=bleu", "scheduler=plateau"]


@pytest.fixture(scope="module")
def trained(pairs: list[str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The last checkpoint of a run of one step."""
    folder = tmp_path_factory.mktemp("trained")
    run_here(folder, *pairs, *SHORT)
    return read_checkpoint(folder / "checkpoints" / "last.ckpt")


def test_the_state_of_a_strangers_checkpoint_deletes_nothing_and_its_validations_do_not_count(
    trained: dict[str, Any], tmp_path: Path, pairs: list[str]
) -> None:
    run, victim = tmp_path / "run", tmp_path / "victim::a"
    victim.mkdir()
    (victim / "kept.txt").write_text("mine")
    key = next(key for key in trained["callbacks"] if key.startswith("ModelCheckpoint"))
    named, worst = f"{run}/checkpoints/../../victim::a", torch.tensor(-1.0)
    state = trained["callbacks"][key] | {
        "dirpath": f"{run}/checkpoints",
        "best_k_models": {named: worst},
        "kth_best_model_path": named,
        "best_model_path": named,
        "last_model_path": named,
        "kth_value": worst,
        "best_model_score": worst,
    }
    callbacks = trained["callbacks"] | {key: state, "TranslationTable": {"rows": [[1, 0, "theirs"]]}}
    plateau = trained["lr_schedulers"][0] | {"best": 1000.0, "num_bad_epochs": 1}
    torch.save(trained | {"callbacks": callbacks, "lr_schedulers": [plateau]}, tmp_path / "stranger.ckpt")
    table = CALLBACKS.replace("throughput", "throughput,translation_table")
    run_here(run, *pairs, *SHORT, table, "trainer.max_steps=2", f"ckpt_path={tmp_path / 'stranger.ckpt'}")
    assert (victim / "kept.txt").read_text() == "mine"
    last = read_checkpoint(run / "checkpoints" / "last.ckpt")
    kept, (plateau,) = last["callbacks"][key], last["lr_schedulers"]
    assert kept["best_model_path"] == f"{run}/checkpoints/best.ckpt"
    assert named not in str(kept)
    assert (plateau["best"], plateau["num_bad_epochs"]) == (kept["best_model_score"].item(), 0)
    assert last["callbacks"]["TranslationTable"]["rows"] == []


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("attention=luong_dot", r"attention.score AdditiveScore → DotScore, .+"),
        ("model.encoder.dim=14", r"model.encoder.dim 12 → 14"),
        ("model.encoder.num_layers=2", r"model.encoder.num_layers 1 → 2"),
        ("encoder@model.encoder=rnn", r"model.encoder ConvEncoder → RNNEncoder, .+"),
    ],
)
def test_a_checkpoint_of_another_model_is_refused_by_what_differs(
    override: str, named: str, trained: dict[str, Any], tmp_path: Path, pairs: list[str]
) -> None:
    torch.save(trained, tmp_path / "other.ckpt")
    says = rf"^\S+other.ckpt holds another model or vocabulary than the run to train, by {named}; give the options and"
    with pytest.raises(UserError, match=says):
        run_here(tmp_path / "run", *pairs, *SHORT, override, f"ckpt_path={tmp_path / 'other.ckpt'}")


def test_no_run_continues_from_an_average_or_a_published_model(
    trained: dict[str, Any], tmp_path: Path, pairs: list[str]
) -> None:
    average = {key: trained[key] for key in ("format", "config", "tokenizer", "state_dict")} | {"averaged": []}
    torch.save(average, tmp_path / "average.ckpt")
    write_published(trained, tmp_path / "published")
    for given in ("average.ckpt", "published"):
        with pytest.raises(UserError, match=r"holds no state of training, as an average or a published model does not"):
            run_here(tmp_path / "run", *pairs, *SHORT, f"ckpt_path={tmp_path / given}")
