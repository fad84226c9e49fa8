"""The bar of a quantity: its lengths in thousandths of the whole bar, for an SVG, and a text with the same numbers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from evenhand_cli.render.amounts import amount, heading

FULL: Final = 1000


@dataclass(frozen=True, slots=True)
class Mark:
    """A line across a bar at the length ``at``, for example for the guarantee."""

    name: str
    at: int


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar: the lengths of the usage and of the promised amount, the marks, and a text for people who do not see the bar.

    The whole bar has the length FULL.
    """

    used: int
    promised: int
    state: str
    """The usage: `within` the guarantee, `over` the guarantee, or `full` at the limit.

    `short` means below the guarantee while asks wait.
    """
    marks: tuple[Mark, ...]
    text: str


def bar(
    kind: str,
    amounts: Mapping[str, int],
    limit: int,
    *,
    short: bool = False,
) -> Bar:
    """Return the bar of a resource type.

    ``amounts`` has `used` and `promised`, and `guaranteed`, `deserved` and `max` if the queue has these amounts. The
    length of the whole bar is ``limit``, or the largest of the amounts if that is more.
    """
    used, promised = amounts.get("used", 0), amounts.get("promised", 0)
    size = max(limit, used + promised, *amounts.values(), 1)
    floor = max(amounts.get("deserved", 0), amounts.get("guaranteed", 0))
    state = "within"
    if short:
        state = "short"
    elif used >= limit > 0:
        state = "full"
    elif used > floor:
        state = "over"
    marks = tuple(
        Mark(name, _part(amounts[name], size))
        for name in ("guaranteed", "deserved", "max")
        if amounts.get(name)
    )
    parts = ", ".join(f"{amount(kind, value)} {name}" for name, value in amounts.items())
    text = f"{heading(kind)}: {parts}"
    return Bar(_part(used, size), _part(promised, size), state, marks, text)


def _part(value: int, size: int) -> int:
    """Return the length of a value in a bar whose whole length is ``size``.

    A value above zero gets at least a visible length.
    """
    return max(value * FULL // size, 4) if value > 0 else 0
