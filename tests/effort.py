"""The effort of random tests: how many of their cases a run tries.

`EVENHAND_EFFORT` is a percentage. `make test` tries a part of the cases (DEFAULT), `.ci/run` all of them (100), and
a larger number more than all. When the cases are numbered by their seeds, a smaller effort tries the first ones. A
condition on all cases together, such as that a policy decides in a tenth of them, is checked only when all cases
are tried (TRIES_ALL).
"""

import os
from collections.abc import Iterable
from typing import Final, TypeVar

import pytest

_Case = TypeVar("_Case")

DEFAULT: Final = 10
FULL: Final = 100


def percentage(said: str | None) -> int:
    """Return the effort that a text asks for, in percent; `DEFAULT` without a text."""
    if not said:
        return DEFAULT
    if not said.isdecimal() or int(said) < 1:
        raise ValueError(f"EVENHAND_EFFORT is a percentage from 1 on, not {said!r}")
    return int(said)


EFFORT: Final = percentage(os.environ.get("EVENHAND_EFFORT"))
TRIES_ALL: Final = EFFORT >= FULL
"""Whether all cases are tried, so that a test may demand how often something occurs in them."""

ONLY_WHERE_ALL_ARE_TRIED: Final = pytest.mark.skipif(
    not TRIES_ALL, reason="takes minutes; EVENHAND_EFFORT=100 includes it"
)


def cases(full: int, least: int = 1, effort: int = EFFORT) -> int:
    """Return how many of `full` cases this run tries: at least `least`, and never more than `full` below 100 %."""
    return max(min(least, full), full * effort // FULL)


def drawn(table: Iterable[_Case], least: int = 1, effort: int = EFFORT) -> list[_Case]:
    """Return the cases of a table that this run tries: all of them from 100 % on, evenly spaced ones with a smaller effort.

    The table has no random cases, and each of its cases takes seconds. A run tries `cases` of them, at least `least`.
    """
    known = list(table)
    many = min(cases(len(known), least, effort), len(known))
    return [known[at * len(known) // many] for at in range(many)]
