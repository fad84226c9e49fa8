"""Facets: properties by which a visitor filters the rows of a page. Each facet has the number of rows for each value."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

OPTIONS_MAX: Final = 12
"""Largest number of values that a page offers for a facet. The values with the most rows come first."""


@dataclass(frozen=True, slots=True)
class Option:
    """A value of a facet, with the number of rows that have this value and match the choices in the other facets."""

    value: str
    count: int
    chosen: bool


@dataclass(frozen=True, slots=True)
class Facet:
    """A property by which rows are chosen."""

    name: str
    options: tuple[Option, ...]
    left_out: int


def is_in(value: str, wanted: str, name: str) -> bool:
    """Return whether a value matches the choice in a facet.

    In the facet `queue`, the queues below the chosen queue match, too.
    """
    return value == wanted or (name == "queue" and value.startswith(f"{wanted}."))


def facet(name: str, counts: Mapping[str, int], chosen: str) -> Facet:
    """Return a facet with its values, the most frequent first. The chosen value is always among the options."""
    ranked = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    shown = [Option(value, count, value == chosen) for value, count in ranked[:OPTIONS_MAX]]
    if chosen and not any(one.chosen for one in shown):
        total = sum(count for value, count in ranked if is_in(value, chosen, name))
        shown.append(Option(chosen, total, chosen=True))
    return Facet(name, tuple(shown), max(0, len(ranked) - OPTIONS_MAX))
