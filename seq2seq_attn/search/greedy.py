"""Greedy search: the likeliest token at every step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, final

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from seq2seq_attn.model.decoding_model import DecodingModel
from seq2seq_attn.nn.search_mode import search_mode
from seq2seq_attn.search.candidates import likeliest_token
from seq2seq_attn.search.constraints import Constraints
from seq2seq_attn.search.limits import Limits
from seq2seq_attn.search.search import Hypothesis, Search, TargetVocabulary


@final
class GreedySearch(Search):
    """Greedy search over a whole batch; a finished sentence leaves the batch.

    Args:
        limits: limits of the length.
        no_repeat_ngram: n of the n-grams that may not occur twice in a translation; 0: none.
    """

    def __init__(self, *, limits: Limits, no_repeat_ngram: Annotated[int, "[0, 1000]"] = 0) -> None:
        self.limits, self.no_repeat_ngram = limits, no_repeat_ngram

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
        state = model.encode(source, source_mask)
        rows = torch.arange(len(source), device=source.device)
        token_ids = torch.full((len(source), int(lengths.most.max()) + 1), target.eos_id, device=source.device)
        totals = torch.zeros(len(source), device=source.device, dtype=torch.float64)
        last = torch.full_like(rows, target.bos_id)
        for step in range(token_ids.shape[1]):
            log_probs, state, _ = model.step(last, state)
            best, last = likeliest_token(constraints(log_probs, token_ids[rows, :step], rows))
            totals[rows] += best.double()
            token_ids[rows, step] = last
            unfinished = (last != target.eos_id).nonzero()[:, 0]
            if not len(unfinished):
                break
            if len(unfinished) < len(rows):
                rows, last, state = rows[unfinished], last[unfinished], state.select(unfinished)
        hypotheses = []
        for row, total in zip(token_ids.tolist(), totals.tolist(), strict=True):
            hypotheses.append([Hypothesis(row[: row.index(target.eos_id)], total, total)])
        return hypotheses
