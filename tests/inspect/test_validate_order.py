"""`validate` finds errors in groups, heaps, ranks and asks that are set aside, and reports no error in correct state."""

from dataclasses import replace
from typing import Any

import pytest

from server.model.asks import UNSIZED, Constraints
from server.model.events import NodeDrained
from server.model.quota import NodeSort
from server.state import journal, ranking
from server.state.applications import Group
from server.state.invariants.check import validate
from server.state.nodes import NUMBER_BITS
from tests.inspect.corruption import Damage, bump, class_of, expect_found, group_of, put
from tests.inspect.overdrafts import overdrafts
from tests.inspect.world import MANAGER, World, crowd, leaf, pledge


def queue(state: Any, path: str) -> Any:
    return state.queues[path]


def fair(state: Any) -> Any:
    return state.queues["root.p.b"]


def fresh(state: Any) -> Any:
    return state.applications["fresh"]


def node(state: Any, name: str = "n1") -> Any:
    return state.index.nodes[name]


def bustle(**rest: Any) -> World:
    """Return the crowd with changes that no tick has seen: entries in heaps up to the root."""
    world = crowd(**rest)
    world.application("fresh", "root.p.b")
    world.application("fresher", "root.p.b")
    for number in range(1, 4):
        world.ask(f"new-{number}", "fresh", vcore=number, priority=number)
        world.ask(f"newer-{number}", "fresher", vcore=number)
    world.ask("twin-1", "deep", gang_key="twins", min_members=2, priority=2)
    world.ask("twin-2", "deep", gang_key="twins", min_members=2)
    world.ask("low-1", "app", extra={"disk": 1}, vcore=0)
    return world


def stranger(state: Any) -> None:
    """Mark a group that no application knows as waiting to be reported."""
    state.untold[Group(0, state.applications["app"], class_of(state, "run-1"), 7)] = None


def revive(state: Any) -> None:
    """Mark a class as no longer dead while its groups still wait for that."""
    ask_class = class_of(state, "huge-1")
    ask_class.dead = False
    state.classes.dead.discard(ask_class)
    state.classes.live_asks += ask_class.pending


def astray(state: Any) -> None:
    """Put a group into the waiting list of another class."""
    group = group_of(state, "huge-1")
    class_of(state, "huge-1").waiting.remove(group)
    class_of(state, "port-4").waiting.append(group)


def unlisted(state: Any) -> None:
    """Rank a gang without listing it, so that a tick that does not reach it would not know of it."""
    job = group_of(state, "gang-1")
    job.parked = False
    state.gangs.parked.remove(job)
    ranking.push_group(job)


def block(state: Any) -> None:
    """Record a class as blocked where it has headroom."""
    limiter, ask_class = queue(state, "root.p").limiter, class_of(state, "new-1")
    limiter.blocked[ask_class] = []
    limiter.queue.blocked_asks += limiter.queue.pending[ask_class]


def twice_freed(state: Any) -> None:
    """List a node twice as freed."""
    state.index.mark_freed(node(state))
    state.index.freed.append(node(state))


WAITING = [
    Damage(
        "live asks of a group",
        "group of application app",
        lambda b: put(group_of(b, "full-1"), live=9),
    ),
    Damage(
        "an empty group", "group of application app", lambda b: group_of(b, "full-1").asks.clear()
    ),
    Damage("a group out of order", "out of order", lambda b: group_of(b, "full-1").asks.reverse()),
    Damage(
        "a group that begins with the dead",
        "run-1",
        lambda b: group_of(b, "full-1").asks.appendleft(b.asks["run-1"]),
    ),
    Damage(
        "a group of another priority", "group", lambda b: put(group_of(b, "full-1"), priority=9)
    ),
    Damage(
        "a group of another application",
        "group",
        lambda b: put(group_of(b, "full-1"), application=fresh(b)),
    ),
    Damage(
        "members of a job that are placed",
        "gang crew",
        lambda b: put(group_of(b, "crew-1"), placed=1),
    ),
    Damage("a job out of order", "gang gang", lambda b: group_of(b, "gang-1").members.reverse()),
    Damage(
        "a job without a member",
        "groups and gangs hold",
        lambda b: group_of(b, "gang-1").members.pop(),
    ),
    Damage("a job of another name", "gang x", lambda b: put(group_of(b, "gang-1"), key="x")),
    Damage("somebody unknown is to be told", "is gone", stranger),
]

ASIDE = [
    Damage(
        "not put aside, and in a list",
        "put aside",
        lambda b: put(group_of(b, "full-1"), parked=False),
    ),
    Damage(
        "put aside, and in no list",
        "put aside",
        lambda b: put(group_of(b, "new-1"), parked=True),
    ),
    Damage(
        "in two lists",
        "2 lists",
        lambda b: class_of(b, "huge-1").waiting.append(group_of(b, "huge-1")),
    ),
    Damage("in the list of another class", "another class", astray),
    Damage("a parked job that is not listed", "gang gang", lambda b: b.gangs.parked.clear()),
    Damage("a ranked job that is not listed as ready", "listed as ready", unlisted),
    Damage(
        "a listed job that is not parked",
        "gang gang",
        lambda b: put(group_of(b, "gang-1"), parked=False),
    ),
    Damage(
        "a relieved limit that is not listed",
        "limit of queue root.a",
        lambda b: put(queue(b, "root.a").limiter, relieved=True),
    ),
    Damage("blocked in spite of headroom", "there is headroom", block),
    Damage("alive, and groups wait for that", "not dead", revive),
]

