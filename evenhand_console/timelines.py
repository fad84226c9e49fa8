"""A timeline as SVG: spans on lanes, one group of lanes for each name. A table on the same page has the same spans as text."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

WIDTH: Final = 1000
LANE: Final = 12
"""Height of a lane."""
GROUP_GAP: Final = 6
LEAST: Final = 4
"""Smallest width of a span, so that every span is visible."""
LANES_MAX: Final = 8
"""The largest number of lanes of a group. If more spans overlap, some spans are drawn over other spans."""


@dataclass(frozen=True, slots=True)
class Span:
    """A span of time, from one instant to another."""

    group: str
    from_ms: int
    until_ms: int
    state: str
    text: str


@dataclass(frozen=True, slots=True)
class Drawn:
    """A span with its position in the SVG."""

    x: int
    y: int
    width: int
    state: str
    text: str


@dataclass(frozen=True, slots=True)
class Group:
    """The name of a group, the vertical position `y` at which its lanes begin, and the number of its spans."""

    name: str
    y: int
    count: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """The spans between two instants, on groups of lanes."""

    from_ms: int
    until_ms: int
    groups: tuple[Group, ...]
    spans: tuple[Drawn, ...]
    height: int


def timeline(spans: Sequence[Span], until_ms: int) -> Timeline | None:
    """Return the timeline of spans up to an instant, or None if there are no spans. Groups are sorted by name, spans by their start."""
    if not spans:
        return None
    first = min(one.from_ms for one in spans)
    length = max(until_ms - first, 1)
    groups: list[Group] = []
    drawn: list[Drawn] = []
    y = 0
    for name in sorted({one.group for one in spans}):
        of_group = sorted(
            (one for one in spans if one.group == name),
            key=lambda one: (one.from_ms, one.until_ms, one.text),
        )
        groups.append(Group(name, y, len(of_group)))
        ends: list[int] = []
        for one in of_group:
            x = (one.from_ms - first) * (WIDTH - LEAST) // length
            width = max((one.until_ms - one.from_ms) * (WIDTH - LEAST) // length, LEAST)
            lane = _lane(ends, x, x + width)
            drawn.append(Drawn(x, y + lane * LANE, width, one.state, one.text))
        y += len(ends) * LANE + GROUP_GAP
    return Timeline(first, until_ms, tuple(groups), tuple(drawn), y)


def _lane(ends: list[int], start: int, end: int) -> int:
    """Return the index of the first lane that is free at `start`, and occupy this lane until `end`.

    If LANES_MAX lanes are in use, take the last lane.
    """
    for number, until in enumerate(ends):
        if until <= start:
            ends[number] = end
            return number
    if len(ends) < LANES_MAX:
        ends.append(end)
    else:
        ends[-1] = max(ends[-1], end)
    return len(ends) - 1
