"""Each rule refuses a plan that violates it, and accepts an equal plan in a situation in which the rule does not apply."""

from dataclasses import replace

import pytest

from server.model.asks import AskSpec
from server.preemption.nodes import reservation
from server.preemption.policy import Plan, PlannedPledge, Rule
from server.preemption.rules import gate
from server.preemption.trial import Trial
from server.snapshot.snapshot import Snapshot
from tests.preemption.clusters import Cluster, leaf


def waiting_view(nodes: int = 30, **most: int) -> Snapshot:
    """Full nodes of 10, and asks p0..p9 of 5 that wait in root.a."""
    cluster = Cluster(leaf("a", **most), leaf("b"))
    names = [f"n{number}" for number in range(nodes)]
    cluster.nodes(*names, memory=10)
    for name in names:
        cluster.foreign(f"f-{name}", name, memory=8)
    cluster.application("x")
    cluster.ask(*(f"p{number}" for number in range(10)), memory=5)
    cluster.tick()
    return cluster.snapshot()


def pledge(snapshot: Snapshot, ask: int, row: int, policy: str = reservation.NAME) -> Plan:
    """Return a plan of one pledge."""
    return Plan(policy, (PlannedPledge(snapshot.waiting[ask], row, snapshot.nodes.ids[row]),))


def refused(snapshot: Snapshot, plans: list[Plan], tempting: Plan) -> Rule | None:
    """Return the rule that refuses the tempting plan, after the other plans were applied."""
    trial = Trial(snapshot)
    for plan in plans:
        assert gate.gate(trial, plan) is None
        trial.apply(plan)
    refusal = gate.gate(trial, tempting)
    return refusal.rule if refusal else None


def test_nobody_holds_capacity_twice() -> None:
    snapshot = waiting_view()
    assert refused(snapshot, [pledge(snapshot, 0, 0)], pledge(snapshot, 0, 1)) is Rule.ONE_AN_ASK
    both = Plan("claim", (pledge(snapshot, 0, 0).pledges + pledge(snapshot, 0, 1).pledges))
    assert refused(snapshot, [], both) is Rule.ONE_AN_ASK


def test_a_node_is_reserved_for_one_ask() -> None:
    snapshot = waiting_view()
    assert refused(snapshot, [pledge(snapshot, 0, 0)], pledge(snapshot, 1, 0)) is Rule.ONE_A_NODE
    assert refused(snapshot, [pledge(snapshot, 0, 0)], pledge(snapshot, 1, 1)) is None
    claim = pledge(snapshot, 1, 0, policy="claim")
    assert refused(snapshot, [pledge(snapshot, 0, 0)], claim) is Rule.NO_ROOM_MADE


def test_a_leaf_has_a_handful_of_reservations() -> None:
    snapshot = waiting_view(nodes=100)
    most = reservation.RESERVATIONS_PER_LEAF
    plans = [pledge(snapshot, at, at) for at in range(most)]
    assert refused(snapshot, plans[:-1], plans[-1]) is None
    assert refused(snapshot, plans, pledge(snapshot, most, most)) is Rule.LEAF_FULL
    assert (
        refused(snapshot, plans, pledge(snapshot, most, most, policy="claim")) is Rule.NO_ROOM_MADE
    )


@pytest.mark.parametrize(("nodes", "most"), [(1, 1), (19, 1), (20, 2), (39, 3)])
def test_a_partition_has_one_reservation_for_ten_nodes(nodes: int, most: int) -> None:
    snapshot = waiting_view(nodes=max(nodes, most + 1))
    snapshot = replace(snapshot, node_count=nodes)
    plans = [pledge(snapshot, at, at) for at in range(most)]
    assert refused(snapshot, plans, pledge(snapshot, most, most)) is Rule.PARTITION_FULL


def test_a_full_partition_has_nothing_for_later_intents() -> None:
    snapshot = waiting_view(nodes=10)
    trial = Trial(snapshot)
    trial.apply(pledge(snapshot, 0, 0))
    refusal = gate.gate(trial, pledge(snapshot, 1, 1))
    assert refusal is not None
    assert refusal.final


def test_a_pledge_passes_the_limits_with_what_is_promised_to_others() -> None:
    snapshot = waiting_view(memory=10)
    plans = [pledge(snapshot, 0, 0), pledge(snapshot, 1, 1)]
    assert refused(snapshot, plans[:1], plans[1]) is None
    assert refused(snapshot, plans, pledge(snapshot, 2, 2)) is Rule.HEAD_ROOM
    out_of_limits = snapshot.waiting[0]._replace(within_limits=False)
    assert (
        refused(snapshot, [], Plan("claim", (PlannedPledge(out_of_limits, 0, "n0"),)))
        is Rule.USER_LIMIT
    )


def test_a_stopped_queue_gets_no_headroom() -> None:
    snapshot = waiting_view()
    stopped = {**snapshot.queues, "root": replace(snapshot.queues["root"], stopped=True)}
    snapshot = replace(snapshot, queues=stopped)
    assert refused(snapshot, [], pledge(snapshot, 0, 0)) is Rule.STOPPED_QUEUE


def test_an_ask_that_its_manager_checks_is_nobodys_intent() -> None:
    snapshot = waiting_view()
    ask = snapshot.waiting[0]._replace(spec=AskSpec(resource=(), rm_check=True), pending_since=0)
    assert list(reservation.intents(Trial(replace(snapshot, waiting=(ask,))))) == []
