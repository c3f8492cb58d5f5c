"""A run on three devices that is resumed: sums of three numbers depend on their order."""

from __future__ import annotations

from pathlib import Path

import pytest
from configs import composed
from distributed.ranks import on_ranks
from omegaconf import OmegaConf
from small_run import assert_same_run, begun, run_here
from torch.multiprocessing.spawn import ProcessRaisedException

from seq2seq_attn.training.build import build_trainer

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")  # Python 3.12's
THREE = ["trainer.strategy=ddp", "trainer.devices=3", "callback.autosave.every_steps=1", "attention=bahdanau"]


def resumed_after(folder: Path, *options: str) -> list[int]:
    """Go on with a run; return the updates after which it did so."""
    begun.clear()
    run_here(folder, *options, "resume=auto")
    return list(begun)


@pytest.mark.slow  # of one device: checkpoint/test_resume.py; of several that are not resumed: test_many_devices.py
def test_a_resumed_run_on_three_devices_is_bit_identical_if_it_is_deterministic(
    pairs: list[str], tmp_path: Path
) -> None:
    options = [*pairs, *THREE, "trainer.max_epochs=2", "trainer.deterministic=true"]
    on_ranks(3, run_here, tmp_path, tmp_path / "whole", *options)
    killer = "+callback.killed={_target_:small_run.Killed,hook:backward,step:3}"
    with pytest.raises(ProcessRaisedException, match="KilledError"):
        on_ranks(3, run_here, tmp_path, tmp_path / "cut", *options, killer)
    assert on_ranks(3, resumed_after, tmp_path, tmp_path / "cut", *options) == [[3]] * 3
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.parametrize(
    ("options", "looks"),
    [
        (("trainer=ddp_cpu",), None),
        (("trainer=ddp_cpu", "trainer.deterministic=true"), True),
        (("trainer=cpu", "trainer.devices=2", "trainer.deterministic=warn"), True),  # strategy=auto
        (("trainer=ddp_cpu", "trainer.deterministic=true", "trainer.strategy=ddp_find_unused_parameters_false"), False),
    ],
)
def test_lightning_2_6_has_the_options_of_ddp_and_only_a_deterministic_run_looks_for_unused_parameters(
    options: tuple[str, ...], looks: bool | None, tmp_path: Path
) -> None:
    trainer = build_trainer({"trainer": OmegaConf.to_container(composed(*options).trainer)}, tmp_path)
    assert trainer.strategy._ddp_kwargs.get("find_unused_parameters") is looks
