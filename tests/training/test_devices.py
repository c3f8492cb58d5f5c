"""What a run refuses of its devices and processes, and how it sets DDP and Slurm."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from configs import built, composed
from omegaconf import OmegaConf
from pytorch_lightning.plugins.environments import SLURMEnvironment
from small_run import assert_same_run, run_here

from seq2seq_attn.distributed.run_folder import one_slurm_task
from seq2seq_attn.errors import UserError
from seq2seq_attn.training.build import build_trainer
from seq2seq_attn.training.check_config import check_config
from seq2seq_attn.training.devices import check_processes

STRATEGIES = "pytorch_lightning.strategies"
DIVIDING = {
    "trainer.strategy=fsdp": "fsdp",
    "trainer.strategy=FSDP_CPU_Offload": "FSDP_CPU_Offload",
    "trainer.strategy=deepspeed_stage_3": "deepspeed_stage_3",
    f"trainer.strategy={{_target_:{STRATEGIES}.FSDPStrategy}}": f"{STRATEGIES}.FSDPStrategy",
    f"trainer.strategy={{_target_:{STRATEGIES}.ModelParallelStrategy}}": f"{STRATEGIES}.ModelParallelStrategy",
}


@pytest.mark.parametrize("override", list(DIVIDING))
def test_a_strategy_that_divides_the_weights_is_refused(override: str) -> None:
    with pytest.raises(UserError, match=r"divides the model or .*; use trainer=ddp$") as refused:
        check_config(composed(override))
    assert str(refused.value).startswith(f"trainer.strategy={DIVIDING[override]} ")


@pytest.mark.parametrize(
    ("strategy", "method"),
    [
        ("ddp_spawn", "spawn"),
        ("ddp_fork_find_unused_parameters_true", "fork"),
        ("DDP_notebook", "fork"),
        (f"{{_target_:{STRATEGIES}.DDPStrategy,start_method:spawn}}", "spawn"),
    ],
)
def test_a_strategy_whose_processes_are_no_commands_is_refused(strategy: str, method: str) -> None:
    sentence = rf" starts the processes of a run by {method}, .*; use trainer=ddp, or trainer=ddp_cpu without a GPU$"
    with pytest.raises(UserError, match=sentence) as refused:
        check_config(composed("trainer=ddp_cpu", f"trainer.strategy={strategy}"))
    name = f"{STRATEGIES}.DDPStrategy" if strategy.startswith("{") else strategy
    assert str(refused.value).startswith(f"trainer.strategy={name} ")


@pytest.mark.parametrize(
    "strategy", ["auto", "ddp", "ddp_find_unused_parameters_true", f"{{_target_:{STRATEGIES}.DDPStrategy}}", "unknown"]
)
def test_other_strategies_are_left_to_lightning(strategy: str) -> None:
    check_config(composed(f"trainer.strategy={strategy}"))


TORCHRUN = {"TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0"}
SLURM = {"SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "2", "SLURM_NNODES": "1", "SLURM_JOB_NAME": "train"}
SLURM |= {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURM_JOB_ID": "4321"}
ONE_TASK = {name: value for name, value in SLURM.items() if name != "SLURM_NTASKS_PER_NODE"} | {"SLURM_NTASKS": "1"}
SUBMITIT = ONE_TASK | {"SLURM_NTASKS_PER_NODE": "1"}


@pytest.mark.parametrize("environment", [TORCHRUN, SLURM], ids=["torchrun", "slurm"])
def test_processes_that_would_each_train_alone_are_refused(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_all(environment, monkeypatch)
    check_processes(built(composed("trainer=ddp_cpu").trainer))
    sentence = (
        r"^2 processes were started, and trainer\.devices × trainer\.num_nodes is 1 × 1; start one process for each "
        r"device .*, or give trainer=ddp with as many devices$"
    )
    with pytest.raises(UserError, match=sentence):
        check_processes(built(composed("trainer=cpu").trainer))


def test_processes_that_slurm_spreads_otherwise_over_nodes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(SLURM | {"SLURM_NTASKS_PER_NODE": "1", "SLURM_NNODES": "2"}, monkeypatch)
    with pytest.raises(
        UserError,
        match=r"^the 2 processes are not spread over the nodes as trainer.devices=2 and trainer.num_nodes=1 say: ",
    ):
        check_processes(built(composed("trainer=ddp_cpu").trainer))


@pytest.mark.parametrize("environment", [ONE_TASK, SUBMITIT], ids=["sbatch", "submitit"])
def test_a_single_task_of_slurm_has_lightning_start_a_process_for_each_device(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_all(environment, monkeypatch)
    with pytest.raises(UserError, match=r"^1 process was started, and trainer.devices × trainer.num_nodes is 2 × 1; "):
        check_processes(built(composed("trainer=ddp_cpu").trainer))  # as Lightning 2.6 takes it
    with one_slurm_task():
        trainer = built(composed("trainer=ddp_cpu").trainer)
        check_processes(trainer)
    assert trainer.world_size == 2
    assert not trainer.strategy.cluster_environment.creates_processes_externally
    assert os.environ["SLURM_JOB_NAME"] == "train"


def test_slurm_requeues_no_job_whatever_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(SLURM, monkeypatch)
    assert SLURMEnvironment().auto_requeue
    config: Any = OmegaConf.to_container(composed("trainer=ddp_cpu").trainer)
    own = {"_target_": "pytorch_lightning.plugins.environments.SLURMEnvironment", "auto_requeue": True}
    for plugins in (None, [own]):
        environment: Any = build_trainer({"trainer": config | {"plugins": plugins}}, tmp_path).strategy
        assert isinstance(environment.cluster_environment, SLURMEnvironment)
        assert not environment.cluster_environment.auto_requeue


def test_slurm_with_torchrun_is_torchruns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(SLURM | TORCHRUN, monkeypatch)
    config: Any = OmegaConf.to_container(composed("trainer=ddp_cpu").trainer)
    strategy: Any = build_trainer({"trainer": config}, tmp_path).strategy
    assert not isinstance(strategy.cluster_environment, SLURMEnvironment)


def test_what_lightnings_requeueing_has_written_is_refused(
    pairs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_all(SLURM, monkeypatch)
    (tmp_path / "hpc_ckpt_1.ckpt").touch()
    with pytest.raises(UserError, match=r"^Lightning wrote .*hpc_ckpt_1.ckpt to requeue a job"):
        run_here(tmp_path, *pairs)


@pytest.mark.slow
@pytest.mark.usefixtures("quiet")
def test_a_run_in_a_single_task_of_slurm_tests_its_own_best_weights(
    pairs: list[str], trained_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_all(ONE_TASK, monkeypatch)
    (tmp_path / "hpc_ckpt_1.ckpt").write_bytes((trained_run / "checkpoints" / "last.ckpt").read_bytes())
    run_here(tmp_path, *pairs)
    assert_same_run(tmp_path, trained_run)


def set_all(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
