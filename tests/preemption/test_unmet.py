"""The unmet-guarantee report: each kind of cause, and the remedy that the report names."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from server.core.queries.unmet import asking
from server.core.queries.unmet.report import prepared, report
from server.core.queries.verdicts import verdict
from server.model.unmet import UnmetAsks, UnmetReport
from tests.preemption.replicas import Replicas

OWED: dict[str, Any] = {"name": "a", "resources": {"guaranteed": {"memory": 8}}}
FREE: dict[str, Any] = {"name": "b"}
FULL = ["node n1 memory=10", "app x root.a", "app y root.b", "existing y1..y5 y n1 memory=2"]
ASK = "ask x1 x memory=2 created=-60000"


def queue(name: str, guaranteed: int = 0, most: int = 0, **properties: Any) -> dict[str, Any]:
    """Return a queue of one type; 0 means that nothing is set."""
    resources: dict[str, Any] = {}
    if guaranteed:
        resources["guaranteed"] = {"memory": guaranteed}
    if most:
        resources["max"] = {"memory": most}
    return {
        "name": name,
        "resources": resources,
        "properties": {key.replace("_", "."): value for key, value in properties.items()},
    }


def parent(name: str, *queues: dict[str, Any], **rest: Any) -> dict[str, Any]:
    """Return a queue with others below it."""
    return {**queue(name, **rest), "parent": True, "queues": list(queues)}


@dataclass
class Case:
    """A cluster of which one queue lacks something: what binds it, and the change that helps, "" for none."""

    title: str
    binding: str
    cure: str
    lines: list[str]
    queues: list[dict[str, Any]] = field(default_factory=lambda: [OWED, FREE])
    partition: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.title


CASES = [
    Case(
        "the delay is not over",
        "delay",
        "wait 30 s",
        [*FULL, "ask x1 x memory=2"],
    ),
    Case(
        "the delay does not count where queues share by weight",
        "being-served",
        "",
        [*FULL, "ask x1 x memory=2"],
        partition={"preemption": {"entitlement": "proportional"}},
    ),
    Case(
        "a daemon has no delay",
        "being-served",
        "",
        [*FULL, "ask x1 x memory=2 required-node=n1"],
    ),
    Case(
        "its firm pods use all that its queue guarantees them",
        "lower-guarantee",
        "raise the guarantee of queue root.p.a by 2 B memory",
        [
            "node n1 memory=20",
            "app x root.p.a",
            "existing x0 x n1 memory=4 class=firm",
            "ask x1 x memory=2 class=firm created=-60000",
        ],
        [parent("p", queue("a", 4), guaranteed=8)],
        {"preemption": {"policies": ["guaranteed", "job"]}},
    ),
    Case(
        "nothing is in the way",
        "being-served",
        "",
        [*FULL, ASK],
    ),
    Case(
        "there is free capacity",
        "being-served",
        "",
        ["node n1 memory=10", "app x root.a", ASK],
    ),
    Case(
        "the partition only observes",
        "observe-only",
        "set preemption.observeonly: false",
        [*FULL, ASK],
        partition={"preemption": {"observeonly": True}},
    ),
    Case(
        "preemption is off",
        "preemption-off",
        "set preemption.enabled: true",
        [*FULL, ASK],
        partition={"preemption": {"enabled": False}},
    ),
    Case(
        "the policy is not listed",
        "preemption-off",
        "set preemption.policies: [required-node, guaranteed]",
        [*FULL, ASK],
        partition={"preemption": {"policies": ["required-node"]}},
    ),
    Case(
        "preemption is disabled for its queue",
        "preemption-disabled",
        "enable preemption for queue root.a (preemption.policy: default)",
        [*FULL, ASK],
        queues=[queue("a", 8, preemption_policy="disabled"), FREE],
    ),
    Case(
        "its class never preempts",
        "never-preempts",
        "use a PriorityClass without preemptionPolicy: Never",
        [*FULL, f"{ASK} allow-other=no"],
    ),
    Case(
        "its user may not have more",
        "user-limit",
        "raise the limit of user ann in queue root.a by 2 B memory",
        [
            "node n1 memory=10",
            "app x root.a user=ann",
            "app y root.b",
            "existing x0 x n1 memory=2",
            "existing y1..y4 y n1 memory=2",
            ASK,
        ],
        queues=[
            {**OWED, "limits": [{"limit": "ann", "users": ["ann"], "maxresources": {"memory": 2}}]},
            FREE,
        ],
    ),
    Case(
        "its fence keeps it from the parent's guarantee",
        "fence",
        "lift the fence of queue root.p.a (preemption.policy: default)",
        [
            "node n1 memory=10",
            "app x root.p.a",
            "app y root.b",
            "existing y1..y5 y n1 memory=2",
            ASK,
        ],
        queues=[parent("p", queue("a", preemption_policy="fence"), guaranteed=8), FREE],
    ),
    Case(
        "its fence keeps it from the victims",
        "fence",
        "lift the fence of queue root.p (preemption.policy: default)",
        [
            "node n1 memory=10",
            "app x root.p.a",
            "app y root.b",
            "existing y1..y5 y n1 memory=2",
            ASK,
        ],
        queues=[parent("p", queue("a", 8), preemption_policy="fence"), FREE],
    ),
    Case(
        "a queue below has a small guarantee of its own",
        "lower-guarantee",
        "raise the guarantee of queue root.p.a by 1 B memory",
        [
            "node n1 memory=10",
            "app x root.p.a",
            "app y root.b",
            "existing x0 x n1 memory=2",
            "existing y1..y4 y n1 memory=2",
            ASK,
        ],
        queues=[parent("p", queue("a", 2), guaranteed=8), FREE],
    ),
    Case(
        "its own max is too small",
        "own-max",
        "raise the max of queue root.p.a by 1 B memory",
        [
            "node n1 memory=10",
            "app x root.p.a",
            "app y root.b",
            "existing x0..x0 x n1 memory=2",
            "existing y1..y4 y n1 memory=2",
            ASK,
        ],
        queues=[parent("p", queue("a", 0, 3), guaranteed=8), FREE],
    ),
    Case(
        "the max of a queue above it is too small",
        "ancestor-max",
        "raise the max of queue root.p by 2 B memory",
        [
            "node n1 memory=10",
            "app x root.p.a",
            "app z root.p.c",
            "app y root.b",
            "existing z1..z2 z n1 memory=2 priority=9",
            "existing y1..y3 y n1 memory=2",
            ASK,
        ],
        queues=[parent("p", queue("a", 2), queue("c", 2), most=4), FREE],
    ),
    Case(
        "no node is large enough",
        "node-shape",
        "add a node with 12 B memory free",
        [*FULL, "ask x1 x memory=12 created=-60000"],
        queues=[queue("a", 20), FREE],
    ),
    Case(
        "the node that could is cordoned",
        "node-shape",
        "uncordon node n2",
        [*FULL, "node n2 memory=12", "drain n2", "ask x1 x memory=12 created=-60000"],
        queues=[queue("a", 20), FREE],
    ),
    Case(
        "no node matches its selector",
        "node-shape",
        "let its node selector allow n1, or add a node that its constraints allow with 2 B memory free",
        [*FULL, f"{ASK} select=zone:west"],
    ),
    Case(
        "there is free capacity enough, and nowhere in one place",
        "fragmentation",
        "lower the guarantee of queue root.b by 1 B memory",
        [
            "node n1 memory=10",
            "node n2 memory=10",
            "app x root.a",
            "app y root.b",
            "existing y1..y3 y n1 memory=3",
            "existing y4..y6 y n2 memory=3",
            ASK,
        ],
        queues=[queue("a", 2), queue("b", 16)],
    ),
    Case(
        "the others are at their guarantees",
        "guarantees-of-others",
        "lower the guarantee of queue root.b by 1 B memory",
        [
            "node n1 memory=10",
            "node n2 memory=1",
            "app x root.a",
            "app y root.b",
            "existing y1..y5 y n1 memory=2",
            ASK,
        ],
        queues=[queue("a", 2), queue("b", 9)],
    ),
    Case(
        "more is guaranteed than there is",
        "over-promised",
        "lower the guarantee of queue root.b by 2 B memory",
        [*FULL, ASK],
        queues=[queue("a", 2), queue("b", 10)],
    ),
    Case(
        "what runs is more important",
        "priorities",
        "raise its priority to 7",
        [
            "node n1 memory=10",
            "app x root.a",
            "app y root.b",
            "existing y1..y5 y n1 memory=2 priority=7",
            ASK,
        ],
    ),
    Case(
        "what runs is untouchable",
        "protected",
        "add a node with 2 B memory free",
        [
            "node n1 memory=10",
            "app x root.a",
            "app y root.b",
            "existing y1..y5 y n1 memory=2 protection=untouchable",
            ASK,
        ],
    ),
    Case(
        "what runs has not run for long",
        "min-runtime",
        "wait 20 s: candidates will have run for their preemption.minruntime",
        [
            "node n1 memory=10",
            "app x root.a",
            "app y root.b",
            "existing y1..y5 y n1 memory=2 started=-40000",
            ASK,
        ],
        queues=[OWED, queue("b", preemption_minruntime="1m")],
    ),
    Case(
        "budgets are respected",
        "disruption-budgets",
        "set preemption.disruptionbudgets: prefer",
        [
            "disruptions shop/web 0",
            "node n1 memory=10",
            "app x root.a",
            "app y root.b",
            "existing y1..y5 y n1 memory=2 disrupts=shop/web",
            ASK,
        ],
        partition={"preemption": {"disruptionbudgets": "respect"}},
    ),
    Case(
        "preemption is disabled for the victims' queue",
        "victim-queues-disabled",
        "enable preemption for queue root.b (preemption.policy: default)",
        [*FULL, ASK],
        queues=[OWED, queue("b", preemption_policy="disabled")],
    ),
    Case(
        "its own side has it all",
        "own-side",
        "raise the guarantee of queue root.p.a by 1 B memory",
        [
            "node n1 memory=10",
            "app x root.p.a",
            "app z root.p.c",
            "existing z1..z5 z n1 memory=2",
            ASK,
        ],
        queues=[parent("p", queue("a"), queue("c"), guaranteed=12)],
    ),
    Case(
        "others than we fill the nodes",
        "other-schedulers",
        "add a node with 2 B memory free",
        ["node n1 memory=10", "app x root.a", "foreign f1 n1 memory=9", ASK],
    ),
    Case(
        "two maxima are too small",
        "own-max",
        "",
        [
            "node n1 memory=10",
            "app x root.p.q.a",
            "app y root.b",
            "existing x0 x n1 memory=2",
            "existing y1..y4 y n1 memory=2",
            ASK,
        ],
        queues=[parent("p", parent("q", queue("a", 0, 3), most=3), guaranteed=8), FREE],
    ),
]


def told(case: Case) -> UnmetReport:
    """Return the report of a case, before anything is decided."""
    life = Replicas(case.queues, **case.partition)
    life.say(*case.lines)
    before = life.core.digest()
    found = report(life.core, "default", life.now)
    assert life.core.digest() == before
    return found


def asks_of(found: UnmetReport) -> UnmetAsks:
    """Return the asks of the report's only queue."""
    (one,) = found.queues
    (asks,) = one.asks
    return asks


