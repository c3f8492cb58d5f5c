"""Hydra's overrides for the processes that are to leave nothing behind."""

from __future__ import annotations

import pytest

from seq2seq_attn.distributed.rank_overrides import is_first, is_override, overrides_of_rank

QUIET = ["hydra.output_subdir=null", "hydra/job_logging=stdout"]


@pytest.fixture(autouse=True)
def no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    "environment",
    [
        "",
        "RANK=0 LOCAL_RANK=0",
        "SLURM_PROCID=0",
        "NODE_RANK=0 LOCAL_RANK=0",
        "TORCHELASTIC_RUN_ID=7 RANK=0 LOCAL_RANK=0 SLURM_PROCID=1",  # srun has started torchrun on each node
    ],
)
def test_the_first_process_is_left_as_it_was_typed(environment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(environment, monkeypatch)
    assert is_first()
    assert overrides_of_rank(["seed=1,2"]) == []


@pytest.mark.parametrize(
    "environment",
    [
        "RANK=1 LOCAL_RANK=1",
        "RANK=2 LOCAL_RANK=0",  # the first of another node
        "NODE_RANK=1",
        "NODE_RANK=0 LOCAL_RANK=1",
        "SLURM_PROCID=3",
        "TORCHELASTIC_RUN_ID=7 RANK=8 LOCAL_RANK=0 SLURM_PROCID=0",
    ],
)
def test_any_other_makes_no_folder_no_log_and_no_copy_of_the_config(
    environment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_all(environment, monkeypatch)
    assert not is_first()
    assert overrides_of_rank(["seed=1"]) == [*QUIET, "hydra.run.dir=."]


def set_all(environment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for word in environment.split():
        monkeypatch.setenv(*word.split("="))


def test_a_folder_that_was_typed_stays_and_nothing_is_given_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    assert overrides_of_rank(["hydra.run.dir=runs/mine", "hydra/job_logging=none"]) == QUIET[:1]


def test_an_override_is_told_from_a_flag_and_its_value() -> None:
    assert [word for word in ("seed=1", "~logger", "+a.b=''") if not is_override(word)] == []
    assert [word for word in ("-m", "--cfg", "job", "--config-path=conf", "-cn", "seed") if is_override(word)] == []
