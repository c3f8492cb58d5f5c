"""`seq2seq-attn serve`: translate over HTTP."""

from __future__ import annotations

from omegaconf import DictConfig

from seq2seq_attn.cli import entry


def task(config: DictConfig) -> None:
    """Answer requests until a signal ends the process."""
    with entry.importing():
        from seq2seq_attn.inference.serve import serve

    serve(config)


def main() -> None:
    """Run the command."""
    entry.main(task, "serve")
