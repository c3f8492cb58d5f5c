"""The figure that chooses the best checkpoint, and whether more of it is better."""

from __future__ import annotations

import copy

import pytest
from configs import composed
from omegaconf import DictConfig

from seq2seq_attn.errors import UserError
from seq2seq_attn.training.monitor import choose_monitor


def chosen(*overrides: str) -> DictConfig:
    config = copy.deepcopy(composed(*overrides))
    choose_monitor(config)
    return config


@pytest.mark.parametrize(
    ("overrides", "monitor", "mode"),
    [
        ([], "val/bleu", "max"),
        (["monitor=val/loss"], "val/loss", "min"),
        (["metric=[rouge]"], "val/rouge1", "max"),
        (["metric=[rouge]", "monitor=val/rougeL"], "val/rougeL", "max"),
        (["metric=[ter,bleu]"], "val/ter", "min"),
        (["metric=[comet,exact_match]"], "val/exact_match", "max"),
        (["metric=[]"], "val/loss", "min"),
        (["guided_alignment.links=self", "monitor=val/alignment_loss"], "val/alignment_loss", "min"),
    ],
)
def test_one_option_is_followed_by_all_that_monitor(overrides: list[str], monitor: str, mode: str) -> None:
    config = chosen("scheduler=plateau", *overrides)
    assert config.monitor == monitor
    for part in (config.callback.checkpoint, config.callback.early_stopping):
        assert (part.monitor, part.mode) == (monitor, mode)
    assert config.scheduler.mode == mode
    assert (config.callback.history.monitor, config.callback.history.mode) == ("step", "max")


def test_a_callback_may_follow_a_figure_of_its_own() -> None:
    own = ["callback.early_stopping.monitor=val/loss", "callback.early_stopping.mode=min"]
    config = chosen(*own)
    assert (config.callback.early_stopping.mode, config.callback.checkpoint.mode) == ("min", "max")
    with pytest.raises(
        UserError, match=r"^callback.early_stopping.mode=max would take the worst val/loss for the best; "
    ):
        chosen(own[0])
    assert chosen("monitor=val/attention_entropy", "monitor_mode=max").callback.checkpoint.mode == "max"


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["callback.checkpoint.mode=min"], "callback.checkpoint.mode=min would take the worst val/bleu for the best"),
        (["scheduler=plateau", "scheduler.mode=min"], "scheduler.mode=min would take the worst val/bleu for the best"),
        (
            ["+callback.x={_target_:pytorch_lightning.callbacks.EarlyStopping,monitor:val/chrf}"],
            "callback.x.mode=min would take the worst val/chrf for the best; give callback.x.mode=max",
        ),
    ],
)
def test_the_worst_is_not_taken_for_the_best(overrides: list[str], sentence: str) -> None:
    with pytest.raises(UserError, match=f"^{sentence}"):
        chosen(*overrides)


def test_a_mode_that_is_given_for_the_figure_itself_is_followed_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert chosen("monitor_mode=min", "scheduler=plateau").scheduler.mode == "min"
    assert caplog.messages == ["monitor_mode=min keeps the checkpoint with the worst val/bleu"]
    assert chosen("monitor_mode=max").callback.checkpoint.mode == "max"
    assert chosen("monitor=val/attention_entropy", "monitor_mode=max").monitor_mode == "max"
    assert len(caplog.messages) == 1


@pytest.mark.parametrize(
    ("option", "value"),
    [("monitor", "val/ter"), ("callback.checkpoint.monitor", "nope"), ("callback.early_stopping.monitor", "val/ter")],
)
def test_a_figure_that_no_validation_has_is_refused(option: str, value: str) -> None:
    with pytest.raises(UserError, match=f"^{option}={value} must be one of val/bleu, val/chrf, val/loss, .*"):
        chosen(f"{option}={value}")


@pytest.mark.parametrize("without", [["~callback.attention_entropy"], ["model=lm", "data=text", "metric=[]"]])
def test_the_entropy_is_a_figure_where_its_callback_logs_it(without: list[str]) -> None:
    with pytest.raises(UserError, match=r"^monitor=val/attention_entropy must be one of val/"):
        chosen("monitor=val/attention_entropy", *without)


def test_a_search_for_a_figure_that_no_validation_has_is_refused() -> None:
    with pytest.raises(UserError, match=r"^optimized_metric=val/bleu must be one of val/rouge1, "):
        chosen("sweep=optuna", "metric=[rouge]")
