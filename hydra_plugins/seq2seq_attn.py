"""The sweepers of conf/hydra/sweeper, and a node for options of any name.

Hydra finds plugins in this folder only, and imports it at every start.
"""

from __future__ import annotations

from typing import Any, final

from hydra.core.config_store import ConfigStore
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

# An option of a YAML file takes only the names that are in it; one with this node in its defaults list takes any name.
# The group is in hydra/, since `--help` lists every other.
ConfigStore.instance().store("any_name", DictConfig({}, flags={"struct": False}), group="hydra/options")


@final
class GridSweeper(Sweeper):
    """Every combination of the values given.

    Args:
        max_batch_size: jobs that a launcher gets at once; None: all.
        params: overrides by key; those of the command line replace them.
    """

    def __init__(self, *, max_batch_size: Any, params: DictConfig | None) -> None:
        self.max_batch_size = max_batch_size

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.given = (hydra_context, task_function, config)

    def sweep(self, arguments: list[str]) -> None:
        from seq2seq_attn.sweep.sweep import Sweep, check_numbers

        check_numbers({"max_batch_size": self.max_batch_size})
        Sweep(*self.given, arguments).run_grid(self.max_batch_size)


@final
class OptunaSweeper(Sweeper):
    """Trials of an Optuna study; `seq2seq_attn.sweep.study.Study` has its options."""

    def __init__(self, *, params: DictConfig | None, **options: Any) -> None:
        self.options = options

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.given = (hydra_context, task_function, config)

    def sweep(self, arguments: list[str]) -> None:
        from seq2seq_attn.sweep.study import Study
        from seq2seq_attn.sweep.sweep import Sweep, check_numbers

        check_numbers(self.options)
        Study(**self.options).run(Sweep(*self.given, arguments))