ORDER = [
    Damage("share of a queue", "queue root.a", lambda b: put(queue(b, "root.a"), share=5)),
    Damage(
        "share of an application", "share of application fresh", lambda b: put(fresh(b), share=5)
    ),
    Damage(
        "measure of a queue", "measure of queue root.a", lambda b: bump(queue(b, "root.a").measure)
    ),
    Damage("children in a heap", "queue root ", lambda b: put(b.root, live=9)),
    Damage(
        "an entry of another key",
        "queue root.p.b",
        lambda b: put(fair(b), entry=(0, 0, "b", 0, fair(b))),
    ),
    Damage("an entry that the heap lacks", "application fresh", lambda b: fair(b).heap.clear()),
    Damage(
        "a heap of applications out of order",
        "heap of queue root.p.b",
        lambda b: fair(b).heap.reverse(),
    ),
    Damage(
        "counted priorities",
        "below queue root.p ",
        lambda b: queue(b, "root.p").child_priorities.update({7: 1}),
    ),
    Damage(
        "a queue without an entry",
        "queue root.p.b",
        lambda b: ranking.leave(queue(b, "root.p"), fair(b)),
    ),
    Damage(
        "an application without an entry",
        "application fresh",
        lambda b: ranking.leave(fair(b), fresh(b)),
    ),
    Damage(
        "an application of too low a priority",
        "application fresh",
        lambda b: ranking.enter(fair(b), fresh(b), -5),
    ),
    Damage(
        "a queue of too low a priority",
        "queue root.p.b",
        lambda b: ranking.enter(queue(b, "root.p"), fair(b), -5),
    ),
    Damage(
        "a group without an entry",
        "group of application fresh",
        lambda b: put(group_of(b, "new-1"), entry=None),
    ),
    Damage(
        "a group that its heap lacks", "group of application fresh", lambda b: fresh(b).heap.clear()
    ),
    Damage(
        "a heap of groups out of order",
        "heap of application fresh",
        lambda b: fresh(b).heap.reverse(),
    ),
    Damage(
        "a complete job without an entry",
        "gang twins",
        lambda b: put(group_of(b, "twin-1"), entry=None),
    ),
    Damage(
        "a gathering job with an entry",
        "gang crew",
        lambda b: ranking.push_group(group_of(b, "crew-1")),
    ),
    Damage(
        "a job of another priority",
        "gang twins",
        lambda b: put(group_of(b, "twin-1"), priority=4),
    ),
]

SEARCH = [
    Damage("rank of a node", "node n1", lambda b: put(node(b), entry=(9, 9, node(b)))),
    Damage("schedulable without an entry", "node n1", lambda b: put(node(b), entry=None)),
    Damage("drained with an entry", "node n4", lambda b: put(node(b, "n4"), schedulable=True)),
    Damage(
        "a node found that is not open", "numbers", lambda b: b.index.numbered.update({9: node(b)})
    ),
    Damage("a node that the heap lacks", "shared heap", lambda b: b.index.heap.clear()),
    Damage(
        "a heap of nodes out of order",
        "shared heap",
        lambda b: b.index.heap.sort(reverse=True),
    ),
    Damage("freed, and not listed", "node n4", lambda b: put(node(b, "n4"), freed=True)),
    Damage("listed twice", "listed twice", twice_freed),
    Damage(
        "a mask of names that misses one",
        "node n1",
        lambda b: put(class_of(b, "zone-1").mask, names=frozenset()),
    ),
    Damage(
        "a mask that allows too much",
        "node n2",
        lambda b: put(class_of(b, "zone-1").mask, names=None, allowed=bytearray(b"\x01" * 64)),
    ),
    Damage(
        "a mask that is too short",
        "node n1",
        lambda b: put(class_of(b, "zone-1").mask, names=None),
    ),
]


GATHERING = [
    Damage("a job that gathers unwatched", "gang brood", lambda b: b.gangs.gathering.clear()),
    Damage(
        "a whole job that is watched",
        "gang gang",
        lambda b: b.gangs.gathering.__setitem__(group_of(b, "gang-1"), 0),
    ),
    Damage(
        "a member without a size in a job that has one",
        "ask gang-1 has no size",
        lambda b: put(b.asks["gang-1"], spec=replace(b.asks["gang-1"].spec, min_members=UNSIZED)),
    ),
    Damage(
        "a member that runs and says another size than its job, which was counted",
        "allocation clan-1 says that gang clan",
        lambda b: put(b.asks["clan-1"], spec=replace(b.asks["clan-1"].spec, min_members=3)),
    ),
]


