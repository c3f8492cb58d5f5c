"""The figure of a validation by which a run chooses its best checkpoint, stops early and lowers its learning rate."""

from __future__ import annotations

import logging
from typing import Any

from hydra.utils import get_class
from omegaconf import DictConfig, OmegaConf

from seq2seq_attn.distributed.rank_overrides import is_first
from seq2seq_attn.errors import UserError

log = logging.getLogger(__name__)
OF_EVERY_RUN = {"val/loss": "min", "val/ppl": "min", "val/accuracy": "max"}
ATTENTION_ENTROPY = "seq2seq_attn.callback.attention_entropy.AttentionEntropy"
OF_ATTENTION_ENTROPY = {"val/attention_entropy": "min"}
OF_LINKS = {"val/alignment_loss": "min"}
OF_LANGUAGE_MODEL = {f"val/{name}": "min" for name in ("nats_per_token", "bits_per_token", "bits_per_character")}
PLATEAU = "torch.optim.lr_scheduler.ReduceLROnPlateau"
OUTSIDE_VALIDATION = {"step": "max", "epoch": "max", "train/loss": "min"}


def choose_monitor(composed: DictConfig) -> None:
    """Fill in `monitor` and `monitor_mode` where they are null.

    Raises:
        UserError: for a figure that no validation of this run has, and for a callback or a scheduler that would take
            the worst for the best.
    """
    modes = validation_figures(composed)
    OmegaConf.set_readonly(composed, False)
    if composed.monitor is None:
        composed.monitor = next(iter(modes))
    check_figure("monitor", composed.monitor, modes)
    if str(goal := composed.get("optimized_metric")).startswith("val/"):
        check_figure("optimized_metric", goal, modes)
    usual = modes[composed.monitor]
    composed.monitor_mode = composed.monitor_mode or usual
    if composed.monitor_mode != usual and composed.monitor not in OF_ATTENTION_ENTROPY and is_first():
        log.warning(f"monitor_mode={composed.monitor_mode} keeps the checkpoint with the worst {composed.monitor}")
    modes |= {composed.monitor: composed.monitor_mode}
    for name, callback in (composed.get("callback") or {}).items():
        if "monitor" not in callback:
            continue
        check_figure(f"callback.{name}.monitor", callback.monitor, modes | OUTSIDE_VALIDATION)
        check_mode(f"callback.{name}", callback, callback.monitor, modes | OUTSIDE_VALIDATION)
    if composed.scheduler.get("_target_") == PLATEAU:
        check_mode("scheduler", composed.scheduler, composed.monitor, modes)


def check_mode(option: str, group: DictConfig, figure: str, modes: dict[str, str]) -> None:
    """Refuse a group of options with the mode of another figure, be it the default of Lightning or torch, `min`."""
    better, is_theirs = modes[figure], str(group.get("_target_")).startswith(("pytorch_lightning.", "torch."))
    mode = group.get("mode", "min" if is_theirs else better)
    if mode != better:
        raise UserError(f"{option}.mode={mode} would take the worst {figure} for the best; give {option}.mode={better}")


def validation_figures(composed: DictConfig) -> dict[str, str]:
    """Return the figures of a validation, text metrics first, each with its better direction, `max` or `min`."""
    metrics: dict[Any, Any] = {
        name: get_class(options._target_) for name, options in (composed.get("metric") or {}).items()
    }
    metric_modes = {
        f"val/{name}": "max" if metric.higher_is_better else "min"
        for name, metric in metrics.items()
        if not metric.scores_whole_test
    }
    reads_source = composed.model.get("encoder") is not None
    translates = reads_source and composed.get("objective") is None
    callbacks = (composed.get("callback") or {}).values()
    logs_entropy = translates and any(callback.get("_target_") == ATTENTION_ENTROPY for callback in callbacks)
    of_callback = OF_ATTENTION_ENTROPY if logs_entropy else {}
    of_links = OF_LINKS if composed.guided_alignment.links is not None else {}
    return metric_modes | OF_EVERY_RUN | of_callback | of_links | ({} if reads_source else OF_LANGUAGE_MODEL)


def check_figure(option: str, figure: object, known: dict[str, str]) -> None:
    if figure not in known:
        raise UserError(f"{option}={'null' if figure is None else figure} must be one of {', '.join(known)}")
