"""The contract between a search and a model or ensemble: one decoding step of all hypotheses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from jaxtyping import Bool, Float, Int
from torch import Tensor


class Step(NamedTuple):
    """The output of a decoding step.

    Attributes:
        log_probs: log-probabilities of the next token, in nats.
        state: the state after the tokens read.
        attention: attention to the source, the mean over layers and heads; None unless requested.
    """

    log_probs: Float[Tensor, "rows vocabulary"]
    state: Any
    attention: Float[Tensor, "rows source"] | None


class DecodingModel(ABC):
    """A trained model in evaluation mode, or an ensemble of them."""

    @property
    def reads_source(self) -> bool:
        """Whether the model reads a source; a language model does not, and its source has no columns."""
        return True

    @property
    @abstractmethod
    def max_length(self) -> int | None:
        """Largest number of tokens that the model can read, specials included; None: unlimited."""

    @abstractmethod
    def encode(self, source: Int[Tensor, "batch source"], mask: Bool[Tensor, "batch source"]) -> Any:
        """Return a `DecoderState` before the first token of a search, with one hypothesis for each sentence."""

    @abstractmethod
    def step(self, last: Int[Tensor, " rows"], state: Any, *, need_weights: bool = False) -> Step:
        """Read the last token of each hypothesis."""
