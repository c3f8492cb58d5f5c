"""Cut the last dimension into heads, and join it again."""

from math import gcd

from jaxtyping import Float
from torch import Tensor

from seq2seq_attn.tensors.error import UserError


def split_heads(
    x: Float[Tensor, "batch length dim"], num_heads: int
) -> Float[Tensor, "batch heads length width"]:
    if num_heads == 1:
        return x.unsqueeze(1)
    batch, length, dim = x.shape
    # not -1, which view cannot tell where there are no sentences or tokens
    return x.view(batch, length, num_heads, dim // num_heads).transpose(1, 2)


def join_heads(x: Float[Tensor, "batch heads length width"]) -> Float[Tensor, "batch length dim"]:
    if x.shape[1] == 1:
        return x.squeeze(1)
    return x.transpose(1, 2).flatten(-2)


def most_heads(query_dim: int, value_dim: int) -> int:
    """The most that divide both widths and leave each head 64 of the query's or more; at least one."""
    both = gcd(query_dim, value_dim)
    return next((heads for heads in range(query_dim // 64, 1, -1) if both % heads == 0), 1)


def check_heads(name: str, dim: int, num_heads: int) -> None:
    """Refuse a width that the heads do not divide."""
    if dim % num_heads:
        raise UserError(
            f"attention.num_heads={num_heads} does not divide {name}={dim}; take a number of heads that does"
        )
