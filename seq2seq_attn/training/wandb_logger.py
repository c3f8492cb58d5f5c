"""A Weights & Biases logger that sends what was asked for, and never keeps a run waiting."""

from __future__ import annotations

import logging
import netrc
import os
import socket
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import wandb
from pytorch_lightning.loggers import WandbLogger
from pytorch_lightning.utilities import rank_zero_only

log = logging.getLogger(__name__)

CONNECT_SECONDS = 5.0


def wandb_logger(*, save_dir: str, project: str, name: str, offline: bool, resume: str | None) -> WandbLogger:
    """A run of its own: scalars and our own tables and pictures, but no code, host, user name or console.

    Args:
        offline: keep everything in `save_dir`/wandb, for `wandb sync`. It is also what happens, with a warning,
            where there is no key or the server cannot be reached within seconds.
        resume: auto: write on into the W&B run of this folder, if it has one.
    """
    if not offline and (reason := unreachable()):
        log.warning(
            f"W&B: {reason}; this run is kept offline in {save_dir}/wandb, send it later with `wandb sync`"
        )
        offline = True
    settings = wandb.Settings(
        save_code=False, disable_git=True, disable_job_creation=True, console="off", silent=True,
        x_disable_meta=True, x_disable_machine_info=True, x_disable_stats=True,
    )  # fmt: skip
    # reinit: without it a second run of the process would write on into the first.
    return WandbLogger(
        project=project,
        name=name,
        save_dir=save_dir,
        offline=offline,
        settings=settings,
        reinit="finish_previous",
        id=run_id(Path(save_dir) / "wandb_run_id", resume),
    )


@rank_zero_only
def run_id(file: Path, resume: str | None) -> str:
    """Kept in the run folder from the start, so that a run that goes on is the same one there too."""
    if resume != "auto" or not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{uuid4().hex[:8]}\n", "utf-8")
    return file.read_text("utf-8").strip()


def unreachable() -> str | None:
    """Why W&B cannot be used at once; None: it can."""
    url = urlsplit(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai"))
    if not (os.environ.get("WANDB_API_KEY") or has_login(url.hostname or "")):
        return "no key is set (WANDB_API_KEY, or `wandb login`)"
    port = url.port or (443 if url.scheme == "https" else 80)
    try:
        socket.create_connection((url.hostname, port), timeout=CONNECT_SECONDS).close()
    except OSError as error:
        return f"{url.hostname} cannot be reached ({error})"
    return None


def has_login(host: str) -> bool:
    """Whether `wandb login` has left a key for the host."""
    try:
        return netrc.netrc(os.environ.get("NETRC")).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False
