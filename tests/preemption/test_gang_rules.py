"""Every rule on plans for jobs refuses a plan that violates only that rule, and accepts the core's own plan.

Each refused plan is a plan of the core with one change, so that no other rule refuses it first.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import pytest

from server.core.preemption import due_gangs
from server.model.policies import JOB
from server.model.quota import PreemptionSettings
from server.preemption import admission
from server.preemption.claims import guarantee, in_queue
from server.preemption.gangs import gang_policy
from server.preemption.policy import Intent, Plan, PlannedPledge, Refusal, Release, Rule
from server.preemption.rules import gangs, gate
from server.preemption.trial import Trial
from server.state import snapshotting
from tests.preemption.job_clusters import START, Member, Pod, Queue, World, tell

A, B, C = "root.p.a", "root.q.b", "root.q.c"
QUEUES: Final = [Queue(A, {"vcore": 8}), Queue(B), Queue(C, {"vcore": 4})]
MEMBERS: Final = [Member("g0", {"vcore": 4}, 2), Member("g1", {"vcore": 4}, 2)]


def world(*pods: Pod, queues: list[Queue] | None = None, firm: bool = False) -> World:
    """Two nodes of four, a third where a pod says so; a gang of two fours waits in A."""
    nodes = {name: {"vcore": 4} for name in ("n1", "n2", "n3")}
    return World(queues or QUEUES, nodes, list(pods), A, MEMBERS, firm)


def pod(key: str, queue: str, node: str, size: int = 4, **more: object) -> Pod:
    """Return a pod that runs, with further fields where they are given."""
    return replace(Pod(key, queue, node, {"vcore": size}), **more)  # type: ignore[arg-type]


def on(wanted: World) -> Trial:
    """Return the world with its job, for planning."""
    core = tell(wanted)
    partition = core.state.partitions["default"]
    (application,) = [one for one in partition.applications.values() if one.gangs and one.asks]
    (waiting,) = application.gangs.values()
    return Trial(
        snapshotting.take(partition, START, due=snapshotting.Due(gangs=[due_gangs.due(waiting)]))
    )


def planned(trial: Trial) -> Plan:
    """Return the core's own plan for the job, which passes the gate."""
    (one,) = trial.snapshot.gangs
    found = gang_policy.plan(trial, Intent(gang_policy.NAME, one.members[0], one))
    assert isinstance(found, Plan), found
    assert gate.gate(trial, found) is None
    return found


def also(trial: Trial, plan: Plan, *keys: str) -> Plan:
    """Return the plan with further victims."""
    columns, paths = trial.snapshot.allocations, trial.snapshot.leaf_paths
    rows = [columns.keys.index(key) for key in keys]
    more = (Release(row, columns.keys[row], paths[int(columns.leaves[row])], "") for row in rows)
    return replace(plan, releases=(*plan.releases, *more))


def only(trial: Trial, plan: Plan, *keys: str) -> Plan:
    """Return the plan with other victims in place of its own."""
    return also(trial, replace(plan, releases=()), *keys)


@dataclass(frozen=True)
class Case:
    """A plan that one rule refuses: in which world, and what is wrong with it."""

    title: str
    breaks: str
    rule: Rule
    world: World
    wrong: Callable[[Trial, Plan], Plan]
    settings: PreemptionSettings | None = None


def _one_member(trial: Trial, plan: Plan) -> Plan:
    del trial
    return replace(plan, pledges=plan.pledges[:1], releases=plan.releases[:1])


def _as_claim(trial: Trial, plan: Plan) -> Plan:
    del trial
    return replace(plan, policy=guarantee.NAME)


def _elsewhere(trial: Trial, plan: Plan) -> Plan:
    """Return the plan with its first member on another node, and a pod of that node in place of the first victim."""
    first, *others = plan.pledges
    row = trial.snapshot.row_of("n3")
    moved = replace(plan, pledges=(PlannedPledge(first.ask, row, "n3"), *others))
    kept = [one.key for one in plan.releases if one.key != plan.releases[0].key]
    return only(trial, moved, *kept, "y3")


TWO: Final = (pod("y1", B, "n1"), pod("y2", B, "n2"))
FULL: Final = (*TWO, pod("y3", B, "n3"))
AVOIDING: Final = PreemptionSettings(policies=("job",), job_victim_gang="avoid")
NEVER: Final = PreemptionSettings(policies=("job",), job_default_trigger=False)

