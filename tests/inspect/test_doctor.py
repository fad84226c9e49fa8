"""The doctor reports what is broken or unhealthy, each with advice, and reports nothing in a healthy cluster."""

import pytest

from server.core.queries import inspect
from server.model.decisions import Termination
from server.model.events import ConfigurationApplied, NodeUpdated
from server.model.quota import PreemptionSettings, QueueProperties
from server.model.reports import Finding
from server.model.resources import resource
from tests.inspect.world import MANAGER, World, configuration, crowd, leaf, parent, pledge
from tests.preemption.replicas import Replicas

HOUR = 3_600_000
ENFORCED = PreemptionSettings(quota_enabled=True)


def findings(world: World) -> dict[str, Finding]:
    found = inspect.doctor(world.core, world.now)
    assert all(one.advice and one.message and one.subject for one in found)
    return {one.code: one for one in found}


def healthy() -> World:
    world = World(leaf("a", max=(("vcore", 8),), guaranteed=(("vcore", 4),)))
    for number in range(6):
        world.node(f"n{number}")
    world.application("app")
    world.ask("one", vcore=5)
    world.tick()
    return world


def test_a_healthy_cluster_has_no_findings() -> None:
    world = healthy()
    world.wait(10 * HOUR)
    assert findings(world) == {}


def test_a_question_to_a_manager_that_is_open_is_no_fault() -> None:
    owed = {"name": "a", "resources": {"guaranteed": {"memory": 8}}}
    life = Replicas([owed, {"name": "b"}])
    life.say("node n1 memory=10", "app x root.a", "app y root.b", "existing y1..y5 y n1 memory=2")
    life.say("ask x1 x memory=2 created=-60000 rm-check plan-checks")
    life.tick()
    checks = life.core.state.partitions["default"].decisions.checks
    assert checks.open
    assert inspect.doctor(life.core, life.now) == []
    life.say("agrees x1")
    assert inspect.doctor(life.core, life.now) == []


def test_one_partition_alone_is_looked_at() -> None:
    world = healthy()
    world.ask("two", vcore=5)
    world.wait(HOUR)
    assert inspect.doctor(world.core, world.now, "default")
    with pytest.raises(KeyError):
        inspect.doctor(world.core, world.now, "other")


def test_without_an_instant_nothing_is_said_about_ages() -> None:
    world = healthy()
    world.ask("two", vcore=5)
    world.wait(HOUR)
    assert inspect.doctor(world.core) == []
    assert "waiting-queue-limit" in findings(world)


def test_a_broken_invariant_is_an_error_and_comes_first() -> None:
    world = crowd()
    world.wait(HOUR)
    world.partition.ask_count += 1
    first, *others = inspect.doctor(world.core, world.now)
    assert (first.severity, first.code, first.subject) == (
        "error",
        "invariant-broken",
        "partition default",
    )
    assert "ask_count" in first.message
    assert {one.severity for one in others} == {"warning"}


def test_an_allocation_on_an_unknown_node_is_an_error() -> None:
    world = healthy()
    del world.partition.index.nodes["n0"]
    found = findings(world)["node-lost"]
    assert (found.severity, "one" in found.message) == ("error", True)


def test_a_node_with_more_pods_than_capacity_is_found_and_one_with_pledges_is_not() -> None:
    world = healthy()
    world.ask("two", vcore=3)
    pledge(world, "two", "n0")
    world.foreign("alien", "n0", 4)
    assert "node-overcommitted" not in findings(world)
    world.say(NodeUpdated(MANAGER, "n0", resource({"vcore": 7})))
    found = findings(world)["node-overcommitted"]
    assert found.subject == "node n0"
    assert found.message == (
        "2 pods, 1 of them of other schedulers, take 0.002 cores more than the node has"
    )


def test_one_pod_that_takes_more_than_its_node_has_is_one() -> None:
    world = healthy()
    world.say(NodeUpdated(MANAGER, "n0", resource({"vcore": 2})))
    found = findings(world)["node-overcommitted"]
    assert found.message.startswith("1 pod takes ")


def test_a_queue_over_its_max_is_found_with_what_enforces_it() -> None:
    world = healthy()
    lowered = configuration(leaf("a", max=(("vcore", 3),)))
    world.say(ConfigurationApplied(lowered, "test"))
    found = findings(world)["over-max"]
    assert (found.subject, found.message) == (
        "queue root.a",
        "it uses 0.002 cores more than its max",
    )
    assert found.advice.startswith("Nothing enforces it: quotapreemptionenabled is not true")


