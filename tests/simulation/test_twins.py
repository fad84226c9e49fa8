"""Each fast path of placement does what the slow path does: equal decisions and equal state, byte for byte.

The oracle of `test_oracle` has neither path; here the slow path is forced by disabling the fast one.
"""

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext

import pytest

from server.core.core import Core
from server.core.preemption import takeover
from server.scheduling import batch_fast, ordering, outranking, placement, yielding
from server.state.equivalence import AskClass
from server.state.limits import Limiter
from server.state.nodes import Node, NodeIndex
from server.state.partition import Partition
from server.state.types import NO_LIMIT
from tests.effort import cases
from tests.simulation.classes import classified
from tests.simulation.floods import flooded
from tests.simulation.reserved_worlds import eager, reserved
from tests.simulation.worlds import World, make_world

WORLDS = cases(15)
BUDGETS = (2, 5, 20, 20_000)
TICKS_MOST = 60
KINDS: dict[str, Callable[[int], World]] = {
    "plain": make_world,
    "by weight": lambda seed: make_world(seed, by_weight=True),
    "with classes": classified,
    "in floods": flooded,
    "with many reservations": reserved,
}
Forced = Callable[[pytest.MonkeyPatch, Core], None]


def _no_plain_asks(patch: pytest.MonkeyPatch, core: Core) -> None:
    """No template is known to be plain: `asks.add_ask` takes every ask."""
    del patch
    for partition in core.state.partitions.values():
        partition.classes.plain.clear()


def _no_straight_way(patch: pytest.MonkeyPatch, core: Core) -> None:
    """Nobody is found on top of all heaps: `ordering` goes down and verifies."""
    del core
    patch.setattr(ordering, "_straight", lambda _root: None)


def _no_first_look(patch: pytest.MonkeyPatch, core: Core) -> None:
    """Nobody looks at the top of the shared heap alone: `placement` searches."""
    del core

    def pick(index: NodeIndex, ask_class: AskClass) -> Node | None:
        if ask_class.pledge is not None:
            return placement._pick_reserved(index, ask_class)
        return placement._search(index, ask_class)

    def take(index: NodeIndex, classes: Iterable[AskClass]) -> list[Node]:
        nodes = []
        for one in classes:
            node = placement._search(index, one)
            if node is None:
                break
            index.fill(node, one.node_demand)
            nodes.append(node)
        return nodes

    patch.setattr("server.scheduling.batch_fast.take_nodes_fast", take)
    patch.setattr("server.scheduling.cycle.pick_node", pick)
    patch.setattr("server.scheduling.gangs.pick_node", pick)
    patch.setattr("server.scheduling.placeholders.pick_node", pick)


def _no_bursts(patch: pytest.MonkeyPatch, core: Core) -> None:
    """However many come together, the cycle places them one by one."""
    del core
    patch.setattr(batch_fast, "LEAST", 1 << 40)


def _no_bound_of_limits(patch: pytest.MonkeyPatch, core: Core) -> None:
    """Whatever reservations keep: each class that a limit has no headroom for is looked at."""
    del core

    def unbound(partition: Partition) -> dict[Limiter, list[int]]:
        return {one: [NO_LIMIT] * len(one.headroom) for one in outranking.most_headroom(partition)}

    patch.setattr(yielding, "most_headroom", unbound)
    patch.setattr(takeover, "most_headroom", unbound)


FORCED: dict[str, Forced] = {
    "bursts": _no_bursts,
    "asks": _no_plain_asks,
    "order": _no_straight_way,
    "nodes": _no_first_look,
    "limits": _no_bound_of_limits,
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_long_way_leads_to_the_same_place(kind: str) -> None:
    with eager() if KINDS[kind] is reserved else nullcontext():
        for seed in range(WORLDS):
            world = KINDS[kind](seed)
            usual = _lived(world)
            for name, forced in FORCED.items():
                assert _lived(world, forced) == usual, f"seed {seed}, {name}"


def _lived(world: World, forced: Forced | None = None) -> list[tuple[object, str]]:
    """Return what the core says at each moment, and its state after it."""
    core, dice = Core(world.configuration), random.Random(world.seed)
    said: list[tuple[object, str]] = []
    with _patched(forced) as force:
        for now, event in world.moments:
            force(core)
            if event is None:
                said.append((_ticks(core, now, dice), core.digest()))
            else:
                said.append((core.take([event], now), ""))
    return said


def _ticks(core: Core, now: int, dice: random.Random) -> list[object]:
    """Return what ticks of all sizes say until nothing is left, and after how many of them everything was tried."""
    said: list[object] = []
    more = True
    while more and len(said) < TICKS_MOST:
        tick = core.tick(now, dice.choice(BUDGETS))
        more = tick.more
        rounds = [one.round.cycles for one in core.state.partitions.values()]
        said.append((tick, rounds, core.next_due()))
    return said


@contextmanager
def _patched(forced: Forced | None) -> Iterator[Callable[[Core], None]]:
    with pytest.MonkeyPatch.context() as patch:
        yield lambda core: forced(patch, core) if forced is not None else None
