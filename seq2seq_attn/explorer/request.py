"""Requests to the explorer: plain data of an unknown origin, checked and bounded before a model sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast, final, get_args

from seq2seq_attn.errors import UserError
from seq2seq_attn.explorer.intervention import Change, Intervention

MAX_CHARACTERS: Final = 10_000  # of a text
MAX_INTERVENTIONS: Final = 1_000
MAX_NUMBER: Final = 2**53  # of JSON, beyond which a browser's numbers have gaps
KEYS: Final = (
    "model", "source", "search", "target", "target_tokens", "prefix", "interventions", "hide", "tree", "slots",
)  # fmt: skip
MAX_SHOWN: Final = 60


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
        search: a name and options, as `SearchOptions.build` takes them; None: the search of the run.
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


def check_object(data: Any, keys: Sequence[str], what: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise UserError(f"{what} must be an object, and this one is {shown(data)}")
    for key in data:
        if key not in keys:
            raise UserError(f"{what} has no {shown(key)}; it takes: {', '.join(keys)}")
    return cast(dict[str, Any], data)


def check_text(value: Any, name: str) -> str:
    """Return a text of a bounded length; what no tokenizer should read is replaced when it is cleaned."""
    if not isinstance(value, str):
        raise UserError(f"{name}={shown(value)} must be a text")
    if len(value) > MAX_CHARACTERS:
        raise UserError(f"{name} has {len(value):,} characters, and {MAX_CHARACTERS:,} are the most; shorten it")
    return value


def check_int(value: Any, name: str, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise UserError(f"{name} is {shown(value)}, and must be a whole number from {least} to {most}")
    return value


def check_bool(value: Any, name: str) -> bool:
    if value is not None and not isinstance(value, bool):
        raise UserError(f"{name}={shown(value)} must be true or false")
    return bool(value)


def check_list(value: Any, name: str, most: int) -> list[Any]:
    """Return a list of a bounded length; null is an empty one."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise UserError(f"{name}={shown(value)} must be a list")
    if len(value) > most:
        raise UserError(f"{name} has {len(value):,} entries, and {most:,} are the most; shorten it")
    return value


def check_choice(value: Any, name: str, choices: Mapping[str, Any] | Sequence[str]) -> str:
    if not isinstance(value, str) or value not in choices:
        raise UserError(f"{name} is {shown(value)}; choose from: {', '.join(choices)}")
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


def shown(value: Any) -> str:
    """Return a value of JSON, shortened, for a sentence; of a list or an object only what it is."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    if isinstance(value, int) and abs(value) > MAX_NUMBER:
        return "a number of many digits"  # Python refuses to print the longest
    text = value[: MAX_SHOWN + 1] if isinstance(value, str) else str(value)[: MAX_SHOWN + 1]
    return f"'{text}'" if len(text) <= MAX_SHOWN else f"'{text[:MAX_SHOWN]}...'"
