"""How often the pairs of each corpus of a mixture occur in an epoch."""

from __future__ import annotations

import math
from typing import NamedTuple, final

import numpy as np
from jaxtyping import Bool

from seq2seq_attn.data.store.part import Part, column
from seq2seq_attn.errors import UserError

IN_EPOCH = " in an epoch"  # a count of pairs after the weights of a mixture
MOST_WEIGHT = 1_000  # of a temperature, as of a weight that is given


@final
class Mixture(NamedTuple):
    """How often the pairs of a corpus occur in an epoch, by its name.

    Attributes:
        weights: 2.5 is all pairs twice, and half of them a third time.
        seed: of the choice of that half, which depends on it and on the pairs alone, not on their order.
        temperature: T, by which corpora without a weight get one; None: 1. Arivazhagan et al. 2019, arXiv:1907.05019;
            fairseq's `--sampling-temperature`.
    """

    weights: dict[str, int | float]
    seed: int
    temperature: float | None = None

    def weights_of(self, pairs: dict[str, int]) -> dict[str, int | float]:
        """Return the weight of each corpus by its number of pairs: its own, or (n / n_max)^(1/T - 1), at most 1,000.

        A share of an epoch is then proportional to n^(1/T).
        """
        power = 0.0 if self.temperature is None else 1.0 / self.temperature - 1.0
        largest = max([1, *pairs.values()])
        by_size = {name: min((max(1, n) / largest) ** power, MOST_WEIGHT) for name, n in pairs.items()}
        return {name: self.weights.get(name, weight) for name, weight in by_size.items()}


def weigh(
    parts: list[Part], kept: list[Bool[np.ndarray, " _"]], mixture: Mixture | None, counts: dict[str, int]
) -> list[tuple[Part, list[Bool[np.ndarray, " _"]]]]:
    """Return which rows each copy of a part in an epoch has, and count the pairs of each corpus of a mixture.

    Raises:
        UserError: if no pair is left.
    """
    if mixture is None:
        return [(part, [mask]) for part, mask in zip(parts, kept, strict=True)]
    factor, summand = np.random.default_rng(mixture.seed).integers(1 << 64, size=2, dtype=np.uint64)
    there = dict.fromkeys((part.corpus for part in parts), 0)
    for part, mask in zip(parts, kept, strict=True):
        there[part.corpus] += int(mask.sum())
    weights = mixture.weights_of(there)
    copies, pairs = [], dict.fromkeys(there, 0)
    for part, mask in zip(parts, kept, strict=True):
        fraction, whole = math.modf(weights[part.corpus])
        masks = [mask] * int(whole)
        if fraction:
            drawn = column(part, "pair_hash") * (factor | np.uint64(1)) + summand  # modulo 2**64
            masks.append(mask & (drawn < np.uint64(fraction * 2.0**64)))
        copies.append((part, masks))
        pairs[part.corpus] += sum(int(some.sum()) for some in masks)
    epoch = sum(pairs.values())
    if not epoch:
        raise UserError(f"data.weights leaves no pair of {', '.join(pairs)} to train on; give larger weights")
    for name, number in pairs.items():
        counts[f"pairs of {name}{IN_EPOCH} (weight {weights[name]:g}, {number / epoch:.1%})"] = number
    return copies
