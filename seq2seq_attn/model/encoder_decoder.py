"""The model: embeddings, an encoder, a decoder and the output layer. Sutskever et al. 2014, arXiv:1409.3215.

Without an encoder it is a language model: the decoder alone.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from seq2seq_attn.attention.guide import Guide
from seq2seq_attn.decoder.decoder import Decoded
from seq2seq_attn.encoder.encoder import Encoded
from seq2seq_attn.errors import UserError
from seq2seq_attn.model.decoding_model import DecodingModel, Step
from seq2seq_attn.nn.dropout import Dropout
from seq2seq_attn.nn.linear import Linear
from seq2seq_attn.nn.named_tuple import with_fields
from seq2seq_attn.nn.precision import at_least_float32


@final
class EncoderDecoder(nn.Module, DecodingModel):
    """An encoder-decoder with any encoder and decoder.

    Args:
        source_vocab_size, target_vocab_size: numbers of tokens, taken from the tokenizer.
        encoder, decoder: factories, called with the widths of their inputs. Without an encoder the decoder must attend
            to no source, and the target embeddings serve as those of the source, of which none is read.
        embedding_dim: width of the embeddings of both sides.
        tie_embeddings: matrices to share (Press and Wolf 2017): `none` or False; `target`, the target embeddings and
            the output layer; `all`, the source embeddings too, which requires a joint vocabulary. If the decoder has
            another width, its output is projected to `embedding_dim`.
        scale_embeddings: multiply embeddings by the square root of their width (Vaswani et al. 2017, section 3.4).
        dropout: dropout of the embeddings.
        source_embedding_file, target_embedding_file: word vectors that train.py copies into the embeddings of a new
            run, see `training/word_vectors.py`; the constructor reads no file.

    Raises:
        UserError: if all embeddings are to be tied but the vocabularies differ in size, or one of encoder and attention
            to the source is there without the other.
    """

    def __init__(
        self,
        *,
        source_vocab_size: Annotated[int, "[1, 1000000]"],
        target_vocab_size: Annotated[int, "[1, 1000000]"],
        encoder: partial[Any] | None,
        decoder: partial[Any],
        embedding_dim: Annotated[int, "[1, 16384]"],
        tie_embeddings: Literal["none", "target", "all", False],
        scale_embeddings: bool,
        dropout: Annotated[float, "[0, 1)"],
        source_embedding_file: str | None = None,
        target_embedding_file: str | None = None,
    ) -> None:
        super().__init__()
        if encoder is not None:
            self.embed_source = nn.Embedding(source_vocab_size, embedding_dim)
        self.embed_target = nn.Embedding(target_vocab_size, embedding_dim)
        if encoder is None:
            self.embed_source = self.embed_target
        self.scale = embedding_dim**0.5 if scale_embeddings else 1.0
        self.dropout = Dropout(dropout)
        self.encoder = None if encoder is None else encoder(input_dim=embedding_dim)
        widths = dict.fromkeys(("key_dim", "value_dim", "summary_dim"), embedding_dim)
        if self.encoder is not None:
            if missing := [name for name in widths if not hasattr(self.encoder, name)]:
                raise UserError(
                    f"{type(self.encoder).__name__} lacks {', '.join(missing)}, which tell the decoder how wide the "
                    "encoder's outputs are; set them in its constructor (see docs/extending.md)"
                )
            widths = {name: getattr(self.encoder, name) for name in widths}
        self.decoder = decoder(input_dim=embedding_dim, **widths)
        if self.reads_source != bool(self.decoder.source_attentions):
            attends = "attends" if self.decoder.source_attentions else "does not attend"
            raise UserError(
                "an encoder and attention to the source need each other: the model has "
                f"{'an' if self.reads_source else 'no'} encoder, and {type(self.decoder).__name__} {attends} to the "
                "source; use model=transformer, model=lm without an encoder, or attention=none, the mean of the source"
            )
        if self.encoder is not None:
            self.decoder.check_encoder(self.encoder)
        self.narrow = None
        output_dim = self.decoder.output_dim
        if tie_embeddings not in ("none", False) and output_dim != embedding_dim:
            self.narrow = Linear(output_dim, embedding_dim, bias=False)
            output_dim = embedding_dim
        self.output = Linear(output_dim, target_vocab_size)
        for embedding in (self.embed_source, self.embed_target):
            nn.init.normal_(embedding.weight, std=embedding_dim**-0.5)
        nn.init.normal_(self.output.weight, std=output_dim**-0.5)
        nn.init.zeros_(self.output.bias)
        self._tie(tie_embeddings)

    def _tie(self, tie_embeddings: str | bool) -> None:
        if tie_embeddings in ("none", False):
            return
        self.output.weight = self.embed_target.weight
        if tie_embeddings == "all":
            if self.embed_source.weight.shape != self.embed_target.weight.shape:
                raise UserError(
                    "model.tie_embeddings=all needs one vocabulary for both languages; use tokenizer.joint=true"
                )
            self.embed_source.weight = self.embed_target.weight

    @property
    def reads_source(self) -> bool:
        return self.encoder is not None

    @property
    def max_length(self) -> int | None:
        """Largest number of tokens on either side, specials included; None: unlimited.

        It is the smallest `max_length` of all parts, such as learned positions and synthesized scores.
        """
        parts = [*(() if self.encoder is None else self.encoder.modules()), *self.decoder.modules()]
        lengths = [getattr(part, "max_length", None) for part in parts]
        return min((length for length in lengths if length is not None), default=None)

    def encode(self, source: Int[Tensor, "batch source"], mask: Bool[Tensor, "batch source"]) -> Any:
        """Return the decoder's state before the first token of a search."""
        return self.decoder.initial_state(self._read(source, mask)).for_search()

    def decode(
        self,
        target_input: Int[Tensor, "batch target"],
        state: Any,
        *,
        need_weights: bool = False,
        guide: Guide | None = None,
    ) -> Decoded:
        """Return the decoder's output for the tokens that follow the state: a whole target or a single step."""
        embedded = self._embedded(self.embed_target, target_input)
        decoded = self.decoder(embedded, state, need_weights=need_weights, guide=guide)
        return decoded if self.narrow is None else with_fields(decoded, hidden=self.narrow(decoded.hidden))

    def step(self, last: Int[Tensor, " rows"], state: Any, *, need_weights: bool = False) -> Step:
        """Read one token of every hypothesis; the log-probabilities have at least float32."""
        decoded = self.decode(last[:, None], state, need_weights=need_weights)
        logits = at_least_float32(self.logits(decoded.hidden[:, 0]))
        # in place if no gradient is needed: the vocabulary accounts for most of the memory traffic of a step
        log_probs = torch.log_softmax(logits, -1, out=None if torch.is_grad_enabled() else logits)
        attention = attention_to_source(decoded.weights) if need_weights and self.reads_source else None
        return Step(log_probs, decoded.state, attention)

    def logits(self, hidden: Float[Tensor, "*rows dim"]) -> Float[Tensor, "*rows vocabulary"]:
        """Return the unnormalised scores of the next token."""
        return self.output(hidden)

    def forward(
        self,
        source: Int[Tensor, "batch source"],
        source_mask: Bool[Tensor, "batch source"],
        target_input: Int[Tensor, "batch target"],
        *,
        need_weights: bool = False,
        guide: Guide | None = None,
    ) -> Decoded:
        """Run teacher forcing: return hidden states at every target position, and the weights of both sides.

        Args:
            guide: links with which one head of the attention to the source should agree; their loss is returned too.
        """
        encoded = self._read(source, source_mask, need_weights)
        state = self.decoder.initial_state(encoded)
        decoded = self.decode(target_input, state, need_weights=need_weights, guide=guide)
        return with_fields(
            decoded,
            weights=encoded.weights | decoded.weights,
            source_log_prob=encoded.log_prob,
            source_entropy=encoded.entropy,
        )

    def _read(self, source: Tensor, mask: Tensor, need_weights: bool = False) -> Encoded:
        if self.encoder is None:
            nothing = self.embed_target.weight.new_zeros(len(source), 0, 1)
            return Encoded(nothing, nothing, mask[:, :0], nothing.sum(1))
        return self.encoder(self._embedded(self.embed_source, source), mask, need_weights=need_weights)

    def _embedded(self, embedding: nn.Embedding, tokens: Tensor) -> Tensor:
        embedded = embedding(tokens)
        return self.dropout(embedded if self.scale == 1.0 else embedded * self.scale)


def attention_to_source(weights: dict[str, Float[Tensor, "rows _ 1 _"]]) -> Float[Tensor, "rows source"]:
    """Return the mean attention to the source over layers and heads."""
    layers = [cross[:, :, 0].mean(1) for slot, cross in weights.items() if slot.startswith("cross/")]
    if not layers:
        raise UserError("the attention to the source has no weights, which search.coverage_penalty reads; use 0")
    return torch.stack(layers).mean(0)
