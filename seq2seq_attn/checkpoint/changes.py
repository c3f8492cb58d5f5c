"""Options changed since the checkpoint from which a run goes on: what takes effect, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from pytorch_lightning.callbacks import Timer

from seq2seq_attn.checkpoint.load import read_checkpoint
from seq2seq_attn.errors import UserError

PLATEAU = "torch.optim.lr_scheduler.ReduceLROnPlateau"
FIXED = ("seed", "optimizer._target_", "optimizer.amsgrad", "optimizer.centered")  # their state is of another kind
LIMITS = ("trainer.max_epochs", "trainer.max_steps", "trainer.max_time")
ASIDE = {  # changes nothing of what is trained
    "choices", "ckpt_path", "log_text", "logger", "num_threads", "paths", "resume", "task_name",
}  # fmt: skip
ASIDE_CALLBACKS = ("callback.compile", "callback.profile")


class Change(NamedTuple):
    """An option by its whole key; None where it is not there."""

    key: str
    old: Any
    new: Any

    def repeats(self, other: Change) -> bool:
        """Whether it is the same option of the same part, under another name."""
        names = [change.key.rpartition(".")[2] for change in (self, other)]
        return (names[0], *self[1:]) == (names[1], *other[1:])

    def __str__(self) -> str:
        return f"{self.key} {shown(self.old)} → {shown(self.new)}"


def changes(saved: dict[str, Any], config: dict[str, Any]) -> list[Change]:
    """Of two resolved configurations, as far as both have them; the folders of a run do not count."""
    names = sorted((saved.keys() & config.keys()) - ASIDE)
    old, new = ({name: in_folders(node[name], node.get("paths", {})) for name in names} for node in (saved, config))
    found = [change for change in differences(old, new) if not change.key.startswith(ASIDE_CALLBACKS)]
    # a part is an option of its own and, by reference, one or more of the model
    parts = [change for change in found if not change.key.startswith("model.")]
    return [change for change in found if change in parts or not any(change.repeats(part) for part in parts)]


def differences(old: Any, new: Any, key: str = "") -> Iterator[Change]:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys([*old, *new]):
            yield from differences(old.get(name), new.get(name), f"{key}.{name}" if key else str(name))
    elif old != new:
        yield Change(key, old, new)


def in_folders(node: Any, paths: dict[str, Any]) -> Any:
    """With the run's folder and the cache by name, as they may be elsewhere now."""
    if isinstance(node, dict):
        return {key: in_folders(value, paths) for key, value in node.items()}
    for name, folder in paths.items():
        if isinstance(node, str) and folder and node.startswith(str(folder)):
            return f"${{paths.{name}}}{node.removeprefix(str(folder))}"
    return node


def shown(value: Any) -> str:
    """A part by its class; the text may be of anyone's checkpoint."""
    if isinstance(value, dict):
        value = str(value.get("_target_", "others")).rpartition(".")[2]
    text = "none" if value is None else str(value)
    return text if text.isprintable() else ascii(text)


def check_changes(file: Path, config: dict[str, Any]) -> None:
    """Refuse what cannot take effect in a run that goes on from `file`, and limits that it is beyond.

    Raises:
        UserError: with both values.
    """
    checkpoint = read_checkpoint(file)
    for change in changes(checkpoint["config"], config):
        kinds = {change.old, change.new} if change.key == "scheduler._target_" else set()
        if change.key in FIXED or PLATEAU in kinds:
            raise UserError(
                f"{change.key}={change.new} cannot take effect in a run that goes on: {file} was trained with "
                f"{shown(change.old)}; leave it as it was, or start a new run"
            )
        if "loops" not in checkpoint:  # weights alone, which are refused where they are restored
            continue
        if change.key in LIMITS:
            check_limit(change, checkpoint, file)
        if change.key == "trainer.accumulate_grad_batches":
            check_accumulation(change, checkpoint, file)


def check_limit(change: Change, checkpoint: dict[str, Any], file: Path) -> None:
    if change.new in (None, -1):
        return
    limit, trained, unit = change.new, checkpoint["global_step"], "steps"
    if change.key == "trainer.max_epochs":
        trained, unit = checkpoint["loops"]["fit_loop"]["epoch_progress"]["current"]["ready"], "epochs"
    elif change.key == "trainer.max_time":
        timer = checkpoint["callbacks"].get("Timer", {"time_elapsed": {"train": 0.0}})
        limit, trained = Timer(limit).time_remaining(), timer["time_elapsed"]["train"]
        unit = f"seconds ({timedelta(seconds=int(trained))})"
    if limit < trained:
        raise UserError(
            f"{change.key}={change.new} is below what {file} was trained for, {trained:,.0f} {unit}; give more, or "
            "start a new run"
        )


def check_accumulation(change: Change, checkpoint: dict[str, Any], file: Path) -> None:
    progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
    done = progress["current"]["processed"]
    if done % change.new and not progress["is_last_batch"]:
        raise UserError(
            f"{change.key}={change.new} does not divide the {done} batches of its epoch that {file} was trained on; "
            "take a number that does"
        )
