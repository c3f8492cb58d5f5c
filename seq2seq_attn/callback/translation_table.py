"""How a few fixed validation sentences are translated, from validation to validation."""

from __future__ import annotations

from typing import Any, final

import pytorch_lightning as pl
import torch

from seq2seq_attn.callback.after_validation import is_shown_here, logged_step, loggers_that, spread
from seq2seq_attn.data.collate import collate_sources
from seq2seq_attn.search.search import TargetVocabulary
from seq2seq_attn.text import printable

COLUMNS = ["epoch", "step", "source", "reference", "hypothesis"]


@final
class TranslationTable(pl.Callback):
    """Hands loggers the table `val/translations` at every validation, grown by that one's rows.

    Args:
        log_text: False: there is no table.
        num_sentences: evenly spread over the validation set.
    """

    def __init__(self, *, log_text: bool, num_sentences: int) -> None:
        self.log_text, self.num_sentences = log_text, num_sentences
        self.rows: list[list[Any]] = []

    def state_dict(self) -> dict[str, Any]:
        """A run that goes on has the rows of its earlier validations."""
        return {"rows": [list(row) for row in self.rows]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.rows = state_dict["rows"]

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        loggers = loggers_that("log_table", trainer.loggers)
        if not (self.log_text and loggers and is_shown_here(trainer)):
            return
        split, step = trainer.datamodule.corpus.splits["val"], logged_step(trainer)
        chosen = spread(len(split), self.num_sentences)
        hypotheses = translations(pl_module, [split.sources[row] for row in chosen])
        for row, hypothesis in zip(chosen, hypotheses, strict=True):
            texts = (split.sources[row], split.references[row][0], hypothesis)
            self.rows.append([trainer.current_epoch, step, *map(printable, texts)])
        for logger in loggers:
            logger.log_table("val/translations", columns=COLUMNS, data=self.rows, step=step)


@torch.inference_mode()
def translations(pl_module: Any, sources: list[str]) -> list[str]:
    """What the search of a run finds for some sentences."""
    tokenizer = pl_module.tokenizer
    source, _, mask = collate_sources(
        tokenizer.encode_source(sources), pad_id=tokenizer.pad_id, eos_id=tokenizer.eos_id
    )
    where = pl_module.device
    found = pl_module.search(pl_module.model, source.to(where), mask.to(where), TargetVocabulary.of(tokenizer))
    return tokenizer.decode_target([best.token_ids for best, *_ in found])
