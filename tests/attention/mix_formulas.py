"""Every mix and every gate as its paper writes it, for one query, in float64: sums over heads written out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def talking_heads(mix: Any, scores: list[Tensor], normalize: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """Shazeer et al. 2020: J = QK P_l, then softmax(J) P_w, both sums over h."""
    heads = range(len(scores))
    mixed = [sum(scores[h] * mix.score_matrix[h, m] for h in heads) for m in heads]
    weights = [normalize(row) for row in mixed]
    return [sum(weights[m] * mix.weight_matrix[m, v] for m in heads) for v in heads]


def differential(mix: Any, scores: list[Tensor], normalize: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """Ye et al. 2024, eq. 1 and 2: the two sets of a head are half the number of score heads apart."""
    heads = len(scores) // 2
    first, second = (torch.exp(mix.lambda_query[i] @ mix.lambda_key[i]) for i in range(2))
    factor = first - second + mix.lambda_init
    return [normalize(scores[h]) - factor * normalize(scores[heads + h]) for h in range(heads)]


def normed(mix: Any, context: Tensor) -> Tensor:
    """Ye et al. 2024, eq. 3: (1 - lambda_init) LN(head), LN the root mean square norm."""
    return (1 - mix.lambda_init) * mix.norm.weight * context / (context.square().mean() + 1e-5).sqrt()


# By class; each gives the weights of all heads, from the scores of all score heads and the normalizer of one row.
MIXES = {"TalkingHeadsMix": talking_heads, "DifferentialMix": differential}

# By class; the context of one head. Those that are not here leave it.
CONTEXTS: dict[str, Any] = {"DifferentialMix": normed}


def sigmoid_gate(gate: Any, query: Tensor, context: Tensor, heads: int) -> Tensor:
    numbers = 1 / (1 + torch.exp(-gate.project.weight @ query))
    each = len(context) // len(numbers)
    return torch.stack([context[i] * numbers[i // each] for i in range(len(context))])


def attention_on_attention(gate: Any, query: Tensor, context: Tensor, heads: int) -> Tensor:
    if not context.any():
        return context
    width, pair = len(context), torch.cat([context, query])
    information = gate.project.weight[:width] @ pair + gate.project.bias[:width]
    passing = gate.project.weight[width:] @ pair + gate.project.bias[width:]
    return information / (1 + torch.exp(-passing))


# By class; each gives the joined context of one query.
GATES = {"SigmoidGate": sigmoid_gate, "AttentionOnAttentionGate": attention_on_attention}
