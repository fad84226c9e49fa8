"""Partitions on several groups of cores: one session with each group, each about its own partitions (design 7.6)."""

import random
from typing import Any

import pytest

from shim_client.cluster import KINDS, Action, Bind, Change, Listing, WatchEvent
from shim_client.config import Settings
from shim_client.messages import (
    ApplicationReport,
    NodeAction,
    NodeReport,
    Placed,
    PodRelease,
    PodReport,
    Report,
    SyncComplete,
)
from shim_client.state_machine.barriers import APPLICATION
from shim_client.state_machine.machine import Link, Mirror, PartitionMoved
from shim_client.translate import labels
from tests.effort import cases
from tests.shim.objects import Item, node, pod
from tests.shim.story import accept

OWNERS = {"default": "a", "gpu": "b"}


class Spread:
    """A state machine with two groups of cores that accept everything; `told` has the reports to each group."""

    def __init__(self, owners: dict[str, str], rest: str) -> None:
        self.mirror = Mirror(Settings(), owners, rest)
        self.told: dict[str, list[Report]] = {name: [] for name in self.mirror.state.sessions}
        self.actions: list[Action] = []

    def handle(self, news: Any, group: str = "") -> None:
        self.mirror.handle(news, group)
        self._collect()

    def start(self, *items: Item) -> "Spread":
        for kind in KINDS:
            self.handle(Listing(kind, [one for one in items if one["kind"] == kind], 1))
        for group in self.told:
            self.handle(Link.REGISTERED, group)
        return self

    def lines(self, group: str) -> list[str]:
        """Return the reports to a group since the last call: names of nodes, applications and pods, and the end of a sync."""
        found = [line for one in self.told[group] if (line := name_of(one))]
        self.told[group].clear()
        return found

    def _collect(self) -> None:
        by_group, actions = self.mirror.take_by_group()
        self.actions += actions
        for group, reports in by_group.items():
            self.told[group] += reports
            for report in reports:
                answer = accept(report)
                if answer is not None:
                    self.handle(answer, group)


def name_of(report: Report) -> str:
    match report:
        case NodeReport(node=name, action=NodeAction.CREATE_DRAIN):
            return name
        case ApplicationReport(application=id_, partition=partition):
            return f"{id_} {partition}"
        case PodReport(key=key, application=id_) if id_ != APPLICATION:
            return key.removeprefix("uid-")
        case PodRelease(key=key):
            return f"end {key.removeprefix('uid-')}"
        case SyncComplete():
            return f"{report.nodes} {report.applications} {report.allocations} {report.asks}"
    return ""


def item(kind: str, name: str, partition: str, **more: Any) -> Item:
    marks = {} if partition == "default" else {labels.PARTITION: partition}
    if kind == "Node":
        return node(name, labels=marks)
    return pod(name, labels=marks, **more)


WORLD = (
    item("Node", "n1", "default"),
    item("Node", "g1", "gpu"),
    item("Pod", "web", "default", node="n1"),
    item("Pod", "train", "gpu"),
)


def test_each_group_hears_of_its_own_partitions() -> None:
    spread = Spread(OWNERS, "a").start(*WORLD)
    assert spread.lines("a") == ["n1", "app default", "web", "1 1 1 0"]
    assert spread.lines("b") == ["g1", "app gpu", "train", "1 1 0 1"]
    assert spread.mirror.is_live()
    spread.handle(Placed("uid-train", "g1", "app", "gpu"), "b")
    assert [one.node for one in spread.actions if isinstance(one, Bind)] == ["g1"]


