"""`seq2seq-attn evaluate`: score a trained model on its test sets or on other data.

In a checkout it is `python evaluate.py`.
"""

from __future__ import annotations

from omegaconf import DictConfig

from seq2seq_attn.cli import entry


def task(config: DictConfig) -> None:
    """Translate, score and report."""
    with entry.importing():
        from seq2seq_attn.evaluation.evaluate import evaluate

    evaluate(config)


def main() -> None:
    """Run the command."""
    entry.main(task, "evaluate")


if __name__ == "__main__":
    main()
