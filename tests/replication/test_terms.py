"""Positions and terms of leaders: whether a core has got the input of a position that another core has answered with."""

import pytest

from server.replication.terms import TERMS_MAX, Reach, Term, begun, reach

TERMS = (Term("a", 0), Term("b", 100), Term("a", 150))
"""The process a led, lost what was after 100, and led again from 150."""


@pytest.mark.parametrize(
    ("position", "term", "found"),
    [
        (100, "a", Reach.GOT),
        (101, "a", Reach.LOST),
        (99, "b", Reach.LOST),
        (150, "b", Reach.GOT),
        (151, "b", Reach.LOST),
        (180, "a", Reach.GOT),
        (181, "a", Reach.BEHIND),
        (0, "c", Reach.UNKNOWN),
        (180, "", Reach.GOT),
        (181, "", Reach.BEHIND),
    ],
)
def test_how_a_core_at_180_compares_with_a_position(position: int, term: str, found: Reach) -> None:
    assert reach(TERMS, 180, position, term) is found


def test_a_core_that_has_got_nothing_knows_no_term() -> None:
    assert reach((), 0, 0, "a") is Reach.UNKNOWN
    assert reach((), 0, 0, "") is Reach.GOT


def test_the_last_terms_are_remembered() -> None:
    terms: tuple[Term, ...] = ()
    for number in range(TERMS_MAX + 2):
        terms = begun(terms, f"p{number}", number)
    assert (len(terms), terms[0], terms[-1].begins) == (TERMS_MAX, Term("p2", 2), TERMS_MAX + 1)
