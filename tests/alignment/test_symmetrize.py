"""Symmetrized links: by hand, and the sets that hold each other."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2seq_attn.alignment.symmetrize import METHODS, symmetrize
from seq2seq_attn.errors import UserError

FORWARD = [(0, 0), (1, 1), (1, 2), (4, 3), (3, 5)]
REVERSE = [(0, 0), (1, 1), (2, 2), (4, 4), (5, 6)]
LINKS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)))


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("intersection", {(0, 0), (1, 1)}),
        ("union", {*FORWARD, *REVERSE}),
        ("grow-diag", {(0, 0), (1, 1), (1, 2), (2, 2)}),
        # (4, 3) is no neighbour of a link; (4, 4) links target word 4; (3, 5) and (5, 6) link two words without a link
        ("grow-diag-final", {(0, 0), (1, 1), (1, 2), (2, 2), (3, 5), (4, 3), (4, 4), (5, 6)}),
        ("grow-diag-final-and", {(0, 0), (1, 1), (1, 2), (2, 2), (3, 5), (4, 3), (5, 6)}),
    ],
)
def test_links_by_hand(method: str, expected: set[tuple[int, int]]) -> None:
    assert set(symmetrize(FORWARD, REVERSE, method)) == expected


def test_growth_ends_where_both_words_have_links() -> None:
    square = [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert set(symmetrize([(0, 0), (1, 1)], square, "grow-diag")) == {(0, 0), (1, 1)}


def test_the_order_of_growth_is_by_target_word() -> None:
    forward, reverse = [(0, 0), (2, 1), (1, 2)], [(0, 1), (1, 0), (2, 1)]
    assert set(symmetrize(forward, reverse, "grow-diag")) == {(0, 1), (1, 0), (1, 2), (2, 1)}
    # of the neighbours on the diagonals, the last links two words that the others have linked by then
    corners = [(0, 0), (0, 2), (2, 0), (2, 2)]
    assert set(symmetrize([(1, 1), *corners], [(1, 1)], "grow-diag")) == {(1, 1), *corners[:3]}


def symal(forward: set[tuple[int, int]], reverse: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """Grow-diag as Koehn et al. write it: scan all cells until a scan adds nothing."""
    links, union, grown = forward & reverse, forward | reverse, True
    while grown:
        grown = False
        for target, source in product(range(6), range(6)):
            if (source, target) in links:
                for across, down in ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1)):
                    new = (source + down, target + across)
                    free = all(new[0] != one for one, _ in links) or all(new[1] != one for _, one in links)
                    if new in union - links and free:
                        links.add(new)
                        grown = True
    return links


@given(LINKS, LINKS)
def test_growth_is_that_of_symal(forward: list[tuple[int, int]], reverse: list[tuple[int, int]]) -> None:
    assert set(symmetrize(forward, reverse, "grow-diag")) == symal(set(forward), set(reverse))


@settings(max_examples=40)
@given(LINKS, LINKS, st.booleans())
def test_each_link_of_a_direction_counts_for_those_after_it(
    forward: list[tuple[int, int]], reverse: list[tuple[int, int]], both: bool
) -> None:
    links = set(symmetrize(forward, reverse, "grow-diag"))
    for direction in (forward, reverse):
        for source, target in sorted(set(direction), key=lambda link: link[::-1]):
            free = (all(source != one for one, _ in links), all(target != one for _, one in links))
            if all(free) if both else any(free):
                links.add((source, target))
    assert set(symmetrize(forward, reverse, "grow-diag-final-and" if both else "grow-diag-final")) == links


@given(LINKS, LINKS)
def test_methods_add_links_of_the_union_alone(forward: list[tuple[int, int]], reverse: list[tuple[int, int]]) -> None:
    intersection, union, grown, final, final_and = (set(symmetrize(forward, reverse, method)) for method in METHODS)
    assert intersection <= grown <= final_and <= union
    assert grown <= final <= union


def test_another_method_is_refused() -> None:
    with pytest.raises(
        UserError, match="symmetrization=gdfa does not exist; choose from: intersection, union, grow-diag"
    ):
        symmetrize([], [], "gdfa")