def assert_told(case: Case) -> None:
    """Assert that what binds and what cures are as the case has it."""
    asks = asks_of(told(case))
    assert asks.binding == case.binding, asks
    assert (asks.cure.text if asks.cure else "") == case.cure, asks
    assert asks.searched


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_binds_and_what_cures(case: Case) -> None:
    assert_told(case)


def test_the_numbers_of_a_queue() -> None:
    found = told(
        Case(
            "",
            "",
            "",
            [*FULL[:-1], "existing y1..y5 y n1 memory=2", "existing x0 x n1 memory=1", ASK],
        )
    )
    (one,) = found.queues
    assert one.queue == "root.a"
    assert [(each.entitled, each.held, each.missing) for each in one.types] == [(8, 1, 7)]
    assert found.over_promised == {}


def test_a_queue_that_has_just_what_it_is_owed_is_not_listed() -> None:
    lines = [*FULL[:-1], "existing x0 x n1 memory=8", "existing y1 y n1 memory=2", ASK]
    assert told(Case("", "", "", lines)).queues == ()


def test_a_queue_without_waiting_asks_is_not_listed() -> None:
    assert told(Case("", "", "", FULL)).queues == ()


def test_what_is_promised_too_much_is_told() -> None:
    case = Case("", "", "", [*FULL, ASK], [queue("a", 2), queue("b", 10)])
    assert told(case).over_promised == {"memory": 2}


