"""The figure of a validation by which a run chooses its best checkpoint, stops early and lowers its learning rate."""

from __future__ import annotations

from typing import Any

from hydra.utils import get_class
from omegaconf import DictConfig, OmegaConf

from seq2seq_attn.errors import UserError

OF_EVERY_RUN = {"val/loss": "min", "val/ppl": "min", "val/accuracy": "max"}
ATTENTION_ENTROPY = "seq2seq_attn.callback.attention_entropy.AttentionEntropy"
OF_ATTENTION_ENTROPY = {"val/attention_entropy": "min"}
OF_LINKS = {"val/alignment_loss": "min"}
OF_LANGUAGE_MODEL = {f"val/{name}": "min" for name in ("nats_per_token", "bits_per_token", "bits_per_character")}
COUNTS = {"step": "max", "epoch": "max", "train/loss": "min"}


def choose_monitor(composed: DictConfig) -> None:
    """Fill in `monitor` and `monitor_mode` where they are null.

    Raises:
        UserError: for a figure that no validation of this run has, and for a callback with the mode of another figure.
    """
    modes = validation_figures(composed)
    OmegaConf.set_readonly(composed, False)
    if composed.monitor is None:
        composed.monitor = next(iter(modes))
    check_figure("monitor", composed.monitor, modes)
    if str(goal := composed.get("optimized_metric")).startswith("val/"):
        check_figure("optimized_metric", goal, modes)
    composed.monitor_mode = composed.monitor_mode or modes[composed.monitor]
    for name, callback in (composed.get("callback") or {}).items():
        if "monitor" not in callback or callback.monitor == composed.monitor:
            continue
        check_figure(f"callback.{name}.monitor", callback.monitor, modes | COUNTS)
        better = (modes | COUNTS)[callback.monitor]
        if callback.get("mode", better) != better:
            raise UserError(
                f"callback.{name}.mode={callback.mode} would keep the worst {callback.monitor}; give "
                f"callback.{name}.mode={better} too"
            )


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
