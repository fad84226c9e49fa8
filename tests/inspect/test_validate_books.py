"""`validate` finds errors in amounts, keys, classes, commitments, nodes and limits, and names the object."""

from typing import Any

import pytest

from server.model.quota import NodeSort
from server.model.records import DecisionState
from server.state.invariants.check import validate
from tests.inspect.corruption import Damage, bump, class_of, expect_found, group_of, put
from tests.inspect.world import World, crowd


def queue(one_partition: Any, path: str) -> Any:
    return one_partition.queues[path]


def limit(one_partition: Any) -> Any:
    return one_partition.queues["root.a"].limiter


def person(one_partition: Any) -> Any:
    return one_partition.limits.by_key["root.a", "user", "ann"]


def app(one_partition: Any) -> Any:
    return one_partition.applications["app"]


def held(one_partition: Any) -> Any:
    return one_partition.decisions.pledges["held-1"]


def bump_holds(node: Any) -> None:
    node.holds += 1


def put_last(capacity: list[int]) -> None:
    capacity[-1] -= 1


def shadow(one_partition: Any) -> None:
    """Give a foreign pod the key of an allocation."""
    one_partition.foreign.pods["run-1"] = one_partition.foreign.pods.pop("alien-1")


TREE = [
    Damage("a queue that is not in the table", "root.p.c", lambda b: b.queues.pop("root.p.c")),
    Damage("a queue of another path", "root.x", lambda b: put(queue(b, "root.p.b"), path="root.x")),
    Damage(
        "a queue without its parent",
        "root.p.b",
        lambda b: put(queue(b, "root.p.b"), parent=None),
    ),
    Damage(
        "an application of another leaf", "app", lambda b: put(app(b), leaf=queue(b, "root.p.c"))
    ),
    Damage("usage of an application", "application app", lambda b: bump(app(b).usage)),
    Damage("usage of a leaf", "queue root.a", lambda b: bump(queue(b, "root.a").usage)),
    Damage("usage of a parent", "queue root.p", lambda b: bump(queue(b, "root.p").usage)),
    Damage("usage of the root", "usage of queue root ", lambda b: bump(b.root.usage)),
    Damage("usage of too many types", "usage of queue root ", lambda b: b.root.usage.append(0)),
    Damage(
        "promised of a leaf", "promised .* root.p.c", lambda b: bump(queue(b, "root.p.c").promised)
    ),
    Damage("promised of the root", "promised of queue root ", lambda b: bump(b.root.promised)),
    Damage(
        "pledges",
        "pledges of queue root.p ",
        lambda b: put(queue(b, "root.p"), pledges=0),
    ),
    Damage("releasing", "releasing of queue root.a", lambda b: bump(queue(b, "root.a").releasing)),
    Damage(
        "pending by class",
        "pending of queue root.a",
        lambda b: queue(b, "root.a").pending.popitem(),
    ),
    Damage(
        "pending asks",
        "pending_asks .* root.p ",
        lambda b: put(queue(b, "root.p"), pending_asks=1),
    ),
    Damage(
        "blocked asks",
        "blocked_asks .* root.a",
        lambda b: put(queue(b, "root.a"), blocked_asks=9),
    ),
]

CAPACITY = [
    Damage(
        "free capacity of a node",
        "free capacity of node n1",
        lambda b: bump(b.index.nodes["n1"].free),
    ),
    Damage("capacity of a node", "node n1", lambda b: bump(b.index.nodes["n1"].capacity)),
    Damage("a port's capacity", "node n1", lambda b: put_last(b.index.nodes["n1"].capacity)),
    Damage("a node of another name", "node nx", lambda b: put(b.index.nodes["n1"], node_id="nx")),
    Damage("a node in another slot", "node n1", lambda b: put(b.index.nodes["n1"], slot=1)),
    Damage("a free slot that is taken", "slots", lambda b: b.node_slots.free.append(0)),
    Damage("capacity of the partition", "capacity of partition", lambda b: bump(b.capacity)),
    Damage("foreign usage", "foreign usage", lambda b: bump(b.foreign.usage)),
    Damage("headroom of a queue", "limit of queue root.a", lambda b: bump(limit(b).headroom)),
    Damage(
        "no limit where one is set",
        "queue root.a",
        lambda b: put(queue(b, "root.a"), limiter=None),
    ),
    Damage("a limit of another queue", "queue root.a", lambda b: put(limit(b), queue=b.root)),
    Damage("headroom of a user", "user ann in root.a", lambda b: bump(person(b).headroom)),
    Damage("a user's applications", "user ann", lambda b: put(person(b), applications=7)),
    Damage("a user's most applications", "user ann", lambda b: put(person(b), max_applications=7)),
    Damage("a limit of another user", "user eve", lambda b: put(person(b), name="eve")),
    Damage("a limit that is skipped", "application app", lambda b: put(app(b), limiters=())),
    Damage("a user's limit that is gone", "application app", lambda b: b.limits.by_key.clear()),
]