def test_a_queue_over_its_max_is_found_with_when_pods_go_for_it() -> None:
    world = World(leaf("a"), preemption=ENFORCED)
    for number in range(6):
        world.node(f"n{number}")
    world.application("app")
    for number in range(5):
        world.ask(f"one-{number}")
    world.tick()
    lowered = leaf("a", max=(("vcore", 3),), properties=QueueProperties(quota_delay_ms=300_000))
    world.say(ConfigurationApplied(configuration(lowered, preemption=ENFORCED), "test"))
    world.wait(60_000)
    assert findings(world)["over-max"].advice.startswith("Pods will be evicted for it in 4 min.")
    world.wait(240_000)
    world.tick()
    assert findings(world) == {}
    world.allocation("forced", "n1", vcore=2)
    world.say(
        ConfigurationApplied(
            configuration(leaf("a", max=(("vcore", 3),)), preemption=ENFORCED), "test"
        )
    )
    assert findings(world)["over-max"].advice == (
        "Pods are being evicted for it: see `evenhand decisions --policy quota`."
    )


def test_pods_that_should_be_gone_are_found_by_node() -> None:
    """The grace of victims counts from the order; after the decision has expired they are still named."""
    world = World(leaf("a"), leaf("b", guaranteed=(("vcore", 4),)))
    world.node("n1")
    world.application("app")
    world.application("owed", "root.b")
    for number in range(5):
        world.ask(f"one-{number}", vcore=2, grace_ms=30_000)
    world.tick()
    world.ask("claim", "owed", vcore=3)
    world.wait(30_000)
    world.tick()
    world.wait(90_000)
    assert findings(world) == {}
    world.wait(1)
    found = findings(world)["release-overdue"]
    assert (found.subject, found.message.partition(":")[0]) == (
        "node n1",
        "2 pods ordered to be evicted and still there",
    )
    victims = sorted(found.message.partition(": ")[2].split(" and "))
    world.release(victims[0], termination=Termination.PREEMPTED_BY_SCHEDULER)
    assert findings(world)["release-overdue"].message.endswith(
        f"1 pod ordered to be evicted and still there: {victims[1]}"
    )
    world.wait(HOUR)
    world.tick()
    assert victims[1] in findings(world)["release-overdue"].message
    world.release(victims[1], termination=Termination.PREEMPTED_BY_SCHEDULER)
    assert "release-overdue" not in findings(world)


def test_guarantees_over_the_capacity_are_found() -> None:
    inner = parent("p", leaf("b", guaranteed=(("vcore", 40),)), leaf("c", guaranteed=(("gpu", 1),)))
    world = World(inner, leaf("a", guaranteed=(("vcore", 30),)))
    assert findings(world) == {}
    world.node("n1", vcore=69)
    found = findings(world)["guarantees-over-capacity"]
    assert "0.001 cores and 1 gpu more than all nodes" in found.message


def test_many_closed_nodes_are_found() -> None:
    world = healthy()
    world.node("shut-1", schedulable=False)
    assert findings(world) == {}
    world.node("shut-2", schedulable=False)
    assert "2 of 8 nodes" in findings(world)["nodes-unschedulable"].message


def test_an_old_reservation_is_found() -> None:
    world = crowd()
    world.wait(HOUR)
    assert "reservation-old" not in findings(world)
    world.wait(1)
    found = findings(world)["reservation-old"]
    assert (found.subject, "n2" in found.message) == ("ask held-1", True)


def test_asks_that_wait_for_long_are_counted_by_reason() -> None:
    world = crowd()
    world.wait(600_000)
    assert not any(code.startswith("waiting") for code in findings(world))
    world.wait(1)
    found = findings(world)
    assert found["waiting-queue-limit"].message.startswith("3 asks waiting for more than 10 min")
    assert "Raise a max" in found["waiting-queue-limit"].advice
    assert "waiting-gang-gathering" in found


def test_a_job_whose_members_keep_coming_is_found() -> None:
    world = World(leaf("a"))
    world.node("n1")
    world.application("app")
    for number in range(310):
        world.ask(f"brood-{number}", gang_key="brood")
        world.wait(1_999)
    found = findings(world)["waiting-gang-counting"]
    assert "`job.gathering`" in found.advice


def test_a_manager_that_does_not_end_its_sync_is_found() -> None:
    world = World(leaf("a"), explicit_sync=True)
    world.node("n1")
    world.wait(300_000)
    assert findings(world) == {}
    world.wait(1)
    found = findings(world)["not-synced"]
    assert (found.subject, "default" in found.message) == ("manager rm", True)
