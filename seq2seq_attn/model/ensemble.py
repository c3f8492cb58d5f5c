"""Ensembles of models: log of the mean of their probabilities."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from seq2seq_attn.decoder.decoder import DecoderState
from seq2seq_attn.errors import UserError
from seq2seq_attn.model.decoding_model import DecodingModel, Step
from seq2seq_attn.model.encoder_decoder import EncoderDecoder


@final
@dataclass(frozen=True)
class EnsembleState(DecoderState):
    """The decoder states of all members."""

    members: tuple[DecoderState, ...]

    def branch(self, rows: Int[Tensor, " rows"]) -> EnsembleState:
        return EnsembleState(tuple(state.branch(rows) for state in self.members))

    def keep(self, sentences: Int[Tensor, " sentences"]) -> EnsembleState:
        return EnsembleState(tuple(state.keep(sentences) for state in self.members))


@final
class Ensemble(nn.Module, DecodingModel):
    """An ensemble of models with one vocabulary and any architectures; its attention is the mean of theirs.

    It averages probabilities, so a token that one member considers certain keeps a high probability; with an average
    of log-probabilities, each member could rule it out.

    Args:
        members: models in evaluation mode.

    Raises:
        UserError: if the sizes of the vocabularies differ.
    """

    def __init__(self, members: Sequence[EncoderDecoder]) -> None:
        super().__init__()
        for language, sizes in (
            ("source", {m.embed_source.num_embeddings for m in members if m.reads_source}),
            ("target", {m.embed_target.num_embeddings for m in members}),
        ):
            if len(sizes) > 1:
                raise UserError(
                    f"an ensemble needs one vocabulary, but its {len(members)} models have {language} vocabularies of "
                    f"{sorted(sizes)} tokens; use models that were trained with the same tokenizer"
                )
        self.members = nn.ModuleList(members)

    @property
    def reads_source(self) -> bool:
        return any(member.reads_source for member in self._models)

    @property
    def max_length(self) -> int | None:
        """The smallest of the members' limits; None: unlimited."""
        lengths = [member.max_length for member in self._models]
        return min((length for length in lengths if length is not None), default=None)

    def encode(self, source: Int[Tensor, "batch source"], mask: Bool[Tensor, "batch source"]) -> EnsembleState:
        return EnsembleState(tuple(member.encode(source, mask) for member in self._models))

    def step(self, last: Int[Tensor, " rows"], state: EnsembleState, *, need_weights: bool = False) -> Step:
        """Read one token of every hypothesis with every member."""
        steps = [
            member.step(last, member_state, need_weights=need_weights)
            for member, member_state in zip(self._models, state.members, strict=True)
        ]
        attention = [step.attention for step in steps if step.attention is not None]
        return Step(
            log_mean_probability([step.log_probs for step in steps]),
            EnsembleState(tuple(step.state for step in steps)),
            torch.stack(attention).mean(0) if attention else None,
        )

    @property
    def _models(self) -> list[EncoderDecoder]:
        return list(self.members)  # type: ignore[arg-type]


def members_of(model: EncoderDecoder | Ensemble) -> list[EncoderDecoder]:
    """Return the members of an ensemble, or a model alone."""
    return model._models if isinstance(model, Ensemble) else [model]


def log_mean_probability(log_probs: Sequence[Float[Tensor, "*rows vocabulary"]]) -> Float[Tensor, "*rows vocabulary"]:
    """Return the logarithm of the mean probability."""
    return torch.stack(list(log_probs)).logsumexp(0) - math.log(len(log_probs))
