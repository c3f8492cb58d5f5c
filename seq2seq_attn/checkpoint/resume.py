"""What a run resumes from, whether it is complete, and which options differ from those it was trained with."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from seq2seq_attn.checkpoint.checkpoint_file import is_checkpoint_of, read_latest
from seq2seq_attn.checkpoint.load import find_checkpoint, read_checkpoint
from seq2seq_attn.distributed.rank_overrides import is_first
from seq2seq_attn.distributed.run_lock import check_is_new
from seq2seq_attn.errors import UserError
from seq2seq_attn.options import typed
from seq2seq_attn.paths import given_path, is_named_by_time

log = logging.getLogger(__name__)
LIMITS = ("trainer.max_epochs", "trainer.max_steps", "trainer.max_time")
FIXED = (  # options that a run keeps: a checkpoint holds a state of another kind
    "seed", "optimizer._target_", "optimizer.amsgrad", "optimizer.centered", "freeze", "parameter_groups",
    "tokenizer.model",
)  # fmt: skip
CHOOSING = (  # options by which Lightning knows the callback that has chosen best.ckpt
    "monitor", "monitor_mode", *(f"callback.checkpoint.{name}" for name in (
        "monitor", "mode", "every_n_train_steps", "every_n_epochs", "train_time_interval",
    )),
)  # fmt: skip
OF_MODEL = ("model", "attention", "position", "feed_forward", "self_attention", "encoder_attention", "cross_attention")
UNTRAINED = {  # options that change nothing of what is trained
    "choices", "ckpt_path", "eval_batch_tokens", "init_from", "log_text", "logger", "num_threads", "num_workers",
    "paths", "resume", "task_name", "trust",
}  # fmt: skip
UNTRAINED_CALLBACKS = ("callback.compile", "callback.profile")


class Resumed(NamedTuple):
    """The checkpoint from which a run resumes, and the options that have changed since."""

    file: Path
    checkpoint: dict[str, Any]
    changes: list[Change]


def starting_point(composed: DictConfig, run_dir: Path) -> Resumed | None:
    """Read the checkpoint to resume from; None: the run starts anew.

    Raises:
        UserError: if there is none where one was named, all are damaged, or another run is in the folder.
    """
    found: tuple[Path, Any] | None = None
    if composed.resume == "auto":
        found = read_latest(run_dir / "checkpoints")
        log.info(f"The run {'starts' if found is None else 'resumes'} in {run_dir}")
        if found is None and folder_is_of_the_time():
            log.warning(
                "resume=auto starts a run in a folder that is named by the time, so the same command will not find it; "
                "give hydra.run.dir=FOLDER as well"
            )
        if found is not None and composed.ckpt_path is not None:
            warn_of_unread(given_path(composed.ckpt_path, "ckpt_path"), found[0], run_dir)
    if found is None and composed.ckpt_path is not None:
        found = find_checkpoint(composed.ckpt_path), None
    is_own = found is not None and is_checkpoint_of(found[0], run_dir)
    if composed.resume is None and not is_own and is_first():
        check_is_new(run_dir)
    if found is None:
        return None
    file, content = found
    checkpoint = read_checkpoint(file, content)
    return Resumed(file, checkpoint, changes(checkpoint["config"], plain(composed)))


def warn_of_unread(named: Path, latest: Path, run_dir: Path) -> None:
    """Warn of a checkpoint of the run's own folder that is named beside resume=auto, which takes the latest one."""
    if is_checkpoint_of(named, run_dir) and not (named.exists() and named.samefile(latest)):
        log.warning(
            f"resume=auto continues from {latest.name}, and ckpt_path={named} is not read; leave out resume=auto to go "
            "back to it"
        )


def folder_is_of_the_time() -> bool:
    """Return whether this is a single run whose folder is named by the time."""
    if not HydraConfig.initialized() or HydraConfig.get().mode != RunMode.RUN:
        return False
    return is_named_by_time(HydraConfig.get().run)


def results_of_complete(composed: DictConfig, run_dir: Path) -> dict[str, Any] | None:
    """Return what a complete run left, and say so; None: it is to be run.

    It is also to be resumed if the options now let it train longer, or with another patience.

    Raises:
        UserError: for another seed, optimizer or model, whose results these are not.
    """
    file, recorded = run_dir / "results.json", run_dir / "config.yaml"
    if composed.resume is None or not file.exists():
        return None
    try:
        results: dict[str, Any] = json.loads(file.read_text("utf-8"))
    except ValueError:  # it was being written
        return None
    changed = changes(read_recorded(recorded), plain(composed)) if recorded.exists() else []
    for change in sorted(changed, key=lambda change: "." in change.key):  # the option before those that refer to it
        if makes_another_run(change):
            raise UserError(
                f"{run_dir} is complete and was trained with other options: {change}; give them as they were, or "
                "start a new run in another hydra.run.dir"
            )
    limits = (*LIMITS, "callback.early_stopping.patience")
    if any(change.key in limits or change.key.startswith("trainer.max_time.") for change in changed):
        return None
    idle = (
        f" with {', '.join(map(str, changed))}; give a higher trainer.max_epochs, or callback.early_stopping.patience "
        "if it stopped early"
    )
    log.info(f"{run_dir} is complete; nothing is left to train{idle if changed else ''}")
    return results


