"""Refusals of parts and options of an attention that do not go together."""

from __future__ import annotations

from functools import partial
from typing import Any

from seq2seq_attn.attention.head_sizes import HeadSizes
from seq2seq_attn.attention.history import ReadsHistory
from seq2seq_attn.attention.mix.mix import Mix
from seq2seq_attn.attention.normalizer.normalizer import Normalizer
from seq2seq_attn.attention.pattern.pattern import Pattern
from seq2seq_attn.attention.pattern.wait_k import WaitKPattern
from seq2seq_attn.attention.score.forgetting import ForgettingScore
from seq2seq_attn.attention.score.latent import LatentScore
from seq2seq_attn.attention.score.score import Score
from seq2seq_attn.errors import UserError
from seq2seq_attn.factory import named_arguments, redefines
from seq2seq_attn.position.relative_encoding import RelativeEncoding


def check_parts(score: Score, pattern: Pattern, normalizer: Normalizer, mix: partial[Any] | None) -> None:
    """Refuse parts that give wrong weights, or none, together.

    Raises:
        UserError: for such parts.
    """
    name = type(score).__name__
    if (pattern.selects and not score.inner_product) or (pattern.needs_vectors and not score.rotatable):
        raise UserError(
            f"{type(pattern).__name__} selects keys by an inner product of queries and keys, which {name} is not; use "
            "attention/score=scaled_dot, or attention/pattern=sparse"
        )
    if score.never_positive and normalizer.needs_positive:
        raise UserError(
            f"{type(normalizer).__name__} gives weight to positive scores, and {name} has heads without any; use "
            "attention/normalizer=softmax, or attention/score=scaled_dot"
        )
    if isinstance(score, ForgettingScore) and normalizer.is_identity:
        raise UserError(
            f"{name} subtracts from a score what is forgotten, and {type(normalizer).__name__} would make a negative "
            "weight of it; use attention/normalizer=softmax, or attention/score=scaled_dot"
        )
    if isinstance(pattern, WaitKPattern) and score.reads_length:
        raise UserError(
            f"{name} reads the length of the source, which WaitKPattern does not know before its end; use "
            "attention/score=scaled_dot"
        )
    if isinstance(pattern, WaitKPattern) and pattern.length_ratio < 1 and redefines(type(score), Score.query_at):
        raise UserError(
            f"{name} reads the source token at the position of the query, which WaitKPattern with "
            f"attention.pattern.length_ratio={pattern.length_ratio} may hide; use "
            "attention.pattern.length_ratio=1.0 or more, or attention/score=scaled_dot"
        )
    if mix is not None and redefines(type(score), Score.visible):
        raise UserError(
            f"{mix.func.__name__} mixes the scores of all heads, and {name} hides positions of single heads; use "
            "~attention/mix, or attention/score=scaled_dot"
        )


def check_latents(pattern: Pattern, *, key_dim: int, value_dim: int, project_values: bool) -> None:
    """Refuse what does not go with keys and values that are made of latents.

    Raises:
        UserError: for such a part, size or option.
    """
    if pattern.needs_vectors:
        raise UserError(
            f"{type(pattern).__name__} compares the keys of each head, and LatentScore keeps latents, which all heads "
            "share; use attention/pattern=top_blocks, or attention/score=scaled_dot"
        )
    if not project_values:
        raise UserError(
            "LatentScore needs attention.project_values=true, because values are projections of latents; use "
            "attention/score=scaled_dot for values as they are"
        )
    if key_dim != value_dim:
        raise UserError(
            f"LatentScore compresses keys and values by the same matrix, and here keys are {key_dim} wide and values "
            f"{value_dim}; use attention/score=scaled_dot, or keys and values of one width"
        )