CASES: Final = (
    Case("only one member", "whole_gang", Rule.PART_OF_GANG, world(*FULL), _one_member),
    Case(
        "one that may not have others go",
        "may_have_others_go",
        Rule.NO_TRIGGER,
        world(*FULL),
        lambda _trial, plan: plan,
        NEVER,
    ),
    Case(
        "a claim for members of a gang",
        "one_by_one_for_singles",
        Rule.PART_OF_GANG,
        world(*FULL),
        _as_claim,
    ),
    Case(
        "one of its own queue of the same priority",
        "victims_of_gangs",
        Rule.PRIORITY,
        world(
            *TWO,
            pod("y3", A, "n3", priority=2, application="other"),
            queues=[Queue(A, {"vcore": 12}), Queue(B)],
        ),
        _elsewhere,
    ),
    Case(
        "one of higher priority elsewhere",
        "victims_of_gangs",
        Rule.PRIORITY,
        world(*TWO, pod("y3", B, "n3", priority=3)),
        _elsewhere,
    ),
    Case(
        "one of a gang that needs it",
        "gangs_whole",
        Rule.GANG,
        world(
            *TWO,
            pod("y3", B, "n3", 3, gang="k", least=2, application="k", priority=1),
            pod("y4", B, "n3", 1, gang="k", least=2, application="k", priority=1),
        ),
        _elsewhere,
    ),
    Case(
        "a whole gang where gangs are avoided",
        "gangs_whole",
        Rule.GANG,
        world(
            *TWO,
            pod("y3", B, "n3", 2, gang="k", least=2, application="k", priority=1),
            pod("y4", B, "n3", 2, gang="k", least=2, application="k", priority=1),
        ),
        lambda trial, plan: also(trial, _elsewhere(trial, plan), "y4"),
        AVOIDING,
    ),
    Case(
        "more from others than its queue is entitled to",
        "within_the_share",
        Rule.OVER_SHARE,
        world(*TWO, pod("x1", A, "n3", 2, application="other")),
        lambda trial, plan: only(trial, _second_on(trial, plan, "n2"), "y1", "y2"),
    ),
    Case(
        "a victim too few",
        "enough_for_all",
        Rule.NO_ROOM_MADE,
        world(*FULL),
        lambda _trial, plan: replace(plan, releases=plan.releases[:1]),
    ),
    Case(
        "a victim too many",
        "enough_for_all",
        Rule.NOT_MINIMAL,
        world(*FULL),
        lambda trial, plan: also(trial, plan, "y3"),
    ),
    Case(
        "a pod that holds cores alone, for a queue that guarantees GPUs",
        "taken_for_decided_types",
        Rule.DECIDING_QUEUE,
        World(
            [Queue(A, {"gpu": 8}), Queue(B)],
            {"n1": {"vcore": 4, "gpu": 2}, "n2": {"vcore": 4, "gpu": 2}},
            [
                Pod("y1", B, "n1", {"vcore": 2, "gpu": 1}),
                Pod("y2", B, "n1", {"vcore": 2, "gpu": 1}),
                Pod("y3", B, "n2", {"vcore": 2}),
                Pod("y4", B, "n2", {"vcore": 2}),
            ],
            A,
            [Member("g0", {"vcore": 2, "gpu": 1}, 2), Member("g1", {"vcore": 2, "gpu": 1}, 2)],
        ),
        lambda trial, plan: only(
            trial, _second_on(trial, _moved(trial, plan, "n2"), "n2"), "y3", "y4"
        ),
    ),
    Case(
        "a victim of another queue for memory alone, where one of its own queue frees the cores",
        "taken_for_decided_types",
        Rule.DECIDING_QUEUE,
        World(
            [Queue(A, {"vcore": 8}), Queue(B)],
            {"n1": {"vcore": 4, "memory": 4}, "n2": {"vcore": 4, "memory": 4}},
            [
                Pod("y1", B, "n1", {"vcore": 2, "memory": 2}),
                Pod("x1", A, "n1", {"vcore": 2, "memory": 2}),
                Pod("y2", B, "n2", {"vcore": 4, "memory": 4}),
            ],
            A,
            [Member("g0", {"vcore": 2, "memory": 4}, 2), Member("g1", {"vcore": 2}, 2)],
        ),
        lambda trial, plan: only(trial, _moved(trial, plan, "n1"), "y1", "x1", "y2"),
    ),
    Case(
        "victims though the job fits",
        "no_gang_for_nothing",
        Rule.NOT_MINIMAL,
        world(pod("y1", B, "n1"), queues=QUEUES),
        lambda trial, plan: only(trial, _moved(trial, plan, "n1"), "y1"),
    ),
)


def _moved(trial: Trial, plan: Plan, node: str = "n1") -> Plan:
    """Return the plan with its first member on another node."""
    first, *others = plan.pledges
    return replace(
        plan, pledges=(PlannedPledge(first.ask, trial.snapshot.row_of(node), node), *others)
    )


def _second_on(trial: Trial, plan: Plan, node: str) -> Plan:
    """Return the plan with its second member on another node."""
    first, second = plan.pledges
    return replace(
        plan, pledges=(first, PlannedPledge(second.ask, trial.snapshot.row_of(node), node))
    )


def rule_of(name: str) -> Callable[[Trial, Plan], Refusal | None]:
    """Return the rule of this name."""
    return next(one for one in gangs.PLAN_RULES if one.__name__ == name)


@pytest.mark.parametrize("case", CASES, ids=[one.title for one in CASES])
def test_a_plan_that_breaks_a_rule_is_refused_by_it(case: Case) -> None:
    plain = on(case.world)
    plan = planned(plain)
    trial = Trial(replace(plain.snapshot, settings=case.settings)) if case.settings else plain
    wrong = case.wrong(trial, plan)
    found = gate.gate(trial, wrong)
    assert found is not None
    assert found.rule is case.rule, found
    told = rule_of(case.breaks)(trial, wrong)
    assert told is not None
    assert told.rule is case.rule, told


def test_every_rule_of_jobs_has_a_case() -> None:
    assert {one.breaks for one in CASES} == {rule.__name__ for rule in gangs.PLAN_RULES}


def test_a_firm_ask_that_its_queue_guarantees_nothing_more_gets_no_headroom() -> None:
    trial = on(world(*FULL, firm=True))
    (one,) = trial.snapshot.gangs
    assert admission.admitted(trial, JOB, one.members[0]) is None
    trial.apply(planned(trial))
    found = admission.admitted(trial, JOB, one.members[1])
    assert found is not None
    assert found.rule is Rule.FIRM_LIMIT


def test_a_replacement_takes_nobody_of_another_queue() -> None:
    trial = on(world(*FULL))
    plan = replace(planned(trial), policy=in_queue.NAME)
    found = gangs.victims_of_gangs(trial, plan)
    assert found is not None
    assert found.rule is Rule.OTHER_QUEUE
