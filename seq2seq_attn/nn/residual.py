"""Residual connection with layer normalisation before or behind. Vaswani et al. 2017, 5.4; Xiong et al. 2020."""

from __future__ import annotations

from typing import Literal, final

from jaxtyping import Float
from torch import Tensor, nn

from seq2seq_attn.errors import UserError

NORMS: dict[str, tuple[type[nn.Module], type[nn.Module]]] = {
    "pre": (nn.LayerNorm, nn.Identity),
    "post": (nn.Identity, nn.LayerNorm),
}


@final
class Residual(nn.Module):
    """x + dropout(f(norm(x))) for `pre`, norm(x + dropout(f(x))) for `post`; the owner of f writes

        x = residual(x, f(residual.before(x)))

    so that f may give more than what is added.

    Args:
        norm: where the normalisation stands: `post` as in the paper, or `pre` (Xiong et al. 2020,
            arXiv:2002.04745), which trains without warm-up and leaves a path that nothing normalises.
        dropout: of what is added.

    Raises:
        UserError: for a norm of another name.
    """

    def __init__(self, *, dim: int, norm: Literal["pre", "post"], dropout: float) -> None:
        super().__init__()
        if norm not in NORMS:
            raise UserError(f"norm={norm} is not known; choose from: {', '.join(NORMS)}")
        before, after = NORMS[norm]
        self.before, self.after = before(dim), after(dim)
        self.dropout = nn.Dropout(dropout)
        self.norm = norm

    def forward(
        self, x: Float[Tensor, "batch length dim"], found: Float[Tensor, "batch length dim"]
    ) -> Float[Tensor, "batch length dim"]:
        # in decoding, a call that does nothing costs as much as a small sum
        added = x + (self.dropout(found) if self.training else found)
        return added if self.norm == "pre" else self.after(added)


def closing_norm(norm: Literal["pre", "post"], dim: int) -> nn.Module:
    """What stands behind a stack: its last sum is read as a further part would read it, normalised if `pre`."""
    before, _ = NORMS[norm]
    return before(dim)
