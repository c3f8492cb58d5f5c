"""Hydra's sweepers of conf/hydra/sweeper; Hydra looks for plugins in this folder alone, and at every start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, final

from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf


@final
class GridSweeper(Sweeper):
    """Every combination of the values typed, as Hydra's own sweeper makes them.

    Args:
        max_batch_size: jobs that are handed to a launcher at once; None: all.
        params: overrides by key, under those typed.
    """

    def __init__(self, *, max_batch_size: int | None, params: DictConfig | None) -> None:
        self.max_batch_size = max_batch_size

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.hydra_context, self.task_function, self.config = hydra_context, task_function, config

    def sweep(self, arguments: list[str]) -> None:
        from seq2seq_attn.sweep.grid import sweep_grid

        overrides = [*params_of(self.config), *arguments]
        sweep_grid(overrides, self.max_batch_size, self.hydra_context, self.task_function, self.config)


@final
class OptunaSweeper(Sweeper):
    """Trials of an Optuna study, each of which learns from those before it. Akiba et al. 2019, arXiv:1907.10902.

    Its options are those of conf/hydra/sweeper/optuna.yaml.
    """

    def __init__(
        self,
        *,
        params: DictConfig | None,
        first: DictConfig | None,
        optimized_metric: str,
        direction: str,
        n_trials: int,
        n_jobs: int,
        n_startup_trials: int,
        max_failure_rate: float,
        seed: int,
    ) -> None:
        self.options: dict[str, Any] = {
            "first": dict(leaves(OmegaConf.to_container(first))) if first else {},
            "optimized_metric": optimized_metric,
            "direction": direction,
            "n_trials": n_trials,
            "n_jobs": n_jobs,
            "n_startup_trials": n_startup_trials,
            "max_failure_rate": max_failure_rate,
            "seed": seed,
        }

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.hydra_context, self.task_function, self.config = hydra_context, task_function, config

    def sweep(self, arguments: list[str]) -> None:
        from seq2seq_attn.sweep.study import Study

        study = Study([*params_of(self.config), *arguments], **self.options)
        study.sweep(self.hydra_context, self.task_function, self.config)


def params_of(config: DictConfig) -> list[str]:
    """The overrides of hydra.sweeper.params as they are written: a constructor gets them with references resolved."""
    params = config.hydra.sweeper.params
    written = OmegaConf.to_container(params, resolve=False) if params else {}
    return [f"{key}={value}" for key, value in leaves(written)] if written else []


def leaves(node: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """With the whole key, as overrides name it, however a YAML or the command line nests it."""
    if not isinstance(node, dict):
        yield key, node
        return
    for name, child in node.items():
        yield from leaves(child, f"{key}.{name}" if key else str(name))
