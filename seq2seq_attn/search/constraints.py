"""Constraints on the next token: banned tokens, a forced prefix, length limits and no repeated n-grams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from seq2seq_attn.search.limits import Lengths
from seq2seq_attn.search.search import TargetVocabulary

FREE = -1  # in `forced`: any token may follow


@final
class Constraints:
    """The constraints of a batch; a search applies them at every step to its unfinished hypotheses.

    Args:
        prefixes: tokens with which each translation must begin.
        no_repeat_ngram: n of the n-grams that may not occur twice in a translation; 0: none. Paulus et al. 2017,
            section 2.5, arXiv:1705.04304. A forced prefix may repeat them.
    """

    def __init__(
        self,
        lengths: Lengths,
        target: TargetVocabulary,
        prefixes: Sequence[Sequence[int]] | None,
        no_repeat_ngram: int = 0,
    ) -> None:
        self.least, self.most = lengths
        device = self.least.device
        self.eos_id = target.eos_id
        self.banned = torch.tensor(target.banned_ids, device=device, dtype=torch.long)
        self.no_repeat_ngram = no_repeat_ngram
        self.forced = torch.full((len(self.most), 0), FREE, device=device)
        if prefixes is not None and any(prefixes):
            rows = [torch.tensor(prefix, device=device, dtype=torch.long) for prefix in prefixes]
            self.forced = pad_sequence(rows, batch_first=True, padding_value=FREE)
        # Python numbers, so that most steps need no tensor operation
        self._shortest_most, self._longest_least = int(self.most.min()), int(self.least.max())

    def __call__(
        self,
        log_probs: Float[Tensor, "rows vocabulary"],
        tokens: Int[Tensor, "rows tokens"],
        sentences: Int[Tensor, " rows"],
    ) -> Float[Tensor, "rows vocabulary"]:
        """Set the log-probability of each forbidden token to -inf, in place; at least one token stays allowed.

        Args:
            tokens: ids so far, without the begin token.
            sentences: index in the batch of the sentence that each row translates.
        """
        step = tokens.shape[1]
        end = log_probs[:, self.eos_id].clone()
        forcing = step < self.forced.shape[1]
        if forcing:
            token_id = self.forced[sentences, step]
            begun = log_probs.gather(-1, token_id.clamp(min=0)[:, None])[:, 0]
        log_probs.index_fill_(-1, self.banned, -torch.inf)
        if step < self._longest_least:
            log_probs[self.least[sentences] > step, self.eos_id] = -torch.inf
        if 0 < self.no_repeat_ngram <= step:
            forbid_repetition(log_probs, tokens, self.no_repeat_ngram)
            allow_only(log_probs, log_probs.amax(-1) == -torch.inf, self.eos_id, end)
        if forcing:
            allow_only(log_probs, token_id != FREE, token_id, begun)
        if step >= self._shortest_most:
            allow_only(log_probs, self.most[sentences] <= step, self.eos_id, end)
        return log_probs


def forbid_repetition(log_probs: Float[Tensor, "rows vocabulary"], tokens: Int[Tensor, "rows tokens"], n: int) -> None:
    """Set a token to -inf, in place, if it would complete an n-gram that `tokens` already contains."""
    ngrams = tokens.unfold(1, n, 1)  # (rows, beginnings, n)
    last = tokens[:, tokens.shape[1] - n + 1 :]
    row, beginning = (ngrams[..., :-1] == last[:, None]).all(-1).nonzero(as_tuple=True)
    log_probs[row, ngrams[row, beginning, -1]] = -torch.inf


def allow_only(
    log_probs: Float[Tensor, "rows vocabulary"],
    where: Bool[Tensor, " rows"],
    token_id: Tensor | int,
    value: Float[Tensor, " rows"],
) -> None:
    """In the rows `where`, set all tokens to -inf, in place, except `token_id`, which gets `value`."""
    (rows,) = where.nonzero(as_tuple=True)
    if len(rows):
        log_probs[rows] = -torch.inf
        log_probs[rows, token_id if isinstance(token_id, int) else token_id[rows]] = value[rows]
