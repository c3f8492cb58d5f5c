"""`seq2seq-attn explore`: see in a browser what a trained model attends to, or write a page of some sentences.

In a checkout it is `python explore.py`.
"""

from __future__ import annotations

from omegaconf import DictConfig

from seq2seq_attn.cli import entry


def task(config: DictConfig) -> None:
    """Serve the page until a signal ends the process, or write one file."""
    with entry.importing():
        from seq2seq_attn.explorer.explore import explore

    explore(config)


def main() -> None:
    """Run the command."""
    entry.main(task, "explore")


if __name__ == "__main__":
    main()
