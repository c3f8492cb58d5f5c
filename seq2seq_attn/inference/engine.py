"""The contract of an inference engine, and ours: the project's models and searches in PyTorch."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import NamedTuple, final

import torch

from seq2seq_attn.alignment.forced_attention import SlotMap, attention_along_batch
from seq2seq_attn.data.collate import collate_pairs, collate_sources
from seq2seq_attn.errors import UserError
from seq2seq_attn.inference.precision import precision_plugin
from seq2seq_attn.model.encoder_decoder import EncoderDecoder
from seq2seq_attn.model.ensemble import Ensemble, members_of
from seq2seq_attn.model.token_log_probs import token_log_probs
from seq2seq_attn.search.search import Hypothesis, Search, TargetVocabulary
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer


class SearchBatch(NamedTuple):
    """Sentences that are translated at once.

    Attributes:
        prefixes: what each translation begins with; None: they are free.
    """

    sources: list[list[int]]
    prefixes: list[list[int]] | None


class Engine(ABC):
    """A trained model that translates token ids by a search.

    Attributes:
        max_length: the most tokens of a source, end token included; None for no limit.
        reads_source: False for a language model, whose sources are empty.
    """

    max_length: int | None
    reads_source: bool = True

    @abstractmethod
    def __call__(
        self, sources: list[list[int]], search: Search, prefixes: list[list[int]] | None = None
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of a batch, as the search ranks them; sentences have no begin or end token."""

    def close(self) -> None:  # noqa: B027  # most have nothing to end
        """End the engine's processes, if it has any."""

    def translate_batches(self, batches: Sequence[SearchBatch], search: Search) -> Iterator[list[list[Hypothesis]]]:
        """Yield the hypotheses of each batch, in order."""
        for batch in batches:
            yield self(batch.sources, search, batch.prefixes)

    @abstractmethod
    def token_log_probs(self, sources: list[list[int]], targets: list[list[int]]) -> list[list[float]]:
        """Return the log-probability of each token of the targets, and of the end token after them, in nats."""

    @abstractmethod
    def attention(self, sources: list[list[int]], targets: list[list[int]]) -> list[list[SlotMap]]:
        """Return the attention map of every slot for each translation."""


@final
class TorchEngine(Engine):
    """A model or an ensemble in evaluation mode, already on `device`.

    Args:
        precision: of Lightning's Trainer; a `-true` one converts the weights of the model. None: float32.

    Raises:
        UserError: when called, if a log-probability is NaN, as an overflow in float16 causes.
    """

    def __init__(
        self,
        model: EncoderDecoder | Ensemble,
        tokenizer: SentencePieceTokenizer,
        device: torch.device,
        precision: str | int | None = None,
    ) -> None:
        self._precision = precision_plugin(precision, device)
        self._precision.convert_module(model)
        self.model, self.tokenizer, self.device = model, tokenizer, device
        self.max_length, self.reads_source = model.max_length, model.reads_source

    def __call__(
        self, sources: list[list[int]], search: Search, prefixes: list[list[int]] | None = None
    ) -> list[list[Hypothesis]]:
        tokenizer = self.tokenizer
        source, _, mask = collate_sources(sources, pad_id=tokenizer.pad_id, eos_id=tokenizer.eos_id)
        width = source.shape[1] if self.reads_source else 0
        source, mask = source[:, :width].to(self.device), mask[:, :width].to(self.device)
        with self._precision.test_step_context():
            results = search(self.model, source, mask, TargetVocabulary.of(tokenizer), prefixes=prefixes)
        if not all(hypotheses and not any(math.isnan(one.log_prob) for one in hypotheses) for hypotheses in results):
            raise self._overflow()
        return results

    def _overflow(self) -> UserError:
        precision = self._precision.precision
        half = str(precision).startswith("16")
        way_out = "use precision=bf16-mixed or 32-true" if half else "translate with another checkpoint"
        return UserError(f"the model's numbers overflow in precision={precision}; {way_out}")

    def token_log_probs(self, sources: list[list[int]], targets: list[list[int]]) -> list[list[float]]:
        """Return them for a batch; of an ensemble, those of the mean probability."""
        tokenizer = self.tokenizer
        special = {"pad_id": tokenizer.pad_id, "bos_id": tokenizer.bos_id, "eos_id": tokenizer.eos_id}
        batch = collate_pairs(sources, targets, range(len(sources)), **special).to(self.device)
        with self._precision.test_step_context():
            rows = token_log_probs(members_of(self.model), batch).tolist()
        if any(math.isnan(log_prob) for row in rows for log_prob in row):
            raise self._overflow()
        return [row[: len(target) + 1] for row, target in zip(rows, targets, strict=True)]

    def attention(self, sources: list[list[int]], targets: list[list[int]]) -> list[list[SlotMap]]:
        """Return the maps of one teacher-forced pass.

        Raises:
            UserError: for an ensemble.
        """
        if not isinstance(self.model, EncoderDecoder):
            raise UserError(
                "maps, alignments and placeholders are of one model, not of an ensemble; give one ckpt_path"
            )
        with self._precision.test_step_context():
            return attention_along_batch(self.model, self.tokenizer, sources, targets)