KEYS = [
    Damage("an ask of another key", "ask x", lambda b: put(b.asks["run-1"], key="x")),
    Damage("a key twice", "run-1", shadow),
    Damage("placed without a node", "run-2", lambda b: put(b.asks["run-2"], node=None)),
    Damage(
        "waiting with a node",
        "full-1",
        lambda b: put(b.asks["full-1"], node=b.index.nodes["n1"]),
    ),
    Damage("waiting in no group", "full-1", lambda b: put(b.asks["full-1"], group=None)),
    Damage("waiting and releasing", "full-1", lambda b: put(b.asks["full-1"], releasing=True)),
    Damage(
        "placed in a group", "run-2", lambda b: put(b.asks["run-2"], group=group_of(b, "full-1"))
    ),
    Damage("its node forgot it", "run-2", lambda b: b.asks["run-2"].node.allocations.pop("run-2")),
    Damage("its application forgot it", "run-2", lambda b: app(b).allocations.pop("run-2")),
    Damage("its application forgot the ask", "full-1", lambda b: app(b).asks.pop("full-1")),
    Damage("the table forgot it", "allocations", lambda b: b.asks.pop("run-2")),
    Damage("the table forgot the ask", "ask_count", lambda b: b.asks.pop("full-1")),
    Damage("the count of waiting asks", "ask_count", lambda b: put(b, ask_count=0)),
    Damage("its node is gone", "node n1", lambda b: b.index.nodes.pop("n1")),
    Damage(
        "an application of another name",
        "application x",
        lambda b: put(app(b), application_id="x"),
    ),
    Damage(
        "its queue forgot the application",
        "root.a",
        lambda b: queue(b, "root.a").applications.clear(),
    ),
    Damage("its queue is gone", "root.a", lambda b: put(queue(b, "root.a"), path="root.z")),
    Damage(
        "a foreign pod of another key",
        "foreign pod x",
        lambda b: put(b.foreign.pods["alien-1"], key="x"),
    ),
    Damage(
        "its node forgot the foreign pod", "alien-1", lambda b: b.index.nodes["n1"].foreign.clear()
    ),
    Damage("the table forgot the foreign pod", "foreign pods", lambda b: b.foreign.pods.clear()),
]

CLASSES = [
    Damage("asks of a class", "counts 99 asks", lambda b: put(class_of(b, "full-1"), asks=99)),
    Damage(
        "pending of a class",
        "counts 99 pending",
        lambda b: put(class_of(b, "full-1"), pending=99),
    ),
    Damage(
        "dead and not listed", "the dead", lambda b: b.classes.dead.discard(class_of(b, "huge-1"))
    ),
    Damage("listed and not dead", "the dead", lambda b: put(class_of(b, "huge-1"), dead=False)),
    Damage("live asks", "live_asks", lambda b: put(b.classes, live_asks=b.classes.live_asks + 1)),
    Damage("demand", "demands", lambda b: put(class_of(b, "full-1"), demand=((0, 1),))),
    Damage(
        "ports",
        "demands .* of nodes",
        lambda b: put(class_of(b, "port-1"), node_demand=class_of(b, "port-1").demand),
    ),
    Damage("a class that is not listed", "class", lambda b: b.classes.by_key.popitem()),
    Damage("users of a mask", "mask", lambda b: put(class_of(b, "zone-2").mask, users=9)),
    Damage("a mask that is not listed", "mask", lambda b: b.constraint_index.masks.popitem()),
    Damage(
        "a class of other resources",
        "full-1",
        lambda b: put(b.asks["full-1"], spec=b.asks["huge-1"].spec),
    ),
    Damage("a class of other constraints", "back-1", lambda b: b.avoided.pop("back-1")),
]

COMMITMENTS = [
    Damage(
        "another name",
        "commitment",
        lambda b: b.decisions.open.update(x=b.decisions.open.pop("c-held-1")),
    ),
    Damage(
        "over",
        "c-held-1 is aborted",
        lambda b: put(held(b).commitment, state=DecisionState.ABORTED),
    ),
    Damage("forgotten by its ask", "c-held-1", lambda b: put(b.asks["held-1"], pledge=None)),
    Damage(
        "forgotten by the class",
        "c-held-1",
        lambda b: put(class_of(b, "held-1"), pledge=None),
    ),
    Damage("forgotten by its node", "c-held-1", lambda b: b.index.nodes["n2"].pledges.clear()),
    Damage("forgotten by the state", "commitments", lambda b: b.decisions.open.clear()),
    Damage("another demand", "c-held-1", lambda b: put(held(b), demand=())),
    Damage("for an ask that is gone", "held-9", lambda b: put(held(b).ask, key="held-9")),
    Damage("on another node", "n4", lambda b: put(held(b), node=b.index.nodes["n4"])),
    Damage(
        "a victim that stays",
        "run-2",
        lambda b: held(b).commitment.victims.update({"run-2": b.asks["run-2"]}),
    ),
    Damage("a hold too many", "node n2 counts 1 holds", lambda b: bump_holds(b.index.nodes["n2"])),
]


@pytest.mark.parametrize("sort", list(NodeSort))
def test_what_the_core_wrote_holds(sort: NodeSort) -> None:
    validate(crowd(node_sort=sort).partition)


@pytest.mark.parametrize("damage", [*TREE, *CAPACITY, *KEYS, *CLASSES, *COMMITMENTS], ids=str)
def test_damage_is_found_and_named(damage: Damage) -> None:
    expect_found(crowd().partition, damage)


def test_an_empty_partition_holds() -> None:
    validate(World().partition)
