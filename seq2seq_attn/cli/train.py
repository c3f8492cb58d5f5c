"""`seq2seq-attn train`: train, test and report one model, or several with -m.

In a checkout it is `python train.py`. Lightning starts the other processes of a run by this file.
"""

from __future__ import annotations

from omegaconf import DictConfig

from seq2seq_attn.cli import entry


def task(config: DictConfig) -> None:
    """Train, test and report."""
    with entry.importing():
        from seq2seq_attn.training.run import train

    train(config)


def main() -> None:
    """Run the command."""
    entry.main(task, "train")


if __name__ == "__main__":
    main()
