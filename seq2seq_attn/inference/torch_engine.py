"""Our searches and models, in PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import final

import torch

from seq2seq_attn.alignment.forced_attention import SlotMap, attention_along
from seq2seq_attn.data.collate import collate_sources
from seq2seq_attn.errors import UserError
from seq2seq_attn.inference.engine import Engine
from seq2seq_attn.model.decoding_model import DecodingModel
from seq2seq_attn.model.encoder_decoder import EncoderDecoder
from seq2seq_attn.search.search import Hypothesis, Search, TargetVocabulary
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer


@final
class TorchEngine(Engine):
    """A model in evaluation mode, or an ensemble, that stands on `device`."""

    def __init__(self, model: DecodingModel, tokenizer: SentencePieceTokenizer, device: torch.device) -> None:
        self.model, self.tokenizer, self.device = model, tokenizer, device
        self._positions = model.max_length  # asked once: it walks through all modules

    @property
    def positions(self) -> int | None:
        return self._positions

    def __call__(
        self,
        sources: Sequence[list[int]],
        search: Search,
        *,
        prefixes: Sequence[list[int]] | None,
        batch_sentences: int,
        batch_tokens: int | None,
    ) -> list[list[Hypothesis]]:
        tokenizer, found = self.tokenizer, [list[Hypothesis]()] * len(sources)
        for rows in cut_batches(
            [len(tokens) + 1 for tokens in sources],
            batch_sentences=batch_sentences,
            batch_tokens=batch_tokens,
            hypotheses=search.hypotheses_at_once,
        ):
            source, _, mask = collate_sources(
                [sources[row] for row in rows], pad_id=tokenizer.pad_id, eos_id=tokenizer.eos_id
            )
            translated = search(
                self.model,
                source.to(self.device),
                mask.to(self.device),
                TargetVocabulary.of(tokenizer),
                prefixes=None if prefixes is None else [prefixes[row] for row in rows],
            )
            for row, hypotheses in zip(rows, translated, strict=True):
                found[row] = hypotheses
        return found

    def attention(self, source: list[int], target: list[int]) -> list[SlotMap]:
        """One teacher-forced pass.

        Raises:
            UserError: for an ensemble.
        """
        if not isinstance(self.model, EncoderDecoder):
            raise UserError(
                "maps and alignments are of one model's attention, not of an ensemble's; give one ckpt_path"
            )
        return attention_along(self.model, self.tokenizer, source, target)


def cut_batches(
    lengths: Sequence[int], *, batch_sentences: int, batch_tokens: int | None, hypotheses: int
) -> Iterator[list[int]]:
    """Rows, the shortest first, so that those of like length meet.

    Args:
        lengths: tokens of each sentence, end token included.
        batch_sentences: of a batch.
        batch_tokens: instead, positions of a batch, padding included, times hypotheses; a sentence that is longer
            stands alone.
        hypotheses: of a sentence, searched at once.
    """
    for option, limit in (("batch_sentences", batch_sentences), ("batch_tokens", batch_tokens)):
        if limit is not None and limit < 1:
            raise UserError(f"{option}={limit} leaves nothing to translate at once; use 1 or more")
    batch: list[int] = []
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch_tokens is None:
            full = len(batch) == batch_sentences
        else:
            full = (len(batch) + 1) * lengths[row] * hypotheses > batch_tokens
        if batch and full:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch
