"""A table of a few validation sentences and their translations, from validation to validation."""

from __future__ import annotations

from typing import Annotated, Any, final

import pytorch_lightning as pl
import torch

from seq2seq_attn.data.collate import collate_sources
from seq2seq_attn.data.data_module import evenly_spread
from seq2seq_attn.model.encoder_decoder import EncoderDecoder
from seq2seq_attn.search.search import Search, TargetVocabulary
from seq2seq_attn.text import printable
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer

COLUMNS = ["epoch", "step", "source", "reference", "hypothesis"]


@final
class TranslationTable(pl.Callback):
    """Logs the table `val/translations` at each validation, with the rows of all validations so far.

    Args:
        log_text: False: there is no table.
        num_sentences: evenly spread over the validation set; 0: no table.
    """

    def __init__(self, *, log_text: bool, num_sentences: Annotated[int, "[0, 1000000]"]) -> None:
        self.log_text, self.num_sentences = log_text, num_sentences
        self.rows: list[list[Any]] = []

    def state_dict(self) -> dict[str, Any]:
        return {"rows": [list(row) for row in self.rows]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.rows = state_dict["rows"]

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        loggers = [logger for logger in trainer.loggers if hasattr(logger, "log_table")]
        if not (self.log_text and self.num_sentences and loggers and pl_module.translates and logs_validation(trainer)):
            return
        split, step = trainer.datamodule.corpus.splits["val"], logged_step(trainer)
        chosen = evenly_spread(self.num_sentences, len(split))
        model, tokenizer = pl_module.model, pl_module.tokenizer
        sources = tokenizer.encode_source([split.sources[row] for row in chosen])
        hypotheses = tokenizer.decode_target(translate(model, tokenizer, pl_module.search, sources))
        for row, hypothesis in zip(chosen, hypotheses, strict=True):
            texts = (split.sources[row], split.references[row][0], hypothesis)
            self.rows.append([pl_module.epoch_number, step, *map(printable, texts)])
        for logger in loggers:
            logger.log_table("val/translations", columns=COLUMNS, data=self.rows, step=step)


def logs_validation(trainer: Any) -> bool:
    """Whether this process logs for the run, and the validation is not the one that only tries a few batches."""
    return trainer.is_global_zero and not trainer.sanity_checking


def logged_step(trainer: Any) -> int:
    """Return the step at which Lightning logs the scalars of this validation: that of its last update, from 0.

    Lightning 2.6 counts it in a private attribute, and passes it to loggers alone.
    """
    return int(trainer.fit_loop.epoch_loop._batches_that_stepped)


@torch.inference_mode()
def translate(
    model: EncoderDecoder, tokenizer: SentencePieceTokenizer, search: Search, sources: list[list[int]]
) -> list[list[int]]:
    """Return the token ids of the best translation of each encoded sentence."""
    device = model.embed_source.weight.device
    source, _, mask = collate_sources(sources, pad_id=tokenizer.pad_id, eos_id=tokenizer.eos_id)
    hypotheses = search(model, source.to(device), mask.to(device), TargetVocabulary.of(tokenizer))
    return [best.token_ids for best, *_ in hypotheses]
