"""Hydra's overrides for the processes that are to leave nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from seq2seq_attn.distributed.rank_overrides import overrides_of_rank

QUIET = ["hydra.output_subdir=null", "hydra/job_logging=stdout"]


@pytest.mark.parametrize(
    "environment", [{}, {"RANK": "0", "LOCAL_RANK": "0"}, {"SLURM_PROCID": "0"}, {"NODE_RANK": "0", "LOCAL_RANK": "0"}]
)
def test_the_first_process_is_left_as_it_was_typed(environment: dict[str, str]) -> None:
    assert overrides_of_rank(environment, ["-m", "seed=1,2"]) == []


@pytest.mark.parametrize(
    "environment",
    [
        {"RANK": "1", "LOCAL_RANK": "1"},
        {"RANK": "2", "LOCAL_RANK": "0"},  # the first of another node
        {"NODE_RANK": "1"},
        {"NODE_RANK": "0", "LOCAL_RANK": "1"},
        {"SLURM_PROCID": "3"},
    ],
)
def test_any_other_makes_no_folder_no_log_and_no_copy_of_the_config(environment: dict[str, str]) -> None:
    assert overrides_of_rank(environment, ["seed=1"]) == [*QUIET, "hydra.run.dir=."]


def test_a_folder_that_was_typed_stays_and_nothing_is_said_twice() -> None:
    typed = ["hydra.run.dir=runs/mine", "hydra/job_logging=none"]
    assert overrides_of_rank({"RANK": "1"}, typed) == QUIET[:1]


def test_a_sweep_writes_its_config_where_it_is_thrown_away() -> None:
    *others, sweep = overrides_of_rank({"RANK": "1"}, ["--multirun", "hydra.sweep.dir=runs/mine"])
    assert others == [*QUIET, "hydra.run.dir=."]
    assert sweep.startswith("hydra.sweep.dir=")
    assert Path(sweep.partition("=")[2]).is_dir()
