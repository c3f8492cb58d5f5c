"""What a head is worth: the figures of its weights over many pairs, and the rise of the loss without it."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float64

from seq2seq_attn.alignment.forced_attention import attention_along
from seq2seq_attn.alignment.head_summary import confidences, summaries
from seq2seq_attn.errors import UserError
from seq2seq_attn.evaluation.pair_log_prob import encode_pairs, read_given, score_encoded
from seq2seq_attn.explorer.intervention import Change, Intervention, attention_layers, check_changes, intervened
from seq2seq_attn.inference.lines import line_count
from seq2seq_attn.inference.models import Models
from seq2seq_attn.model.encoder_decoder import EncoderDecoder

FIGURES = ("entropy", "confidence", "diagonal", "previous", "sink")


class Head(NamedTuple):
    """A head, or all heads of a slot (None), which have no figures of their own.

    Attributes:
        rise: of the loss without it, in nats for each target token; NaN if it was not measured.
        error: half of the 95 % interval of the rise over the pairs.
        figures: means over the pairs, by name.
    """

    slot: str
    head: int | None
    rise: float
    error: float
    figures: dict[str, float]


class Pairs(NamedTuple):
    """Encoded pairs."""

    sources: list[list[int]]
    targets: list[list[int]]


class Measured(NamedTuple):
    """All heads of a model, in the order of its slots, and the loss of the whole model in nats for each token."""

    heads: list[Head]
    loss: float
    pairs: int
    tokens: int
    change: Change | None


def read_pairs(models: Models, files: list[str], most: int) -> Pairs:
    """Return at most this many encoded pairs, evenly spread over the files."""
    given = list(read_given(files, one_sided=not models.model.reads_source, option=None))
    if len(given) < 2:
        raise UserError(f"{files[0]} has {len(given)} pairs, and their spread is measured; give more")
    number = min(most, len(given))
    return Pairs(*encode_pairs(models, [given[row * len(given) // number] for row in range(number)]))


@torch.inference_mode()
def measure(models: Models, pairs: Pairs, change: Change | None) -> Measured:
    """Return the figures of all heads, and how the loss rises with this change of each."""
    model = models.members[0].to(models.device)
    layers = attention_layers(model)
    changed = [(slot, head) for slot, layer in layers.items() for head in (*range(layer.num_heads), None)]
    if change is not None:
        check_changes(model, [Intervention(change, slot, None) for slot in layers])
    steps = len(pairs.sources) + len(changed) * (change is not None)
    with line_count(steps, shown=sys.stderr.isatty(), counted="passes") as advance:
        figures = mean_figures(models, model, pairs, advance)
        loss = token_losses(models, pairs)
        tokens = np.array([len(target) + 1 for target in pairs.targets])
        heads = []
        for slot, head in changed:
            rise = error = math.nan
            if change is not None:
                with intervened(model, [Intervention(change, slot, head)]):
                    rise, error = ratio(token_losses(models, pairs) - loss, tokens)
                advance(1)
            known = {} if head is None or slot not in figures else figures[slot][head]  # a layer may have no weights
            heads.append(Head(slot, head, rise, error, known))
    return Measured(heads, float(loss.sum() / tokens.sum()), len(tokens), int(tokens.sum()), change)


def mean_figures(
    models: Models, model: EncoderDecoder, pairs: Pairs, advance: Callable[[int], None]
) -> dict[str, list[dict[str, float]]]:
    """Return by slot the figures of each head, means over the pairs; none of a slot without weights."""
    sums: dict[str, np.ndarray] = {}
    for source, target in zip(pairs.sources, pairs.targets, strict=True):
        for slot, weights, columns, _ in attention_along(model, models.tokenizer, source, target):
            tensor = torch.from_numpy(weights)
            found = summaries(tensor, slot.partition("/")[0], [0] * len(columns), [""])
            for one, confidence in zip(found, confidences(tensor).tolist(), strict=True):
                one["confidence"] = confidence
            sums[slot] = sums.get(slot, 0) + np.array([[one[name] for name in FIGURES] for one in found])
        advance(1)
    return {
        slot: [dict(zip(FIGURES, (row / len(pairs.sources)).tolist(), strict=True)) for row in rows]
        for slot, rows in sums.items()
    }


def token_losses(models: Models, pairs: Pairs) -> Float64[np.ndarray, " pairs"]:
    """Return the negative log-probability of each target."""
    scores = score_encoded(models, pairs.sources, pairs.targets, models.config["batch_tokens"])
    return np.array([-score.log_prob for score in scores])


def ratio(sums: np.ndarray, tokens: np.ndarray) -> tuple[float, float]:
    """Return the mean for each token, and half of its 95 % interval: that of a ratio, with the pairs as the sample."""
    mean = sums.sum() / tokens.sum()
    residuals = sums - mean * tokens
    spread = math.sqrt((residuals**2).sum() * len(sums) / (len(sums) - 1)) / tokens.sum()
    return float(mean), float(1.96 * spread)
