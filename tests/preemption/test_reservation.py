"""Reservations, rule by rule (`server/preemption/nodes/reservation.py`, design 6.6)."""

from dataclasses import replace

import pytest

from server.model.asks import AskSpec, Constraints, HostPort
from server.model.decisions import Termination
from server.model.events import AskAdded
from server.model.quota import QueueSpec, UserLimit
from server.model.reasons import Code
from server.model.resources import limit, resource
from tests.preemption.clusters import MANAGER, START, Cluster, leaf

PLAIN = AskSpec(resource=())


def full_cluster(*queues: QueueSpec, nodes: int = 2) -> Cluster:
    """So many nodes of 10, each with 8 taken by another scheduler's pod."""
    cluster = Cluster(*queues)
    names = [f"n{number}" for number in range(1, nodes + 1)]
    cluster.nodes(*names, memory=10)
    for name in names:
        cluster.foreign(f"f-{name}", name, memory=8)
    cluster.application("x")
    return cluster


def test_an_ask_reserves_after_two_seconds_and_not_before() -> None:
    cluster = full_cluster()
    cluster.ask("p", memory=5)
    cluster.tick()
    assert cluster.due_in() == 2_000
    cluster.tick(wait_ms=1_999)
    assert (cluster.reserved(), cluster.due_in()) == ({}, 1)
    cluster.tick(wait_ms=1)
    assert (cluster.reserved(), cluster.due_in()) == ({"p": "n1"}, 600_000)
    assert cluster.noted(Code.RESERVED) == ["p"]


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(replace(PLAIN, rm_check=True), id="its manager has to check it"),
        pytest.param(replace(PLAIN, gang_key="j", min_members=2), id="it belongs to a job"),
        pytest.param(
            replace(PLAIN, constraints=Constraints(node_selector=(("zone", "none"),))),
            id="its constraint allows no node",
        ),
    ],
)
def test_nothing_is_reserved_when(spec: AskSpec) -> None:
    cluster = full_cluster()
    cluster.ask("p", "q", spec=spec, memory=5)
    cluster.tick()
    cluster.tick(wait_ms=5_000)
    assert (cluster.reserved(), cluster.due_in()) == ({}, None)


def test_nothing_is_reserved_for_what_no_node_can_hold() -> None:
    cluster = full_cluster()
    cluster.ask("p", memory=11)
    cluster.tick()
    cluster.tick(wait_ms=5_000)
    assert cluster.reserved() == {}
    cluster.nodes("n3", memory=12)
    cluster.foreign("f-n3", "n3", memory=12)
    cluster.tick()
    assert cluster.reserved() == {"p": "n3"}


def test_a_limit_without_headroom_comes_before_a_node() -> None:
    cluster = full_cluster(leaf("a", memory=4), leaf("b"))
    cluster.ask("p", memory=5)
    cluster.tick()
    cluster.tick(wait_ms=5_000)
    assert (cluster.reserved(), cluster.due_in()) == ({}, None)


def test_a_users_limit_without_headroom_comes_before_a_node() -> None:
    limited = replace(
        leaf("a"), limits=(UserLimit(users=("ann",), max_resources=limit({"memory": 4})),)
    )
    cluster = full_cluster(limited)
    cluster.application("y", user="ann")
    cluster.ask("p", application="y", memory=5)
    cluster.tick()
    cluster.tick(wait_ms=5_000)
    assert cluster.reserved() == {}


def test_asks_go_by_priority_then_age_then_arrival() -> None:
    cluster = full_cluster(nodes=40)
    cluster.application("y", "root.b")
    cluster.ask("old", memory=5)
    cluster.now += 1
    cluster.ask("young", "younger", application="y", memory=6)
    cluster.ask("urgent", spec=replace(PLAIN, priority=1), memory=7)
    cluster.tick()
    cluster.tick(wait_ms=2_000)
    assert cluster.noted(Code.RESERVED) == ["urgent", "old", "young", "younger"]


def test_the_node_that_lacks_least_is_taken_then_the_first_that_came() -> None:
    cluster = Cluster()
    cluster.nodes("large", memory=100)
    cluster.nodes("small", "twin", memory=10)
    cluster.application("x")
    cluster.foreign("f1", "large", memory=100)
    cluster.foreign("f2", "small", memory=10)
    cluster.foreign("f3", "twin", memory=10)
    cluster.ask("p", memory=10)
    cluster.tick()
    cluster.tick(wait_ms=2_000)
    # A tenth of the large node is missing, all of the small ones.
    assert cluster.reserved() == {"p": "large"}


def test_a_tie_goes_to_the_node_that_arrived_first() -> None:
    cluster = full_cluster(nodes=3)
    cluster.ask("p", memory=5)
    cluster.tick()
    cluster.tick(wait_ms=2_000)
    assert cluster.reserved() == {"p": "n1"}


def test_a_node_that_takes_no_placements_is_no_candidate() -> None:
    cluster = full_cluster()
    cluster.drain("n1")
    cluster.ask("p", memory=5)
    cluster.tick()
    cluster.tick(wait_ms=2_000)
    assert cluster.reserved() == {"p": "n2"}


