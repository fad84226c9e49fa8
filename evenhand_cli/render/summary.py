"""A summary of equal allocations: their number, what they use, and their names."""

from collections.abc import Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from evenhand.v1 import inspect_pb2
from evenhand_cli.output import word
from evenhand_cli.render import tables
from evenhand_cli.render.amounts import phrase
from evenhand_cli.render.words import plural

NAMED_MAX: Final = 30
"""Maximum number of equal pods that are named; `--output wide` names all of them."""


def summary(found: Sequence[inspect_pb2.Allocation], *, full: bool = False) -> RenderableType:
    """Return two or more lines for the pods of each queue.

    Pods with equal state, reason to wait and protection are counted together.
    """
    alike: dict[tuple[str, str], list[inspect_pb2.Allocation]] = {}
    for one in found:
        alike.setdefault((one.queue, _kind(one)), []).append(one)
    parts: list[RenderableType] = []
    for (queue, kind), rows in alike.items():
        head = f"  {plural(len(rows), 'pod')}, {kind}: {_together(rows)}"
        parts.append(Text.assemble((queue, "key"), head))
        parts.append(Padding(Text(_names(rows, full=full)), (0, 0, 0, 2), expand=False))
    return Group(*parts)


def _kind(one: inspect_pb2.Allocation) -> str:
    """Return the state of a pod, its reason to wait and its protection: `waiting (no-node), prefer-not`."""
    state = word(inspect_pb2.AllocationState.DESCRIPTOR, one.state)
    code = f" ({one.waiting_code})" if one.waiting_code else ""
    held = tables.protection(one)
    return f"{state}{code}" + (f", {held}" if held != tables.NORMAL else "")


def _together(rows: Sequence[inspect_pb2.Allocation]) -> str:
    sums: dict[str, int] = {}
    for one in rows:
        for kind, amount in one.resources.items():
            sums[kind] = sums.get(kind, 0) + amount
    return phrase(sums)


def _names(rows: Sequence[inspect_pb2.Allocation], *, full: bool) -> str:
    names = [tables.name_of(one) for one in rows]
    left = 0 if full else len(names) - NAMED_MAX
    more = f" and {left:,} more: --output wide" if left > 0 else ""
    return ", ".join(names[: len(names) - max(left, 0)]) + more
