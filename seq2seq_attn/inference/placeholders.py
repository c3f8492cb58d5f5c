"""Placeholders of a text to localise, such as `<x id=1>` or `<b>...</b>`: left out, and put back by word links."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from seq2seq_attn.alignment.word_alignment import Link

TAG = re.compile(r"</?[A-Za-z][^<>]*>")

NAME = re.compile(r"[\w:-]+")


class Placeholder(NamedTuple):
    """A tag of a source, and where it was.

    Attributes:
        word: the source word before which it was; one more than the last at the end.
        after: whether it belongs to the word before it: an end tag, and a tag without a blank before it.
        joined: whether no blank separated it from that word.
    """

    text: str
    word: int
    after: bool
    joined: bool


def remove_placeholders(text: str) -> tuple[str, list[Placeholder]]:
    """Return a text without its tags, and these; a tag between two blanks goes with one of them."""
    plain, found, end = "", [], 0
    for match in TAG.finditer(text):
        plain += text[end : match.start()]
        end = match.end()
        rest = TAG.sub("", text[end:])
        blank_before, blank_after = not plain or plain[-1].isspace(), not rest or rest[0].isspace()
        closes = match[0].startswith("</")
        after = (closes or not blank_before) and bool(plain.strip()) and not (blank_before and not blank_after)
        joined = not blank_before if after else not blank_after
        found.append(Placeholder(match[0], len(plain.split()), after, joined))
    plain += text[end:]
    return plain, found


def insert_placeholders(text: str, placeholders: Iterable[Placeholder], links: Sequence[Link]) -> str:
    """Return a translation with the tags of its source, each at the words that its word is linked to.

    A tag before a source word comes before the first target word linked to it or, if there is none, to the next source
    word that has a link, and at the end if none has. A tag after a source word comes after the last target word linked
    to it or to the nearest source word before it, and at the begin if none has. A begin tag and its end tag come around
    all target words linked to those between them. Tags of one position keep their order.
    """
    placeholders = list(placeholders)
    words = text.split()
    targets: dict[int, list[int]] = defaultdict(list)
    for source, target in links:
        targets[source].append(target)
    before: dict[int, list[Placeholder]] = defaultdict(list)
    after: dict[int, list[Placeholder]] = defaultdict(list)
    ends = pairs_of_tags(placeholders)
    begins = {end: begin for begin, end in ends.items()}
    for number, one in enumerate(placeholders):
        other = placeholders[ends.get(number, begins.get(number, number))]
        between = [t for word in range(*sorted((one.word, other.word))) for t in targets.get(word, ())]
        if between:
            (before[min(between)] if number in ends else after[max(between)]).append(one)
        elif one.after:
            linked = max((source for source in targets if source < one.word), default=None)
            after[-1 if linked is None else max(targets[linked])].append(one)
        else:
            linked = min((source for source in targets if source >= one.word), default=None)
            before[len(words) if linked is None else min(targets[linked])].append(one)
    pieces = [*with_blanks(after[-1], joined_to_next=False), " "]
    for position in range(len(words) + 1):
        pieces += with_blanks(before[position], joined_to_next=True)
        if position < len(words):
            pieces.append(words[position])
            pieces += with_blanks(after[position], joined_to_next=False)
            pieces.append(" ")
    return "".join(pieces).strip()


def pairs_of_tags(placeholders: Sequence[Placeholder]) -> dict[int, int]:
    """Return the end tag of each begin tag that has one: the next of its name that no tag between them has."""
    open_tags: dict[str, list[int]] = defaultdict(list)
    ends = {}
    for number, one in enumerate(placeholders):
        name = NAME.findall(one.text)[0]
        if one.text.startswith("</"):
            if open_tags[name]:
                ends[open_tags[name].pop()] = number
        else:
            open_tags[name].append(number)
    return ends


def with_blanks(placeholders: Sequence[Placeholder], *, joined_to_next: bool) -> list[str]:
    """Return the tags, with a blank on the side of the word for each that was not joined to one."""
    if joined_to_next:
        return [one.text if one.joined else f"{one.text} " for one in placeholders]
    return [one.text if one.joined else f" {one.text}" for one in placeholders]
