"""The terms of leaders, by which a position is compared with the input that a core has received.

A *term* begins when a core begins to lead, and ends when another core does. A position alone is a number that any core reaches. A
position with its term identifies one state: all cores that received the input of the term up to the position received the same
input.
"""

import enum
from collections.abc import Sequence
from typing import Final, NamedTuple

TERMS_MAX: Final = 64
"""The number of terms that a core remembers."""

NAME_CHARACTERS: Final = 12
"""The number of characters at the beginning of a process's name that are used as the name of its terms."""


class Term(NamedTuple):
    """A term: its name, which is that of the leading process, and the position at which it began."""

    name: str
    begins: int


class Reach(enum.Enum):
    """The relation between the input of a core and a position.

    GOT: the core has the input up to the position. BEHIND: the core does not have it yet. LOST: a later leader began without this
    input. UNKNOWN: the term is not among the terms that the core has recorded.
    """

    GOT = "got"
    BEHIND = "behind"
    LOST = "lost"
    UNKNOWN = "unknown"


def begun(terms: Sequence[Term], name: str, position: int) -> tuple[Term, ...]:
    """Return the terms with one more term, of a process that begins to lead at a position.

    Only the last `TERMS_MAX` terms are returned.
    """
    return (*terms, Term(name[:NAME_CHARACTERS], position))[-TERMS_MAX:]


def reach(terms: Sequence[Term], have: int, position: int, name: str) -> Reach:
    """Return the relation between a position of a term and a core with these terms, which has received ``have`` events and ticks.

    Without the name of a term only the numbers are compared. A process that led more than once has several terms with the same
    name.
    """
    ends = [*(one.begins for one in terms[1:]), max(have, position)]
    own = [(one.begins, end) for one, end in zip(terms, ends, strict=False) if one.name == name]
    if name and not own:
        return Reach.UNKNOWN
    if name and not any(begins <= position <= end for begins, end in own):
        return Reach.LOST
    return Reach.GOT if have >= position else Reach.BEHIND
