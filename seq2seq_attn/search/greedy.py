"""Greedy search: the likeliest token at every step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn.utils import parametrize

from seq2seq_attn.model.decoding_model import DecodingModel
from seq2seq_attn.search.constraints import Constraints
from seq2seq_attn.search.limits import Limits
from seq2seq_attn.search.search import Hypothesis, Search, TargetVocabulary


@final
class GreedySearch(Search):
    """The whole batch at once; a finished sentence leaves it.

    Args:
        limits: of the length.
    """

    def __init__(self, *, limits: Limits) -> None:
        self.limits = limits

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
        constraints = Constraints(lengths, target, prefixes)
        state = model.encode(source, source_mask)
        rows = torch.arange(len(source), device=source.device)
        token_ids = torch.full((len(source), int(lengths.most.max()) + 1), target.eos_id, device=source.device)
        totals = torch.zeros(len(source), device=source.device, dtype=torch.float64)
        last = torch.full_like(rows, target.bos_id)
        for step in range(token_ids.shape[1]):
            log_probs, state, _ = model.step(last, state)
            best, last = constraints(log_probs, token_ids[rows, :step], rows).max(-1)
            totals[rows] += best.double()
            token_ids[rows, step] = last
            going = (last != target.eos_id).nonzero()[:, 0]
            if not len(going):
                break
            if len(going) < len(rows):
                rows, last, state = rows[going], last[going], state.select(going)
        found = []
        for row, total in zip(token_ids.tolist(), totals.tolist(), strict=True):
            found.append([Hypothesis(row[: row.index(target.eos_id)], total, total)])
        return found