def test_a_decision_that_frees_capacity_is_named() -> None:
    life = Replicas([OWED, FREE])
    life.confirming = False
    life.say(*FULL, ASK)
    life.tick()
    found = asks_of(report(life.core, "default", life.now))
    assert found.binding == "being-served"
    assert life.claims[0].decision_id in found.because


def test_a_larger_maximum_may_serve_a_reservation_first() -> None:
    """A reservation for another ask counts in the maximum, until it ends."""
    life = Replicas([parent("p", queue("a", 4), queue("c", 8), most=12), FREE])
    life.say("node n1 memory=30", "app x root.p.a", "app w root.p.c", "app y root.b")
    life.say("existing y1..y10 y n1 memory=2", "existing w1 w n1 memory=8", "ask w2 w memory=3")
    life.tick()
    life.now += 2_000
    life.tick()
    life.say("ask x1 x memory=6 created=-60000")
    (asks,) = report(life.core, "default", life.now).queues[0].asks
    assert asks.cure is not None
    first = "a reservation there may come first, until 08:10:02 UTC at the latest"
    assert asks.cure.text == f"raise the max of queue root.p by 2 B memory; {first}"


def test_an_ask_whose_manager_was_asked_about_its_plan_is_being_served() -> None:
    life = Replicas([OWED, FREE])
    life.say(*FULL, f"{ASK} rm-check plan-checks")
    life.tick()
    checks = life.core.state.partitions["default"].decisions.checks
    (check,) = checks.open.values()
    asks = asks_of(report(life.core, "default", life.now))
    assert (asks.key, asks.binding, asks.cure) == ("x1", "being-served", None)
    told = verdict(life.core, "x1", life.now)
    assert told is not None
    assert (told.law, told.node_id) == ("plan-check", "n1")
    assert list(checks.open.values()) == [check], "a report changes nothing"


