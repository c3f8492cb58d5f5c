"""All pairs, some rows at a time, so that the rows of a causal sequence leave out the later keys.

Where the scores of all pairs would be too much memory, those of a tile alone are held, and computed again for the
gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from seq2seq_attn.attention.backend import dense
from seq2seq_attn.attention.backend.request import HeadOutput, Parts, Request, join_rows

# Numbers of a tile, and those of all pairs from which tiles of a causal sequence are faster than all rows at once. A
# score that is wider than its pairs has several numbers of each. Measured on one CPU core.
TILE, CAUSAL_FROM = 2**21, 2**22
FEWEST_ROWS = 16  # of a tile; each adds to the gradients of all keys
SOURCE_FROM = 256  # a tile of many short sentences has too few rows of each
RECOMPUTED_FROM = 2**28  # numbers of all pairs: 1 GiB in float32, several times in each layer


def attend(parts: Parts, request: Request) -> HeadOutput | None:
    """Return None where all rows at once are faster; and on other devices."""
    query, source = request.prepared, request.source
    if torch.compiler.is_compiling() or request.target == 1 or source < SOURCE_FROM:
        return None
    if request.memory.values.device.type != "cpu":
        return None
    wide = parts.score.wide_pairs and not parts.score.inner_product
    of_pair = sum(x.shape[1] * x.shape[3] for x in query) if wide else 0
    of_row = len(request.query) * source * max(of_pair, *(x.shape[1] for x in (*query, request.memory.values)))
    recomputed = of_row * request.target >= RECOMPUTED_FROM
    if not recomputed and not (request.triangular and of_row * request.target >= CAUSAL_FROM):
        return None
    rows = max(FEWEST_ROWS, TILE // of_row)
    return join_rows(
        [
            attend_tile(parts, request, first, min(first + rows, request.target), recomputed)
            for first in range(0, request.target, rows)
        ]
    )


def attend_tile(parts: Parts, request: Request, first: int, last: int, recomputed: bool) -> HeadOutput:
    """Return the output of the rows from `first` to before `last`; `recomputed`: once more for the gradient."""
    memory = request.memory.for_queries(first, last)
    if request.causal:  # no row sees a later key
        memory = memory.at(slice(0, min(request.source, request.start + last)))
    some = request._replace(query=request.query[:, first:last], memory=memory, start=request.start + first)

    def attend_some(*prepared: Tensor) -> HeadOutput:
        return dense.attend(parts, some._replace(prepared=prepared))

    prepared = tuple(x[:, :, first:last] for x in request.prepared)
    if not recomputed:
        return attend_some(*prepared)
    output: HeadOutput = checkpoint(attend_some, *prepared, use_reentrant=False)
    return output
