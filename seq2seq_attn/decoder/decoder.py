"""The contract of a decoder, which maps target tokens and a state to hidden states and the next state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from jaxtyping import Float, Int
from torch import Tensor, nn

from seq2seq_attn.attention.guide import Guide
from seq2seq_attn.attention.layer import AttentionLayer
from seq2seq_attn.encoder.encoder import Encoded, Encoder


class DecoderState(ABC):
    """An immutable state between steps: the prepared source memory and everything that depends on the prefix.

    The source memory has a row for each sentence. Everything else has a row for each hypothesis; the hypotheses of a
    sentence are in adjacent rows.
    """

    @abstractmethod
    def branch(self, rows: Int[Tensor, " rows"]) -> DecoderState:
        """Return the state of the hypotheses `rows`, in that order; the source memory is unchanged."""

    @abstractmethod
    def keep(self, sentences: Int[Tensor, " sentences"]) -> DecoderState:
        """Return the state with the source memory of these sentences; the hypotheses are unchanged."""

    def select(self, rows: Int[Tensor, " rows"]) -> DecoderState:
        """Return the state of the sentences `rows`, in that order, if each has one hypothesis."""
        return self.branch(rows).keep(rows)

    def for_search(self) -> DecoderState:
        """Return the state for a search, which chooses the tokens, instead of a given target."""
        return self


class Decoded(NamedTuple):
    """The output of a decoder.

    Attributes:
        hidden: hidden states before the output layer.
        state: the state after the last token.
        weights: attention weights by slot and layer, such as `cross/0`, as distributions (`Attended.distribution`);
            empty unless requested.
        log_prob, entropy: those of a sampling normalizer, summed over layers and heads, in nats.
        alignment_loss: of the links of a guide, for each token that a step writes; None: there is no guide.
        source_log_prob, source_entropy: `log_prob` and `entropy` of the encoder, if the model has read the source.
    """

    hidden: Float[Tensor, "batch target output_dim"]
    state: Any
    weights: dict[str, Float[Tensor, "batch heads target source"]]
    log_prob: Float[Tensor, "batch target"] | None = None
    entropy: Float[Tensor, "batch target"] | None = None
    alignment_loss: Float[Tensor, "batch target"] | None = None
    source_log_prob: Float[Tensor, "batch source"] | None = None
    source_entropy: Float[Tensor, "batch source"] | None = None


class Decoder(nn.Module, ABC):
    """A decoder, whose `forward` serves both teacher forcing (a whole target) and decoding (one token at a time).

    Attributes:
        output_dim: width of the hidden states that the output layer reads.
        query_knows_token: whether the attention to the source depends on the token that a step reads.
    """

    output_dim: int
    query_knows_token = True

    @property
    @abstractmethod
    def source_attentions(self) -> list[AttentionLayer]:
        """The attention to the source, by layer."""

    def check_encoder(self, encoder: Encoder) -> None:
        """Refuse an encoder that does not return what the decoder starts from; most decoders start with any."""

    @abstractmethod
    def initial_state(self, encoded: Encoded) -> DecoderState:
        """Return the state before the first token; this prepares the source memory."""

    @abstractmethod
    def forward(
        self,
        embedded: Float[Tensor, "batch target input_dim"],
        state: Any,
        *,
        need_weights: bool = False,
        guide: Guide | None = None,
    ) -> Decoded:
        """Read the embedded tokens that follow the state; with a guide, also return the loss of its links."""
