"""Line charts over time as SVG. Each line also has its numbers as text."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

WIDTH: Final = 600
HEIGHT: Final = 120


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chart: its name, its values (None for an unknown value), and the points of its pieces in the SVG."""

    name: str
    values: tuple[int | None, ...]
    pieces: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart of lines over common instants. Its vertical axis goes from zero to `top`."""

    at_ms: tuple[int, ...]
    lines: tuple[Line, ...]
    top: int


def chart(at_ms: Sequence[int], named: Sequence[tuple[str, Sequence[int | None]]]) -> Chart:
    """Return the chart of named series of values."""
    top = max((value or 0 for _, values in named for value in values), default=0) or 1
    lines = tuple(Line(name, tuple(values), _pieces(values, top)) for name, values in named)
    return Chart(tuple(at_ms), lines, top)


def _pieces(values: Sequence[int | None], top: int) -> tuple[str, ...]:
    """Return the points of each piece of the line, as the attribute `points` of a polyline.

    An unknown value separates two pieces.
    """
    step = WIDTH / max(len(values) - 1, 1)
    pieces: list[list[str]] = [[]]
    for number, value in enumerate(values):
        if value is None:
            pieces.append([])
        else:
            pieces[-1].append(f"{number * step:.1f},{HEIGHT - value * HEIGHT / top:.1f}")
    return tuple(" ".join(one) for one in pieces if one)
