"""Translate standard input, line by line: `python translate.py ckpt_path=RUN < source.txt > target.txt`."""

from omegaconf import DictConfig

from seq2seq_attn.cli.entry import importing, main


def task(config: DictConfig) -> None:
    """Translate until the input ends."""
    with importing():
        from seq2seq_attn.inference.translate import translate

    translate(config)


if __name__ == "__main__":
    main(task, "translate")
