"""Scheduled sampling: in training the decoder reads some of its own predictions. Bengio et al. 2015, arXiv:1506.03099.

`stepwise` is the paper's: a prediction is made of the tokens read so far, which may be predictions themselves.
`parallel` (Mihaylova and Martins 2019, arXiv:1906.07651) predicts all tokens in one pass over the true ones, which is
as fast as a decoder that reads whole sentences. In both the tokens are chosen first, without a gradient, and the loss
comes from a second pass that reads them: the paper does not train through the choice either.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal, final

import torch
from jaxtyping import Int
from torch import Tensor

from seq2seq_attn.batch import Batch
from seq2seq_attn.model.encoder_decoder import EncoderDecoder
from seq2seq_attn.training.loss import CHUNK
from seq2seq_attn.training.token_dropout import draw


@final
class ScheduledSampling:
    """Which tokens the decoder reads in training.

    Draws are of torch's generator, which is seeded for each batch, and are a function of (seed, epoch, batch, rank).

    Args:
        share: probability that a token after the begin token is the most probable one according to the model; 0:
            teacher forcing.
        steps: updates over which the probability rises from 0 to `share` along a line, the paper's linear decay of
            the share of true tokens; 0: it is `share` from the first update.
        mode: see the module.
    """

    def __init__(
        self,
        *,
        share: Annotated[float, "[0, 1]"],
        steps: Annotated[int, "[0, 1000000000]"],
        mode: Literal["parallel", "stepwise"],
    ) -> None:
        self.share, self.steps, self.mode = share, steps, mode

    def share_at(self, step: int) -> float:
        """Return the probability at an update, counted from 0."""
        return self.share * min(1.0, step / self.steps) if self.steps else self.share

    def replace_tokens(self, batch: Batch, model: EncoderDecoder, step: int) -> Batch:
        """Return the batch with predictions in the positions of some tokens that the decoder reads."""
        share = self.share_at(step)
        if share == 0:
            return batch
        drawn = draw(batch.target_input, share) & batch.target_mask
        drawn[:, 0] = False
        with torch.no_grad():
            tokens = one_pass(batch, model, drawn) if self.mode == "parallel" else step_by_step(batch, model, drawn)
        return replace(batch, target_input=tokens)


def one_pass(batch: Batch, model: EncoderDecoder, drawn: Tensor) -> Int[Tensor, "batch target"]:
    """Return the tokens to read: at `drawn` positions the predictions from the true tokens before them."""
    hidden = model(batch.source, batch.source_mask, batch.target_input).hidden
    before = hidden[drawn.roll(-1, dims=1)]  # the states that predict them: none is drawn at the first position
    tokens = batch.target_input.clone()
    tokens[drawn] = torch.cat([model.logits(rows).argmax(-1) for rows in before.split(CHUNK)])
    return tokens


def step_by_step(batch: Batch, model: EncoderDecoder, drawn: Tensor) -> Int[Tensor, "batch target"]:
    """Return the tokens to read: at `drawn` positions the predictions from the tokens returned before them."""
    state, read = model.encode(batch.source, batch.source_mask), [batch.target_input[:, 0]]
    for use_prediction, true in zip(drawn.unbind(1)[1:], batch.target_input.unbind(1)[1:], strict=True):
        decoded = model.decode(read[-1][:, None], state)
        state = decoded.state
        read.append(torch.where(use_prediction, model.logits(decoded.hidden[:, 0]).argmax(-1), true))
    return torch.stack(read, 1)
