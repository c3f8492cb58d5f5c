"""Which sentences are searched together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from seq2seq_attn.tensors.error import UserError


def cut_batches(
    lengths: Sequence[int], *, batch_sentences: int, batch_tokens: int | None, hypotheses: int
) -> Iterator[list[int]]:
    """Rows, the shortest first, so that those of like length meet.

    Args:
        lengths: pieces of each sentence, end piece included.
        batch_sentences: of a batch.
        batch_tokens: instead, places of a batch, padding included, times hypotheses; a sentence that is longer
            stands alone.
        hypotheses: of a sentence, searched at once.
    """
    for option, limit in (("batch_sentences", batch_sentences), ("batch_tokens", batch_tokens)):
        if limit is not None and limit < 1:
            raise UserError(f"{option}={limit} leaves nothing to translate at once; use 1 or more")
    batch: list[int] = []
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch_tokens is None:
            full = len(batch) == batch_sentences
        else:
            full = (len(batch) + 1) * lengths[row] * hypotheses > batch_tokens
        if batch and full:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch
