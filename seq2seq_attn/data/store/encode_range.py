"""Sentences to token ids in a worker process, which imports nothing but sentencepiece and numpy: torch takes 200 MB."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain

import numpy as np
import sentencepiece
from jaxtyping import Int64, Integer


@lru_cache(maxsize=2)
def processor(model: bytes) -> sentencepiece.SentencePieceProcessor:
    return sentencepiece.SentencePieceProcessor(model_proto=model)


def encode_range(
    model: bytes, texts: Sequence[str], part: slice | None
) -> tuple[Integer[np.ndarray, " tokens"], Int64[np.ndarray, " sentences"]]:
    """Return the ids of these sentences, one after another, and their lengths."""
    encoder = processor(model)
    ids = encoder.encode(list(texts[part] if part is not None else texts))  # it takes no other sequence
    kind = np.uint16 if encoder.get_piece_size() <= 1 << 16 else np.int32
    return np.fromiter(chain.from_iterable(ids), kind), np.fromiter(map(len, ids), np.int64, len(ids))
