"""What simulated asks that wait lack, after the evictions that earlier simulated asks cause."""

from dataclasses import replace

from server.core.queries import next_steps
from server.core.queries.fit_text import fit_text
from server.core.queries.simulate import prepared
from server.core.queries.simulation_answers import SimulatedAsk
from server.model.asks import AskSpec
from server.model.quota import PreemptionSettings
from server.model.records import GroupSimulation
from server.model.resources import resource
from tests.preemption.job_clusters import START, Pod, Queue, core_of

GPU = "gpu"
SETTINGS = PreemptionSettings(policies=("guaranteed", "in-queue"))
FOUR = {GPU: 4}
CLAIMS = [SimulatedAsk("root.r.a", "new", AskSpec(resource(FOUR)))] * 4


def waiting(pods: list[Pod], asks: list[SimulatedAsk], most: int = 10) -> GroupSimulation:
    """Return the group of those that wait, behind two claims that evict, on nodes of 4 gpu that are full."""
    queues = [
        Queue("root.r", max={GPU: 12}, fence=True),
        Queue("root.r.a", {GPU: 8}, {GPU: most}),
        Queue("root.r.b"),
    ]
    core = core_of(queues, {one.node: FOUR for one in pods}, pods, SETTINGS)
    simulation = prepared(core, "default", asks, START)
    assert [one.outcome for one in simulation.answers()][:3] == ["preempts", "preempts", "waits"]
    (group,) = simulation.groups
    return group


def test_victims_of_earlier_claims_are_gone_from_queues_and_nodes() -> None:
    group = waiting([Pod(f"b{at}", "root.r.b", f"n{at}", FOUR) for at in range(3)], CLAIMS)
    assert {one.name: dict(one.missing) for one in group.fit.limits} == {
        "root.r.a": {GPU: 6},
        "root.r": {GPU: 8},
    }
    assert dict(group.fit.missing) == {GPU: 8}
    assert [dict(one.missing) for one in group.fit.nodes] == [FOUR, FOUR]


def test_victims_in_the_queue_of_the_claims_are_gone_as_well() -> None:
    urgent = [CLAIMS[0]._replace(spec=AskSpec(resource(FOUR), 5))] * 4
    pods = [Pod(f"a{at}", "root.r.a", f"n{at}", FOUR, application="old") for at in range(2)]
    pods.append(Pod("b", "root.r.b", "n2", FOUR, priority=9))
    group = waiting(pods, urgent, 16)
    assert {one.name: dict(one.missing) for one in group.fit.limits} == {"root.r": {GPU: 8}}
    assert group.next_steps[0].startswith("raise the max of queue root.r by 8 gpu, ")


def test_capacity_that_evictions_leave_is_waited_for() -> None:
    fit = waiting([Pod(f"b{at}", "root.r.b", f"n{at}", FOUR) for at in range(3)], CLAIMS).fit
    fits_later = replace(fit, missing={}, limits=())
    assert next_steps.of_fit(fits_later, None, START) == ("wait until the evicted pods have ended",)
    assert fit_text(fits_later).endswith("the rest fits once the evicted pods have ended")