def test_an_ask_whose_manager_gave_no_answer_waits_for_its_back_off() -> None:
    life = Replicas([OWED, FREE])
    life.say(*FULL, f"{ASK} rm-check plan-checks")
    life.tick()
    life.now += 10_000
    life.tick()
    asks = asks_of(report(life.core, "default", life.now))
    assert (asks.key, asks.binding) == ("x1", "back-off")


def test_a_refusal_waits_for_its_back_off() -> None:
    """An ask that was refused, where something has changed since."""
    life = Replicas([OWED, queue("b", preemption_policy="disabled")])
    life.say(*FULL, ASK)
    life.tick()
    life.say("release y1")
    life.say("foreign f n1 memory=2")
    life.now += 1_000
    assert asks_of(report(life.core, "default", life.now)).binding == "victim-queues-disabled"


def test_who_comes_of_age_after_a_refusal_does_not_wait_for_the_back_off() -> None:
    """Neither the report nor `explain` holds a refusal against an ask that was not due then (G1)."""
    life = refused_once()
    first = asks_of(report(life.core, "default", life.now))
    assert (first.key, first.binding) == ("x1", "back-off")
    told = verdict(life.core, "x1", life.now)
    assert told is not None
    assert told.law == "back-off"
    life.say("release x1")
    second = asks_of(report(life.core, "default", life.now))
    assert (second.key, second.binding) == ("x2", "being-served")
    told = verdict(life.core, "x2", life.now)
    assert told is not None
    assert (told.law, told.node_id) == ("", "n1")


def refused_once() -> Replicas:
    """Where no pod could be evicted for x1 one could be now; meanwhile the delay of x2 is over."""
    life = Replicas([OWED, queue("b", preemption_policy="disabled"), queue("c")])
    life.say(*FULL, "app z root.c", ASK, "ask x2 x memory=2 created=-29000")
    life.tick()
    life.now += 2_000
    life.say("release y1", "existing z1 z n1 memory=2")
    return life


def test_who_may_be_tried_at_once_does_not_wait_for_the_back_off() -> None:
    """A victim of its decision was vetoed, after it had been refused (C6)."""
    life = refused_once()
    (ask,) = [one for one in life.core.state.partitions["default"].asks.values() if one.key == "x1"]
    ask.tried_ms = life.now
    assert asks_of(report(life.core, "default", life.now)).binding == "being-served"
    told = verdict(life.core, "x1", life.now)
    assert told is not None
    assert not told.law


