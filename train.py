"""Train one model: `python train.py attention=bahdanau data=demo`; `--help` lists the choices."""

from omegaconf import DictConfig

from seq2seq_attn.cli.entry import importing, main


def task(config: DictConfig) -> None:
    """Train, test and report."""
    with importing():
        from seq2seq_attn.training.run import train

    train(config)


if __name__ == "__main__":
    main(task, "train")
