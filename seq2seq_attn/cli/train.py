"""`seq2seq-attn train`: train, test and report one model, or several with -m.

In a checkout it is `python train.py`. Lightning starts the other processes of a run by this file.
"""

from __future__ import annotations

from collections.abc import Sequence

from omegaconf import DictConfig

from seq2seq_attn.cli import entry


def task(config: DictConfig) -> None:
    """Train, test and report."""
    with entry.importing():
        from seq2seq_attn.training.run import train

    train(config)


def parent_choice(overrides: Sequence[str]) -> list[str]:
    """Return the override that composes the model of another run, if the command line names one."""
    if not any(override.startswith("init_from") for override in overrides):
        return []
    with entry.importing():
        from seq2seq_attn.training.parent_config import choose_parent

    return choose_parent(overrides)


def main() -> None:
    """Run the command."""
    entry.main(task, "train", implied=parent_choice)


if __name__ == "__main__":
    main()
