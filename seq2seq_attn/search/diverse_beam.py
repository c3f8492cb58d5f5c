"""Diverse beam search: a group pays for the tokens of those before it. Vijayakumar et al. 2016, arXiv:1610.02424."""

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
from seq2seq_attn.search.candidates import Candidates, best_tokens, check_beam, others
from seq2seq_attn.search.constraints import FREE, Constraints
from seq2seq_attn.search.finished import Finished
from seq2seq_attn.search.hypotheses import Hypotheses
from seq2seq_attn.search.length_penalty.length_penalty import LengthPenalty
from seq2seq_attn.search.limits import Limits
from seq2seq_attn.search.search import Hypothesis, Search, TargetVocabulary


@final
class DiverseBeamSearch(Search):
    """Each group is a beam search whose log-probabilities are penalised; all groups are read in one step of the model.

    In each step a token costs a group `diversity` nats for each hypothesis of the groups before it that has just
    chosen it, to end too (Hamming diversity); a forced token costs nothing. As in the authors' code a hypothesis keeps
    what it has paid: by that its group ranks it, goes on with it, finishes it and stops. What is reported is the
    model's own, and ranks the translations of all groups together.

    Args:
        beam_size: hypotheses of each sentence that go on, those of all groups.
        num_groups: of the beam, all of one size; 1: beam search.
        diversity: nats; 0: all groups find the same.
        num_best: different translations of each sentence, at most `beam_size`, of which each group finds its share;
            fewer where groups find the same.
        length_penalty: what log-probabilities are divided by for the score.
        patience: `patience` times its hypotheses end a group, though better ones may come; None: they do not.
        no_repeat_ngram: no n tokens in a row stand in a translation twice; 0: they may.
        limits: of the length.
    """

    def __init__(
        self,
        *,
        beam_size: int,
        num_groups: int,
        diversity: int | float,
        num_best: int,
        length_penalty: LengthPenalty,
        patience: int | float | None,
        no_repeat_ngram: int,
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
        finished = self._none_finished(source)
        beam = self._begun(model, source, source_mask, target)
        own = torch.zeros_like(beam.totals)  # log-probabilities; those of the beam are penalised
        for step, divisor in enumerate(divisors.tolist()):
            log_probs, state, _ = model.step(beam.said[:, -1], beam.state)
            constraints(log_probs, beam.said[:, 1:], beam.sentences.repeat_interleave(beam.width))
            free = (constraints.forced[beam.sentences, step : step + 1] == FREE).all(-1)
            candidates = self._in_turns(log_probs, beam.totals, free, target.eos_id)
            ends = candidates.token_ids == target.eos_id
            groups = self._groups(beam.sentences)
            self._finish(finished, groups, beam, candidates, ends, own_totals(own, log_probs, candidates), divisor)
            going_on = others(candidates, ends, self.group_size)
            # neither penalties nor log-probabilities rise, and a longer translation is divided by more
            reach = going_on.totals[:, 0] / divisors[lengths.most[groups // self.num_groups]]
            settled = finished.settled(groups, reach)
            (staying,) = (~settled).view(-1, self.num_groups).any(-1).nonzero(as_tuple=True)
            if not len(staying):
                break
            own = own_totals(own, log_probs, going_on).view(len(beam.sentences), -1)[staying]
            beam = replace(beam, state=state).continued(self._together(going_on, settled, beam), staying)
        return self._merged(finished, divisors.tolist())

    def _none_finished(self, source: Tensor) -> Finished:
        """A position for each group of each sentence, one sentence after another."""
        share = math.ceil(self.num_best / self.num_groups)
        enough = math.inf if self.patience is None else max(share, self.patience * self.group_size)
        return Finished(len(source) * self.num_groups, num_best=share, enough=float(enough), device=source.device)

    def _groups(self, sentences: Int[Tensor, "sentences"]) -> Int[Tensor, "groups"]:
        """Where the groups of these sentences finish."""
        of_sentence = torch.arange(self.num_groups, device=sentences.device)
        return (sentences[:, None] * self.num_groups + of_sentence).flatten()

    def _begun(self, model: DecodingModel, source: Tensor, source_mask: Tensor, target: TargetVocabulary) -> Hypotheses:
        """One hypothesis of each group, of no token."""
        sentences = torch.arange(len(source), device=source.device)
        rows = sentences.repeat_interleave(self.num_groups)
        totals = torch.zeros(len(source), self.num_groups, device=source.device, dtype=torch.float64)
        said = torch.full((len(rows), 1), target.bos_id, device=source.device)
        return Hypotheses(sentences, totals, said, None, model.encode(source, source_mask).branch(rows))

    def _in_turns(
        self,
        log_probs: Float[Tensor, "rows vocabulary"],
        totals: Float[Tensor, "sentences width"],
        free: Bool[Tensor, "sentences"],
        eos_id: int,
    ) -> Candidates:
        """Candidates of each group; `free`: not forced."""
        sentences, vocabulary = len(totals), log_probs.shape[1]
        # those that groups before it can have chosen, as many again as it goes on with itself, and the end
        values, token_ids = best_tokens(log_probs, min(self.beam_size + 1, vocabulary))
        token_ids, order = token_ids.sort(-1)  # so that of equals the lower comes first, penalised or not
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
        """Which finish or go on."""
        ends = candidates.token_ids == eos_id
        rank = torch.arange(ends.shape[1], device=ends.device)
        among = rank.where(ends, (~ends).cumsum(-1) - 1)
        return (among < self.group_size) & (candidates.totals != -torch.inf)

    def _finish(
        self,
        finished: Finished,
        groups: Tensor,
        beam: Hypotheses,
        candidates: Candidates,
        ends: Tensor,
        own: Tensor,
        divisor: float,
    ) -> None:
        """Those of each group's best candidates that end."""
        ends = (ends & (candidates.totals != -torch.inf))[:, : self.group_size]
        if not ends.any():
            return
        among, rank = ends.nonzero(as_tuple=True)
        rows = among * (beam.width // self.num_groups) + candidates.parents[among, rank]
        scores = candidates.totals[among, rank] / divisor
        found = map(Hypothesis, beam.said[rows, 1:].tolist(), own[among, rank].tolist(), scores.tolist())
        finished.add(groups[among].tolist(), list(found))

    def _together(self, going_on: Candidates, settled: Bool[Tensor, "groups"], beam: Hypotheses) -> Candidates:
        """Those of a sentence's groups side by side; none of a group that is settled."""
        totals = going_on.totals.masked_fill(settled[:, None], -torch.inf)
        first = torch.arange(0, beam.width, beam.width // self.num_groups, device=totals.device)
        parents = going_on.parents + first.repeat(len(beam.sentences))[:, None]
        return Candidates(*(x.reshape(len(beam.sentences), -1) for x in (totals, parents, going_on.token_ids)))

    def _merged(self, finished: Finished, divisors: list[float]) -> list[list[Hypothesis]]:
        """The different translations of each sentence by their own scores; of equals, the earlier group's."""
        merged = []
        for first in range(0, len(finished.best), self.num_groups):
            different: dict[tuple[int, ...], Hypothesis] = {}
            for of_group in finished.best[first : first + self.num_groups]:
                for token_ids, log_prob, _ in of_group:
                    own = Hypothesis(token_ids, log_prob, log_prob / divisors[len(token_ids)])
                    different.setdefault(tuple(token_ids), own)
            merged.append(sorted(different.values(), key=lambda found: -found.score)[: self.num_best])
        return merged


def check_groups(beam_size: int, num_groups: int, diversity: int | float) -> None:
    if num_groups < 1 or beam_size % num_groups:
        raise UserError(
            f"search.num_groups={num_groups} must be at least 1 and divide search.beam_size={beam_size}; "
            f"use search.num_groups={beam_size}"
        )
    if not 0 <= diversity < math.inf:
        raise UserError(f"search.diversity={diversity} must be a number of nats, 0 or more; use 0.5")


def own_totals(
    own: Float[Tensor, "sentences width"], log_probs: Float[Tensor, "rows vocabulary"], candidates: Candidates
) -> Float[Tensor, "groups candidates"]:
    """Log-probability of each group's candidates, without penalties."""
    groups = len(candidates.parents)
    own, log_probs = own.view(groups, -1), log_probs.view(groups, -1, log_probs.shape[1])
    of_parent = log_probs[torch.arange(groups, device=own.device)[:, None], candidates.parents, candidates.token_ids]
    return own.gather(1, candidates.parents) + of_parent
