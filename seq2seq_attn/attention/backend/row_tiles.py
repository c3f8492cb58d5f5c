"""All pairs, some rows at a time and once more for the gradient, so that the scores of these rows alone are held.

They stay in the cache, and of a causal sequence the keys after the last row are left out.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from seq2seq_attn.attention.backend import dense
from seq2seq_attn.attention.backend.request import HeadOutput, Parts, Request

# Numbers that are held at once by a score that has one for each pair, and by one that has many.
MAX_NUMBERS, MAX_WIDE_NUMBERS = 2**21, 2**20
# Positions of the source and numbers of all pairs from which this is faster than all rows at once, measured on one CPU
# core: where causality leaves out the later keys, where it does not, and for a score that has many numbers.
CAUSAL_FROM, FROM, WIDE_FROM = (256, 2**22), (512, 2**24), (128, 2**23)


def attend(parts: Parts, request: Request) -> HeadOutput | None:
    """Return None where there are few pairs, or a history of steps; and on other devices."""
    query, source = request.prepared, request.source
    if request.target == 1 or request.history is not None or torch.compiler.is_compiling():
        return None
    if request.memory.values.device.type != "cpu":
        return None
    wide = parts.score.wide_pairs and not parts.score.inner_product
    heads = max(x.shape[1] for x in (*query, request.memory.values))
    of_pair = sum(x.shape[1] * x.shape[3] for x in query) if wide and query else heads
    of_row = len(request.query) * of_pair * source
    least_source, least_numbers = WIDE_FROM if wide else CAUSAL_FROM if request.triangular else FROM
    if source < least_source or of_row * request.target < least_numbers:
        return None
    rows = max(1, (MAX_WIDE_NUMBERS if wide else MAX_NUMBERS) // of_row)
    outputs = [attend_rows(parts, request, first, rows) for first in range(0, request.target, rows)]
    return HeadOutput._make(None if x[0] is None else torch.cat(x, 2) for x in zip(*outputs, strict=True))


def attend_rows(parts: Parts, request: Request, first: int, rows: int) -> HeadOutput:
    """Return the output of some rows, whose scores are computed again when their gradient is asked for."""
    last = min(first + rows, request.target)
    memory = request.memory.for_queries(first, last)
    if request.causal:  # no row sees a later key
        memory = memory.at(slice(0, min(request.source, request.start + last)))
    some = request._replace(query=request.query[:, first:last], memory=memory, start=request.start + first)

    def attend_some(*prepared: Tensor) -> HeadOutput:
        return dense.attend(parts, some._replace(prepared=prepared))

    prepared = tuple(x[:, :, first:last] for x in request.prepared)
    if not torch.is_grad_enabled():
        return attend_some(*prepared)
    output: HeadOutput = checkpoint(attend_some, *prepared, use_reentrant=False)
    return output
