"""What finds translations: our own searches, or another program."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from seq2seq_attn.alignment.forced_attention import SlotMap
from seq2seq_attn.search.search import Hypothesis, Search


class Engine(ABC):
    """A trained model behind one call."""

    @property
    @abstractmethod
    def positions(self) -> int | None:
        """Most tokens of a source, end token included; None: any."""

    @abstractmethod
    def __call__(
        self,
        sources: Sequence[list[int]],
        search: Search,
        *,
        prefixes: Sequence[list[int]] | None,
        batch_sentences: int,
        batch_tokens: int | None,
    ) -> list[list[Hypothesis]]:
        """The translations of each sentence, as a search gives them; sentences are ids without begin or end.

        Args:
            batch_sentences, batch_tokens: see `cut_batches`.
        """

    @abstractmethod
    def attention(self, source: list[int], target: list[int]) -> list[SlotMap]:
        """Every slot's map of a translation."""
