"""REINFORCE: the term that hard attention adds to the loss. Williams 1992; Xu et al. 2015, 4.1, arXiv:1502.03044."""

from __future__ import annotations

from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seq2seq_attn.batch import Batch
from seq2seq_attn.decoder.decoder import Decoded
from seq2seq_attn.distributed.collectives import sum_over_ranks


@final
class Reinforce(nn.Module):
    """Sum over sentences of -(reward - baseline) log p(positions drawn) - entropy: nats, like the loss before its mean.

    The baseline of a sentence is its tokens times a running mean of the reward of a token: the paper's, of whole
    sentences, would reward a sentence for being short. A number that the draws do not change leaves the expected
    gradient as it is, so the mean is that of the earlier batches; the first batch only starts it. The batches that
    several processes read at once count as one, and each process keeps the same mean.

    Args:
        momentum: share of the running mean that a batch keeps, below 1; 0.9 in the paper.
    """

    running_reward: Tensor
    running_tokens: Tensor

    def __init__(self, *, momentum: float) -> None:
        super().__init__()
        self.momentum = momentum
        self.register_buffer("running_reward", torch.zeros(()))
        self.register_buffer("running_tokens", torch.zeros(()))

    def forward(
        self,
        reward: Float[Tensor, " batch"],
        tokens: Int[Tensor, " batch"],
        log_prob: Float[Tensor, " batch"],
        entropy: Float[Tensor, " batch"],
    ) -> Float[Tensor, ""]:
        """Return the term to add to the summed loss; in training mode, add the batch to the running mean.

        Args:
            reward: minus the loss of the target sentence, in nats; its gradient is not taken.
            tokens: how many tokens that loss is of.
            log_prob, entropy: of the sentence, summed over all draws, times their weights.
        """
        reward = reward.detach()
        started = self.running_tokens > 0
        mean = self.running_reward / torch.where(started, self.running_tokens, 1)
        advantage = torch.where(started, reward - mean * tokens, 0)
        if self.training:
            self._update(reward, tokens)
        return -(advantage * log_prob + entropy).sum()

    def _update(self, reward: Float[Tensor, " batch"], tokens: Int[Tensor, " batch"]) -> None:
        sums = torch.stack([of.sum().to(self.running_reward.dtype) for of in (reward, tokens)])
        for running, total in zip((self.running_reward, self.running_tokens), sum_over_ranks(sums), strict=True):
            running.lerp_(total, 1 - self.momentum)


def drawn_loss(
    reinforce: Reinforce, batch: Batch, loss_by_token: Float[Tensor, " tokens"], decoded: Decoded
) -> Float[Tensor, ""] | None:
    """Return the term of a batch that a model has read; None: nothing was drawn.

    With it, the expected gradient is that of the expected loss, the one that is minimised.

    Args:
        loss_by_token: of each real target token, in nats, sentence by sentence (see `Loss`).
    """
    log_prob = sum_by_sentence(batch, decoded.log_prob, decoded.source_log_prob)
    entropy = sum_by_sentence(batch, decoded.entropy, decoded.source_entropy)
    if log_prob is None or entropy is None:
        return None
    sentence = batch.target_mask.nonzero()[:, 0]
    loss = torch.zeros_like(log_prob).index_add(0, sentence, loss_by_token.to(log_prob.dtype))
    return reinforce(-loss, batch.target_lengths, log_prob, entropy)


def sum_by_sentence(
    batch: Batch, target: Float[Tensor, "batch target"] | None, source: Float[Tensor, "batch source"] | None
) -> Float[Tensor, " batch"] | None:
    """Return the sums over the real positions of both sides; None where neither has any."""
    sides = [(target, batch.target_mask), (source, batch.source_mask)]
    sums = [(x * mask).sum(1) for x, mask in sides if x is not None]
    return torch.stack(sums).sum(0) if sums else None
