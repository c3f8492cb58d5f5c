"""`seq2seq-attn align`: the alignment error rate of a trained model's attention, or of links in a file."""

from __future__ import annotations

from omegaconf import DictConfig

from seq2seq_attn.cli import entry


def task(config: DictConfig) -> None:
    """Read the pairs, link their words and report the error rates."""
    with entry.importing():
        from seq2seq_attn.evaluation.align import align

    align(config)


def main() -> None:
    """Run the command."""
    entry.main(task, "align")
