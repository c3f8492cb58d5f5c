"""`seq2seq-attn translate`: translate standard input or a file, line by line.

In a checkout it is `python translate.py`.
"""

from __future__ import annotations

from omegaconf import DictConfig

from seq2seq_attn.cli import entry


def task(config: DictConfig) -> None:
    """Translate until the input ends."""
    with entry.importing():
        from seq2seq_attn.inference.translate import translate

    translate(config)


def main() -> None:
    """Run the command."""
    entry.main(task, "translate")


if __name__ == "__main__":
    main()
