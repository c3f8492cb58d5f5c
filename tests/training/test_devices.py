"""What a run refuses of its devices and processes, and how it sets DDP and Slurm."""

from __future__ import annotations

import pytest
from configs import composed

from seq2seq_attn.errors import UserError
from seq2seq_attn.training.checks import check_config

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
    with pytest.raises(UserError, match=r"divides the weights of a model .*; use trainer=ddp$") as refused:
        check_config(composed(override))
    assert str(refused.value).startswith(f"trainer.strategy={DIVIDING[override]} ")


@pytest.mark.parametrize(
    "strategy", ["auto", "ddp", "ddp_find_unused_parameters_true", f"{{_target_:{STRATEGIES}.DDPStrategy}}", "unknown"]
)
def test_other_strategies_are_left_to_lightning(strategy: str) -> None:
    check_config(composed(f"trainer.strategy={strategy}"))
