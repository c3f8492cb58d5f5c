"""Which tokens may follow: banned ones, a forced beginning, the shortest and longest length, no n-gram twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from seq2seq_attn.search.limits import Lengths
from seq2seq_attn.search.search import TargetVocabulary

FREE = -1  # in `forced`: the token is free


@final
class Constraints:
    """Those of a batch; a search asks at every step, for the hypotheses that are still going on.

    Args:
        no_repeat_ngram: no n tokens in a row stand in a translation twice; 0: they may. Paulus et al. 2017,
            arXiv:1705.04304, 2.5. A forced beginning may break it.
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
        # plain numbers, so that most steps touch no tensor
        self._shortest_most, self._longest_least = int(self.most.min()), int(self.least.max())

    def __call__(
        self,
        log_probs: Float[Tensor, "rows vocabulary"],
        said: Int[Tensor, "rows said"],
        sentences: Int[Tensor, "rows"],
    ) -> Float[Tensor, "rows vocabulary"]:
        """-inf, in place, for each token that may not follow; at least one may.

        Args:
            said: tokens so far, begin token not counted.
            sentences: which of the batch each row translates.
        """
        step = said.shape[1]
        end = log_probs[:, self.eos_id].clone()
        forcing = step < self.forced.shape[1]
        if forcing:
            token_id = self.forced[sentences, step]
            begun = log_probs.gather(-1, token_id.clamp(min=0)[:, None])[:, 0]
        log_probs.index_fill_(-1, self.banned, -torch.inf)
        if step < self._longest_least:
            log_probs[self.least[sentences] > step, self.eos_id] = -torch.inf
        if 0 < self.no_repeat_ngram <= step:
            forbid_repetition(log_probs, said, self.no_repeat_ngram)
            allow_only(log_probs, log_probs.amax(-1) == -torch.inf, self.eos_id, end)
        if forcing:
            allow_only(log_probs, token_id != FREE, token_id, begun)
        if step >= self._shortest_most:
            allow_only(log_probs, self.most[sentences] <= step, self.eos_id, end)
        return log_probs


def forbid_repetition(log_probs: Float[Tensor, "rows vocabulary"], said: Int[Tensor, "rows said"], n: int) -> None:
    """-inf for a token that would end n tokens that stand in `said` already."""
    ngrams = said.unfold(1, n, 1)  # (rows, beginnings, n)
    last = said[:, said.shape[1] - n + 1 :]
    row, beginning = (ngrams[..., :-1] == last[:, None]).all(-1).nonzero(as_tuple=True)
    log_probs[row, ngrams[row, beginning, -1]] = -torch.inf


def allow_only(
    log_probs: Float[Tensor, "rows vocabulary"],
    where: Bool[Tensor, "rows"],
    token_id: Tensor | int,
    value: Float[Tensor, "rows"],
) -> None:
    """In the rows `where`, -inf for all tokens but one, which keeps its value."""
    (rows,) = where.nonzero(as_tuple=True)
    if len(rows):
        log_probs[rows] = -torch.inf
        log_probs[rows, token_id if isinstance(token_id, int) else token_id[rows]] = value[rows]
