"""Residual connection with pre- or post-normalisation. Vaswani et al. 2017, section 5.4; Xiong et al. 2020."""

from __future__ import annotations

from typing import Literal, final

from jaxtyping import Float
from torch import Tensor, nn

from seq2seq_attn.errors import UserError
from seq2seq_attn.nn.dropout import Dropout

NORMS: dict[str, tuple[type[nn.Module], type[nn.Module]]] = {
    "pre": (nn.LayerNorm, nn.Identity),
    "post": (nn.Identity, nn.LayerNorm),
}


@final
class Residual(nn.Module):
    """x + dropout(f(norm(x))) for `pre`, norm(x + dropout(f(x))) for `post`. The caller, who computes f, writes

        x = residual(x, f(residual.before(x)))

    so that f may return more than the term that is added.

    Args:
        dim: width of x.
        norm: `post`, as in the paper, or `pre` (Xiong et al. 2020, arXiv:2002.04745), which trains without warm-up
            and has an identity path.
        dropout: dropout of the added term.

    Raises:
        UserError: if the norm is unknown.
    """

    def __init__(self, *, dim: int, norm: Literal["pre", "post"], dropout: float) -> None:
        super().__init__()
        if norm not in NORMS:
            raise UserError(f"norm={norm} is unknown; choose from: {', '.join(NORMS)}")
        before, after = NORMS[norm]
        self.before, self.after = before(dim), after(dim)
        self.dropout = Dropout(dropout)
        self.norm = norm

    def forward(
        self, x: Float[Tensor, "batch length dim"], output: Float[Tensor, "batch length dim"]
    ) -> Float[Tensor, "batch length dim"]:
        # in decoding, a call of an inactive dropout costs as much as a small sum
        total = x + (self.dropout(output) if self.training else output)
        return total if self.norm == "pre" else self.after(total)


def closing_norm(norm: Literal["pre", "post"], dim: int) -> nn.Module:
    """Return the module after the last layer of a stack: layer normalisation for `pre`, the identity for `post`."""
    before, _ = NORMS[norm]
    return before(dim)
