"""Links of two directions as one set: grow-diag-final and its parts. Koehn et al. 2003, 3.4, and Moses' symal."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Literal, get_args

from seq2seq_attn.alignment.word_alignment import Link
from seq2seq_attn.errors import UserError

Method = Literal["intersection", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and"]
METHODS: tuple[str, ...] = get_args(Method)
NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


def symmetrize(forward: Iterable[Link], reverse: Iterable[Link], method: str) -> list[Link]:
    """Return one set of links of a pair, in order of the target.

    Args:
        forward, reverse: of both directions, each link as source word and target word.
        method: intersection; union; grow-diag adds to the intersection the neighbours in the union, diagonal ones too,
            that link a word without a link; grow-diag-final then adds links of either direction that link a word
            without one, grow-diag-final-and those that link two.

    Raises:
        UserError: for another method.
    """
    directions = [{link[::-1] for link in direction_links} for direction_links in (forward, reverse)]  # target first
    check_method(method)
    union, links = set.union(*directions), set.intersection(*directions)
    if method == "union":
        links = union
    if method.startswith("grow-diag"):
        grow_diag(links, union)
    if method.startswith("grow-diag-final"):
        for direction in directions:
            add_final(links, direction, both_free=method.endswith("-and"))
    return [link[::-1] for link in sorted(links)]


def check_method(method: str) -> None:
    if method not in METHODS:
        raise UserError(f"symmetrization={method} does not exist; choose from: {', '.join(METHODS)}")


def grow_diag(links: set[Link], union: set[Link]) -> None:
    """Add neighbours of links, and of the links added, until there are none.

    Where one addition excludes another, the order decides. It is that of symal: passes over the links by target and
    source word, which include those that are added after the one that is visited.
    """
    targets, sources = {target for target, _ in links}, {source for _, source in links}
    this_pass = sorted(links)
    while this_pass:
        next_pass: list[Link] = []
        while this_pass:
            visited = heappop(this_pass)
            for down, across in NEIGHBOURS:
                link = visited[0] + down, visited[1] + across
                if link in union and link not in links and (link[0] not in targets or link[1] not in sources):
                    links.add(link)
                    targets.add(link[0])
                    sources.add(link[1])
                    heappush(this_pass if link > visited else next_pass, link)
        this_pass = next_pass


def add_final(links: set[Link], direction: set[Link], *, both_free: bool) -> None:
    """Add links of a direction one after another, whose words have no link yet: both of them, or at least one."""
    targets, sources = {target for target, _ in links}, {source for _, source in links}
    for target, source in sorted(direction - links):
        free = (source not in sources, target not in targets)
        if all(free) if both_free else any(free):
            links.add((target, source))
            sources.add(source)
            targets.add(target)
