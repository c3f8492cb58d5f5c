"""Sampling from the model; top-k: Fan et al. 2018, arXiv:1805.04833; top-p: Holtzman et al. 2020, arXiv:1904.09751."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Annotated, final

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from seq2seq_attn.errors import UserError
from seq2seq_attn.model.decoding_model import DecodingModel
from seq2seq_attn.nn.one_hot import first_down_to
from seq2seq_attn.nn.search_mode import search_mode
from seq2seq_attn.search.constraints import Constraints
from seq2seq_attn.search.limits import Limits
from seq2seq_attn.search.search import Hypothesis, Search, TargetVocabulary

NUCLEUS = 64  # number of tokens that top-p sorts first; more if they are too few


@final
class SamplingSearch(Search):
    """Samples of each sentence, duplicates included, by falling log-probability, which is their score.

    A draw depends on the seed, the source tokens, the number of the sample and the step alone, so a sentence has
    the same samples in any batch. A language model has no source; the prefix takes its place. Log-probabilities are
    those of the model, without temperature or truncation.

    Args:
        num_samples: number of samples of each sentence.
        temperature: divisor of the log-probabilities, applied before truncation; towards 0, sampling becomes greedy
            search.
        top_k: number of the likeliest tokens to draw from; 0: all.
        top_p: share of their probability: draw from the smallest set of the likeliest of them that has it; 1: all.
        seed: seed of the draws.
        limits: limits of the length.
        no_repeat_ngram: n of the n-grams that may not occur twice in a translation; 0: none.

    Raises:
        UserError: if an argument is out of range.
    """

    def __init__(
        self,
        *,
        num_samples: Annotated[int, "[1, 1000]"],
        temperature: Annotated[float, "(0, inf)"],
        top_k: Annotated[int, "[0, 1000000]"],
        top_p: Annotated[float, "(0, 1]"],
        seed: Annotated[int, "[0, 4294967295]"],
        limits: Limits,
        no_repeat_ngram: Annotated[int, "[0, 1000]"] = 0,
    ) -> None:
        check_settings(num_samples, temperature, top_k, top_p)
        self.num_samples, self.temperature, self.seed = num_samples, temperature, seed
        self.top_k, self.top_p = top_k, top_p
        self.limits, self.no_repeat_ngram = limits, no_repeat_ngram

    @property
    def hypotheses_at_once(self) -> int:
        return self.num_samples

    @property
    def most_hypotheses(self) -> int:
        return self.num_samples

    @search_mode()
    def __call__(
        self,
        model: DecodingModel,
        source: Int[Tensor, "batch source"],
        source_mask: Bool[Tensor, "batch source"],
        target: TargetVocabulary,
        *,
        prefixes: Sequence[Sequence[int]] | None = None,
    ) -> list[list[Hypothesis]]:
        lengths = self.limits(source_mask, model.max_length, prefixes)
        constraints = Constraints(lengths, target, prefixes, self.no_repeat_ngram)
        steps = int(lengths.most.max()) + 1
        read = [row[seen].tolist() for row, seen in zip(source.cpu(), source_mask.cpu(), strict=True)]
        uniforms = self._uniforms(read if source.shape[1] or prefixes is None else prefixes, steps).to(source.device)
        sentences = torch.arange(len(source), device=source.device).repeat_interleave(self.num_samples)
        state = model.encode(source, source_mask).branch(sentences)
        width = self.num_samples  # rows of each sentence
        rows = torch.arange(len(sentences), device=source.device)
        token_ids = torch.full((len(rows), steps), target.eos_id, device=source.device)
        totals = torch.zeros(len(rows), device=source.device, dtype=torch.float64)
        last, unfinished = torch.full_like(rows, target.bos_id), torch.ones_like(rows, dtype=torch.bool)
        for step in range(steps):
            log_probs, state, _ = model.step(last, state)
            log_probs = constraints(log_probs, token_ids[rows, :step], sentences[rows])
            drawn = self._draw(log_probs, uniforms[rows, step])
            drawn = drawn.masked_fill(drawn == log_probs.shape[1], target.eos_id)  # of a row with NaN
            totals[rows] += log_probs.gather(-1, drawn)[:, 0].double().where(unfinished, 0.0)
            last = drawn[:, 0].where(unfinished, target.eos_id)
            token_ids[rows, step] = last
            unfinished = last != target.eos_id
            # each sentence keeps as many rows as any has unfinished samples, and leaves the batch without one
            by_sentence = unfinished.view(-1, width)
            counts = by_sentence.sum(-1)
            (active,) = counts.nonzero(as_tuple=True)
            if not len(active):
                break
            if (most := int(counts.max())) < width or len(active) < len(counts):
                samples = by_sentence[active].byte().argsort(dim=-1, descending=True, stable=True)[:, :most]
                remaining = (active[:, None] * width + samples).flatten()
                rows, last, unfinished, width = rows[remaining], last[remaining], unfinished[remaining], most
                state = state.branch(remaining).keep(active)
        return ranked(token_ids, totals, self.num_samples, target.eos_id)

    def _uniforms(self, read: Sequence[Sequence[int]], steps: int) -> Float64[Tensor, "rows steps"]:
        """Return the uniform numbers of every sample of what is read, and of every step."""
        drawn = [uniform(self.seed, row, number, steps) for row in read for number in range(self.num_samples)]
        return torch.from_numpy(np.stack(drawn))

    def _draw(self, log_probs: Tensor, uniforms: Float64[Tensor, " rows"]) -> Int[Tensor, "rows 1"]:
        """Draw tokens by inverting their cumulative distribution in the order of ids."""
        mass = (log_probs - log_probs.amax(-1, keepdim=True)).div_(self.temperature).exp_()
        mass = only_likeliest(mass, self.top_k, self.top_p)
        below = mass.cumsum(-1, dtype=torch.float64)
        return torch.searchsorted(below, uniforms[:, None] * below[:, -1:])


MAX_TEMPERATURE = 1e30


def check_settings(num_samples: int, temperature: float, top_k: int, top_p: float) -> None:
    if num_samples < 1:
        raise UserError(f"search.num_samples={num_samples} must be at least 1; use 10")
    if temperature <= 0.0:
        raise UserError(
            f"search.temperature={temperature} must be greater than 0; use search=greedy for the likeliest tokens"
        )
    if not 1 / MAX_TEMPERATURE <= temperature <= MAX_TEMPERATURE:  # beyond, quotients of float32 overflow
        raise UserError(
            f"search.temperature={temperature} must be from {1 / MAX_TEMPERATURE:g} to {MAX_TEMPERATURE:g}; use "
            "search=greedy for the likeliest tokens"
        )
    if top_k < 0 or not 0.0 < top_p <= 1.0:
        raise UserError(
            f"search.top_k={top_k} and top_p={top_p} must be top_k >= 0 and 0 < top_p <= 1; use 0 and 1.0 to draw "
            "from all tokens"
        )


def uniform(seed: int, token_ids: Sequence[int], number: int, steps: int) -> Float64[np.ndarray, " steps"]:
    """Return numbers in (0, 1] for one sample, from a counter-based generator: step t's does not depend on `steps`."""
    digest = hashlib.sha256(" ".join(map(str, [seed, *token_ids])).encode()).digest()
    generator = np.random.Philox(key=np.frombuffer(digest[:16], "<u8"), counter=[0, 0, 0, number])
    return 1.0 - np.random.Generator(generator).random(steps)


