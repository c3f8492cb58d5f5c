"""A model whose probabilities are written down, and searches built from `conf/`."""

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
Script = Callable[[Tensor, Tensor], Tensor]  # sentences (rows) and tokens said (rows, said) to (rows, tokens)


@final
@dataclass(frozen=True)
class ScriptedState(DecoderState):
    """Attributes: sentences: the first token of each source. said: by each hypothesis, begin token too."""

    sentences: Tensor
    said: Tensor

    def branch(self, rows: Tensor) -> ScriptedState:
        return replace(self, said=self.said[rows])

    def keep(self, sentences: Tensor) -> ScriptedState:
        return replace(self, sentences=self.sentences[sentences])


@final
class Scripted(DecodingModel):
    """Attributes: sizes: sentences and rows of each step. asked: whether a step was asked for the attention."""

    def __init__(self, log_probs: Script, attention: Script | None = None) -> None:
        self.log_probs, self.attention = log_probs, attention
        self.sizes: list[tuple[int, int]] = []
        self.asked: set[bool] = set()

    @property
    def max_length(self) -> int | None:
        return None

    def encode(self, source: Tensor, mask: Tensor) -> ScriptedState:
        return ScriptedState(source[:, 0], source.new_zeros(len(source), 0))

    def step(self, last: Tensor, state: ScriptedState, *, need_weights: bool = False) -> Step:
        self.sizes.append((len(state.sentences), len(last)))
        self.asked.add(need_weights)
        sentences = state.sentences.repeat_interleave(len(last) // len(state.sentences))
        said = torch.cat([state.said, last[:, None]], 1)
        attention = None
        if need_weights:
            assert self.attention is not None
            attention = self.attention(sentences, said[:, 1:])
        return Step(self.log_probs(sentences, said[:, 1:]), replace(state, said=said), attention)


def by_prefix(probabilities: Mapping[tuple[int, ...], Mapping[int, float]]) -> Script:
    """Probabilities of the next token behind a prefix; what is not written has none, other prefixes end."""

    def log_probs(sentences: Tensor, said: Tensor) -> Tensor:
        rows = torch.zeros(len(said), 7)
        for row, prefix in zip(rows, said.tolist(), strict=True):
            for token, probability in probabilities.get(tuple(prefix), {END: 1.0}).items():
                row[token] = probability
        return rows.log()

    return log_probs


def by_table(table: Tensor, words: int) -> Script:
    """Rows of a table of (sentences, prefixes, numbers), prefixes of `words` words numbered level by level."""

    def log_probs(sentences: Tensor, said: Tensor) -> Tensor:
        return table[sentences, prefix_number(said, words)].clone()

    return log_probs


def prefix_number(said: Tensor, words: int) -> Tensor:
    number = torch.zeros(len(said), dtype=torch.long)
    for token in said.T:
        number = words * number + 1 + (token - A).clamp(0, words - 1)  # a row that nobody counts may say anything
    return number


def beam(*overrides: str) -> Any:
    return built(composed("search=beam", *(f"search{override}" for override in overrides)).search)


def translated(model: DecodingModel, search: Any, sentences: int = 1, **more: Any) -> list[list[Hypothesis]]:
    """Of sources of three tokens, all of which are the sentence's number."""
    source = torch.arange(sentences)[:, None].expand(-1, 3)
    return search(model, source, torch.ones_like(source, dtype=torch.bool), TARGET, **more)
