"""Entropy of the attention to the source, at each validation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, final

import pytorch_lightning as pl
import torch

from seq2seq_attn.batch import Batch
from seq2seq_attn.data.batch_sampler import TokenBatchSampler
from seq2seq_attn.data.collate import collate
from seq2seq_attn.data.data_module import evenly_spread
from seq2seq_attn.metric.attention import AttentionFigures


@final
class AttentionEntropy(pl.Callback):
    """Logs `val/attention_entropy` in nats a target token, given the references of a few validation sentences.

    Training and validation keep no weights; this is one more pass over those sentences. The entropy in results.json is
    that of all test sentences.

    Args:
        num_sentences: evenly spread over the validation set.
    """

    def __init__(self, *, num_sentences: Annotated[int, "[1, 1000000]"]) -> None:
        self.num_sentences = num_sentences

    def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if trainer.sanity_checking or not pl_module.translates:
            return
        figures = AttentionFigures()
        with torch.inference_mode():
            for batch in self._batches(trainer.datamodule, pl_module.tokenizer):
                here = batch.to(pl_module.device)
                decoded = pl_module.model(here.source, here.source_mask, here.target_input, need_weights=True)
                figures.update(decoded.weights, here.source_mask, here.target_mask)
        if figures.has_weights:
            pl_module.log("val/attention_entropy", figures.entropy, batch_size=1)

    def _batches(self, datamodule: Any, tokenizer: Any) -> Iterator[Batch]:
        """Yield the same batches in every process, so that all log the same value."""
        split = datamodule.encoded("val")
        rows = evenly_spread(self.num_sentences, split.num_rows)
        limit = datamodule.eval_batch_tokens
        specials = {"pad_id": tokenizer.pad_id, "bos_id": tokenizer.bos_id, "eos_id": tokenizer.eos_id}
        sampler = TokenBatchSampler(split, starts=split.starts, rows=rows, batch_tokens=limit, shuffle=False, seed=0)
        for chosen in sampler:
            yield collate(split, chosen, **specials)
