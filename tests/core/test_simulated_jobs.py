"""Simulated asks of one job get one answer for the job, and the state stays unchanged (J8)."""

from dataclasses import replace

import pytest

from server.core.queries.simulate import prepared
from server.core.queries.simulation_answers import SimulatedAsk
from server.model.asks import AskSpec
from server.model.events import AllocationAdded, ApplicationAdded
from server.model.records import AskSimulation
from server.model.resources import resource
from tests.preemption.job_clusters import RM, START, Queue, core_of

CPU = 1_000
QUEUES = (Queue("root.a", {"vcore": 12 * CPU}), Queue("root.b", {}))


def member(vcore: int, size: int = 2, queue: str = "root.a") -> SimulatedAsk:
    """One of a gang."""
    spec = AskSpec(resource({"vcore": vcore * CPU}), gang_key="g", min_members=size)
    return SimulatedAsk(queue, "new", spec)


def asked(nodes: int, running: int, asks: list[SimulatedAsk]) -> list[AskSimulation]:
    """Return the answers to asks on nodes of 4 cores, of which the last ``running`` are full."""
    names = [f"n{at}" for at in range(1, nodes + 1)]
    core = core_of(
        QUEUES,
        {name: {"vcore": 4 * CPU} for name in names},
        [(f"y-{name}", "root.b", name, {"vcore": 4 * CPU}) for name in names[nodes - running :]],
    )
    before = core.digest()
    found = list(prepared(core, "default", asks, START).answers())
    assert core.digest() == before
    return found


def test_a_job_for_which_there_is_capacity_is_placed_at_once() -> None:
    found = asked(2, 0, [member(4), member(4)])
    assert [(one.outcome, one.node_id) for one in found] == [("placed", "n1"), ("placed", "n2")]


def test_a_job_that_has_others_go_names_them_once_and_every_members_node() -> None:
    found = asked(3, 2, [member(4, 3), member(4, 3), member(4, 3)])
    assert [(one.outcome, one.node_id) for one in found] == [
        ("preempts", "n1"),
        ("preempts", "n2"),
        ("preempts", "n3"),
    ]
    assert [[victim.key for victim in one.victims] for one in found] == [["y-n2", "y-n3"], [], []]


def test_a_job_that_gets_no_capacity_as_a_whole_waits_with_all_members() -> None:
    found = asked(1, 0, [member(4), member(4)])
    assert [(one.outcome, one.victims) for one in found] == [("waits", ()), ("waits", ())]
    assert {one.verdict.law for one in found if one.verdict} == {"member-without-node"}


def test_members_that_are_too_few_wait_for_the_others() -> None:
    (found,) = asked(2, 0, [member(4)])
    assert found.outcome == "waits"
    assert found.verdict is not None
    assert found.verdict.law == "job-gathering"


def test_a_member_that_would_not_be_taken_in_keeps_the_others_out() -> None:
    odd = member(4)
    odd = odd._replace(spec=replace(odd.spec, resource=resource({"marbles": 1})))
    assert [one.outcome for one in asked(2, 0, [member(4), odd])] == ["refused", "refused"]


def test_members_without_a_size_are_as_many_as_are_asked_for() -> None:
    found = asked(3, 2, [member(4, 0), member(4, 0), member(4, 0)])
    assert [(one.outcome, one.node_id) for one in found] == [
        ("preempts", "n1"),
        ("preempts", "n2"),
        ("preempts", "n3"),
    ]
    assert [one.outcome for one in asked(1, 0, [member(4, 0), member(4, 0)])] == ["waits", "waits"]


def test_a_single_member_without_a_size_is_an_ask_like_others() -> None:
    (found,) = asked(2, 0, [member(4, 0)])
    assert (found.outcome, found.node_id) == ("placed", "n1")


@pytest.mark.parametrize(
    ("placed", "outcomes"), [(1, ["waits"]), (2, ["placed"])], ids=["one is missing", "one more"]
)
def test_members_without_a_size_join_the_job_that_is_there(
    placed: int, outcomes: list[str]
) -> None:
    core = core_of(QUEUES, {"n1": {"vcore": 16 * CPU}}, [])
    core.handle(ApplicationAdded(RM, "new", "root.a"), START)
    for at in range(placed):
        spec = member(2, 3 if placed == 1 else 2).spec
        core.handle(AllocationAdded(RM, f"x{at}", "new", "n1", spec), START)
    found = list(prepared(core, "default", [member(2, 0)], START).answers())
    assert [one.outcome for one in found] == outcomes