def check_projections(
    score: partial[Any],
    *,
    project_values: bool,
    project_output: bool,
    projection_dropout: float,
    qkv_bias: bool,
    output_bias: bool | None,
) -> None:
    """Refuse options of projections that are given, but that the layer does not have.

    Raises:
        UserError: for such an option.
    """
    for option, value in (("projection_dropout", projection_dropout), ("output_bias", output_bias)):
        if value and not project_output:
            raise UserError(
                f"attention.{option}={str(value).lower()} needs a projection of the output, which this layer does not "
                "have; set attention.project_output=true, or leave the option out"
            )
    projects = project_values or (project_output and output_bias is None)
    if qkv_bias and not (projects or takes_bias(score)):
        raise UserError(
            f"{score.func.__name__} takes no attention.qkv_bias=true, and the values are not projected; use "
            "attention/score=scaled_dot or attention.project_values=true, or leave the option out"
        )


def takes_bias(score: partial[Any]) -> bool:
    """Return whether the projections of a score, or of one that it is made of, may have a bias."""
    inner = [*score.keywords.get("scores", {}).values(), *filter(None, [score.keywords.get("score")])]
    return any(map(takes_bias, inner)) if inner else "bias" in named_arguments(score)


def check_self_pattern(pattern: Pattern) -> None:
    """Refuse a pattern with a ratio of two lengths where a sequence attends to itself.

    Raises:
        UserError: for such a pattern.
    """
    if pattern.length_ratio != 1:
        raise UserError(
            f"attention.pattern.length_ratio={pattern.length_ratio} is for cross-attention, where two lengths "
            "differ; leave it at 1.0 where a sentence attends to itself"
        )


def check_self_width(*, query_dim: int, context_dim: int) -> None:
    """Refuse self-attention whose context is not as wide as its input; projecting the output makes it so.

    Raises:
        UserError: for such widths.
    """
    if context_dim != query_dim:
        raise UserError(
            f"the heads of self-attention are {context_dim} wide together, and its input is {query_dim}; set "
            "attention.project_output=true, or give attention.head_dim and attention.num_heads that multiply "
            f"to {query_dim}"
        )


def check_relative(relative: RelativeEncoding, score: Score, normalizer: Normalizer, sizes: HeadSizes) -> None:
    """Refuse a relative position encoding that does not go with the score, the normalizer or the values.

    Raises:
        UserError: for such an encoding.
    """
    is_latent = isinstance(score, LatentScore)
    if is_latent and relative.needs_inner_product and not relative.rotates:
        raise UserError(
            f"position={relative.option} compares queries with vectors of a head's width, and LatentScore with "
            "latents, which all heads share; use position=rotary, position=alibi or position=sinusoidal, or "
            "attention/score=scaled_dot"
        )
    if relative.needs_inner_product and not (score.rotatable or is_latent):
        raise UserError(
            f"position={relative.option} acts on an inner product of queries and keys, which "
            f"{type(score).__name__} is not; use attention/score=scaled_dot, or position=alibi or "
            "position=sinusoidal"
        )
    if relative.subtracts and normalizer.is_identity:
        raise UserError(
            f"position={relative.option} subtracts a distance from a score, and {type(normalizer).__name__} would make "
            "a negative weight of it; use attention/normalizer=softmax, or position=rotary or position=sinusoidal"
        )
    if relative.adds_context and sizes.value_width != sizes.score_width:
        raise UserError(
            f"position={relative.option} adds to values as wide as the keys, and here a head has values of width "
            f"{sizes.value_width} and keys of width {sizes.score_width}; set position.values=false"
        )


def check_parts_for_history(pattern: Pattern, normalizer: Normalizer, mix: Mix | None) -> None:
    """Refuse parts that change the weights which the next step of a layer with a history reads.

    Raises:
        UserError: for such a part.
    """
    if mix is not None:
        raise UserError(
            f"{type(mix).__name__} changes the weights that the next step would read; use ~attention/mix, "
            "or an attention that does not read the weights of the steps before"
        )
    if isinstance(normalizer, ReadsHistory) and pattern.reweighs:
        raise UserError(
            f"{type(pattern).__name__} multiplies the weights from which {type(normalizer).__name__} "
            "goes on in the next step, so that they would fade out; use attention/pattern=local, or "
            "attention/normalizer=softmax"
        )
