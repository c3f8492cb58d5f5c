"""The weights of a parent in the model of a new run: those of the same name and shape, and rows of shared tokens."""

from __future__ import annotations

import logging
from typing import Any

import torch
from sentencepiece import SentencePieceProcessor
from torch import Tensor, nn

from seq2seq_attn.checkpoint.resume import changes
from seq2seq_attn.errors import UserError
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer
from seq2seq_attn.training.check_resumed import NAMED, OF_SHAPES, may_change_shapes
from seq2seq_attn.training.parent import Parent
from seq2seq_attn.training.translation_module import TranslationModule

log = logging.getLogger(__name__)

ROWS = {  # tensors with a row for each token, and the side of its vocabulary
    "embed_source.weight": "source",
    "embed_target.weight": "target",
    "output.weight": "target",
    "output.bias": "target",
}


def copy_weights(parent: Parent, module: TranslationModule, *, strict: bool) -> None:
    """Copy the weights of the parent into the model, and log what is copied and what is not.

    If the vocabularies differ, the rows of the tokens that both have are copied. Constants that both draw from other
    seeds, as of `performer`, stay those of this run's options.

    Raises:
        UserError: if `strict` and a weight is missing, left over or of another shape.
    """
    rows = shared_rows(parent.loaded.tokenizer, module.tokenizer)
    constants = drawn_from_other_seeds(parent.loaded.model, module.model)
    theirs, ours = (
        {name: weight for name, weight in model.state_dict().items() if name not in constants}
        for model in (parent.loaded.model, module.model)
    )
    drawn: dict[str, str] = {}
    left_out = {name: "is in no part of this model" for name in theirs if name not in ours}
    first_names: dict[tuple[int, torch.Size], str] = {}
    for name, weight in ours.items():
        first = first_names.setdefault((weight.data_ptr(), weight.shape), name)
        reason = misfit(theirs.get(name), weight, by_row=name in ROWS and ROWS[name] in rows)
        if reason is not None:
            drawn[name] = reason
        elif first not in (name, *drawn) and not torch.equal(theirs[first], theirs[name]):
            left_out[name] = f"and {first} are two matrices there and one here"
        elif name in ROWS and ROWS[name] in rows:
            new, old = rows[ROWS[name]]
            weight[new] = theirs[name][old]
        else:
            weight.copy_(theirs[name])
    if strict and (drawn or left_out):
        raise UserError(refusal(parent, module.config, drawn | left_out))
    step = "" if parent.step is None else f", step {parent.step:,}"
    log.info(f"{len(ours) - len(drawn)} of {len(ours)} tensors start from {parent.file}{step}")
    for what, names in (("Drawn from the seeds of this run", constants), ("Drawn anew", drawn), ("Left out", left_out)):
        if names:
            log.info(f"{what}: {', '.join(names)}")
    for side, (new, _) in rows.items():
        size = ours[f"embed_{side}.weight"].shape[0]
        log.info(f"{len(new):,} of {size:,} {side} tokens are in both vocabularies; the others are drawn anew")


def drawn_from_other_seeds(theirs: nn.Module, ours: nn.Module) -> list[str]:
    """Return the names of the buffers of parts that both models have, with options `seeds` that differ."""
    parts = dict(theirs.named_modules())
    return [
        f"{name}.{buffer}"
        for name, part in ours.named_modules()
        if hasattr(part, "seeds") and getattr(parts.get(name), "seeds", part.seeds) != part.seeds
        for buffer, _ in part.named_buffers(recurse=False)
    ]


def misfit(theirs: Tensor | None, ours: Tensor, *, by_row: bool) -> str | None:
    """Return why a weight cannot be copied, to be put after its name; None: it can."""
    if theirs is None:
        return "is not there"
    start = 1 if by_row else 0
    if theirs.dim() == ours.dim() and theirs.shape[start:] == ours.shape[start:]:
        return None
    return f"is {size_of(theirs)} there and {size_of(ours)} here"


def size_of(tensor: Tensor) -> str:
    return " × ".join(map(str, tensor.shape)) or "one number"


def refusal(parent: Parent, config: dict[str, Any], misfits: dict[str, str]) -> str:
    """Return the sentence that names the options that differ, and the first of the weights that do not fit."""
    changed = [c for c in changes(parent.loaded.config, config) if may_change_shapes(c) and c.key.startswith(OF_SHAPES)]
    changed = [change for change in changed if not change.key.startswith(("data", "tokenizer"))]
    by = f", by {', '.join(map(str, changed[:NAMED]))}" if changed else ""
    (name, reason), more = next(iter(misfits.items())), len(misfits) - 1
    others = f" (and {more} more)" if more else ""
    return (
        f"{parent.file} holds another model{by}: {name} {reason}{others}; leave these options out, or give "
        "init_from.strict=false, which draws such weights anew"
    )


def shared_rows(theirs: SentencePieceTokenizer, ours: SentencePieceTokenizer) -> dict[str, tuple[Tensor, Tensor]]:
    """Return the ids of the tokens of both vocabularies, here and there, by side; empty if they are the same."""
    if theirs.fingerprint == ours.fingerprint:
        return {}
    sides = {"source": (ours.source_model, theirs.source_model), "target": (ours.target_model, theirs.target_model)}
    return {side: shared_ids(*models) for side, models in sides.items()}


def shared_ids(ours: SentencePieceProcessor, theirs: SentencePieceProcessor) -> tuple[Tensor, Tensor]:
    old = {theirs.id_to_piece(i): i for i in range(theirs.get_piece_size())}
    pairs = [(i, old[piece]) for i in range(ours.get_piece_size()) if (piece := ours.id_to_piece(i)) in old]
    new_ids, old_ids = torch.tensor(pairs).T
    return new_ids, old_ids
