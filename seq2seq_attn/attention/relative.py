"""Refuse a relative position that a score has no place for."""

from seq2seq_attn.attention.score.score import Score
from seq2seq_attn.errors import UserError
from seq2seq_attn.position.relative_encoding import RelativeEncoding


def check_relative(relative: RelativeEncoding | None, score: Score) -> None:
    """Rotary and Shaw's positions turn or read the projected queries of an inner product."""
    if relative is not None and relative.needs_inner_product and not score.inner_product:
        raise UserError(
            f"position={relative.option} acts on an inner product of queries and keys, which {type(score).__name__} "
            "is not; use attention/score=scaled_dot, or position=alibi or position=sinusoidal"
        )
