"""The ledger follows a core: pods, waits, decisions and usage, from events and decisions alone."""

import pickle

import pytest

from server.core.core import Core
from server.core.queries import inspect, known_decisions
from server.history import sampling, schema
from server.history.rows import Frame, Row
from server.history.tap import Item, Kind
from server.model.asks import AskSpec
from server.model.decisions import Termination
from server.model.events import (
    AllocationAdded,
    ApplicationAdded,
    ApplicationRemoved,
    AskAdded,
    Event,
    ManagerRegistered,
    NodeAdded,
    NodeRemoved,
    ReleaseRequested,
)
from server.model.records import lost_work
from tests.effort import cases
from tests.history.frames import T0, Told
from tests.record.preempting import Driver, configuration

SPEC = AskSpec((("vcore", 1_000),))
LARGE = AskSpec((("vcore", 9_000),))


def told() -> Told:
    """Return a core with one node of four cores and an application of a user."""
    found = Told(Core())
    found.take(
        ManagerRegistered("rm"),
        NodeAdded("rm", "n1", (("vcore", 4_000),)),
        ApplicationAdded("rm", "app", "root.a", user="ada"),
        now=0,
    )
    return found


def pod(told: Told, key: str) -> dict[str, object]:
    """Return the latest row of a pod."""
    return [one for one in told.rows(schema.PODS) if one["pod_key"] == key][-1]


def test_the_life_of_a_pod() -> None:
    one = told()
    one.take(AskAdded("rm", "k", "app", SPEC, created_ms=T0 + 500), now=1_500)
    one.take(ReleaseRequested("rm", "app", "k", message="done"), now=61_500)
    row = pod(one, "k")
    assert (row["queue"], row["user_name"], row["node_id"]) == ("root.a", "ada", "n1")
    assert (row["asked_ms"], row["placed_ms"], row["ended_ms"]) == (
        T0 + 500,
        T0 + 1_500,
        T0 + 61_500,
    )
    assert (row["end_code"], row["end_text"], row["brought"]) == ("ended", "done", 0)
    assert row["resources"] == '{"vcore":1000}'
    assert one.rows(schema.WAITS) == []
    assert len(one.ledger.pods) == 0


def test_waits_have_their_reasons() -> None:
    one = told()
    one.take(AskAdded("rm", "k", "app", LARGE), now=1_000)
    one.take(NodeAdded("rm", "n2", (("vcore", 16_000),)), now=9_000)
    assert pod(one, "k")["placed_ms"] == T0 + 9_000
    found = [(each["code"], each["since_ms"], each["until_ms"]) for each in one.rows(schema.WAITS)]
    assert found == [("no-node-capacity", T0 + 1_000, T0 + 9_000)]


def test_a_reason_is_that_of_the_managers_own_pod() -> None:
    one = Told(Core())
    for name in ("first", "second"):
        ask: tuple[object, ...] = (Row.ASK, name, f"of-{name}", "k", "app", None, (), 0, ())
        one.ledger.apply(Frame(1, T0, [ask]))
    one.ledger.apply(Frame(2, T0 + 5_000, [(Row.REASON, "second", "k", "queue-limit")]))
    waits = {(each["partition"], each["code"]) for each in one.rows(schema.WAITS)}
    assert waits == {
        ("of-first", "not-tried"),
        ("of-second", "not-tried"),
        ("of-second", "queue-limit"),
    }


def test_a_failed_binding_waits_anew_in_a_row_of_its_own() -> None:
    one = told()
    one.take(AskAdded("rm", "k", "app", SPEC), now=0)
    failed = Termination.SCHEDULING_FAILED_ON_RM
    one.take(ReleaseRequested("rm", "app", "k", termination=failed, message="no volume"), now=2_000)
    first, second = [each for each in one.rows(schema.PODS) if each["pod_key"] == "k"]
    assert (first["end_code"], first["end_text"]) == ("bind-failed", "no volume")
    assert (second["asked_ms"], second["ended_ms"]) == (T0 + 2_000, None)


@pytest.mark.parametrize("how", ["application", "node", "empty key"])
def test_pods_end_with_what_they_belong_to(how: str) -> None:
    one = told()
    one.take(AskAdded("rm", "k", "app", SPEC), AskAdded("rm", "w", "app", LARGE), now=0)
    events: dict[str, Event] = {
        "application": ApplicationRemoved("rm", "app"),
        "node": NodeRemoved("rm", "n1"),
        "empty key": ReleaseRequested("rm", "app", ""),
    }
    one.take(events[how], now=5_000)
    assert pod(one, "k")["ended_ms"] == T0 + 5_000
    waits_on = how == "node"
    assert (pod(one, "w")["ended_ms"] is None) == waits_on
    assert len(one.ledger.pods) == waits_on


def test_a_brought_pod_has_no_waiting_time() -> None:
    one = told()
    brought = AllocationAdded("rm", "k", "app", "n1", SPEC, created_ms=T0 - 9, started_ms=T0 - 5)
    one.take(brought, now=10)
    row = pod(one, "k")
    assert (row["asked_ms"], row["placed_ms"], row["brought"]) == (T0 - 9, T0 - 5, 1)


