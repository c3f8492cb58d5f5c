"""The process of a run: what it may write before the Trainer tells it its rank."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import OmegaConf
from pytorch_lightning.utilities import rank_zero_only

from seq2seq_attn.checkpoint.checkpoint_file import prepare_run_folder
from seq2seq_attn.distributed.ranks import RANK_0
from seq2seq_attn.logger.wandb_logger import run_id
from seq2seq_attn.training.environment import run_environment


def test_the_first_process_of_another_node_that_is_started_by_hand_leaves_the_run_folder_to_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RANK_0, "")  # to be restored
    monkeypatch.setenv("NODE_RANK", "1")
    monkeypatch.setattr(rank_zero_only, "rank", 0)  # as Lightning takes it from the environment
    config = OmegaConf.create({"num_threads": None, "seed": 1, "paths": {"run_dir": str(tmp_path)}})
    (tmp_path / "wandb_run_id").write_text("of the first\n")
    with run_environment(config) as run_dir:
        prepare_run_folder(run_dir)
        run_id(run_dir / "wandb_run_id", resume=None)
    assert rank_zero_only.rank == 0  # of the next run of this process
    assert [path.name for path in tmp_path.iterdir()] == ["wandb_run_id"]
    assert (tmp_path / "wandb_run_id").read_text() == "of the first\n"
