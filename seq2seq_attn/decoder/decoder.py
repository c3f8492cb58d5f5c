"""The contract of a decoder: a target prefix and a state to hidden states and the next state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from jaxtyping import Float, Int
from torch import Tensor, nn

from seq2seq_attn.encoder.encoder import Encoded


class DecoderState(ABC):
    """A value that goes in and comes out; it holds the prepared memory and the position reached.

    The memory of the source has a row for each sentence. Everything else has a row for each hypothesis, one or
    several of a sentence, which stand together.
    """

    @abstractmethod
    def branch(self, rows: Int[Tensor, "rows"]) -> DecoderState:
        """The hypotheses `rows`, in that order; the source memory stays as it is."""

    @abstractmethod
    def keep(self, sentences: Int[Tensor, "sentences"]) -> DecoderState:
        """The source memory of these sentences alone; the hypotheses stay as they are."""

    def select(self, rows: Int[Tensor, "rows"]) -> DecoderState:
        """The sentences `rows`, in that order, where each has one hypothesis."""
        return self.branch(rows).keep(rows)


class Decoded(NamedTuple):
    """Hidden states before the output layer, and the state behind the last of them.

    Attributes:
        weights: attention weights by slot and layer, such as `cross/0`, each (batch, heads, target,
            source); empty unless asked for.
        log_prob, entropy: of a normalizer that samples, summed over its layers and heads, in nats.
        source_log_prob, source_entropy: the same of the encoder, where the model has read the source.
    """

    hidden: Float[Tensor, "batch target output_dim"]
    state: Any
    weights: dict[str, Float[Tensor, "batch heads target source"]]
    log_prob: Float[Tensor, "batch target"] | None = None
    entropy: Float[Tensor, "batch target"] | None = None
    source_log_prob: Float[Tensor, "batch source"] | None = None
    source_entropy: Float[Tensor, "batch source"] | None = None


class Decoder(nn.Module, ABC):
    """One `forward` serves teacher forcing (a whole target) and decoding (one token): same numbers.

    Attributes:
        output_dim: width of the hidden states that the output layer reads.
    """

    output_dim: int

    @abstractmethod
    def initial_state(self, encoded: Encoded) -> DecoderState:
        """State before the first token; prepares the memory, once for a source batch."""

    @abstractmethod
    def forward(
        self, embedded: Float[Tensor, "batch target input_dim"], state: Any, *, need_weights: bool = False
    ) -> Decoded:
        """Read the embedded tokens that follow `state`."""