def test_kinds_of_asks_are_told_apart_and_the_rest_is_counted() -> None:
    life = Replicas([OWED, queue("b", 10)])
    life.say(*FULL, *(f"ask x{size} x memory={size} created=-60000" for size in range(3, 8)))
    life.say("ask y9 y memory=1")
    (one, *_) = report(life.core, "default", life.now).queues
    assert [asks.resource for asks in one.asks] == [{"memory": 3}, {"memory": 4}, {"memory": 5}]
    assert one.others == 2


def test_equal_asks_of_several_applications_are_one_kind() -> None:
    life = Replicas([OWED, queue("b", 10)])
    life.say(
        *FULL, "app z root.a", "ask x1..x3 x memory=2 created=-60000", "ask z1..z40 z memory=2"
    )
    (one,) = report(life.core, "default", life.now).queues
    assert [(asks.key, asks.count) for asks in one.asks] == [("x1", 43)]


def test_one_queue_is_asked_for_alone() -> None:
    life = Replicas([parent("p", queue("a", 4), queue("c", 4)), FREE])
    life.say("node n1 memory=10", "app x root.p.a", "app z root.p.c", "app y root.b")
    life.say("existing y1..y5 y n1 memory=2", ASK, "ask z1 z memory=2 created=-60000")
    every = [one.queue for one in report(life.core, "default", life.now).queues]
    assert every == ["root.p.a", "root.p.c"]
    assert [one.queue for one in report(life.core, "default", life.now, "root.p.c").queues] == [
        "root.p.c"
    ]


def test_a_large_enough_node_that_is_excluded_is_named() -> None:
    asks = asks_of(told(Case("", "", "", [*FULL, f"{ASK} select=zone:west"])))
    large = "no node that it may run on is large enough; n1 is, but its node selector excludes it"
    assert asks.because == large


def test_a_budget_that_is_spent_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "PLANS_A_NEED", 0)
    case = Case("", "", "", [*FULL, f"{ASK} select=zone:west"])
    asks = asks_of(told(case))
    assert asks.cure is None
    assert not asks.searched


def test_beyond_the_budget_it_is_still_told_that_nobody_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(asking, "PLANS_LEAST", 0)
    monkeypatch.setattr(asking, "STEPS_MAX", 0)
    monkeypatch.setattr(asking.Planner.__init__, "__defaults__", (0,))
    nobody = asks_of(told(Case("", "", "", [*FULL, ASK], [queue("a", 2), queue("b", 10)])))
    assert (nobody.binding, nobody.searched) == ("over-promised", False)
    some = asks_of(told(Case("", "", "", [*FULL, f"{ASK} select=zone:west"])))
    assert (some.binding, some.searched) == ("not-judged", False)


def test_the_worst_comes_first() -> None:
    life = Replicas([queue("a", 8), queue("b", 4), queue("c", 8)])
    life.say("node n1 memory=3", "app x root.a", "app y root.b", "app z root.c")
    life.say("existing x1 x n1 memory=2", "existing z1 z n1 memory=1")
    life.say("ask x2 x memory=3", "ask y2 y memory=3", "ask z2 z memory=3")
    found = [one.queue for one in report(life.core, "default", life.now).queues]
    assert found == ["root.b", "root.c", "root.a"]


def test_the_books_may_change_while_it_is_made() -> None:
    life = Replicas([queue("a", 2), queue("b", 10)])
    life.say(*FULL, ASK)
    found = prepared(life.core, "default", life.now)
    life.say("release y1", "release y2")
    life.turns(3)
    (one,) = list(found.queues())
    assert one.asks[0].binding == "over-promised"


def test_a_frozen_pair_binds(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.preemption.test_thrashing import thrashing_life  # noqa: PLC0415

    life = thrashing_life(monkeypatch)
    monkeypatch.undo()
    life.say("release x0", "release x1", "release x2", "release x3", "foreign f n1 memory=8")
    found = asks_of(report(life.core, "default", life.now))
    assert found.binding == "frozen-pair"
