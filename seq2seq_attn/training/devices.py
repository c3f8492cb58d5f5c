"""The devices of a run and the processes that share them: what is refused, and how DDP and Slurm are set."""

from __future__ import annotations

from typing import Any

from hydra.utils import get_class
from omegaconf import OmegaConf
from pytorch_lightning.strategies import DeepSpeedStrategy, FSDPStrategy, ModelParallelStrategy, StrategyRegistry

from seq2seq_attn.errors import UserError

DIVIDING = (FSDPStrategy, ModelParallelStrategy, DeepSpeedStrategy)


def check_strategy(strategy: Any) -> None:
    """Refuse a strategy that divides the weights of a model among devices.

    Searches, the attention of a validation, and the best weights that are tested need a whole model.

    Args:
        strategy: a name of Lightning's, or the options of a class.

    Raises:
        UserError: naming the strategy that gives each device a whole model.
    """
    if OmegaConf.is_config(strategy):
        name = str(strategy.get("_target_"))
        try:
            kind: Any = get_class(name)
        except Exception:  # a class that is not there, which the Trainer is about to refuse
            return
    else:
        name = str(strategy)
        kind = StrategyRegistry[name.lower()]["strategy"] if name.lower() in StrategyRegistry else None
    if isinstance(kind, type) and issubclass(kind, DIVIDING):
        raise UserError(
            f"trainer.strategy={name} divides the weights of a model among devices, and each device needs a whole "
            "model for its searches; use trainer=ddp"
        )