def makes_another_run(change: Change) -> bool:
    """Whether the results of a run are those of another with this option; one that it did not have yet is none."""
    return makes_another_model(change) or (change.old is not None and change.key in (*FIXED, *CHOOSING))


def makes_another_model(change: Change) -> bool:
    """Whether the weights belong to another model than the options now describe, even if all shapes are the same."""
    is_share = isinstance(change.old, float) or isinstance(change.new, float)  # such as dropout
    may_change = change.is_new or is_share or change.key.endswith(".backend")
    return change.key.partition(".")[0] in OF_MODEL and not may_change


def plain(config: Any) -> dict[str, Any]:
    """Return a configuration as resolved plain data."""
    return OmegaConf.to_container(config, resolve=True)  # type: ignore[return-value]


def read_recorded(file: Path) -> dict[str, Any]:
    """Return the `config.yaml` of a run. A run writes no reference, so one of a stranger's folder is not resolved."""
    return OmegaConf.to_container(OmegaConf.load(file))  # type: ignore[return-value]


class Change(NamedTuple):
    """An option by its whole key; None where it is not there.

    Attributes:
        is_new: whether the older configuration does not have it at all.
    """

    key: str
    old: Any
    new: Any
    is_new: bool = False

    def repeats(self, other: Change) -> bool:
        """Whether it is the same option of the same part, under another name."""
        names = [change.key.rpartition(".")[2] for change in (self, other)]
        return (names[0], self.old, self.new) == (names[1], other.old, other.new)

    def __str__(self) -> str:
        return f"{self.key.removesuffix('._target_')} {self.shown(self.old)} → {self.shown(self.new)}"

    def shown(self, value: Any) -> str:
        """Return a part by its class; the text may be of anyone's checkpoint."""
        if isinstance(value, dict):
            value = str(value.get("_target_", "others")).rpartition(".")[2]
        is_mappings = isinstance(value, list) and all(isinstance(one, dict) for one in value)
        text = "none" if value is None else typed(value) if is_mappings else str(value)
        text = text.rpartition(".")[2] if self.key.endswith("._target_") else text
        return text if text.isprintable() else ascii(text)


def changes(saved: dict[str, Any], config: dict[str, Any]) -> list[Change]:
    """Compare two resolved configurations as far as both have an option.

    The folders of a run do not count, nor sizes that only its tokenizer knows, nor files that only a new run reads.
    """
    saved, config = ({"parameter_groups": []} | node for node in (saved, config))  # which an old one lacks
    names = sorted((saved.keys() & config.keys()) - UNTRAINED)
    old, new = ({name: in_folders(node[name], node.get("paths", {})) for name in names} for node in (saved, config))
    unchanged = ("source_vocab_size", "target_vocab_size", "_embedding_file")
    changed = [change for change in differences(old, new) if not change.key.endswith(unchanged)]
    changed = [change for change in changed if not (change.key == "tokenizer.vocab_size" and change.new == "auto")]
    changed = [change for change in changed if not change.key.startswith(UNTRAINED_CALLBACKS)]
    # a part is an option of its own and, by reference, one or more of the model; so is the seed one of a callback
    first = [change for change in changed if "." not in change.key]
    parts = [change for change in changed if not change.key.startswith("model.")]
    repeated = {"model": parts, "callback": first}
    return [
        change
        for change in changed
        if not any(change.repeats(other) for other in repeated.get(change.key.partition(".")[0], []) if other != change)
    ]


def differences(old: Any, new: Any, key: str = "", is_new: bool = False) -> Iterator[Change]:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys([*old, *new]):
            at = f"{key}.{name}" if key else str(name)
            yield from differences(old.get(name), new.get(name), at, name not in old)
    elif old != new:
        yield Change(key, old, new, is_new)


def in_folders(node: Any, paths: dict[str, Any]) -> Any:
    """Replace the run's folder and the cache by their names, since they may have moved."""
    if isinstance(node, dict):
        return {key: in_folders(value, paths) for key, value in node.items()}
    for name, folder in paths.items():
        if isinstance(node, str) and folder and (node == str(folder) or node.startswith(f"{folder}/")):
            return f"${{paths.{name}}}{node.removeprefix(str(folder))}"
    return node
