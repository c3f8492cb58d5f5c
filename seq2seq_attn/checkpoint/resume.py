"""`resume=auto`: where a run goes on, if there is one in its folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.utilities import rank_zero_only

from seq2seq_attn.checkpoint.changes import LIMITS, Change, changes
from seq2seq_attn.checkpoint.checkpoint_file import BEST, LAST, PREVIOUS, latest_checkpoint, remove_checkpoint
from seq2seq_attn.checkpoint.load import find_checkpoint
from seq2seq_attn.errors import UserError


def starting_point(resume: str | None, ckpt_path: str | None, run_dir: Path) -> Path | None:
    """The checkpoint to go on from; None: the run starts anew.

    Raises:
        UserError: if there is none where one was named, or all are damaged.
    """
    if resume == "auto":
        latest = latest_checkpoint(run_dir / "checkpoints")
        say(f"The run {'starts' if latest is None else 'goes on'} in {run_dir}")
        if latest is not None:
            return latest
    return None if ckpt_path is None else find_checkpoint(ckpt_path)


def results_of_complete(resume: str | None, run_dir: Path, composed: DictConfig | None = None) -> dict[str, Any] | None:
    """What a run that is complete left, said on the screen; None: it is to be run, or to go on.

    Args:
        composed: its options now; it goes on if they let it train longer, or otherwise long.

    Raises:
        UserError: for another resume than auto and null.
    """
    if resume not in (None, "auto"):
        raise UserError(f"resume={resume} is unknown; use resume=auto, or leave it out to start anew")
    file = run_dir / "results.json"
    if resume is None or not file.exists():
        return None
    try:
        results: dict[str, Any] = json.loads(file.read_text("utf-8"))
    except ValueError:  # it was being written
        return None
    changed = [change for change in changes_since(run_dir, composed) if not change.key.endswith("vocab_size")]
    if any(change.key in (*LIMITS, "callback.early_stopping.patience") for change in changed):
        return None
    idle = f"; {', '.join(map(str, changed))}: give a higher trainer.max_epochs too, and it trains on with this"
    say(f"{run_dir} is complete; nothing is left to do{idle if changed else ''}")
    return results


def changes_since(run_dir: Path, composed: DictConfig | None) -> list[Change]:
    """What is changed of the options that a run folder names."""
    file = run_dir / "config.yaml"
    if composed is None or not file.exists():
        return []
    saved: Any = OmegaConf.to_container(OmegaConf.load(file), resolve=True)
    config: Any = OmegaConf.to_container(composed, resolve=True)
    return changes(saved, config)


@rank_zero_only
def say(sentence: str) -> None:
    print(sentence, flush=True)


@rank_zero_only
def forget_old_run(run_dir: Path, resumed: Path | None) -> None:
    """What an earlier run left in the folder must not be taken for this one's."""
    (run_dir / "results.json").unlink(missing_ok=True)
    if resumed is None:
        for name in (BEST, LAST, PREVIOUS):
            remove_checkpoint(run_dir / "checkpoints" / name)
