"""Beam search: keep the best few hypotheses of each sentence. Wu et al. 2016, section 7, arXiv:1609.08144."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, NamedTuple, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from seq2seq_attn.errors import UserError
from seq2seq_attn.model.decoding_model import DecodingModel
from seq2seq_attn.nn.search_mode import search_mode
from seq2seq_attn.search.candidates import Candidates, best_candidates, best_unfinished, check_beam
from seq2seq_attn.search.constraints import Constraints
from seq2seq_attn.search.finished import Finished
from seq2seq_attn.search.hypotheses import Hypotheses
from seq2seq_attn.search.length_penalty.length_penalty import LengthPenalty
from seq2seq_attn.search.limits import Limits
from seq2seq_attn.search.search import Hypothesis, Search, TargetVocabulary

LEAST_ATTENTION = 1e-6  # floor inside the logarithm: at 0, one unread position would make every translation -inf


class BeamStep(NamedTuple):
    """One step of the search, for a function that observes it.

    Attributes:
        beam: the hypotheses that were continued.
        candidates: the best continuations, best first.
        ends: which of them end.
        finished: those that are finished, by sentence and rank.
        active: those that are continued in the next step, unless their sentence stops.
    """

    beam: Hypotheses
    candidates: Candidates
    ends: Bool[Tensor, "sentences candidates"]
    finished: list[Hypothesis]
    active: Candidates


@final
class BeamSearch(Search):
    """Beam search over a whole batch; a sentence leaves the batch once its best translations cannot change.

    In each step the best `2 * beam_size` continuations of a sentence are its candidates. Those among the best
    `beam_size` that end are finished; the best `beam_size` of those that do not end are continued.

    Args:
        beam_size: number of hypotheses of each sentence that are continued.
        num_best: number of translations of each sentence, at most `beam_size`.
        length_penalty: divisor of the log-probability of a finished hypothesis. Unfinished hypotheses have equal
            lengths and are ranked by log-probability.
        coverage_penalty: beta of Wu et al., eq. 14, for finished hypotheses; 0: none.
        patience: stop a sentence after `patience * beam_size` finished hypotheses, even if better ones are possible
            (Kasai et al. 2022, arXiv:2204.05424); with 1, a beam of 1 is greedy search. None: no limit.
        no_repeat_ngram: n of the n-grams that may not occur twice in a translation; 0: none.
        limits: limits of the length.

    Raises:
        UserError: if an argument is out of range.
    """

    def __init__(
        self,
        *,
        beam_size: Annotated[int, "[1, 1000]"],
        num_best: Annotated[int, "[1, 1000]"],
        length_penalty: LengthPenalty,
        coverage_penalty: Annotated[int | float, "[0, inf)"],
        patience: Annotated[int | float | None, "(0, inf)"],
        no_repeat_ngram: Annotated[int, "[0, 1000]"],
        limits: Limits,
    ) -> None:
        check_beam(beam_size, num_best, patience)
        if coverage_penalty < 0:
            raise UserError(
                f"search.coverage_penalty={coverage_penalty} would reward untranslated words; use 0 or more"
            )
        self.beam_size, self.num_best, self.patience = beam_size, num_best, patience
        self.length_penalty, self.coverage_penalty = length_penalty, coverage_penalty
        self.no_repeat_ngram, self.limits = no_repeat_ngram, limits

    @property
    def hypotheses_at_once(self) -> int:
        return self.beam_size

    @property
    def most_hypotheses(self) -> int:
        return self.num_best

    @search_mode()
    def __call__(
        self,
        model: DecodingModel,
        source: Int[Tensor, "batch source"],
        source_mask: Bool[Tensor, "batch source"],
        target: TargetVocabulary,
        *,
        prefixes: Sequence[Sequence[int]] | None = None,
        observer: Callable[[BeamStep], None] | None = None,
    ) -> list[list[Hypothesis]]:
        lengths = self.limits(source_mask, model.max_length, prefixes)
        constraints = Constraints(lengths, target, prefixes, self.no_repeat_ngram)
        divisors = self.length_penalty(torch.arange(1, int(lengths.most.max()) + 2, device=source.device))
        finished = Finished(len(source), num_best=self.num_best, max_finished=self._max_finished, device=source.device)
        beam = self._initial_beam(model, source, source_mask, target)
        for divisor in divisors.tolist():
            log_probs, beam = self._read(model, beam)
            constraints(log_probs, beam.tokens[:, 1:], beam.sentences.repeat_interleave(beam.width))
            candidates = best_candidates(log_probs, beam.totals, 2 * self.beam_size)
            ends = candidates.token_ids == target.eos_id
            new = self._finish(finished, beam, candidates, ends, divisor, source_mask)
            active = best_unfinished(candidates, ends, self.beam_size)
            if observer is not None:
                observer(BeamStep(beam, candidates, ends, new, active))
            # log-probabilities only fall, divisors grow with the length, and the coverage penalty is at most 0
            bound = active.totals[:, 0] / divisors[lengths.most[beam.sentences]]
            remaining = (~finished.settled(beam.sentences, bound)).nonzero()[:, 0]
            if not len(remaining):
                break
            beam = beam.continued(active, remaining)
        return finished.best

    @property
    def _max_finished(self) -> float:
        """Number of finished hypotheses after which a sentence stops."""
        return math.inf if self.patience is None else float(max(self.num_best, self.patience * self.beam_size))

    def _initial_beam(
        self, model: DecodingModel, source: Tensor, source_mask: Tensor, target: TargetVocabulary
    ) -> Hypotheses:
        """Return a beam with one hypothesis for each sentence, without tokens."""
        return Hypotheses(
            torch.arange(len(source), device=source.device),
            torch.zeros(len(source), 1, device=source.device, dtype=torch.float64),
            torch.full((len(source), 1), target.bos_id, device=source.device),
            source_mask.new_zeros(source_mask.shape, dtype=torch.float64) if self.coverage_penalty else None,
            model.encode(source, source_mask),
        )

    def _read(self, model: DecodingModel, beam: Hypotheses) -> tuple[Float[Tensor, "rows vocabulary"], Hypotheses]:
        """Read the last token of each hypothesis; return the log-probabilities of the next and the updated beam."""
        received = beam.attention_received
        step = model.step(beam.tokens[:, -1], beam.state, need_weights=received is not None)
        if received is not None:
            if step.attention is None:
                raise UserError(
                    f"search.coverage_penalty={self.coverage_penalty} needs attention to a source, and a language "
                    "model has none; use 0"
                )
            received = received + step.attention
        return step.log_probs, replace(beam, state=step.state, attention_received=received)

    def _finish(
        self,
        finished: Finished,
        beam: Hypotheses,
        candidates: Candidates,
        ends: Tensor,
        divisor: float,
        source_mask: Tensor,
    ) -> list[Hypothesis]:
        """Add those of the best `beam_size` candidates that end to `finished`, and return them."""
        ends = (ends & (candidates.totals != -torch.inf))[:, : self.beam_size]
        if not ends.any():
            return []
        sentence, rank = ends.nonzero(as_tuple=True)
        totals, rows = candidates.totals[sentence, rank], sentence * beam.width + candidates.parents[sentence, rank]
        scores, sentences = totals / divisor, beam.sentences[sentence]
        if beam.attention_received is not None:
            scores = scores + coverage_penalty(
                beam.attention_received[rows], source_mask[sentences], self.coverage_penalty
            )
        hypotheses = list(map(Hypothesis, beam.tokens[rows, 1:].tolist(), totals.tolist(), scores.tolist()))
        finished.add(sentences.tolist(), hypotheses)
        return hypotheses


def coverage_penalty(
    attention_received: Float[Tensor, "hypotheses source"], mask: Bool[Tensor, "hypotheses source"], beta: int | float
) -> Float[Tensor, " hypotheses"]:
    """Return beta * sum over the source of log(min(attention received, 1)). Wu et al. 2016, eq. 14.

    It is 0 if every source token, the end token included, receives at least one token's worth of attention.

    Args:
        attention_received: attention to each source position, summed over the tokens of the translation and its end.
    """
    logs = attention_received.double().clamp(LEAST_ATTENTION, 1).log()
    return beta * torch.where(mask, logs, 0).sum(-1)
