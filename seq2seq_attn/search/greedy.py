"""Greedy search: the likeliest piece at every step."""

from __future__ import annotations

from typing import final

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn.utils import parametrize

from seq2seq_attn.model.encoder_decoder import EncoderDecoder
from seq2seq_attn.search.search import Hypothesis, Search
from seq2seq_attn.tensors.precision import at_least_float32


@final
class GreedySearch(Search):
    """The whole batch at once; a finished sentence leaves it.

    Args:
        max_length: most pieces of a translation.
        max_relative_length, max_extra_length: a translation of a source of s pieces has at most
            max_relative_length * s + max_extra_length. A limit of the sentence itself, not of its batch,
            so that a translation does not depend on its neighbours.
    """

    def __init__(self, *, max_length: int, max_relative_length: float, max_extra_length: int) -> None:
        self.max_length = max_length
        self.max_relative_length, self.max_extra_length = max_relative_length, max_extra_length

    @torch.inference_mode()
    @parametrize.cached()  # a normalised weight is computed once, not at every step
    def __call__(
        self,
        model: EncoderDecoder,
        source: Int[Tensor, "batch source"],
        source_mask: Bool[Tensor, "batch source"],
        *,
        bos_id: int,
        eos_id: int,
        banned_ids: tuple[int, ...] = (),
    ) -> list[Hypothesis]:
        limits = self._limits(source_mask)
        if model.max_length is not None:
            limits = limits.clamp(max=model.max_length - 1)  # the begin piece takes a place
        state = model.encode(source, source_mask)
        rows = torch.arange(source.shape[0], device=source.device)
        pieces = torch.full((source.shape[0], int(limits.max())), eos_id, device=source.device)
        scores = torch.zeros(source.shape[0], device=source.device, dtype=torch.float64)
        banned = torch.tensor(banned_ids, device=source.device, dtype=torch.long)
        last = torch.full_like(rows, bos_id)
        for step in range(pieces.shape[1] + 1):
            decoded = model.decode(last[:, None], state)
            state = decoded.state
            log_probs = at_least_float32(model.logits(decoded.hidden[:, 0])).log_softmax(-1)
            last = log_probs.index_fill(-1, banned, -torch.inf).argmax(-1).where(limits > step, eos_id)
            scores[rows] += log_probs.gather(-1, last[:, None])[:, 0].double()
            going = (last != eos_id).nonzero()[:, 0]
            if not len(going):
                break
            if len(going) < len(rows):
                rows, last, limits, state = rows[going], last[going], limits[going], state.select(going)
            pieces[rows, step] = last
        return [
            Hypothesis(row[: row.index(eos_id)] if eos_id in row else row, score)
            for row, score in zip(pieces.tolist(), scores.tolist(), strict=True)
        ]

    def _limits(self, source_mask: Bool[Tensor, "batch source"]) -> Int[Tensor, "batch"]:
        relative = source_mask.sum(-1) * self.max_relative_length + self.max_extra_length
        return relative.long().clamp(max=self.max_length)
