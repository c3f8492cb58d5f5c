"""The contract of a search: a model and a source batch to translations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

from jaxtyping import Bool, Int
from torch import Tensor

from seq2seq_attn.model.encoder_decoder import EncoderDecoder


class Hypothesis(NamedTuple):
    """Pieces without begin and end, and their log-probability in nats, end piece included."""

    pieces: list[int]
    score: float


class Search(ABC):
    """No weights, no state: `model` must be in evaluation mode."""

    @abstractmethod
    def __call__(
        self,
        model: EncoderDecoder,
        source: Int[Tensor, "batch source"],
        source_mask: Bool[Tensor, "batch source"],
        *,
        bos_id: int,
        eos_id: int,
        banned_ids: tuple[int, ...] = (),
    ) -> list[Hypothesis]:
        """The best translation of each sentence, in order, never using a banned piece."""
