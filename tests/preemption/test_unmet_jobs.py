"""The unmet-guarantee report when policy `job` is listed or gangs wait: a job is judged as a whole (J8)."""

from typing import Any

import pytest

from server.core.queries.unmet.report import report
from server.core.queries.verdicts import verdict
from server.model.thrashing import FrozenPair, Pair, TemplateInQueue
from tests.preemption.replicas import Replicas
from tests.preemption.test_unmet import (
    FREE,
    FULL,
    OWED,
    Case,
    asks_of,
    assert_told,
    parent,
    queue,
    told,
)

JOBS: dict[str, Any] = {"preemption": {"policies": ["guaranteed", "job"]}}
JOB_ALONE: dict[str, Any] = {"preemption": {"policies": ["job"]}}
GANG = "ask x1..x2 x memory=2 job=train/2"

CASES = [
    Case(
        "a job has no delay, and goes as a whole",
        "being-served",
        "",
        [*FULL, GANG],
        partition=JOBS,
    ),
    Case(
        "a job fits as a whole",
        "being-served",
        "",
        ["node n1 memory=4", "app x root.a", GANG],
        partition=JOBS,
    ),
    Case(
        "members of a job are missing",
        "not-ready",
        "",
        [*FULL, "ask x1..x2 x memory=2 job=train/3"],
        partition=JOBS,
    ),
    Case(
        "policy job is not listed",
        "preemption-off",
        "set preemption.policies: [required-node, guaranteed, job]",
        [*FULL, "ask x1..x2 x memory=2 job=train/2 created=-60000"],
    ),
    Case(
        "policy job is not listed, and would not help: a node does",
        "preemption-off",
        "add a node with 4 B memory free",
        [
            "node n1 memory=10",
            "app x root.a",
            "app y root.b",
            "existing y1..y5 y n1 memory=2 protection=untouchable",
            "ask x1..x2 x memory=2 job=train/2 created=-60000",
        ],
    ),
    Case(
        "were policy job listed, its firm pods would have no headroom: their queue guarantees too little",
        "preemption-off",
        "add a node with 4 B memory free",
        [
            "node n1 memory=10",
            "app x root.p.a",
            "app z root.p.a",
            "existing x0 x n1 memory=6 class=firm",
            "existing z1..z2 z n1 memory=2",
            "ask x1..x2 x memory=2 job=train/2 class=firm priority=5",
        ],
        [parent("p", queue("a", 8), guaranteed=20)],
    ),
    Case(
        "preemption is off, and policy job is listed",
        "preemption-off",
        "set preemption.enabled: true",
        [*FULL, GANG],
        partition={"preemption": {"policies": ["guaranteed", "job"], "enabled": False}},
    ),
    Case(
        "the partition only observes a job",
        "observe-only",
        "set preemption.observeonly: false",
        [*FULL, GANG],
        partition={"preemption": {"policies": ["job"], "observeonly": True}},
    ),
    Case(
        "a single ask that policy job serves has no delay",
        "being-served",
        "",
        [*FULL, "ask x1 x memory=2"],
        partition=JOB_ALONE,
    ),
    Case(
        "a single ask that policy in-queue serves has the delay of its queue",
        "delay",
        "wait 30 s",
        [
            "node n1 memory=4",
            "app x root.a",
            "app z root.a",
            "existing z1..z2 z n1 memory=2",
            "ask x1 x memory=2 priority=3",
        ],
        partition={"preemption": {"policies": ["in-queue"]}},
    ),
    Case(
        "by weight, too, a single ask that policy in-queue serves has the delay of its queue",
        "delay",
        "wait 30 s",
        [
            "node n1 memory=4",
            "node n2 memory=1",
            "app x root.a",
            "app z root.a",
            "existing z1..z2 z n1 memory=2",
            "ask x1 x memory=2 priority=3",
        ],
        partition={"preemption": {"policies": ["in-queue"], "entitlement": "proportional"}},
    ),
    Case(
        "a queue below has its guarantee, and somebody of its own goes instead",
        "being-served",
        "",
        [
            "node n1 memory=10",
            "app x root.p.a",
            "app z root.p.a",
            "app y root.b",
            "existing z1 z n1 memory=2",
            "existing y1..y4 y n1 memory=2",
            "ask x1 x memory=2 priority=3 created=-60000",
        ],
        [parent("p", queue("a", 2), guaranteed=8), FREE],
        {"preemption": {"policies": ["guaranteed", "in-queue"]}},
    ),
    Case(
        "others have no more than their guarantees for a single ask that policy job serves",
        "guarantees-of-others",
        "lower the guarantee of queue root.b by 1 B memory",
        ["node n2 memory=1", *FULL, "ask x1 x memory=2"],
        [queue("a", 2), queue("b", 9)],
        JOB_ALONE,
    ),
    Case(
        "the max of its queue has no headroom for a single ask that policy job serves",
        "own-max",
        "raise the max of queue root.p.a by 1 B memory",
        [*FULL[:1], "app x root.p.a", *FULL[2:], "ask x1 x memory=2"],
        [parent("p", queue("a", 0, 1), guaranteed=8), FREE],
        JOB_ALONE,
    ),
    Case(
        "what cures one member does not cure the job",
        "guarantees-of-others",
        "lower the guarantee of queue root.b by 2 B memory",
        ["node n2 memory=1", "node n3 memory=1", *FULL, GANG],
        [queue("a", 4), queue("b", 8)],
        JOBS,
    ),
    Case(
        "no member may take what is more important",
        "priorities",
        "raise the priority of its members to 7",
        [
            "node n1 memory=10",
            "app x root.a",
            "app y root.b",
            "existing y1..y4 y n1 memory=2 priority=7",
            "existing y5 y n1 memory=2",
            GANG,
        ],
        partition=JOBS,
    ),
    Case(
        "a higher priority takes its own queue's alone: that gains nothing",
        "protected",
        "add a node with 4 B memory free",
        [
            "node n1 memory=10",
            "app x root.a",
            "app z root.a",
            "app y root.b",
            "existing z1..z2 z n1 memory=2 priority=5",
            "existing y1..y3 y n1 memory=2 protection=untouchable",
            "ask x1..x2 x memory=2 job=train/2 priority=1",
        ],
        partition=JOBS,
    ),
    Case(
        "one member has a node already: a node for the other does",
        "protected",
        "add a node with 2 B memory free",
        [
            "node n1 memory=10",
            "app x root.a",
            "app y root.b",
            "existing y1..y4 y n1 memory=2 protection=untouchable",
            GANG,
        ],
        partition=JOBS,
    ),
    Case(
        "its largest member fits no node",
        "node-shape",
        "add a node with 12 B memory free",
        [
            *FULL,
            "release y5",
            "ask x1 x memory=2 job=train/2",
            "ask x2 x memory=12 job=train/2",
        ],
        [queue("a", 20), FREE],
        JOBS,
    ),
    Case(
        "members that want the same port need a node each",
        "protected",
        "",
        [
            "node n1 memory=10",
            "app x root.a",
            "app y root.b",
            "existing y1..y5 y n1 memory=2 protection=untouchable",
            f"{GANG} port=80/TCP",
        ],
        partition=JOBS,
    ),
    Case(
        "its max has no headroom for all members",
        "own-max",
        "raise the max of queue root.p.a by 1 B memory",
        [*FULL[:1], "app x root.p.a", *FULL[2:], GANG],
        [parent("p", queue("a", 0, 3), guaranteed=8), FREE],
        JOBS,
    ),
    Case(
        "others give it no more than its own queue is owed",
        "lower-guarantee",
        "raise the guarantee of queue root.p.a by 3 B memory",
        [
            "node n1 memory=10",
            "app x root.p.a",
            "app y root.b",
            "existing x0 x n1 memory=3",
            "existing y1..y3 y n1 memory=2",
            GANG,
        ],
        [parent("p", queue("a", 3), guaranteed=8), FREE],
        JOBS,
    ),
    Case(
        "a firm job wants more than its queue guarantees",
        "lower-guarantee",
        "raise the guarantee of queue root.p.a by 4 B memory",
        [
            "node n1 memory=10",
            "app x root.p.a",
            "app y root.b",
            "existing x0 x n1 memory=3 class=firm",
            "existing y1..y3 y n1 memory=2",
            f"{GANG} class=firm",
        ],
        [parent("p", queue("a", 3), guaranteed=8), FREE],
        JOBS,
    ),
    Case(
        "its fence keeps a job from the parent's guarantee",
        "fence",
        "lift the fence of queue root.p.a (preemption.policy: default)",
        [*FULL[:1], "app x root.p.a", *FULL[2:], GANG],
        [parent("p", queue("a", preemption_policy="fence"), guaranteed=8), FREE],
        JOBS,
    ),
    Case(
        "its user may not have so much together",
        "user-limit",
        "raise the limit of user ann in queue root.a by 1 B memory",
        ["node n1 memory=10", "app x root.a user=ann", *FULL[2:], GANG],
        [
            {**OWED, "limits": [{"limit": "ann", "users": ["ann"], "maxresources": {"memory": 3}}]},
            FREE,
        ],
        JOBS,
    ),
    Case(
        "its label says that nobody shall go for it",
        "never-preempts",
        "use a pod template with the label can-preempt: true",
        [*FULL, f"{GANG} trigger=no"],
        partition=JOBS,
    ),
    Case(
        "a class that never preempts holds all of a job",
        "never-preempts",
        "use a PriorityClass without preemptionPolicy: Never",
        [*FULL, f"{GANG} allow-other=no"],
        partition=JOBS,
    ),
    Case(
        "gangs are not broken",
        "protected",
        "set preemption.job.victimgang: whole",
        [
            "node n1 memory=10",
            "app x root.a",
            "app y root.b",
            "existing y1..y5 y n1 memory=2 job=g/5",
            GANG,
        ],
        partition={"preemption": {"policies": ["job"], "job": {"victimgang": "avoid"}}},
    ),
    Case(
        "there is free capacity enough for a job in sum",
        "fragmentation",
        "lower the guarantee of queue root.b by 7 B memory",
        [
            "node n1 memory=10",
            "node n2 memory=10",
            "app x root.a",
            "app y root.b",
            "existing y1 y n1 memory=7",
            "existing y2 y n2 memory=7",
            "ask x1..x3 x memory=2 job=train/3",
        ],
        [queue("a", 6), queue("b", 14)],
        JOBS,
    ),
    Case(
        "candidates of a job have not run for long",
        "min-runtime",
        "wait 20 s: candidates will have run for their preemption.minruntime",
        [
            "node n1 memory=10",
            "app x root.a",
            "app y root.b",
            "existing y1..y5 y n1 memory=2 started=-40000",
            GANG,
        ],
        [OWED, queue("b", preemption_minruntime="1m")],
        JOBS,
    ),
    Case(
        "preemption is disabled for a job's victims",
        "victim-queues-disabled",
        "enable preemption for queue root.b (preemption.policy: default)",
        [*FULL, GANG],
        [OWED, queue("b", preemption_policy="disabled")],
        JOBS,
    ),
    Case(
        "a cordoned node would hold the member without one",
        "node-shape",
        "uncordon node n2",
        [
            "node n1 memory=10",
            "node n2 memory=2 label:zone=a",
            "drain n2",
            "app x root.a",
            "app y root.b",
            "existing y1..y4 y n1 memory=2 protection=untouchable",
            "ask x1 x memory=2 job=train/2",
            "ask x2 x memory=2 job=train/2 select=zone:a",
        ],
        partition=JOBS,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_binds_and_what_cures_a_job(case: Case) -> None:
    assert_told(case)


def test_asks_of_a_job_are_its_members() -> None:
    """The members of a job are counted, and what they ask for is told together."""
    lines = [*FULL, "ask x2..x3 x memory=2 job=train/3", "ask x1 x memory=1 job=train/3"]
    asks = asks_of(told(Case("", "", "", lines, partition=JOBS)))
    assert (asks.gang, asks.count, asks.resource) == ("train", 3, {"memory": 5})
    assert asks.because == (
        "the next round decides on it: its 3 members get capacity on 1 node, "
        "and 3 allocations would be evicted"
    )


def test_explain_and_the_report_say_the_same_of_a_job() -> None:
    life = Replicas([OWED, FREE], **JOBS)
    life.say(*FULL, GANG)
    found = asks_of(report(life.core, "default", life.now))
    told_of_one = verdict(life.core, "x2", life.now)
    assert told_of_one is not None
    assert told_of_one.because in found.because
    assert "2 allocations would be evicted" in found.because


def test_jobs_of_one_name_are_two() -> None:
    """Two applications have a job of the same name each."""
    life = Replicas([OWED, FREE], **JOBS)
    life.say(*FULL, "app z root.a", GANG, "ask z1..z2 z memory=2 job=train/2")
    (one,) = report(life.core, "default", life.now).queues
    assert [(each.key, each.count, each.binding) for each in one.asks] == [
        ("x1", 2, "being-served"),
        ("z1", 2, "being-served"),
    ]


def test_a_decision_for_a_job_is_named_once() -> None:
    life = Replicas([OWED, FREE], **JOBS)
    life.confirming = False
    life.say(*FULL, GANG)
    life.tick()
    found = asks_of(report(life.core, "default", life.now))
    assert (found.gang, found.binding, found.count) == ("train", "being-served", 2)
    assert life.claims[0].decision_id in found.because


def test_a_vetoed_decision_for_a_job_is_judged_anew_as_a_whole() -> None:
    life = Replicas([OWED, queue("b")], **JOBS)
    life.confirming = False
    life.say(*FULL, GANG)
    life.tick()
    (decision,) = life.claims
    life.say(f"veto {decision.victims[0].key} decision={decision.decision_id}")
    found = asks_of(report(life.core, "default", life.now))
    assert (found.gang, found.count, found.binding) == ("train", 2, "being-served")
    assert "its 2 members get capacity" in found.because


def test_a_refused_job_waits_for_its_back_off() -> None:
    life = Replicas([OWED, queue("b", preemption_policy="disabled"), queue("c")], **JOBS)
    life.say(*FULL, "app z root.c", GANG)
    life.tick()
    life.now += 2_000
    life.say("release y1", "release y2", "existing z1..z2 z n1 memory=2")
    found = asks_of(report(life.core, "default", life.now))
    assert (found.binding, found.cure.text if found.cure else "") == ("back-off", "wait 13 s")


def test_a_single_ask_of_policy_job_waits_for_its_back_off() -> None:
    life = Replicas([OWED, queue("b", preemption_policy="disabled"), queue("c")], **JOB_ALONE)
    life.say(*FULL, "app z root.c", "ask x1 x memory=2")
    life.tick()
    life.now += 2_000
    life.say("release y1", "existing z1 z n1 memory=2")
    found = asks_of(report(life.core, "default", life.now))
    assert (found.binding, found.cure.text if found.cure else "") == ("back-off", "wait 13 s")
    told = verdict(life.core, "x1", life.now)
    assert told is not None
    assert (told.policy, told.law, told.retry_ms) == ("job", "back-off", life.now + 13_000)


def test_a_job_goes_for_no_pair_that_is_frozen() -> None:
    """Neither the report nor `explain` tells a job that it is served when one of its members' claims repeated."""
    life = Replicas([OWED, FREE], **JOBS)
    life.say(*FULL, "ask x1 x memory=2 job=train/2", "ask x2 x memory=1 job=train/2")
    pair = Pair(TemplateInQueue("root.a", (("memory", 1),), 0), TemplateInQueue("root.b"))
    until = life.now + 60_000
    monitor = life.core.state.partitions["default"].thrashing
    monitor.frozen[pair] = FrozenPair(pair, "job", life.now, until)
    monitor.total = 1
    told_of_one = verdict(life.core, "x1", life.now)
    assert told_of_one is not None
    assert told_of_one.law == "frozen-pair"
    assert asks_of(report(life.core, "default", life.now)).binding == "frozen-pair"
    life.tick()
    assert not life.claims


def test_a_member_that_its_job_does_not_need_is_judged_by_himself() -> None:
    life = Replicas([OWED, FREE], **JOBS)
    life.say("node n1 memory=10", "app x root.a", "app y root.b", GANG)
    life.tick()
    life.say("existing y1..y3 y n1 memory=2", "ask x3 x memory=2 job=train/2 created=-60000")
    found = asks_of(report(life.core, "default", life.now))
    assert (found.gang, found.key, found.count, found.binding) == ("", "x3", 1, "being-served")


def test_a_job_that_gathers_is_not_ready() -> None:
    life = Replicas([OWED, FREE], **JOBS)
    life.say(*FULL, "ask x1..x2 x memory=2 job=train")
    found = asks_of(report(life.core, "default", life.now))
    assert (found.binding, found.count) == ("not-ready", 2)
    assert (
        found.because == "its gang waits for members: it is complete when none has come for a while"
    )