def test_a_port_that_is_taken_cannot_be_waited_for() -> None:
    cluster = Cluster()
    cluster.nodes("n1", "n2", memory=10)
    cluster.application("x")
    port = replace(PLAIN, constraints=Constraints(host_ports=(HostPort(80),)))
    cluster.ask("holder", spec=port, memory=9)
    cluster.tick()
    cluster.foreign("f", "n2", memory=8)
    cluster.ask("p", spec=port, memory=8)
    cluster.tick()
    cluster.tick(wait_ms=2_000)
    # Node n1 lacks more and its port is taken; n2 lacks less.
    assert cluster.reserved() == {"p": "n2"}


def test_one_node_in_ten_is_reserved_but_one_at_least() -> None:
    cluster = full_cluster(nodes=19)
    cluster.ask("p", "q", memory=5)
    cluster.tick()
    cluster.tick(wait_ms=2_000)
    assert cluster.reserved() == {"p": "n1"}
    cluster.nodes("n20", memory=1)
    cluster.tick()
    assert cluster.reserved() == {"p": "n1", "q": "n2"}


def test_a_leaf_has_five_reservations() -> None:
    cluster = full_cluster(nodes=100)
    cluster.application("y", "root.b")
    cluster.ask(*(f"p{number}" for number in range(7)), memory=5)
    cluster.now += 1
    cluster.ask("other", application="y", memory=5)
    cluster.tick()
    cluster.tick(wait_ms=2_000)
    assert list(cluster.reserved()) == ["p0", "p1", "p2", "p3", "p4", "other"]
    cluster.release("p3")
    cluster.tick()
    assert list(cluster.reserved()) == ["p0", "p1", "p2", "p4", "other", "p5"]


def test_what_is_promised_to_one_is_no_headroom_for_the_next() -> None:
    cluster = full_cluster(leaf("a", memory=9), leaf("b"), nodes=30)
    cluster.ask("p", "q", memory=5)
    cluster.ask("r", memory=4)
    cluster.tick()
    cluster.tick(wait_ms=2_000)
    assert cluster.reserved() == {"p": "n1", "r": "n2"}


def test_the_capacity_is_nobody_elses_and_the_ask_gets_it_when_it_is_free() -> None:
    cluster = full_cluster()
    cluster.ask("p", memory=5)
    cluster.tick()
    cluster.tick(wait_ms=2_000)
    cluster.ask("small", memory=2)
    assert cluster.tick() == [("small", "n2")]
    cluster.release("f-n1", application="")
    assert cluster.tick() == [("p", "n1")]
    assert cluster.reserved() == {}


def test_a_reservation_ends_with_its_ask() -> None:
    cluster = full_cluster()
    cluster.ask("p", memory=5)
    cluster.tick()
    cluster.tick(wait_ms=2_000)
    cluster.release("p")
    cluster.tick()
    assert cluster.reserved() == {}


def test_a_reservation_ends_when_the_node_cannot_hold_the_ask_any_more() -> None:
    cluster = full_cluster()
    cluster.ask("p", memory=5)
    cluster.tick()
    cluster.tick(wait_ms=2_000)
    cluster.resize("n1", memory=4)
    assert (cluster.reserved(), cluster.noted(Code.RESERVATION_DROPPED)) == ({}, ["p"])
    cluster.tick()
    assert cluster.reserved() == {"p": "n2"}


def test_a_reservation_ends_when_the_constraint_does_not_hold_any_more() -> None:
    cluster = full_cluster()
    cluster.relabel("n1", zone="a")
    zone = replace(PLAIN, constraints=Constraints(node_selector=(("zone", "a"),)))
    cluster.ask("p", spec=zone, memory=5)
    cluster.tick()
    cluster.tick(wait_ms=2_000)
    assert cluster.reserved() == {"p": "n1"}
    cluster.relabel("n1", zone="b")
    assert cluster.reserved() == {}


def test_a_reservation_stays_when_its_node_changes_and_can_still_hold_the_ask() -> None:
    cluster = full_cluster()
    cluster.ask("p", memory=5)
    cluster.tick()
    cluster.tick(wait_ms=2_000)
    cluster.resize("n1", memory=9)
    cluster.tick()
    assert (cluster.reserved(), cluster.noted(Code.RESERVATION_DROPPED)) == ({"p": "n1"}, [])


def test_a_reservation_stays_when_a_node_need_not_be_avoided_any_more() -> None:
    cluster = Cluster()
    cluster.nodes("n1", "n2", memory=10)
    cluster.application("x")
    cluster.ask("p", memory=10)
    assert cluster.tick() == [("p", "n1")]
    cluster.release("p", why=Termination.SCHEDULING_FAILED_ON_RM)
    cluster.existing("e1", "n1", memory=10)
    cluster.existing("e2", "n2", memory=10)
    cluster.tick(wait_ms=2_000)
    assert cluster.reserved() == {"p": "n2"}
    cluster.tick(wait_ms=60_000)
    assert cluster.reserved() == {"p": "n2"}
    cluster.release("e1")
    assert cluster.tick() == [("p", "n1")]


def test_an_ask_that_was_created_long_ago_reserves_at_once() -> None:
    cluster = full_cluster()
    cluster.now += 10_000
    spec = replace(PLAIN, resource=resource({"memory": 5}))
    cluster.say(AskAdded(MANAGER, "p", "x", spec, created_ms=START))
    cluster.tick()
    assert cluster.reserved() == {"p": "n1"}
