"""The best continuations of the hypotheses of each sentence."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from seq2seq_attn.errors import UserError
from seq2seq_attn.nn.one_hot import first_down_to

CHUNK = 64  # tokens; on a CPU, taking the maximum is many times faster than topk
FEW_ROWS = 8  # for fewer, one maximum is faster than two levels of them


class Candidates(NamedTuple):
    """Continuations, best first.

    Attributes:
        totals: log-probability of the hypothesis with its new token, in nats; -inf: no candidate.
        parents: index, within the sentence, of the hypothesis that is continued.
    """

    totals: Float[Tensor, "sentences candidates"]
    parents: Int[Tensor, "sentences candidates"]
    token_ids: Int[Tensor, "sentences candidates"]


def best_candidates(
    log_probs: Float[Tensor, "rows vocabulary"], totals: Float[Tensor, "sentences hypotheses"], count: int
) -> Candidates:
    """Return the `count` likeliest, or all if there are fewer; ties go to the lower hypothesis, then token id."""
    values, token_ids = best_tokens(log_probs, count)
    width = values.shape[1]
    all_totals = (totals[..., None] + values.reshape(*totals.shape, width)).flatten(1)
    ordered, position = all_totals.sort(dim=-1, descending=True, stable=True)
    ordered, position = ordered[:, :count], position[:, :count]
    return Candidates(ordered, position // width, token_ids.reshape(len(totals), -1).gather(1, position))


def best_tokens(
    log_probs: Float[Tensor, "rows vocabulary"], count: int
) -> tuple[Float[Tensor, "rows count"], Int[Tensor, "rows count"]]:
    """Return the `count` likeliest tokens of each row and their log-probabilities; ties go to the lower id."""
    count = min(count, log_probs.shape[1])
    values, token_ids = likeliest(log_probs, min(count + 1, log_probs.shape[1]))
    # topk does not specify which of several equal values it returns, nor their order
    tied = (values[:, 1:] == values[:, :-1]) & (values[:, 1:] > -torch.inf)
    values, token_ids = values[:, :count], token_ids[:, :count]
    if not tied.any():
        return values, token_ids
    (cut,) = tied[:, count - 1 :].any(-1).nonzero(as_tuple=True)  # rows with such a value left out
    if len(cut):
        rows = log_probs[cut]
        token_ids[cut] = first_down_to(rows, values[cut, -1:], count).nonzero()[:, 1].view(-1, count)
        values[cut] = rows.gather(1, token_ids[cut])
    token_ids, order = token_ids.sort(-1)
    values, order = values.gather(1, order).sort(dim=-1, descending=True, stable=True)
    return values, token_ids.gather(1, order)


def likeliest_token(log_probs: Float[Tensor, "rows vocabulary"]) -> tuple[Float[Tensor, " rows"], Int[Tensor, " rows"]]:
    """Return what `max` would, ties to the lower id; NaN counts as greatest.

    The maximum is in the first chunk with the largest maximum.
    """
    vocabulary = log_probs.shape[1]
    cut = vocabulary - vocabulary % CHUNK
    if cut == 0 or len(log_probs) < FEW_ROWS:
        return log_probs.max(-1)
    chunked = log_probs[:, :cut].unflatten(1, (-1, CHUNK))
    chunk = chunked.amax(-1).argmax(-1)
    best, position = chunked[torch.arange(len(chunk), device=chunk.device), chunk].max(-1)
    token_id = chunk * CHUNK + position
    if cut == vocabulary:
        return best, token_id
    in_rest, position = log_probs[:, cut:].max(-1)
    return best.maximum(in_rest), token_id.where((best >= in_rest) | best.isnan(), cut + position)


def likeliest(
    log_probs: Float[Tensor, "rows vocabulary"], count: int
) -> tuple[Float[Tensor, "rows count"], Int[Tensor, "rows count"]]:
    """Return what `topk` would: the `count` best values are in the `count` chunks with the largest maxima."""
    vocabulary = log_probs.shape[1]
    chunks = vocabulary // CHUNK
    if chunks < 4 * count:
        return log_probs.topk(count)
    cut = chunks * CHUNK
    chunked = log_probs[:, :cut].unflatten(1, (chunks, CHUNK))
    chosen = chunked.amax(-1).topk(count, sorted=False).indices[..., None]
    within = chunked.gather(1, chosen.expand(-1, -1, CHUNK)).flatten(1)
    values, positions = torch.cat([within, log_probs[:, cut:]], 1).topk(count)
    ids = chosen * CHUNK + torch.arange(CHUNK, device=log_probs.device)
    rest = torch.arange(cut, vocabulary, device=log_probs.device).expand(len(ids), -1)
    return values, torch.cat([ids.flatten(1), rest], 1).gather(1, positions)


def best_unfinished(candidates: Candidates, ends: Bool[Tensor, "sentences candidates"], count: int) -> Candidates:
    """Return the best `count` candidates that do not end, or fewer if no sentence has as many."""
    order = ends.byte().argsort(dim=-1, stable=True)[:, :count]
    totals = candidates.totals.masked_fill(ends, -torch.inf).gather(1, order)
    width = max(1, int((totals != -torch.inf).sum(-1).max()))
    order = order[:, :width]
    return Candidates(totals[:, :width], candidates.parents.gather(1, order), candidates.token_ids.gather(1, order))


def check_beam(beam_size: int, num_best: int, patience: int | float | None) -> None:
    """Check the options that beam search and diverse beam search share.

    Raises:
        UserError: if an option is out of range.
    """
    if beam_size < 1:
        raise UserError(f"search.beam_size={beam_size} must be at least 1; use 5")
    if not 1 <= num_best <= beam_size:
        raise UserError(
            f"search.num_best={num_best} must be at least 1 and at most search.beam_size={beam_size}; "
            f"use search.num_best={min(max(1, num_best), beam_size)}{' or a larger beam' * (num_best > beam_size)}"
        )
    if patience is not None and patience <= 0:
        raise UserError(f"search.patience={patience} must be greater than 0; use 1.0, or null for no limit")
