"""The cost of a gang, from its asks to the eviction orders for its victims.

The cluster is that of the claim benchmarks: full, with ten allocations on each node, and a guarantee that covers
the gang. A gang that cannot get all its places is planned as far as possible, and refused.
"""

from collections.abc import Iterator
from dataclasses import replace

from server.config import load
from server.model.asks import AskSpec
from server.model.decisions import Decided, Placed, Released
from server.model.events import AskAdded, ConfigurationApplied
from tests.bench.clusters import MEMORY, NOW, RM, Cluster, asking, queues_yaml
from tests.bench.preemption import Figure, Watch, confirmed, standing
from tests.bench.shell import Shell

MEMBERS = 64
GANGS = 8
"""Number of gangs, one after another; the first of them also fills the core's columns."""


def _configured(cluster: Cluster) -> ConfigurationApplied:
    policies = "policies: [required-node, guaranteed, job], "
    text = queues_yaml(replace(cluster, claims=MEMBERS * (GANGS + 1)))
    found, problems = load(text.replace("preemption: {", "preemption: {" + policies), "bench")
    assert found is not None, problems
    return ConfigurationApplied(found, "jobs")


def _gang(spec: AskSpec, number: int, members: int) -> Iterator[AskAdded]:
    made = replace(spec, gang_key=f"gang-{number}", min_members=members)
    for at in range(members):
        yield AskAdded(RM, f"gang-{number}-{at:03}", "claimant", made, created_ms=NOW)


def planned(cluster: Cluster) -> list[Figure]:
    """Measure gangs one at a time, each of which is placed."""
    one = standing(cluster)
    one.turn([_configured(cluster)])
    figures: list[Figure] = []
    for number in range(GANGS + 1):
        one.now = NOW + 1_000 * (number + 1)
        figures.append(_decide(one, number, asking()))
        one.rest()
    cold = figures[0].cpu_ms
    return [replace(each, cold_ms=cold) for each in figures[1:]]


def _decide(one: Shell, number: int, spec: AskSpec) -> Figure:
    gang = list(_gang(spec, number, MEMBERS))
    watch = Watch()
    decisions, _ = one.turn(gang)
    figure = watch.stop(MEMBERS)
    (record,) = (each.record for each in decisions if type(each) is Decided)
    assert len(record.beneficiaries) == MEMBERS
    one.now += 1
    placed, _ = one.turn(confirmed(decisions))
    assert sum(type(each) is Placed for each in placed) == MEMBERS
    return figure


def refused(cluster: Cluster) -> list[Figure]:
    """Measure a gang with one member that is larger than every node; the other members are planned before that is found."""
    one = standing(cluster)
    one.turn([_configured(cluster)])
    figures: list[Figure] = []
    huge = AskSpec(
        (("memory", 1_000 * MEMORY),), priority=0, gang_key="gang-0", min_members=MEMBERS
    )
    small = replace(asking(), gang_key="gang-0", min_members=MEMBERS)
    asks = [
        AskAdded(RM, f"gang-{at}", "claimant", small, created_ms=NOW) for at in range(MEMBERS - 1)
    ]
    one.turn([*asks, AskAdded(RM, "huge", "claimant", huge, created_ms=NOW)])
    for number in range(GANGS + 1):
        one.now = NOW + 20_000 * (number + 1)
        watch = Watch()
        decisions, _ = one.turn()
        figures.append(watch.stop(MEMBERS))
        assert not any(type(each) is Released for each in decisions)
        one.rest()
    cold = figures[0].cpu_ms
    return [replace(each, cold_ms=cold) for each in figures[1:]]