@pytest.mark.parametrize("damage", GATHERING, ids=str)
def test_damage_to_a_job_that_gathers_is_found_and_named(damage: Damage) -> None:
    world = bustle()
    for number in range(1, 3):
        world.allocation(f"clan-{number}", "n4", "deep", gang_key="clan")
    world.tick()
    world.ask("brood-1", "deep", gang_key="brood")
    expect_found(world.partition, damage)


@pytest.mark.parametrize("damage", [*WAITING, *ASIDE, *ORDER, *SEARCH], ids=str)
def test_damage_is_found_and_named(damage: Damage) -> None:
    expect_found(bustle().partition, damage)


def test_ranks_are_not_looked_at_while_they_are_stale() -> None:
    state = bustle().partition
    queue(state, "root.a").share = 5
    state.ranking_stale = True
    validate(state)


# Nodes in the heaps of classes ----------------------------------------------------------------------------------


def packed() -> World:
    """Return a binpacking world with one placed ask, and a class that has its own heap and one waiting ask."""
    world = World(leaf("a"), node_sort=NodeSort.BINPACKING)
    world.node("n1", vcore=10)
    world.node("n2", vcore=10)
    world.application("app")
    world.ask("one")
    world.tick()
    world.ask("two")
    return world


PACKED = [
    Damage(
        "a class heap without a node",
        "node n. fits class",
        lambda b: class_of(b, "two").heap.clear(),
    ),
    Damage(
        "a class heap out of order",
        "node heap of class",
        lambda b: class_of(b, "two").heap.reverse(),
    ),
    Damage(
        "a log that was read too far",
        "read further",
        lambda b: put(class_of(b, "two"), cursor=99),
    ),
]


def spoil(state: Any) -> None:
    """Pretend that the class has read the whole log, with entries worse than the present ones."""
    ask_class, index = class_of(state, "two"), state.index
    ask_class.cursor = index.log_read = len(index.log)
    ask_class.heap[:] = [entry + (1 << NUMBER_BITS) for entry in ask_class.heap]


@pytest.mark.parametrize("damage", [*PACKED, Damage("stale ranks", "too low", spoil)], ids=str)
def test_damage_to_a_class_heap_is_found(damage: Damage) -> None:
    state = packed().partition
    ask_class, index = class_of(state, "two"), state.index
    assert ask_class.heap is not None
    ask_class.heap[:] = [one.entry for one in index.nodes.values()]
    ask_class.heap.sort()
    ask_class.cursor = index.log_read = len(index.log)
    expect_found(state, damage)


# Dead classes ---------------------------------------------------------------------------------------------------


def test_a_dead_class_that_fits_is_found_unless_the_next_tick_looks_again() -> None:
    world = World(leaf("a"))
    world.node("n1", vcore=1)
    world.application("app")
    world.ask("big", vcore=2)
    world.tick()
    world.node("n2", vcore=2)
    validate(world.partition)
    world.partition.index.take_freed()
    with pytest.raises(AssertionError, match="dead, but node n2 fits"):
        validate(world.partition)


def test_a_reserved_ask_is_not_dead_where_its_own_pledge_is() -> None:
    world = World(leaf("a"))
    world.node("n1", vcore=2)
    world.application("app")
    world.allocation("one", "n1")
    world.ask("big", vcore=2)
    world.tick()
    pledge(world, "big", "n1")
    world.tick()
    assert class_of(world.partition, "big").dead
    world.release("one")
    validate(world.partition)
    world.partition.index.take_freed()
    with pytest.raises(AssertionError, match="dead, but node n1 fits"):
        validate(world.partition)


def test_an_ask_is_not_dead_on_a_drained_node_that_is_held_for_it() -> None:
    """A cordon does not block an ask that requires the node, so that the ask gets what was promised to it there (C3, G11)."""
    world = World(leaf("a"))
    world.node("n1", vcore=2)
    world.application("app")
    world.allocation("one", "n1")
    world.say(NodeDrained(MANAGER, "n1"))
    world.ask("big", vcore=2, constraints=Constraints(required_node="n1"))
    world.tick()
    world.tick()
    held, dead = world.partition.decisions.pledges["big"], class_of(world.partition, "big").dead
    assert (held.exclusive, held.node.node_id, dead) == (True, "n1", True)
    world.release("one")
    validate(world.partition)
    world.partition.index.take_freed()
    with pytest.raises(AssertionError, match="dead, but node n1 fits"):
        validate(world.partition)


# Overdrafts -----------------------------------------------------------------------------------------------------


def test_what_was_forced_in_is_an_overdraft_and_what_is_pledged_is_none() -> None:
    world = World(leaf("a", max=(("vcore", 8),)))
    world.node("n1", vcore=10)
    world.application("app")
    world.allocation("big", "n1", vcore=7)
    world.ask("held", vcore=10)
    world.tick()
    assert overdrafts(world.partition) == {}
    pledge(world, "held", "n1")
    assert overdrafts(world.partition) == {}
    world.allocation("more", "n1", vcore=5)
    assert overdrafts(world.partition) == {"node n1: vcore": 2, "limit of queue root.a: vcore": 4}
    validate(world.partition)
    journal.set_releasing(world.partition, world.partition.asks["big"], releasing=True)
    validate(world.partition)
