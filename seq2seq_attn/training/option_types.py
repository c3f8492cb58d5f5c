"""Options of train.yaml's first level that are numbers, asked before anything reads them."""

from __future__ import annotations

from omegaconf import DictConfig

from seq2seq_attn.tensors.error import UserError

WHOLE = ("seed", "batch_tokens", "num_threads", "val_sentences")  # null where the option knows it
NUMBERS = ("label_smoothing", "r_drop_alpha")


def check_numbers(config: DictConfig) -> None:
    """Raises:
    UserError: for words, or for a fraction where something is counted.
    """
    for kind, names, types in (("a whole number", WHOLE, int), ("a number", NUMBERS, (int, float))):
        for name in names:
            value = config.get(name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, types)):
                raise UserError(
                    f"{name}={value} is to be {kind}; `python train.py --cfg job` shows its default"
                )
