"""Diverse beam search: each group avoids the tokens of earlier groups. Vijayakumar et al. 2016, arXiv:1610.02424."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from seq2seq_attn.errors import UserError
from seq2seq_attn.model.decoding_model import DecodingModel
from seq2seq_attn.nn.search_mode import search_mode
from seq2seq_attn.search.candidates import Candidates, best_tokens, best_unfinished, check_beam
from seq2seq_attn.search.constraints import FREE, Constraints
from seq2seq_attn.search.finished import Finished
from seq2seq_attn.search.hypotheses import Hypotheses
from seq2seq_attn.search.length_penalty.length_penalty import LengthPenalty
from seq2seq_attn.search.limits import Limits
from seq2seq_attn.search.search import Hypothesis, Search, TargetVocabulary, by_score


@final
class DiverseBeamSearch(Search):
    """Beam search in groups with penalised log-probabilities; one step of the model serves all groups.

    In each step a token, the end token included, costs a group `diversity` nats for each hypothesis of an earlier
    group that has just chosen it (Hamming diversity); a forced token costs nothing. As in the authors' code,
    penalties accumulate: a group ranks, continues, finishes and stops its hypotheses by penalised log-probability.
    The reported log-probabilities and scores have no penalties, and rank the translations of all groups.

    Args:
        beam_size: number of hypotheses of each sentence that are continued, over all groups.
        num_groups: number of groups, of equal size; 1: beam search.
        diversity: penalty in nats; 0: all groups find the same hypotheses.
        num_best: number of different translations of each sentence, at most `beam_size`; each group contributes an
            equal share. There are fewer if groups find the same.
        length_penalty: divisor of the log-probability of a finished hypothesis.
        patience: stop a group after `patience` times its size finished hypotheses, even if better ones are possible;
            None: no limit.
        no_repeat_ngram: n of the n-grams that may not occur twice in a translation; 0: none.
        limits: limits of the length.

    Raises:
        UserError: if an argument is out of range.
    """

    def __init__(
        self,
        *,
        beam_size: Annotated[int, "[1, 1000]"],
        num_groups: Annotated[int, "[1, 1000]"],
        diversity: Annotated[int | float, "[0, inf)"],
        num_best: Annotated[int, "[1, 1000]"],
        length_penalty: LengthPenalty,
        patience: Annotated[int | float | None, "(0, inf)"],
        no_repeat_ngram: Annotated[int, "[0, 1000]"],
        limits: Limits,
    ) -> None:
        check_beam(beam_size, num_best, patience)
        check_groups(beam_size, num_groups, diversity)
        self.beam_size, self.num_groups, self.group_size = beam_size, num_groups, beam_size // num_groups
        self.diversity, self.num_best, self.patience = diversity, num_best, patience
        self.length_penalty, self.no_repeat_ngram, self.limits = length_penalty, no_repeat_ngram, limits

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
    ) -> list[list[Hypothesis]]:
        lengths = self.limits(source_mask, model.max_length, prefixes)
        constraints = Constraints(lengths, target, prefixes, self.no_repeat_ngram)
        divisors = self.length_penalty(torch.arange(1, int(lengths.most.max()) + 2, device=source.device))
        finished = self._empty_finished(source)
        beam = self._initial_beam(model, source, source_mask, target)
        unpenalised = torch.zeros_like(beam.totals)  # log-probabilities; beam.totals are penalised
        for step, divisor in enumerate(divisors.tolist()):
            log_probs, state, _ = model.step(beam.tokens[:, -1], beam.state)
            constraints(log_probs, beam.tokens[:, 1:], beam.sentences.repeat_interleave(beam.width))
            free = (constraints.forced[beam.sentences, step : step + 1] == FREE).all(-1)
            candidates = self._group_candidates(log_probs, beam.totals, free, target.eos_id)
            ends = candidates.token_ids == target.eos_id
            groups = self._group_rows(beam.sentences)
            self._finish(
                finished,
                groups,
                beam,
                candidates,
                ends,
                unpenalised_totals(unpenalised, log_probs, candidates),
                divisor,
            )
            active = best_unfinished(candidates, ends, self.group_size)
            # log-probabilities, penalised or not, only fall, and divisors grow with the length
            bound = active.totals[:, 0] / divisors[lengths.most[groups // self.num_groups]]
            settled = finished.settled(groups, bound)
            (remaining,) = (~settled).view(-1, self.num_groups).any(-1).nonzero(as_tuple=True)
            if not len(remaining):
                break
            unpenalised = unpenalised_totals(unpenalised, log_probs, active).view(len(beam.sentences), -1)[remaining]
            beam = replace(beam, state=state).continued(self._join_groups(active, settled, beam), remaining)
        return self._merged(finished, divisors.tolist())

    def _empty_finished(self, source: Tensor) -> Finished:
        """Return an empty record of finished hypotheses, with a row for each group of each sentence."""
        share = math.ceil(self.num_best / self.num_groups)
        max_finished = math.inf if self.patience is None else max(share, self.patience * self.group_size)
        return Finished(
            len(source) * self.num_groups, num_best=share, max_finished=float(max_finished), device=source.device
        )

    def _group_rows(self, sentences: Int[Tensor, " sentences"]) -> Int[Tensor, " groups"]:
        """Return the rows, in the record of finished hypotheses, of the groups of these sentences."""
        offsets = torch.arange(self.num_groups, device=sentences.device)
        return (sentences[:, None] * self.num_groups + offsets).flatten()

    def _initial_beam(
        self, model: DecodingModel, source: Tensor, source_mask: Tensor, target: TargetVocabulary
    ) -> Hypotheses:
        """Return a beam with one hypothesis for each group, without tokens."""
        sentences = torch.arange(len(source), device=source.device)
        rows = sentences.repeat_interleave(self.num_groups)
        totals = torch.zeros(len(source), self.num_groups, device=source.device, dtype=torch.float64)
        tokens = torch.full((len(rows), 1), target.bos_id, device=source.device)
        return Hypotheses(sentences, totals, tokens, None, model.encode(source, source_mask).branch(rows))

    def _group_candidates(
        self,
        log_probs: Float[Tensor, "rows vocabulary"],
        totals: Float[Tensor, "sentences width"],
        free: Bool[Tensor, " sentences"],
        eos_id: int,
    ) -> Candidates:
        """Return the candidates of each group, chosen one group after another.

        Args:
            free: whether the next token of a sentence is not forced.
        """
        sentences, vocabulary = len(totals), log_probs.shape[1]
        # enough for any group: the tokens that earlier groups can have chosen, its own choices, and the end token
        values, token_ids = best_tokens(log_probs, min(self.beam_size + 1, vocabulary))
        token_ids, order = token_ids.sort(-1)  # so that ties go to the lower id, penalised or not
        values = totals.reshape(-1, 1) + values.gather(1, order)
        values, token_ids = (x.view(sentences, self.num_groups, -1) for x in (values, token_ids))
        chosen = torch.zeros(sentences, vocabulary, device=totals.device, dtype=torch.long)
        turns = []
        for value, token_id in zip(values.unbind(1), token_ids.unbind(1), strict=True):
            penalised = value - self.diversity * chosen.gather(1, token_id).double()
            ordered, position = penalised.sort(dim=-1, descending=True, stable=True)
            ordered, position = ordered[:, : 2 * self.group_size], position[:, : 2 * self.group_size]
            turns.append(Candidates(ordered, position // order.shape[1], token_id.gather(1, position)))
            counted = self._chosen(turns[-1], eos_id) & free[:, None]
            chosen.scatter_add_(1, turns[-1].token_ids, counted.long())
        return Candidates(*(torch.stack(turn, 1).flatten(0, 1) for turn in zip(*turns, strict=True)))

    def _chosen(self, candidates: Candidates, eos_id: int) -> Bool[Tensor, "sentences candidates"]:
        """Return which candidates finish or are continued."""
        ends = candidates.token_ids == eos_id
        rank = torch.arange(ends.shape[1], device=ends.device)
        order = rank.where(ends, (~ends).cumsum(-1) - 1)
        return (order < self.group_size) & (candidates.totals != -torch.inf)

    def _finish(
        self,
        finished: Finished,
        groups: Tensor,
        beam: Hypotheses,
        candidates: Candidates,
        ends: Tensor,
        unpenalised: Tensor,
        divisor: float,
    ) -> None:
        """Add those of each group's best candidates that end to `finished`."""
        ends = (ends & (candidates.totals != -torch.inf))[:, : self.group_size]
        if not ends.any():
            return
        group, rank = ends.nonzero(as_tuple=True)
        rows = group * (beam.width // self.num_groups) + candidates.parents[group, rank]
        scores = candidates.totals[group, rank] / divisor
        hypotheses = map(Hypothesis, beam.tokens[rows, 1:].tolist(), unpenalised[group, rank].tolist(), scores.tolist())
        finished.add(groups[group].tolist(), list(hypotheses))

    def _join_groups(self, active: Candidates, settled: Bool[Tensor, " groups"], beam: Hypotheses) -> Candidates:
        """Join the candidates of the groups of each sentence, with -inf for those of settled groups."""
        totals = active.totals.masked_fill(settled[:, None], -torch.inf)
        first = torch.arange(0, beam.width, beam.width // self.num_groups, device=totals.device)
        parents = active.parents + first.repeat(len(beam.sentences))[:, None]
        return Candidates(*(x.reshape(len(beam.sentences), -1) for x in (totals, parents, active.token_ids)))

    def _merged(self, finished: Finished, divisors: list[float]) -> list[list[Hypothesis]]:
        """Return the different translations of each sentence by unpenalised score; ties go to the earlier group."""
        merged = []
        for first in range(0, len(finished.best), self.num_groups):
            different: dict[tuple[int, ...], Hypothesis] = {}
            for group_best in finished.best[first : first + self.num_groups]:
                for token_ids, log_prob, _ in group_best:
                    unpenalised = Hypothesis(token_ids, log_prob, log_prob / divisors[len(token_ids)])
                    different.setdefault(tuple(token_ids), unpenalised)
            merged.append(sorted(different.values(), key=by_score)[: self.num_best])
        return merged


def check_groups(beam_size: int, num_groups: int, diversity: int | float) -> None:
    if num_groups < 1 or beam_size % num_groups:
        raise UserError(
            f"search.num_groups={num_groups} must be at least 1 and divide search.beam_size={beam_size}; "
            f"use search.num_groups={beam_size}"
        )
    if not 0 <= diversity < math.inf:
        raise UserError(f"search.diversity={diversity} must be a number of nats, 0 or more; use 0.5")


def unpenalised_totals(
    unpenalised: Float[Tensor, "sentences width"], log_probs: Float[Tensor, "rows vocabulary"], candidates: Candidates
) -> Float[Tensor, "groups candidates"]:
    """Return the log-probabilities of each group's candidates, without penalties."""
    groups = len(candidates.parents)
    unpenalised, log_probs = unpenalised.view(groups, -1), log_probs.view(groups, -1, log_probs.shape[1])
    token_log_probs = log_probs[
        torch.arange(groups, device=unpenalised.device)[:, None], candidates.parents, candidates.token_ids
    ]
    return unpenalised.gather(1, candidates.parents) + token_log_probs
