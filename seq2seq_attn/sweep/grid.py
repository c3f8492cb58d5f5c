"""The jobs of a sweep over every combination of values."""

from __future__ import annotations

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from seq2seq_attn.sweep.sweep import Sweep


def sweep_grid(
    overrides: list[str],
    max_batch_size: int | None,
    hydra_context: HydraContext,
    task_function: TaskFunction,
    config: DictConfig,
) -> None:
    """All jobs are looked at before the first is run."""
    typed = OverridesParser.create(config_loader=hydra_context.config_loader).parse_overrides(overrides)
    batches = BasicSweeper.split_arguments(typed, max_batch_size)
    sweep = Sweep(hydra_context, task_function, config, total=sum(len(batch) for batch in batches))
    numbers = iter(range(sum(len(batch) for batch in batches)))
    jobs = [[sweep.job(next(numbers), overrides) for overrides in batch] for batch in batches]
    for batch in jobs:
        sweep.run(batch)
    sweep.end()
