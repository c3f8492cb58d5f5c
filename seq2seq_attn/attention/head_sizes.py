"""Number and widths of the heads of an attention layer, from its options and the widths of its inputs."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple, cast, final

from seq2seq_attn.attention.mix.mix import Mix
from seq2seq_attn.errors import UserError
from seq2seq_attn.nn.heads import check_heads, most_heads


@final
class HeadSizes(NamedTuple):
    """Number and widths of heads.

    Attributes:
        num_heads, num_kv_heads: heads of queries, and those of keys and values.
        score_heads_per_head: as in `Mix`.
        score_width: of queries and keys in a score head. value_width: of values in a head.
    """

    num_heads: int
    num_kv_heads: int
    score_heads_per_head: int
    score_width: int
    value_width: int

    @property
    def joined_width(self) -> int:
        """Width of the contexts of all heads side by side."""
        return self.num_heads * self.value_width


def head_sizes(
    *,
    query_dim: int,
    value_dim: int,
    project_values: bool,
    num_heads: int | None,
    num_kv_heads: int | None = None,
    head_dim: int | None = None,
    mix: partial[Any] | None = None,
) -> HeadSizes:
    """Return the sizes of heads; the arguments are those of `Attention`.

    Raises:
        UserError: for heads that do not divide a width, or each other.
    """
    sets = 1 if mix is None else cast(type[Mix], mix.func).score_heads_per_head
    heads = (
        most_heads(query_dim // sets, query_dim if project_values else value_dim) if num_heads is None else num_heads
    )
    kv_heads = heads if num_kv_heads is None else num_kv_heads
    for option, number in (("num_heads", heads), ("num_kv_heads", kv_heads)):
        if number < 1:
            raise UserError(f"attention.{option}={number} leaves no head; use 1 or more")
    check_heads("attention.num_heads", heads, kv_heads, option="num_kv_heads")
    if not project_values:
        check_heads("value_dim", value_dim, kv_heads)
    elif head_dim is None:
        check_heads("query_dim", query_dim, heads)
    width = query_dim // heads if head_dim is None else head_dim
    total = query_dim if head_dim is None else heads * head_dim
    if mix is not None and sets > 1 and total % (heads * sets):
        raise UserError(
            f"{mix.func.__name__} cuts each head of queries and keys into {sets}, which attention.num_heads={heads} "
            f"heads of {total} numbers together do not allow; change attention.num_heads, attention.head_dim or the "
            "model's width"
        )
    return HeadSizes(heads, kv_heads, sets, width // sets, width if project_values else value_dim // kv_heads)
