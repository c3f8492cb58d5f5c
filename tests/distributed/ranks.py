"""Several processes of one run, forked from the tests', which speak through gloo."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.multiprocessing import start_processes


def on_ranks(number: int, work: Callable[..., Any], folder: Path, *arguments: Any) -> list[Any]:
    """What `work(*arguments)` gives in each of the processes, of which Lightning knows by their environment."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    start_processes(one_rank, (number, port, work, folder, arguments), number, start_method="fork")
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(number)]


def one_rank(
    rank: int, number: int, port: int, work: Callable[..., Any], folder: Path, arguments: tuple[Any, ...]
) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(number)}
    os.environ |= {"LOCAL_RANK": str(rank), "RANK": str(rank)}
    torch.set_num_threads(1)
    torch.save(work(*arguments), folder / f"{rank}.pt")
    if torch.distributed.is_initialized():
        torch.distributed.barrier()  # rank 0 holds the store, through which the others may still be connecting
