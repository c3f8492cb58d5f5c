"""The devices of a run and the processes that share them: what is refused, and how DDP and Slurm are set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning_fabric.plugins.environments import ClusterEnvironment, SLURMEnvironment
from omegaconf import OmegaConf
from pytorch_lightning.strategies import (
    DDPStrategy,
    DeepSpeedStrategy,
    FSDPStrategy,
    ModelParallelStrategy,
    StrategyRegistry,
)

from seq2seq_attn.distributed.run_folder import launcher
from seq2seq_attn.errors import UserError
from seq2seq_attn.options import class_named

DIVIDING = (FSDPStrategy, ModelParallelStrategy, DeepSpeedStrategy)


def check_strategy(strategy: Any) -> None:
    """Refuse a strategy that divides the weights of a model among devices, or whose processes are no commands.

    Searches, the attention of a validation, and the best weights that are tested need a whole model. The processes of
    a run are those that Lightning starts by the command itself, since the first one watches them and ends them.

    Args:
        strategy: a name of Lightning's, or the options of a class.

    Raises:
        UserError: naming the strategy that gives each device a whole model and a process of its own.
    """
    kind: type | None = None
    options: Any = {}
    if OmegaConf.is_config(strategy):
        name = str(strategy.get("_target_"))
        kind, options = class_named(name), strategy
    elif (name := str(strategy)).lower() in StrategyRegistry:
        known = StrategyRegistry[name.lower()]
        kind, options = known["strategy"], known["init_params"]
    if kind is not None and issubclass(kind, DIVIDING):
        raise UserError(
            f"trainer.strategy={name} divides the model or its optimizer state among devices, and each device needs "
            "the whole model for its searches; use trainer=ddp"
        )
    method = options.get("start_method", "popen")
    if method != "popen":
        raise UserError(
            f"trainer.strategy={name} starts the processes of a run by {method}, and each must be a command of its "
            "own; use trainer=ddp, or trainer=ddp_cpu without a GPU"
        )


def check_processes(trainer: Any) -> None:
    """Refuse a run whose number of processes differs from its number of devices, which would train on some of them.

    Raises:
        UserError: with both numbers.
    """
    environment, devices = launcher(), trainer.num_devices * trainer.num_nodes
    started = trainer.world_size if environment is None else environment.world_size()
    chosen = f"trainer.devices × trainer.num_nodes is {trainer.num_devices} × {trainer.num_nodes}"
    if not started == trainer.world_size == devices:
        raise UserError(
            f"{started} process{'es were' if started > 1 else ' was'} started, and {chosen}; start one process for "
            "each device (torchrun --nproc-per-node, #SBATCH --ntasks-per-node), or give trainer=ddp with as many "
            "devices"
        )
    try:
        if environment is not None:
            environment.validate_settings(trainer.num_devices, trainer.num_nodes)
    except ValueError as error:
        raise UserError(
            f"the {started} processes are not spread over the nodes as trainer.devices={trainer.num_devices} and "
            f"trainer.num_nodes={trainer.num_nodes} say: {error}"
        ) from error


def check_requeued(run_dir: Path) -> None:
    """Refuse a run folder with a checkpoint of Lightning's own requeueing, which it would load for every test.

    Raises:
        UserError: naming the file.
    """
    found = sorted(run_dir.glob("hpc_ckpt_*"))
    if found and SLURMEnvironment.detect():
        raise UserError(
            f"Lightning wrote {found[0]} to requeue a job, and would load it for the test instead of the best "
            "weights; move it out of the run folder, and continue with resume=auto"
        )


def without_requeue(plugins: list[Any]) -> list[Any]:
    """Return Lightning's plugins, with one for Slurm that does not requeue a job: `StopOnSignal` saves it.

    Args:
        plugins: those that the options name.
    """
    environment = launcher()
    if isinstance(environment, SLURMEnvironment) and not any(isinstance(one, ClusterEnvironment) for one in plugins):
        plugins = [*plugins, environment]
    for plugin in plugins:
        if isinstance(plugin, SLURMEnvironment):
            plugin.auto_requeue = False
    return plugins


def fix_order_of_sums(trainer: Any) -> None:
    """Have DDP sum the gradients of all processes in one order, from the first update of each process on.

    After its first backward pass a process groups gradients anew by when they were ready, and the sum over three or
    more processes is rounded by the place of a number in its group, so a resumed run would differ in its first update.
    DDP does not group anew where it looks for unused parameters: there are none, and the look costs a walk through the
    graph. The options are private of Lightning 2.6.6.
    """
    if isinstance(trainer.strategy, DDPStrategy):
        trainer.strategy._ddp_kwargs.setdefault("find_unused_parameters", True)
