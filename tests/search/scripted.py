"""A model with given probabilities, and searches built from `conf/`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, final

import torch
from configs import built, composed
from torch import Tensor

from seq2seq_attn.decoder.decoder import DecoderState
from seq2seq_attn.model.decoding_model import DecodingModel, Step
from seq2seq_attn.search.search import Hypothesis, TargetVocabulary

BOS, END, A, B, C, D, E = range(7)
TARGET = TargetVocabulary(BOS, END, (BOS,), list)
Script = Callable[[Tensor, Tensor], Tensor]  # from sentences (rows) and prefixes (rows, length) to (rows, vocabulary)


@final
@dataclass(frozen=True)
class ScriptedState(DecoderState):
    """The first token of each source, and the tokens of each hypothesis, begin token included."""

    sentences: Tensor
    tokens: Tensor

    def branch(self, rows: Tensor) -> ScriptedState:
        return replace(self, tokens=self.tokens[rows])

    def keep(self, sentences: Tensor) -> ScriptedState:
        return replace(self, sentences=self.sentences[sentences])


@final
class Scripted(DecodingModel):
    """A model that evaluates a script.

    Attributes:
        sizes: number of sentences and of rows of each step.
        need_weights: values of this argument in all steps.
    """

    def __init__(self, log_probs: Script, attention: Script | None = None) -> None:
        self.log_probs, self.attention = log_probs, attention
        self.sizes: list[tuple[int, int]] = []
        self.need_weights: set[bool] = set()

    @property
    def max_length(self) -> int | None:
        return None

    def encode(self, source: Tensor, mask: Tensor) -> ScriptedState:
        return ScriptedState(source[:, 0], source.new_zeros(len(source), 0))

    def step(self, last: Tensor, state: ScriptedState, *, need_weights: bool = False) -> Step:
        self.sizes.append((len(state.sentences), len(last)))
        self.need_weights.add(need_weights)
        sentences = state.sentences.repeat_interleave(len(last) // len(state.sentences))
        tokens = torch.cat([state.tokens, last[:, None]], 1)
        attention = None
        if need_weights:
            assert self.attention is not None
            attention = self.attention(sentences, tokens[:, 1:])
        return Step(self.log_probs(sentences, tokens[:, 1:]), replace(state, tokens=tokens), attention)


def by_prefix(probabilities: Mapping[tuple[int, ...], Mapping[int, float]]) -> Script:
    """Script given by the probabilities of the next token after each prefix; prefixes without an entry end."""

    def log_probs(sentences: Tensor, tokens: Tensor) -> Tensor:
        rows = torch.zeros(len(tokens), 7)
        for row, prefix in zip(rows, tokens.tolist(), strict=True):
            for token, probability in probabilities.get(tuple(prefix), {END: 1.0}).items():
                row[token] = probability
        return rows.log()

    return log_probs


def by_table(table: Tensor, words: int) -> Script:
    """Script given by a (sentences, prefixes, vocabulary) table; prefixes over `words` words are numbered by length."""

    def log_probs(sentences: Tensor, tokens: Tensor) -> Tensor:
        return table[sentences, prefix_number(tokens, words)].clone()

    return log_probs


def prefix_number(tokens: Tensor, words: int) -> Tensor:
    number = torch.zeros(len(tokens), dtype=torch.long)
    for token in tokens.T:
        number = words * number + 1 + (token - A).clamp(0, words - 1)  # rows that do not count may have other tokens
    return number


def beam(*overrides: str) -> Any:
    return built(composed("search=beam", *(f"search{override}" for override in overrides)).search)


def translated(model: DecodingModel, search: Any, sentences: int = 1, **more: Any) -> list[list[Hypothesis]]:
    """Translate sources of three tokens, all equal to the number of the sentence."""
    source = torch.arange(sentences)[:, None].expand(-1, 3)
    return search(model, source, torch.ones_like(source, dtype=torch.bool), TARGET, **more)