def test_the_session_of_one_group_ends_without_the_others() -> None:
    spread = Spread(OWNERS, "a").start(*WORLD)
    spread.lines("a"), spread.lines("b")
    spread.handle(Link.LOST, "b")
    assert not spread.mirror.is_live()
    for name, partition in (("more", "default"), ("other", "gpu")):
        new = item("Pod", name, partition)
        spread.handle(WatchEvent(Change.MODIFIED, "Pod", new, 2))
    assert (spread.lines("a"), spread.lines("b")) == (["more"], [])
    spread.handle(Link.REGISTERED, "b")
    assert (spread.lines("a"), spread.lines("b")) == (
        [],
        ["g1", "app gpu", "train", "other", "1 1 0 2"],
    )
    assert spread.mirror.is_live()


def test_a_partition_that_moved_is_reported_to_its_new_group() -> None:
    spread = Spread(OWNERS, "a").start(*WORLD)
    spread.handle(PartitionMoved("gpu", "a"))
    assert not spread.mirror.is_live()
    late = Placed("uid-train", "g1", "app", "gpu")
    for group in ("a", "b"):
        spread.handle(late, group)  # decided before the sessions ended
    assert [one for one in spread.actions if isinstance(one, Bind)] == []
    spread.lines("a"), spread.lines("b")
    for group in ("a", "b"):
        spread.handle(Link.LOST, group)
        spread.handle(Link.REGISTERED, group)
    assert spread.lines("a") == [
        *("n1", "g1"),
        *("app default", "app gpu"),
        *("web", "train"),
        "2 2 1 1",
    ]
    assert spread.lines("b") == ["0 0 0 0"]
    assert spread.mirror.is_live()
    spread.handle(late, "a")
    assert [one.node for one in spread.actions if isinstance(one, Bind)] == ["g1"]


def test_a_group_may_have_no_partition() -> None:
    mirror = Mirror(Settings(), {}, "a", ("a", "b"))
    mirror.handle(Link.REGISTERED, "b")
    assert list(mirror.state.sessions) == ["a", "b"]


def changes(chance: random.Random) -> list[tuple[Change, Item]]:
    """Return random changes of nodes and pods in two partitions."""
    made: list[tuple[Change, Item]] = []
    for _ in range(60):
        partition = chance.choice(("default", "gpu"))
        name = f"{partition}-{chance.randrange(6)}"
        gone = chance.random() < 0.3
        if chance.random() < 0.3:
            one = item("Node", f"node-{name}", partition)
        else:
            at = f"node-{partition}-{chance.randrange(6)}" if chance.random() < 0.3 else ""
            one = item("Pod", f"pod-{name}", partition, node=at)
        made.append((Change.DELETED if gone else Change.MODIFIED, one))
    return made


@pytest.mark.parametrize("seed", range(cases(60, least=6)))
def test_two_groups_hear_what_one_core_hears(seed: int) -> None:
    chance = random.Random(seed)
    one, two = Spread({}, "").start(*WORLD), Spread(OWNERS, "a").start(*WORLD)
    for change, thing in changes(chance):
        for world in (one, two):
            world.handle(WatchEvent(change, thing["kind"], thing, 2))
        if chance.random() < 0.1:
            group = chance.choice(("a", "b"))
            two.handle(Link.LOST, group)
            two.handle(Link.REGISTERED, group)
    assert known(one) == known(two)
    assert one.mirror.is_live()
    assert two.mirror.is_live()
    assert state_of(two, "a") | state_of(two, "b") == state_of(one, "")


def known(world: Spread) -> set[str]:
    """Return the pods that the cores have by what the state machine knows."""
    return {uid for uid, pod in world.mirror.state.pods.items() if pod.sent is not None}


def state_of(world: Spread, group: str) -> set[str]:
    """Return the pods that a core has by the reports that it got."""
    found: dict[str, str] = {}
    for report in world.told[group]:
        match report:
            case PodReport(key=key, application=id_, node=node_id) if id_ != APPLICATION:
                found[key] = node_id
            case PodRelease(key=key):
                found.pop(key, None)
            case NodeReport(node=name, action=NodeAction.DECOMISSION):
                found = {key: node_id for key, node_id in found.items() if node_id != name}
    return found.keys() & known(world)
