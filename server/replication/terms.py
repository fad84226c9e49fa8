"""The terms of leaders, by which a position is compared with the input that a core has got.

A *term* begins when a core begins to lead, and ends when another core does. A position alone is a number that any core reaches. A
position with its term identifies one state: every core with that term has the same input up to the position, or has lost it.
"""

import enum
from collections.abc import Sequence
from typing import Final, NamedTuple

TERMS_MAX: Final = 64
"""The number of terms that a core remembers."""

NAME_CHARACTERS: Final = 12
"""The number of characters of a process's name that are the name of its terms."""


class Term(NamedTuple):
    """A term: its name, which is that of the leading process, and the position at which it began."""

    name: str
    begins: int


class Reach(enum.Enum):
    """How the input of a core compares with a position.

    GOT: the core has it. BEHIND: not yet. LOST: a later leader began without it. UNKNOWN: the core does not know the term.
    """

    GOT = "got"
    BEHIND = "behind"
    LOST = "lost"
    UNKNOWN = "unknown"


def begun(terms: Sequence[Term], name: str, position: int) -> tuple[Term, ...]:
    """Return the terms after a process has begun to lead at a position, the last `TERMS_MAX` of them."""
    return (*terms, Term(name[:NAME_CHARACTERS], position))[-TERMS_MAX:]


def reach(terms: Sequence[Term], have: int, position: int, name: str) -> Reach:
    """Return how a core with these terms, which has got ``have`` events and ticks, compares with a position of a term.

    Without the name of a term only the numbers are compared. A process may have led more than once.
    """
    ends = [*(one.begins for one in terms[1:]), max(have, position)]
    own = [(one.begins, end) for one, end in zip(terms, ends, strict=False) if one.name == name]
    if name and not own:
        return Reach.UNKNOWN
    if name and not any(begins <= position <= end for begins, end in own):
        return Reach.LOST
    return Reach.GOT if have >= position else Reach.BEHIND
