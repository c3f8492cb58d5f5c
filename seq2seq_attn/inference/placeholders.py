"""Placeholders of a text to localise, such as `<x id=1>` or `<b>...</b>`: left out, and put back by word links."""

from __future__ import annotations

import re
from bisect import bisect, bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from seq2seq_attn.alignment.word_alignment import Link

VALUE = r"""=\s*(?:"[^"]*"|'[^']*')"""  # of an attribute, which may have < and >
MOST_SIGNS = 16  # between the edge of a word and a tag within it; the place of more is not kept
MOST_VALUES = 64  # of a tag that are read so: without a limit the time of a hostile line grows with its square
TAG = re.compile(
    rf"</?[A-Za-z](?:(?>(?:[^<>=]*(?:{VALUE}|=)){{0,{MOST_VALUES}}})[^<>=]*"
    r"|[^<>]*)>"  # where quotation marks are not closed
)
WORD = re.compile(r"\S+")
NAME = re.compile(r"[\w:-]+")


class Placeholder(NamedTuple):
    """A tag of a source, and where it was.

    Attributes:
        word: the source word that it belongs to; one more than the last for a tag at the end.
        after: whether it comes after that word: an end tag, and a tag without a blank before it.
        joined: whether no blank separated it from that word.
        inside: signs of that word, such as a parenthesis, between its edge and the tag, at most `MOST_SIGNS`.
    """

    text: str
    word: int
    after: bool
    joined: bool
    inside: str

    @property
    def boundary(self) -> int:
        """Number of source words before it."""
        return self.word + self.after


def remove_placeholders(text: str) -> tuple[str, list[Placeholder]]:
    """Return a text without its tags, and these; a tag between two blanks goes with one of them.

    A line break or another tag without content (`<br>`, `<x/>`) between two letters leaves a blank.
    """
    untagged, plain, placeholders = TAG.sub("", text), "", []
    ends_of_words = [word.end() for word in WORD.finditer(untagged)]
    letters = [at for at, sign in enumerate(untagged) if sign.isalnum()]
    matches = list(TAG.finditer(text))
    begins = pairs_of_tags([match[0] for match in matches])
    end = num_tag_letters = num_words = word_start = 0
    last_letter = -1  # in `plain`
    for number, match in enumerate(matches):
        piece = text[end : match.start()]
        for found in WORD.finditer(piece):
            if found.start() > 0 or not plain or plain[-1].isspace():
                num_words, word_start = num_words + 1, len(plain) + found.start()
        last_letter = next((len(plain) + at for at in reversed(range(len(piece))) if piece[at].isalnum()), last_letter)
        plain += piece
        end, num_tag_letters = match.end(), num_tag_letters + len(match[0])
        here = end - num_tag_letters  # in `untagged`
        blank_before = not plain or plain[-1].isspace()
        blank_after = here == len(untagged) or untagged[here].isspace()
        closes, word, inside = match[0].startswith("</"), num_words, ""
        if blank_before or blank_after:
            after = (closes or not blank_before) and num_words > 0 and not (blank_before and not blank_after)
        else:  # within a word
            follows_letters = last_letter >= word_start
            after = closes or (number not in begins and follows_letters)
            if after:
                stop = ends_of_words[bisect(ends_of_words, here)]
                precedes_letters = bisect_left(letters, here) < bisect_left(letters, stop)
                inside = "" if precedes_letters or stop - here > MOST_SIGNS else untagged[here:stop]
            elif not follows_letters and len(plain) - word_start <= MOST_SIGNS:
                inside = plain[word_start:]
            lonely = match[0].endswith("/>") or name_of(match[0]) == "br"
            if lonely and plain[-1].isalnum() and untagged[here].isalnum():
                inside = ""
                plain += " "
            elif not after:
                word -= 1
        joined = not blank_before if after else not blank_after
        placeholders.append(Placeholder(match[0], word - after, after, joined, inside))
    plain += text[end:]
    return plain, placeholders


def name_of(tag: str) -> str:
    return NAME.findall(tag)[0]


def insert_placeholders(words: Sequence[str], placeholders: Iterable[Placeholder], links: Sequence[Link]) -> str:
    """Return the words of a translation with the tags of its source, each at the words that its word is linked to.

    A tag before a source word comes before the first target word linked to it or, if there is none, to the next source
    word that has a link, and at the end if none has. A tag after a source word comes after the last target word linked
    to it or to the nearest source word before it, and at the beginning if none has. A begin tag and its end tag come
    around all target words linked to those between them, and where there are none, one after the other in the place of
    the begin tag. Tags of one position keep their order.
    """
    placeholders = list(placeholders)
    targets: dict[int, list[int]] = defaultdict(list)
    for source, target in links:
        targets[source].append(target)
    linked = sorted(targets)
    first, last = [min(targets[source]) for source in linked], [max(targets[source]) for source in linked]
    before: dict[int, list[Placeholder]] = defaultdict(list)
    after: dict[int, list[Placeholder]] = defaultdict(list)
    ends = pairs_of_tags([one.text for one in placeholders])
    begins = {end: begin for begin, end in ends.items()}
    for number, one in enumerate(placeholders):
        begin, end = placeholders[begins.get(number, number)], placeholders[ends.get(number, number)]
        between = slice(bisect_left(linked, begin.boundary), bisect_left(linked, end.boundary))
        if between.start < between.stop:
            (before[min(first[between])] if number in ends else after[max(last[between])]).append(one)
        elif begin.after:
            joined = one.joined or one is not begin
            after[last[between.start - 1] if between.start else -1].append(one._replace(joined=joined))
        else:
            following = bisect_left(linked, begin.word)
            joined = one is begin and (one.joined or one is not end)
            before[first[following] if following < len(linked) else len(words)].append(one._replace(joined=joined))
    pieces = [word_with_tags("", [], after[-1])]
    for position in range(len(words) + 1):
        word = words[position] if position < len(words) else ""
        pieces.append(word_with_tags(word, before[position], after[position]))
    return " ".join(filter(None, pieces))


def pairs_of_tags(tags: Sequence[str]) -> dict[int, int]:
    """Return the end tag of each begin tag that has one: the next of its name that no tag between them has."""
    open_tags: dict[str, list[int]] = defaultdict(list)
    ends = {}
    for number, tag in enumerate(tags):
        name = name_of(tag)
        if tag.startswith("</"):
            if open_tags[name]:
                ends[open_tags[name].pop()] = number
        elif not tag.endswith("/>"):
            open_tags[name].append(number)
    return ends


def word_with_tags(word: str, before: Sequence[Placeholder], after: Sequence[Placeholder]) -> str:
    """Return a target word with its tags, those within the signs of a source word within the same signs here."""
    first = list(accumulate((len(one.inside) * word.startswith(one.inside) for one in before), max, initial=0))
    last = list(accumulate((len(one.inside) * word.endswith(one.inside) for one in reversed(after)), max, initial=0))
    if first[-1] + last[-1] >= len(word):
        first, last = [0] * len(first), [0] * len(last)
    places = [*first, *(len(word) - signs for signs in reversed(last))]
    # within the word, a tag has no blank
    tags = [one.text if one.joined or signs else f"{one.text} " for one, signs in zip(before, first[1:], strict=True)]
    outside = zip(after, reversed(last[1:]), strict=True)
    tags += [one.text if one.joined or signs else f" {one.text}" for one, signs in outside]
    parts = zip(pairwise(places), [*tags, ""], strict=True)
    return "".join(word[start:end] + tag for (start, end), tag in parts).strip()
