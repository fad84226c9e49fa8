"""What a job costs: a gang from its last ask until its victims are ordered to go.

The cluster is that of the claims: full, ten allocations a node, and the gang's queue is guaranteed what it asks for.
A gang that cannot have all its places is planned as far as it goes, and refused.
"""

from collections.abc import Iterator
from dataclasses import replace

from server.config import load
from server.core.core import Core
from server.model.asks import AskSpec
from server.model.decisions import Decided, Decision, Placed, Released
from server.model.events import AskAdded, ConfigurationApplied, ReleaseRequested
from tests.bench.clusters import MEMORY, NOW, RM, Cluster, asking, build, queues_yaml
from tests.bench.preemption import Figure, Watch, frozen

MEMBERS = 64
GANGS = 8
"""Gangs one after another; the first fills the columns."""


def _configured(cluster: Cluster) -> ConfigurationApplied:
    policies = "policies: [required-node, guaranteed, job], "
    text = queues_yaml(replace(cluster, claims=MEMBERS * (GANGS + 1)))
    found, problems = load(text.replace("preemption: {", "preemption: {" + policies), "bench")
    assert found is not None, problems
    return ConfigurationApplied(found, "jobs")


def _gang(spec: AskSpec, number: int, members: int) -> Iterator[AskAdded]:
    made = replace(spec, job_key=f"gang-{number}", min_members=members)
    for at in range(members):
        yield AskAdded(RM, f"gang-{number}-{at:03}", "claimant", made, created_ms=NOW)


def planned(cluster: Cluster) -> list[Figure]:
    """Gangs one at a time, each of which gets room."""
    core = build(cluster)
    core.handle(_configured(cluster), NOW)
    core.tick(NOW)
    figures: list[Figure] = []
    with frozen():
        for number in range(GANGS + 1):
            now = NOW + 1_000 * (number + 1)
            figures.append(_decide(core, number, now, asking()))
    cold = figures[0].cpu_ms
    return [replace(one, cold_ms=cold) for one in figures[1:]]


def _decide(core: Core, number: int, now: int, spec: AskSpec) -> Figure:
    for event in _gang(spec, number, MEMBERS):
        core.handle(event, now)
    watch = Watch()
    decisions = core.tick(now).decisions
    figure = watch.stop(MEMBERS)
    (record,) = (one.record for one in decisions if type(one) is Decided)
    assert len(record.beneficiaries) == MEMBERS
    _confirm(core, decisions, now)
    placed = core.tick(now + 1).decisions
    assert sum(type(one) is Placed for one in placed) == MEMBERS
    return figure


def _confirm(core: Core, decisions: list[Decision], now: int) -> None:
    for one in decisions:
        if type(one) is Released:
            gone = ReleaseRequested(RM, one.application_id, one.key, termination=one.termination)
            core.handle(gone, now)


def refused(cluster: Cluster) -> list[Figure]:
    """A gang of which one member is larger than every node: all others are seated first, in vain."""
    core = build(cluster)
    core.handle(_configured(cluster), NOW)
    core.tick(NOW)
    figures: list[Figure] = []
    huge = AskSpec((("memory", 1_000 * MEMORY),), priority=0, job_key="gang-0", min_members=MEMBERS)
    with frozen():
        small = replace(asking(), job_key="gang-0", min_members=MEMBERS)
        for at in range(MEMBERS - 1):
            core.handle(AskAdded(RM, f"gang-{at}", "claimant", small, created_ms=NOW), NOW)
        core.handle(AskAdded(RM, "huge", "claimant", huge, created_ms=NOW), NOW)
        for number in range(GANGS + 1):
            watch = Watch()
            decisions = core.tick(NOW + 20_000 * (number + 1)).decisions
            figures.append(watch.stop(MEMBERS))
            assert not any(type(one) is Released for one in decisions)
    cold = figures[0].cpu_ms
    return [replace(one, cold_ms=cold) for one in figures[1:]]
