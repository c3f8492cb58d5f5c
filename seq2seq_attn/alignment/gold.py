"""Pairs of sentences with links made by people, and the error rate of other links. Och and Ney 2003, 5.2."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from seq2seq_attn.alignment.word_alignment import Link, from_pharaoh, to_pharaoh
from seq2seq_attn.data.reading import read_lines, read_parallel
from seq2seq_attn.errors import UserError
from seq2seq_attn.text import new_table

if TYPE_CHECKING:
    from rich.table import Table

BARS = "|||"
Words = tuple[list[str], list[str]]  # of the two sides of a pair
GOLD_LINK = re.compile(r"(\d{1,9})([-p?])(\d{1,9})")
WITH_LINKS = re.compile(r"(.*?\S)(?:\s{2,}|\t)((?:\d+[-p?]\d+\s*)+)")  # a pair, two blanks or a tab, and its links
PHARAOH = re.compile(r"(?:\d{1,9}-\d{1,9})?(?:\s+\d{1,9}-\d{1,9})*\s*")


class AlignedPair(NamedTuple):
    """The words of a pair and the links of its annotators, which count words from 0; `possible` includes `sure`."""

    source: list[str]
    target: list[str]
    sure: frozenset[Link]
    possible: frozenset[Link]


class Agreement(NamedTuple):
    """The number of links judged; precision, recall and alignment error rate in percent."""

    links: int
    precision: float
    recall: float
    error_rate: float


def read_aligned_pairs(
    pairs: Sequence[Path],
    gold: Path | None = None,
    *,
    start: int = 0,
    target_first: bool = False,
    lowercase: bool = False,
    prefix: str = "",
    needs_links: bool = True,
) -> list[AlignedPair]:
    """Return pairs whose words are separated by blanks, with their links.

    Args:
        pairs: a file of lines `source ||| target`, or with a tab instead of the bars; or two line-aligned files.
            Without `gold`, the links end each line of the one file, after two blanks or a tab.
        gold: a file with the links of each pair on a line: `0-0` is sure, `1p2` or `1?2` possible.
        start: the number of a sentence's first word in these links: 0, or 1 as in the files of WPT 2003.
        target_first: whether pairs and links have the target before the source.
        lowercase: whether to lower-case the words.
        prefix: of the names of these options in a message.
        needs_links: whether to refuse pairs of which none has a link.

    Raises:
        UserError: if a line is no pair, the files differ in length, a link names no word of its pair, words look like
            links, or no pair has a link.
    """
    texts = list(read_texts(pairs, with_links=gold is None, prefix=prefix))
    if gold is None:
        for first, second, _, location in texts:
            check_words((first.split(), second.split()), location, start)
    else:
        link_lines = read_lines(gold)
        check_length(len(link_lines), len(texts), gold)
        for (first, second, _, location), links in zip(texts, link_lines, strict=True):
            given = links.split()
            if given and second.split()[-len(given) :] == given:  # else the last words are words, such as 2-1
                check_words((first.split(), second.split()), location, start)
        texts = [
            (*text[:2], links, f"{gold}, line {number}")
            for number, (text, links) in enumerate(zip(texts, link_lines, strict=True), start=1)
        ]
    aligned = [aligned_pair(*text, start=start, target_first=target_first, prefix=prefix) for text in texts]
    if needs_links and not has_gold(aligned):
        otherwise = "" if prefix else "; to write links without judging them, give output=FILE alone"
        raise UserError(
            f"{gold or pairs[0]} has no links; give {prefix}gold=FILE, with a line as '0-0 1p2' for each pair, or "
            f"leave it out where the lines of pairs end in their links, after two blanks{otherwise}"
        )
    if lowercase:
        return [lowered(pair) for pair in aligned]
    return aligned


def has_gold(pairs: Iterable[AlignedPair]) -> bool:
    """Return whether any pair has a gold link."""
    return any(pair.possible for pair in pairs)


def lowered(pair: AlignedPair) -> AlignedPair:
    """Return a pair with its words lower-cased."""
    source, target = ([word.lower() for word in side] for side in (pair.source, pair.target))
    return pair._replace(source=source, target=target)


def read_texts(pairs: Sequence[Path], *, with_links: bool, prefix: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield the two sides of each pair, the links that end its line, and where it is."""
    if len(pairs) == 2:
        for number, sides in enumerate(read_parallel(*pairs), start=1):
            yield *sides, "", f"{pairs[0]} and {pairs[1]}, line {number}"
        return
    if len(pairs) != 1:
        raise UserError(
            f"{prefix}pairs names {len(pairs)} files; give {prefix}pairs=FILE or {prefix}pairs=[SOURCE,TARGET]"
        )
    for number, line in enumerate(read_lines(pairs[0]), start=1):
        match = WITH_LINKS.fullmatch(line) if with_links else None
        text, links = (match[1], match[2]) if match else (line, "")
        columns, numbers = (text.split(BARS), (2,)) if BARS in text else (text.split("\t"), (2, 3))
        if len(columns) not in numbers:
            raise UserError(
                f"{pairs[0]}, line {number} is no pair; write `source {BARS} target`, or the two with a tab between"
            )
        yield columns[0], columns[1], links, f"{pairs[0]}, line {number}"


