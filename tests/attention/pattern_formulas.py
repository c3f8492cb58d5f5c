"""Every pattern as its paper writes it: whether a query may see a key, and what its weight is multiplied by."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import torch
from attention.score_formulas import Pair
from torch import Tensor


def full(pattern: Any, pair: Pair) -> bool:
    return True


def local(pattern: Any, pair: Pair) -> bool:
    return abs(pair.s - aligned(pattern, pair)) <= pattern.k


def atrous(pattern: Any, pair: Pair) -> bool:
    return abs(pair.s - aligned(pattern, pair)) % pattern.k == 0


def sparse(pattern: Any, pair: Pair) -> bool:
    return local(pattern, pair) or atrous(pattern, pair)


def global_local(pattern: Any, pair: Pair) -> bool:
    """A window, and the first positions as rows and as columns."""
    return local(pattern, pair) or pair.s in range(pattern.num_global) or aligned(pattern, pair) < pattern.num_global


def bigbird(pattern: Any, pair: Pair) -> bool:
    i, j = aligned(pattern, pair) // pattern.block_length, pair.s // pattern.block_length
    window, any_global = abs(i - j) <= pattern.k, min(i, j) < pattern.num_global
    return window or any_global or j in drawn_blocks(pattern, i) or i in drawn_blocks(pattern, j)


def drawn_blocks(pattern: Any, block: int) -> list[int]:
    """One block of each of equal parts of those before the window that are not global."""
    candidates, parts, drawn = list(range(pattern.num_global, block - pattern.k)), pattern.num_random, []
    for draw in range(parts):
        part = candidates[len(candidates) * draw // parts : len(candidates) * (draw + 1) // parts]
        if part:
            number = lowbias32(lowbias32(lowbias32(lowbias32(block) + draw) + pattern.layer) + pattern.seed)
            drawn.append(part[number % len(part)])
    return drawn


def lowbias32(x: int) -> int:
    """Wellons' hash of 32 bits."""
    x = (x ^ (x % 2**32 >> 16)) * 0x7FEB352D % 2**32
    x = (x ^ (x >> 15)) * 0x846CA68B % 2**32
    return x ^ (x >> 16)


def dilated(pattern: Any, pair: Pair) -> bool:
    """In the segment of w that the query is in, the first key and every r-th after it."""
    for w, r in pattern.segments:
        start = aligned(pattern, pair) // w * w
        if pair.s in range(start, start + w, r):
            return True
    return False


def block_summary(pattern: Any, pair: Pair) -> bool:
    """Child et al., eq. 8 without causality: floor(s / l) = floor(t / l), or s mod l in l - c .. l - 1."""
    length, summary = pattern.block_length, pattern.num_summary
    own = pair.s in range(start := aligned(pattern, pair) // length * length, start + length)
    return own or pair.s % length in range(length - summary, length)


def wait_k(pattern: Any, pair: Pair) -> bool:
    return pair.s < aligned(pattern, pair) + pattern.k


def local_p(pattern: Any, pair: Pair) -> bool:
    return bool((pair.s - predicted(pattern, pair)).abs() <= pattern.k)


def gaussian(pattern: Any, pair: Pair) -> Tensor:
    sigma = pattern.k / 2
    return torch.exp(-((pair.s - predicted(pattern, pair)) ** 2) / (2 * sigma**2))


def aligned(pattern: Any, pair: Pair) -> int:
    """The target position in source positions, halves up."""
    return int((pair.t * Decimal(str(pattern.length_ratio))).to_integral_value(ROUND_HALF_UP))


def predicted(pattern: Any, pair: Pair) -> Tensor:
    return pair.end * torch.sigmoid(pattern.vector[0] @ torch.tanh(pattern.project_query.weight @ pair.q))


# By class; whether the query of a pair may see its key. An alternating one is gone: its layer has one of these.
SEES = {
    "FullPattern": full,
    "LocalPattern": local,
    "AtrousPattern": atrous,
    "SparsePattern": sparse,
    "GlobalLocalPattern": global_local,
    "BigBirdPattern": bigbird,
    "DilatedPattern": dilated,
    "BlockSummaryPattern": block_summary,
    "LocalPPattern": local_p,
    "WaitKPattern": wait_k,
}


def lsh(attention: Any, pairs: list[Pair], own: bool) -> list[Pair]:
    """The keys whose nearest of some directions, plus and minus the columns of R, is the query's in any round."""

    def share_a_bucket(pair: Pair) -> bool:
        both = torch.stack(prepared(attention, pair))
        nearest = [torch.cat((both @ rotation, -(both @ rotation)), -1).argmax(-1) for rotation in rotations]
        return any(int(of_query) == int(of_key) for of_query, of_key in nearest)

    rotations = attention.pattern.rotations
    return [pair for pair in pairs if (own and pair.s == pair.t) or share_a_bucket(pair)]


def top_blocks(attention: Any, pairs: list[Pair], own: bool) -> list[Pair]:
    """The keys of the blocks whose mean key is best for the query, after its own block."""
    length, number = attention.pattern.block_length, attention.pattern.num_blocks
    blocks: dict[int, list[Pair]] = {}
    for pair in pairs:
        blocks.setdefault(pair.s // length, []).append(pair)

    def merit(block: int) -> float:
        query, _ = prepared(attention, blocks[block][0])
        return float(query @ torch.stack([prepared(attention, pair)[1] for pair in blocks[block]]).mean(0))

    first = [b for b in blocks if own and b == pairs[0].t // length]
    others = sorted((b for b in blocks if b not in first), key=merit, reverse=True)
    return [pair for block in (first + others)[:number] for pair in blocks[block]]


def prepared(attention: Any, pair: Pair) -> tuple[Tensor, Tensor]:
    """The query and the key of a head as its score compares them."""
    query = attention.score.prepare_query(pair.q[None, None])[0]
    key = attention.score.prepare_keys(pair.k[None, None])[0]
    return query[0, pair.head, 0].detach(), key[0, pair.head, 0].detach()


# By class; those of a query's pairs, visible by mask and causality, that a pattern of content selects. `own`: queries
# and keys are of the same sequence.
SELECTS = {"LshPattern": lsh, "TopBlocksPattern": top_blocks}

# By class; the factor of a weight, after the normalizer. Those that are not here leave it.
FACTORS: dict[str, Any] = {"LocalPPattern": gaussian}


def factor(pattern: Any, pair: Pair) -> Tensor:
    name = type(pattern).__name__
    return FACTORS[name](pattern, pair) if name in FACTORS else torch.ones(())
