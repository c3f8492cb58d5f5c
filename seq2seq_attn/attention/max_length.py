"""Refuse a sentence longer than a score has places for."""

from seq2seq_attn.attention.score.score import Score
from seq2seq_attn.tensors.error import UserError


def check_max_length(score: Score, *lengths: int | None) -> None:
    """Compare plain numbers (see `Places`), so that no tensor is read; None: not known.

    Raises:
        UserError: for a length beyond `score.max_length`.
    """
    longest = max((length for length in lengths if length is not None), default=0)
    if score.max_length is not None and longest > score.max_length:
        raise UserError(
            f"{type(score).__name__} has scores for {score.max_length} places, but a sentence has {longest}; "
            f"set attention.score.max_length={longest} or more (in a mixture, attention.score.scores.NAME.max_length)"
        )
