"""The comparison of core and oracle: one cluster in both, the first difference, and the shortest story that shows it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from evenhand_cli.story.play import run
from server.core.core import Core
from server.core.queries import inspect
from server.model.decisions import (
    ApplicationRejected,
    AskRejected,
    Decision,
    NodeRejected,
    Placed,
)
from server.model.events import Event
from tests.simulation.oracle import NaiveCore
from tests.simulation.worlds import Moment, World, oracle_says

CLOSELY = 10
"""In one cluster out of this number, the invariants are checked after every event; in the others only after every tick."""


@dataclass(frozen=True)
class Difference:
    """The moment at which oracle and core differ, and what each decides."""

    world: World
    index: int
    oracle: object
    core: object

    def __str__(self) -> str:
        lines = [f"seed {self.world.seed}, configuration:"]
        lines += [f"  {brief(spec)}" for spec in self.world.configuration.partitions]
        start = self.world.moments[0][0]
        for now, event in self.world.moments[: self.index + 1]:
            lines.append(f"  +{now - start:6} {'tick' if event is None else brief(event)}")
        return "\n".join([*lines, f"oracle: {self.oracle}", f"core:   {self.core}"])


def duel(world: World) -> Difference | None:
    """Run the cluster in both, step by step; return the first moment at which they differ."""
    core = Core(world.configuration)
    for index, expected in enumerate(world.expected or _expected(world)):
        found = _core_says(core, world.moments[index], closely=world.seed % CLOSELY == 0)
        if expected != found:
            return Difference(world, index, expected, found)
    return None


def _expected(world: World) -> Iterator[object]:
    oracle = NaiveCore(world.configuration)
    return (oracle_says(oracle, moment) for moment in world.moments)


def _core_says(core: Core, moment: Moment, *, closely: bool) -> object:
    now, event = moment
    try:
        if event is not None:
            return {"rejected": _handle(core, event, now, closely=closely)}
        placed = placements(run(core, now))
        core.validate()
    except Exception as fault:
        return f"{type(fault).__name__}: {fault}"
    return {"placed": placed, "reserved": _reservations(core)}


def _handle(core: Core, event: Event, now: int, *, closely: bool) -> list[str]:
    names = rejected(core.take([event], now))
    if closely:
        core.validate()
    return names


def placements(decisions: Iterable[Decision]) -> list[tuple[str, str]]:
    """Return the (key, node) pairs, in order."""
    return [(each.key, each.node_id) for each in decisions if isinstance(each, Placed)]


def rejected(decisions: Iterable[Decision]) -> list[str]:
    """Return the names of what was rejected."""
    names = []
    for each in decisions:
        match each:
            case AskRejected(key=name) | NodeRejected(node_id=name):
                names.append(name)
            case ApplicationRejected(application_id=name):
                names.append(name)
            case _:
                pass
    return names


def _reservations(core: Core) -> dict[str, list[str]]:
    return {
        node.node_id: list(node.reserved_for)
        for partition in inspect.partitions(core)
        for node in inspect.nodes(core, partition.name)
        if node.reserved_for
    }


def brief(value: Any) -> str:
    """Return a value as text without the fields that equal their defaults, so that it is short enough for a trace."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        names = value._fields
        defaults = getattr(value, "_field_defaults", {})
    elif is_dataclass(value):
        names = tuple(each.name for each in fields(value))
        defaults = {each.name: each.default for each in fields(value)}
    elif isinstance(value, tuple):
        return "(" + " ".join(brief(each) for each in value) + ")"
    else:
        return str(value)
    parts = []
    for name in names:
        own = getattr(value, name)
        if own not in (defaults.get(name, "no default"), (), {}, ""):
            parts.append(f"{name}={brief(own)}")
    return f"{type(value).__name__}({' '.join(parts)})"
