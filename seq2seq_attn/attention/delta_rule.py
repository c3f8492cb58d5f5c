"""The delta rule: a token replaces what the state holds for its key, rather than adding to it.

Schlag et al. 2021, section 4.2, arXiv:2102.11174; by chunks, Yang et al. 2024, section 3, arXiv:2406.06484; with a
decay, Yang et al. 2025 (Gated DeltaNet), section 3, arXiv:2412.06464.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, final

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from seq2seq_attn.attention.decayed_sums import decay_within, until_end


@final
class PseudoValues(NamedTuple):
    """What the tokens write.

    Attributes:
        values: u_t, of which the state is a decayed sum: S_t = f_t S_(t-1) + k_t u_t^T.
        state: after the last token; None: it was not needed.
    """

    values: Float[Tensor, "batch heads source width"]
    state: Float[Tensor, "batch heads features width"] | None = None


def pseudo_values(
    keys: Float[Tensor, "batch heads source features"],
    values: Float[Tensor, "batch heads source width"],
    strength: Float[Tensor, "batch heads source"],
    log_decay: Float[Tensor, "batch heads source"] | None,
    before: Float[Tensor, "batch heads features width"] | None,
    *,
    chunk: int,
) -> PseudoValues:
    """Return u_t = b_t (v_t - f_t S_(t-1)^T k_t), and the state after the last token where it was computed.

    A pseudo-value is the value without what the state holds for its key already. Those of a chunk are the solution of a
    triangular system, given the state before it, so that only the chunks follow one another.

    Args:
        keys: L2-normalized.
        strength: b_t, 0 where a token writes nothing.
        log_decay: log f_t; None: 0.
        before: the state before the first position; None: 0.
        chunk: positions of a chunk.
    """
    source = keys.shape[2]
    if source <= 1:  # as in a step of decoding
        if before is not None:
            values = values - (keys if log_decay is None else keys * log_decay.exp().unsqueeze(-1)) @ before
        return PseudoValues(strength.unsqueeze(-1) * values)
    chunk = min(chunk, source)
    padding = -source % chunk
    keys, values = (F.pad(x, (0, 0, 0, padding)).unflatten(2, (-1, chunk)) for x in (keys, values))
    strength = F.pad(strength, (0, padding)).unflatten(2, (-1, chunk)).unsqueeze(-1)
    pairs, decayed_from_start, decayed_to_end = keys @ keys.mT, keys, keys
    decays: Sequence[Tensor | float] = [1.0] * keys.shape[2]
    if log_decay is not None:
        log_decay = F.pad(log_decay, (0, padding)).unflatten(2, (-1, chunk))
        pairs = pairs * decay_within(log_decay, causal=True)
        decayed_from_start = keys * log_decay.cumsum(-1).exp().unsqueeze(-1)
        decayed_to_end = keys * until_end(log_decay).exp().unsqueeze(-1)
        decays = log_decay.sum(-1).exp()[..., None, None].unbind(2)
    if before is None and keys.shape[2] == 1:
        return PseudoValues(solve_unit_lower(strength * pairs, strength * values).squeeze(2))
    width = values.shape[-1]
    solution = solve_unit_lower(strength * pairs, strength * torch.cat([values, decayed_from_start], -1))
    state = keys.new_zeros(*keys.shape[:2], keys.shape[-1], width) if before is None else before
    written = []
    for new, removed, chunk_keys, decay in zip(
        solution[..., :width].unbind(2), solution[..., width:].unbind(2), decayed_to_end.unbind(2), decays, strict=True
    ):
        written.append(new - removed @ state)
        state = decay * state + chunk_keys.mT @ written[-1]
    return PseudoValues(torch.cat(written, 2)[:, :, :source], state)


def solve_unit_lower(
    lower: Float[Tensor, "*batch source source"], right_side: Float[Tensor, "*batch source columns"]
) -> Float[Tensor, "*batch source columns"]:
    """Return X of (I + L) X = the right side, where L is the part of a matrix below its diagonal."""
    return torch.linalg.solve_triangular(lower, right_side, upper=False, unitriangular=True)


def ut_transform(
    keys: Float[Tensor, "batch heads source features"],
    strength: Float[Tensor, "batch heads queries source"],
    decay: Float[Tensor, "batch heads queries source source"],
) -> Float[Tensor, "batch heads queries source source"]:
    """Return the weight of each value in each pseudo-value, the UT transform of Yang et al. 2024.

    Args:
        strength: of each token, or of each token for each query, with 0 where the query may not see it.
        decay: of each pair, 0 for keys after the query.
    """
    pairs = strength.unsqueeze(-1) * (keys @ keys.mT).unsqueeze(2) * decay
    return solve_unit_lower(pairs, torch.diag_embed(strength))


def delta_weights(
    query: Float[Tensor, "batch heads target features"],
    keys: Float[Tensor, "batch heads source features"],
    transform: Float[Tensor, "batch heads queries source source"],
    decay: Float[Tensor, "batch heads queries source source"],
    last: Int[Tensor, " target"],
) -> Float[Tensor, "batch heads target source"]:
    """Return the weight of each value for each query, over all pairs: the definition. Weights may be negative.

    Args:
        transform: from `ut_transform`.
        last: the last position that each query sees; one after the last key sees all.
    """
    source, queries = keys.shape[2], decay.shape[2]
    if source == 0:
        return query @ keys.mT
    rows = torch.arange(len(last), device=last.device) if queries > 1 else torch.zeros_like(last)
    products = (query @ keys.mT) * decay[:, :, rows, last.clamp(max=source - 1)]
    if queries == 1:
        return products @ transform.squeeze(2)
    return (products.unsqueeze(3) @ transform).squeeze(3)
