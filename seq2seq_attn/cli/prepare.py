"""`seq2seq-attn prepare`: read, clean and split the data, train the tokenizer and fill the caches of a training."""

from __future__ import annotations

from omegaconf import DictConfig

from seq2seq_attn.cli import entry
from seq2seq_attn.cli.train import parent_choice


def task(config: DictConfig) -> None:
    """Prepare the data that a training with the same options reads; print what it consists of, and some pairs."""
    with entry.importing():
        from seq2seq_attn.process import quieten
        from seq2seq_attn.training.build import build
        from seq2seq_attn.training.check_config import check_training
        from seq2seq_attn.training.check_run import check_run
        from seq2seq_attn.training.parent import kept_tokenizer, read_parent
        from seq2seq_attn.training.provenance import print_data, print_examples

    check_training(config)
    quieten()
    parent = read_parent(config, resumed=None)
    module, datamodule = build(config, kept_tokenizer(config, None, parent))
    datamodule.prepare_data()
    check_run(module, datamodule, resumed=None)
    print_data(datamodule)
    print_examples(datamodule)
    print(f"Cache of the vocabulary and the encoded splits: {config.paths.cache_dir}")


def main() -> None:
    """Run the command."""
    entry.main(task, "prepare", implied=parent_choice)