@pytest.mark.parametrize("seed", range(cases(30, least=4)))
def test_the_ledger_knows_what_the_core_knows(seed: int) -> None:
    """After a random story of preemption, live pods, decisions and lost work are those of the core."""
    core = Core(configuration(12))
    one = Told(core)
    driver = Driver(seed, one.tap)
    driver.live(40)
    one.pass_on()
    state = core.state.partitions["default"]
    here = {
        each.key: (each.node_id, each.queue, each.placed_ms is not None)
        for each in one.ledger.pods.of_partition("default")
    }
    there = {
        each.key: (each.node_id, each.queue, bool(each.node_id))
        for each in inspect.allocations(core, "default", asks=True)
        if not each.foreign
    }
    assert here == there
    rows = {each["decision_id"]: each for each in one.rows(schema.DECISIONS)}
    records = known_decisions.decisions(core, "default", "")
    for record in records:
        assert rows[record.decision_id]["state"] == record.state.value
        assert rows[record.decision_id]["policy"] == record.policy
    lost = sum(one["ran_ms"] for one in one.rows(schema.VICTIMS) if not one["stayed"])
    assert lost == sum(lost_work(record).ran_ms for record in records if record.state != "observed")
    ends = {each["pod_key"]: each for each in one.rows(schema.PODS) if each["ended_ms"]}
    evicted = {key for each in records for key in each.confirmed}
    assert {ends[key]["end_code"] for key in evicted & ends.keys()} <= {"preempted", "ended"}
    assert state.asks


def test_random_stories_have_decisions_of_each_policy() -> None:
    """Nearly all stories of the test above have decisions. A story in which no claim is due has none."""
    found = []
    for seed in range(10):
        core = Core(configuration(12))
        Driver(seed, core).live(40)
        found.append({one.policy for one in known_decisions.decisions(core, "default", "")})
    assert sum(map(bool, found)) >= 8
    assert {"guaranteed", "required-node", "quota"} <= set().union(*found)


@pytest.mark.parametrize("seed", range(cases(20, least=3)))
def test_the_same_frames_give_the_same_rows(seed: int) -> None:
    def rows() -> object:
        one = Told(Core(configuration(12)))
        Driver(seed, one.tap).live(20)
        one.pass_on()
        one.ledger.settle()
        return {table.name: found for table, found in one.ledger.pending.items()}

    assert rows() == rows()


@pytest.mark.parametrize("seed", range(cases(20, least=3)))
def test_a_picture_repairs_what_was_missed(seed: int) -> None:
    """A ledger that misses some items knows the live pods again after a picture, and keeps what is newer than the picture."""
    core = Core(configuration(12))
    one = Told(core)
    driver = Driver(seed, one.tap)
    driver.live(20)
    while (item := one.queue.take()) is not None:
        if item.number % 3:
            one.give(item)
    one.queue.put(Kind.PICTURE, driver.now, [b""])
    picture = sampling.pods(core, one.queue.number)
    # What follows is queued before the picture arrives, as in a server.
    for step in range(5):
        driver.now += 1_000 + step
        driver._answer()
        driver._fill()
        driver._tick()
    later = one.queue.number
    one.pass_on()
    one.give(Item(later + 1, Kind.PICTURE, driver.now, [picture]))
    here = {each.key: each.node_id for each in one.ledger.pods.of_partition("default")}
    there = {
        each.key: each.node_id
        for each in inspect.allocations(core, "default", asks=True)
        if not each.foreign
    }
    assert here == there


def test_usage_is_a_row_for_each_change() -> None:
    one = told()
    for second in (0, 10, 20, 30):
        if second == 20:
            one.take(AskAdded("rm", "k", "app", SPEC), now=20_000)
        data = sampling.usage(one.core, T0 + second * 1_000)
        one.give(Item(0, Kind.SAMPLE, T0 + second * 1_000, [data]))
    rows = [
        (each["from_ms"] - T0, each["to_ms"], each["usage"])
        for each in one.rows(schema.USAGE)
        if (each["queue"], each["resource_type"]) == ("root.a", "vcore")
    ]
    assert rows == [(20_000, None, 1_000)]
    one.take(ReleaseRequested("rm", "app", "k"), now=35_000)
    one.give(Item(0, Kind.SAMPLE, T0 + 40_000, [sampling.usage(one.core, T0 + 40_000)]))
    ended = [each for each in one.rows(schema.USAGE) if each["queue"] == "root.a"]
    assert {(each["from_ms"] - T0, each["to_ms"] - T0) for each in ended} == {(20_000, 40_000)}


def test_a_late_sample_claims_nothing_about_the_time_before() -> None:
    one = told()
    one.take(AskAdded("rm", "k", "app", SPEC), now=0)
    for second in (0, 600):
        data = sampling.usage(one.core, T0 + second * 1_000)
        one.give(Item(0, Kind.SAMPLE, T0 + second * 1_000, [data]))
    rows = [
        (each["from_ms"] - T0, each["to_ms"] and each["to_ms"] - T0)
        for each in one.rows(schema.USAGE)
        if (each["queue"], each["resource_type"]) == ("root.a", "vcore")
    ]
    assert rows == [(0, 10_000), (600_000, None)]


def test_pictures_leave_out_partitions_that_are_not_synced() -> None:
    core = Core()
    one = Told(core)
    one.take(ManagerRegistered("rm", explicit_sync=True), now=0)
    assert pickle.loads(sampling.pods(core, 1)) == []  # noqa: S301 - made here
