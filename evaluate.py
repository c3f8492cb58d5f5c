"""Score a trained model: `python evaluate.py ckpt_path=RUN`, on its own test sets or on `data=...`."""

from omegaconf import DictConfig

from seq2seq_attn.cli.entry import importing, main


def task(config: DictConfig) -> None:
    """Translate, score and report."""
    with importing():
        from seq2seq_attn.evaluation.evaluate import evaluate

    evaluate(config)


if __name__ == "__main__":
    main(task, "evaluate")
