"""What a search asks of a model, or of several together: one step of all hypotheses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from jaxtyping import Bool, Float, Int
from torch import Tensor


class Step(NamedTuple):
    """What the next token may be, in nats, and the state behind the tokens read.

    Attributes:
        attention: to the source, mean over layers and heads; None unless asked for.
    """

    log_probs: Float[Tensor, "rows vocabulary"]
    state: Any
    attention: Float[Tensor, "rows source"] | None


class DecodingModel(ABC):
    """A trained model in evaluation mode, or an ensemble of them."""

    @property
    @abstractmethod
    def max_length(self) -> int | None:
        """Most tokens that the model can read, specials included; None: any."""

    @abstractmethod
    def encode(self, source: Int[Tensor, "batch source"], mask: Bool[Tensor, "batch source"]) -> Any:
        """A `DecoderState` before the first token, with one hypothesis of each sentence."""

    @abstractmethod
    def step(self, last: Int[Tensor, "rows"], state: Any, *, need_weights: bool = False) -> Step:
        """Read the last token of each hypothesis."""
