"""Beam search: the best few hypotheses of each sentence go on together. Wu et al. 2016, 7, arXiv:1609.08144."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.utils import parametrize

from seq2seq_attn.errors import UserError
from seq2seq_attn.model.decoding_model import DecodingModel
from seq2seq_attn.search.candidates import Candidates, best_candidates, check_beam, others
from seq2seq_attn.search.constraints import Constraints
from seq2seq_attn.search.coverage import coverage_penalty
from seq2seq_attn.search.finished import Finished
from seq2seq_attn.search.hypotheses import Hypotheses
from seq2seq_attn.search.length_penalty.length_penalty import LengthPenalty
from seq2seq_attn.search.limits import Limits
from seq2seq_attn.search.search import Hypothesis, Search, TargetVocabulary


@final
class BeamSearch(Search):
    """The whole batch at once; a sentence leaves it as soon as nothing can change its best translations.

    In each step the best `2 * beam_size` continuations of a sentence are its candidates. Of the best `beam_size`,
    those that end are finished; of the others, the best `beam_size` go on.

    Args:
        beam_size: hypotheses of each sentence that go on.
        num_best: translations of each sentence, at most `beam_size`.
        length_penalty: what log-probabilities are divided by for the score; hypotheses going on are all of one
            length, so there log-probability alone ranks.
        coverage_penalty: Wu's beta, for finished hypotheses; 0: none.
        patience: `patience * beam_size` finished hypotheses end a sentence, though better ones may come (Kasai et al.
            2022, arXiv:2204.05424); so with 1 a beam of 1 is greedy search. None: they do not.
        no_repeat_ngram: no n tokens in a row stand in a translation twice; 0: they may.
        limits: of the length.
    """

    def __init__(
        self,
        *,
        beam_size: int,
        num_best: int,
        length_penalty: LengthPenalty,
        coverage_penalty: int | float,
        patience: int | float | None,
        no_repeat_ngram: int,
        limits: Limits,
    ) -> None:
        check_beam(beam_size, num_best, patience)
        if coverage_penalty < 0:
            raise UserError(f"search.coverage_penalty={coverage_penalty} would reward what is left out; use 0.2")
        self.beam_size, self.num_best, self.patience = beam_size, num_best, patience
        self.length_penalty, self.coverage_penalty = length_penalty, coverage_penalty
        self.no_repeat_ngram, self.limits = no_repeat_ngram, limits

    @property
    def hypotheses_at_once(self) -> int:
        return self.beam_size

    @torch.inference_mode()
    @parametrize.cached()  # a normalised weight is computed once, not at every step
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
        divisors = self.length_penalty(torch.arange(1, int(lengths.most.max()) + 2, device=source.device))
        finished = Finished(len(source), num_best=self.num_best, enough=self._enough, device=source.device)
        beam = self._begun(model, source, source_mask, target)
        for divisor in divisors.tolist():
            log_probs, beam = self._read(model, beam)
            constraints(log_probs, beam.said[:, 1:], beam.sentences.repeat_interleave(beam.width))
            candidates = best_candidates(log_probs, beam.totals, 2 * self.beam_size)
            ends = candidates.token_ids == target.eos_id
            self._finish(finished, beam, candidates, ends, divisor, source_mask)
            going_on = others(candidates, ends, self.beam_size)
            # a log-probability only falls, a longer translation is divided by more, coverage adds nothing
            reach = going_on.totals[:, 0] / divisors[lengths.most[beam.sentences]]
            staying = (~finished.settled(beam.sentences, reach)).nonzero()[:, 0]
            if not len(staying):
                break
            beam = beam.continued(going_on, staying)
        return finished.best

    @property
    def _enough(self) -> float:
        """Finished hypotheses that end a sentence."""
        return math.inf if self.patience is None else float(max(self.num_best, self.patience * self.beam_size))

    def _begun(self, model: DecodingModel, source: Tensor, source_mask: Tensor, target: TargetVocabulary) -> Hypotheses:
        """One hypothesis of each sentence, of no token."""
        return Hypotheses(
            torch.arange(len(source), device=source.device),
            torch.zeros(len(source), 1, device=source.device, dtype=torch.float64),
            torch.full((len(source), 1), target.bos_id, device=source.device),
            source_mask.new_zeros(source_mask.shape, dtype=torch.float64) if self.coverage_penalty else None,
            model.encode(source, source_mask),
        )

    def _read(self, model: DecodingModel, beam: Hypotheses) -> tuple[Float[Tensor, "rows vocabulary"], Hypotheses]:
        """What may follow each hypothesis, and the beam behind its last token."""
        step = model.step(beam.said[:, -1], beam.state, need_weights=beam.attention_received is not None)
        attention_received = (
            None
            if step.attention is None or beam.attention_received is None
            else beam.attention_received + step.attention
        )
        return step.log_probs, replace(beam, state=step.state, attention_received=attention_received)

    def _finish(
        self,
        finished: Finished,
        beam: Hypotheses,
        candidates: Candidates,
        ends: Tensor,
        divisor: float,
        source_mask: Tensor,
    ) -> None:
        """Those of the best candidates that end."""
        ends = (ends & (candidates.totals != -torch.inf))[:, : self.beam_size]
        if not ends.any():
            return
        among, rank = ends.nonzero(as_tuple=True)
        totals, rows = candidates.totals[among, rank], among * beam.width + candidates.parents[among, rank]
        scores, sentences = totals / divisor, beam.sentences[among]
        if beam.attention_received is not None:
            scores = scores + coverage_penalty(
                beam.attention_received[rows], source_mask[sentences], self.coverage_penalty
            )
        said = beam.said[rows, 1:].tolist()
        found = map(Hypothesis, said, totals.tolist(), scores.tolist())
        finished.add(sentences.tolist(), list(found))