def only_likeliest(
    mass: Float[Tensor, "rows vocabulary"], top_k: int, top_p: float
) -> Float[Tensor, "rows vocabulary"]:
    """Set the mass of all but the likeliest tokens to 0; ties go to the lower id."""
    if not top_k and top_p == 1.0:
        return mass
    falling = mass.topk(min(top_k, mass.shape[1])).values if top_k else mass
    count = torch.full_like(mass[:, :1], falling.shape[1], dtype=torch.long)
    if top_p < 1.0:
        share = top_p * falling.sum(-1, keepdim=True, dtype=torch.float64)
        falling, count = nucleus(falling, share)
    least = falling.gather(-1, count - 1)
    stay = ~(mass < least)  # NaN stays
    (tied,) = (stay.sum(-1) > count[:, 0]).nonzero(as_tuple=True)
    if len(tied):
        stay[tied] = first_down_to(mass[tied], least[tied], count[tied])
    return mass.where(stay, 0.0)


def nucleus(
    mass: Float[Tensor, "rows tokens"], share: Float64[Tensor, "rows 1"]
) -> tuple[Float[Tensor, "rows falling"], Int[Tensor, "rows 1"]]:
    """Return the greatest masses in falling order, and how many of them reach the share; sort as few as possible."""
    width = 0
    while True:
        width = min(max(NUCLEUS, 4 * width), mass.shape[1])
        falling = mass.topk(width).values
        held = falling.cumsum(-1, dtype=torch.float64)
        if width == mass.shape[1] or (held[:, -1:] >= share).all():
            return falling, ((held < share).sum(-1, keepdim=True) + 1).clamp(max=width)


def ranked(
    token_ids: Int[Tensor, "rows steps"], totals: Float64[Tensor, " rows"], num_samples: int, eos_id: int
) -> list[list[Hypothesis]]:
    """Return the samples of each sentence, best first; ties go to the one drawn first."""
    drawn = [
        Hypothesis(row[: row.index(eos_id)], total, total)
        for row, total in zip(token_ids.tolist(), totals.tolist(), strict=True)
    ]
    return [
        sorted(drawn[first : first + num_samples], key=lambda sample: -sample.score)
        for first in range(0, len(drawn), num_samples)
    ]