def check_length(lines: int, num_pairs: int, path: Path) -> None:
    if lines != num_pairs:
        raise UserError(f"{path} has {lines} lines and there are {num_pairs} pairs; give a line of links for each pair")


def aligned_pair(
    first: str, second: str, links: str, location: str, *, start: int, target_first: bool, prefix: str
) -> AlignedPair:
    """Return the pair of a line and its links."""
    words = first.split(), second.split()
    by_sureness: dict[bool, set[Link]] = {True: set(), False: set()}
    for link in links.split():
        match = GOLD_LINK.fullmatch(link)
        if match is None:
            raise UserError(f"{location}: '{link[:40]}' is no link; write 0-0 for a sure link, 0p0 for a possible one")
        positions = int(match[1]) - start, int(match[3]) - start
        shifted = positions[0] + 2 * start - 1, positions[1] + 2 * start - 1  # as counted from the other start
        way_out = f"set {prefix}gold_start to {1 - start}, or " if is_within(shifted, words) else ""
        check_link(positions, words, link, location, start, way_out)
        by_sureness[match[2] == "-"].add(positions[::-1] if target_first else positions)
    source, target = words[::-1] if target_first else words
    return AlignedPair(source, target, frozenset(by_sureness[True]), frozenset(by_sureness[True] | by_sureness[False]))


def check_words(words: Words, location: str, start: int) -> None:
    """Refuse a second side that ends in links between its other words and the first side.

    A word such as 10-11 is no link where there are not as many words, or where the first side has it too.
    """
    links = list(takewhile(GOLD_LINK.fullmatch, reversed(words[1])))[::-1]
    matches = [GOLD_LINK.fullmatch(link) for link in links]
    positions = [(int(match[1]) - start, int(match[3]) - start) for match in matches if match]
    others = words[0], words[1][: len(words[1]) - len(links)]
    if links and not set(links) <= set(words[0]) and all(is_within(link, others) for link in positions):
        raise UserError(
            f"{location}: the words '{' '.join(links)[:60]}' look like links; put two blanks or a tab before links at "
            "the end of a line, and leave them out where a file of gold links is given"
        )


def check_link(link: Link, words: Words, shown: str, location: str, start: int, way_out: str) -> None:
    if not is_within(link, words):
        raise UserError(
            f"{location}: there is no link {shown} between {len(words[0])} and {len(words[1])} words counted from "
            f"{start}; {way_out}correct the line"
        )


def is_within(link: Link, words: Words) -> bool:
    return all(0 <= position < len(side) for position, side in zip(link, words, strict=True))


def read_pharaoh(path: Path, pairs: Sequence[AlignedPair], *, target_first: bool = False) -> list[list[Link]]:
    """Return the links of each pair, from a file in Pharaoh form, whose words count from 0.

    Raises:
        UserError: if it has another form, more or fewer lines, or a link names no word of its pair.
    """
    lines = read_lines(path)
    check_length(len(lines), len(pairs), path)
    links = []
    for number, (line, pair) in enumerate(zip(lines, pairs, strict=True), start=1):
        location = f"{path}, line {number}"
        if not PHARAOH.fullmatch(line):
            raise UserError(f"{location}: not links in Pharaoh form, such as '0-0 2-1'; correct the line")
        words = (pair.target, pair.source) if target_first else (pair.source, pair.target)
        pair_links = from_pharaoh(line)
        for link in pair_links:
            check_link(link, words, to_pharaoh([link]), location, 0, "count words from 0, or ")
        links.append([link[::-1] for link in pair_links] if target_first else pair_links)
    return links


def agreement(links: Iterable[Iterable[Link]], pairs: Sequence[AlignedPair]) -> Agreement:
    """Return the figures over all sentences together, from links A, sure links S and possible links P.

    Precision |A and P| / |A|, recall |A and S| / |S|, error rate 1 - (|A and S| + |A and P|) / (|A| + |S|).
    """
    judged = list(zip(map(set, links), pairs, strict=True))
    in_sure = sum(len(predicted & pair.sure) for predicted, pair in judged)
    in_possible = sum(len(predicted & pair.possible) for predicted, pair in judged)
    num_links, num_sure = sum(len(predicted) for predicted, _ in judged), sum(len(pair.sure) for pair in pairs)
    return Agreement(
        num_links,
        100 * in_possible / max(1, num_links),
        100 * in_sure / max(1, num_sure),
        100 * (1 - (in_sure + in_possible) / max(1, num_links + num_sure)),
    )


def diagonal(source: Sequence[str], target: Sequence[str]) -> list[Link]:
    """Link target word j of J to source word round(j (I - 1) / (J - 1))."""
    step = (len(source) - 1) / max(1, len(target) - 1)
    return [(round(position * step), position) for position in range(len(target) if source else 0)]


def agreement_table(judged: Mapping[str, Agreement], marked: Collection[str] = ()) -> Table:
    """Return a table of the figures, by what gave the links; some are marked."""
    rows = [
        (f"{name} *" if name in marked else name, str(figures.links), *(f"{percent:.1f}" for percent in figures[1:]))
        for name, figures in judged.items()
    ]
    return new_table(["links of", "number", "precision", "recall", "error rate"], rows)
