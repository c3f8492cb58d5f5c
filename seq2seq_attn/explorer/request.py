"""Requests to the explorer: plain data of an unknown origin, checked and bounded before a model sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast, final, get_args

from seq2seq_attn.errors import UserError
from seq2seq_attn.explorer.intervention import Change, Intervention
from seq2seq_attn.inference.json_fields import check_bool, check_choice, check_int, check_list, check_object, shown

MAX_CHARACTERS: Final = 10_000  # of a text
MAX_INTERVENTIONS: Final = 1_000
KEYS: Final = (
    "model", "source", "search", "target", "target_tokens", "prefix", "interventions", "hide", "tree", "slots",
)  # fmt: skip


class ModelBounds(NamedTuple):
    """What a request may name of one model.

    Attributes:
        heads: number of heads by slot.
        vocab_size: of the target.
        special_ids: of the target, which no translation may hold.
        max_tokens: of a source or a target, without the end token.
    """

    heads: Mapping[str, int]
    vocab_size: int
    special_ids: Sequence[int]
    max_tokens: int


@final
@dataclass(frozen=True)
class LookRequest:
    """One sentence to look at with one model.

    Attributes:
        search: a name and options, as `build_search` takes them; None: the search of the run.
        target, target_tokens: the whole translation, as a text or as ids, which takes the place of a search.
        prefix: the ids that the search begins with.
        hide: source words, from 0.
        tree: return the tree of the search.
        slots: whose maps to return; None: all.
    """

    model: int
    source: str
    search: dict[str, Any] | None = None
    target: str | None = None
    target_tokens: list[int] | None = None
    prefix: list[int] | None = None
    interventions: tuple[Intervention, ...] = ()
    hide: tuple[int, ...] = ()
    tree: bool = False
    slots: tuple[str, ...] | None = None


def parse_look(data: Any, models: Sequence[ModelBounds]) -> LookRequest:
    """Return a request of the page as a value whose fields have the right types and are in range.

    The length of the source in tokens and the words to hide are checked once it is tokenized.

    Raises:
        UserError: for anything else, in one sentence.
    """
    given = check_object(data, KEYS, "a request")
    number = check_int(given.get("model", 0), "model", 0, len(models) - 1)
    bounds = models[number]
    source = check_text(given.get("source"), "source")
    forced = [name for name in ("target", "target_tokens", "prefix") if given.get(name) is not None]
    if len(forced) > 1:
        raise UserError(f"{' and '.join(forced)} exclude each other; give one of them")
    search = given.get("search")
    if search is not None and not isinstance(search, dict):
        raise UserError(
            f"search={shown(search)} must be an object, such as {{'name': 'beam', 'beam_size': 5}}, or null"
        )
    target, slots = given.get("target"), given.get("slots")
    return LookRequest(
        number,
        source,
        search,
        target=None if target is None else check_text(target, "target"),
        target_tokens=check_ids(given.get("target_tokens"), "target_tokens", bounds),
        prefix=check_ids(given.get("prefix"), "prefix", bounds),
        interventions=tuple(
            check_intervention(one, bounds)
            for one in check_list(given.get("interventions"), "interventions", MAX_INTERVENTIONS)
        ),
        hide=tuple(
            check_int(word, "a word in hide", 0, bounds.max_tokens)
            for word in check_list(given.get("hide"), "hide", bounds.max_tokens)
        ),
        tree=check_bool(given.get("tree"), "tree"),
        slots=None
        if slots is None
        else tuple(check_choice(one, "a slot in slots", bounds.heads) for one in check_list(slots, "slots", 1000)),
    )


def check_text(value: Any, name: str) -> str:
    """Return a text of a bounded length; what no tokenizer should read is replaced when it is cleaned."""
    if not isinstance(value, str):
        raise UserError(f"{name}={shown(value)} must be a text")
    if len(value) > MAX_CHARACTERS:
        raise UserError(f"{name} has {len(value):,} characters, and {MAX_CHARACTERS:,} are the most; shorten it")
    return value


def check_ids(value: Any, name: str, bounds: ModelBounds) -> list[int] | None:
    """Return token ids of a translation, without begin and end."""
    if value is None:
        return None
    ids = [check_int(one, f"a token in {name}", 0, bounds.vocab_size - 1) for one in check_list(value, name, 10**6)]
    check_length(len(ids), name, bounds.max_tokens)
    for token_id in ids:
        if token_id in bounds.special_ids:
            raise UserError(f"a token in {name} is {token_id}, which marks a begin, an end or padding; leave it out")
    return ids


def check_length(tokens: int, name: str, most: int) -> None:
    if tokens > most:
        raise UserError(f"the {name} has {tokens:,} tokens, and {most:,} are the most here; shorten it")


def check_intervention(value: Any, bounds: ModelBounds) -> Intervention:
    given = check_object(value, ("do", "slot", "head"), "an intervention")
    do = cast(Change, check_choice(given.get("do"), "do of an intervention", get_args(Change)))
    slot = check_choice(given.get("slot"), "slot of an intervention", bounds.heads)
    head = given.get("head")
    return Intervention(
        do, slot, None if head is None else check_int(head, f"a head of {slot}", 0, bounds.heads[slot] - 1)
    )
