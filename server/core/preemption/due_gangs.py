"""The gangs that are due for preemption, and the asks that may replace pods of their queue (J3, I5).

Gangs and asks are found in the live state, so that a snapshot is taken only when there is work. Policies and rules decide later
whether pods are evicted. A gang has no delay. A gang is due as soon as it is complete and does not fit. After a refusal, a gang
is due again when its back-off has ended.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from server.core.preemption import due_claims, pacing
from server.model.asks import ReleaseMark
from server.model.fit import Amounts, fits
from server.model.policies import GUARANTEED, JOB, REPLACING, facts
from server.state import snapshotting
from server.state.applications import Application, Ask, Gang, Group
from server.state.commitments import Commitment
from server.state.equivalence import AskClass
from server.state.limits import Limiter
from server.state.nodes import Node
from server.state.partition import Partition
from server.state.queues import Queue
from server.state.snapshotting import GangDue

Assignment = tuple[Ask, str, Node | None]
"""An ask, the id of the node on which the ask gets capacity, and the node itself if the core knows the node."""
Coming = tuple[Node, Amounts]
"""A node from which pods are being evicted, and its free capacity once these pods are gone."""
GROUP_MOST: Final = 64
"""The largest number of asks of one group that a round considers. The remaining asks of the group are considered once these asks are placed."""


def waiting(partition: Partition, groups: Sequence[Group], now: int) -> list[GangDue]:
    """Return the gangs for which policies may plan now. For each gang whose turn comes later, schedule the next attempt.

    If no policy claims for single asks, each ask of ``groups`` counts as a gang of one member.
    """
    settings = partition.spec.preemption
    if not settings.enabled or not settings.lists(JOB):
        return []
    found = [due(one) for one in partition.gangs.parked if _may_plan(partition, one, now)]
    found += [
        again(one) for one in dict.fromkeys(partition.decisions.suspended.values()) if _is_gang(one)
    ]
    if not settings.lists(GUARANTEED):
        found += [single(ask) for group in groups for ask in _first(partition, group, now)]
    return found


def admitted(partition: Partition, found: list[GangDue], now: int) -> list[GangDue]:
    """Return those gangs in ``found`` for which the pace lets policies plan now. All other gangs in ``found`` wait for the next round (P1)."""
    return [one for one in found if pacing.admits(partition, one.members[0], now)]


def due(one: Gang) -> GangDue:
    """Return a waiting gang in the form that snapshots use."""
    return GangDue(one.key, one.number, tuple(one.members), one.placed, one.min_members)


def single(ask: Ask) -> GangDue:
    """Return an ask as a gang of one member (J4)."""
    return GangDue(ask.spec.gang_key or ask.key, 0, (ask,), 0, 1)


def again(commitment: Commitment) -> GangDue:
    """Return a gang whose decision is planned again because one of its victims was vetoed (C6), in the form that snapshots use."""
    members = tuple(held.ask for held in commitment.pledges.values())
    first = members[0]
    known = first.application.gangs.get(first.spec.gang_key)
    if len(members) == 1 and known is None:
        return single(first)
    waiting_too = tuple(known.members) if known else ()
    placed, number = (known.placed, known.number) if known else (0, 0)
    return GangDue(
        first.spec.gang_key, number, (*members, *waiting_too), placed, first.spec.min_members
    )


def promised(partition: Partition) -> dict[str, GangDue]:
    """Return the gangs of several members for which an open decision keeps capacity, by the key of each member.

    Decisions for which another plan is being sought are included.
    """
    found = [again(one) for one in partition.decisions.open.values() if _is_gang(one)]
    return {ask.key: gang for gang in found if gang.size > 1 for ask in gang.members}


def _is_gang(commitment: Commitment) -> bool:
    return commitment.facts.gang and bool(commitment.pledges)


def _may_plan(partition: Partition, one: Gang, now: int) -> bool:
    if not due_claims.is_open(one.application.leaf):
        return False
    refused_ms = partition.round.tries.refused_ms(one)
    again = refused_ms + due_claims.longest_backoff(partition, one.members)
    if refused_ms and again > now:
        due_claims.call_again(partition, again)
        return False
    return True


# Single asks --------------------------------------------------------------------------------------------------------


def replacing(partition: Partition, groups: Sequence[Group], now: int) -> list[Ask]:
    """Return the asks of ``groups`` that may replace pods of their queue: asks that fit on no node, and whose delay has ended (I5)."""
    settings = partition.spec.preemption
    asks = [
        ask
        for policy in REPLACING
        if settings.enabled and settings.lists(policy)
        for group in _with_candidates(partition, groups)
        for ask in due_claims.due(partition, group, GROUP_MOST, now, policy.name)
    ]
    return list(dict.fromkeys(asks))


def _with_candidates(partition: Partition, groups: Sequence[Group]) -> Iterator[Group]:
    """Yield the groups that may find victims in their leaf (I2), and the groups that will fit after the ordered evictions (G8).

    A group may find victims if another application runs in its leaf. It is enough to read two running applications of a leaf,
    because at least one of them is not the application of the group.
    """
    coming, running = _coming(partition), dict[Queue, list[Application]]()
    for group in groups:
        leaf = group.application.leaf
        if leaf not in running:
            running[leaf] = [*islice(filter(_runs, leaf.applications.values()), 2)]
        beside = any(one is not group.application for one in running[leaf])
        if beside or (coming and _gets_capacity(group, coming)):
            yield group


def _runs(application: Application) -> bool:
    return bool(application.allocations)


def _coming(partition: Partition) -> list[Coming]:
    """Return the nodes from which pods are being evicted, each with its free capacity once these pods are gone."""
    nodes = dict.fromkeys(
        ask.node for ask in partition.decisions.leaving.values() if ask.node is not None
    )
    return [(node, node.free_without(node.dying())) for node in nodes]


def _gets_capacity(group: Group, coming: Iterable[Coming]) -> bool:
    """Return whether an ask of the group fits on unreserved capacity once the ordered evictions are done (G8, I4).

    If some limits lack headroom now, the result depends on these limits alone, and the nodes are not examined.
    """
    ask_class = group.ask_class
    full = [
        one for one in group.application.limits_of(ask_class) if not one.has_headroom(ask_class)
    ]
    if full:
        return all(_has_headroom(one, ask_class) for one in full)
    return any(_fits_on(ask_class, node, later) for node, later in coming)


def _has_headroom(limiter: Limiter, ask_class: AskClass) -> bool:
    going = limiter.queue.releasing
    return all(
        limiter.headroom_for(ask_class, at) + going[at] >= wanted for at, wanted in ask_class.demand
    )


def _fits_on(ask_class: AskClass, node: Node, later: Amounts) -> bool:
    own = ask_class.pledge
    if any(one.reserves and one is not own for one in node.pledges.values()):
        return False
    given = dict(own.node_demand) if own is not None and own.node is node else {}
    free = [left + given.get(at, 0) for at, left in enumerate(later)]
    allowed = node.is_open_to(ask_class.constraints) and ask_class.mask.allows(node)
    return allowed and fits(ask_class.node_demand, free)


def _first(partition: Partition, group: Group, now: int) -> Iterator[Ask]:
    """Yield the group's first asks, at most GROUP_MOST, unless the group waits for its back-off."""
    asks = _foremost(group)
    again_ms = _again_ms(partition, group, asks)
    if again_ms > now:
        due_claims.call_again(partition, again_ms)
        return
    yield from asks


def _again_ms(partition: Partition, group: Group, asks: list[Ask]) -> int:
    """Return the instant at which the back-off of the group or gang after a refusal ends, or 0 if no back-off is running.

    Gangs have no delay (J3).
    """
    tried = max(ask.tried_ms for ask in asks)
    refused_ms = partition.round.tries.refused_ms(group)
    if not refused_ms or tried > refused_ms:
        return 0
    return refused_ms + due_claims.longest_backoff(partition, asks)


def awaits(partition: Partition, ask: Ask, policy: str) -> tuple[int, bool]:
    """Return the instant from which a policy may plan for a waiting ask, and whether a back-off sets that instant (G1, J3, I5)."""
    group = ask.group
    if not facts(policy).gang or not isinstance(group, Group):
        return due_claims.awaits(partition, ask, policy)
    again_ms = _again_ms(partition, group, _foremost(group))
    return again_ms, again_ms > 0


def _foremost(group: Group) -> list[Ask]:
    return list(islice((ask for ask in group.asks if ask.group is group), GROUP_MOST))


# Restarts -----------------------------------------------------------------------------------------------------------


def reassign(partition: Partition, one: Gang, marks: Iterable[ReleaseMark]) -> list[Assignment]:
    """Return a node for every member of a gang whose decision was open before a restart (J10). Return [] if a member gets no node.

    Members for which pods are evicted get the nodes that the victims' annotations name. Each other member gets the first node, in
    the order of node names, with enough capacity for it. If the annotated node lacks capacity for a member, that member also gets
    the first node with enough capacity. All ordered releases count as done here.
    """
    nodes = partition.index.nodes
    free = {name: nodes[name].free_without(nodes[name].dying()) for name in sorted(nodes)}
    named = {mark.released_for: mark.node_id for mark in marks}
    order = sorted(one.members, key=snapshotting.gang_order)
    assignments: dict[str, Assignment] = {}
    for ask in sorted(order, key=lambda member: member.key not in named):
        wanted = named.get(ask.key, "")
        names = [wanted] if wanted in free and _takes(partition, wanted, ask, free) else free
        at = next((name for name in names if _takes(partition, name, ask, free)), None)
        if at is None:
            return []
        for index, quantity in ask.ask_class.node_demand:
            free[at][index] -= quantity
        assignments[ask.key] = (ask, at, nodes[at])
    return [assignments[ask.key] for ask in order]


def _takes(partition: Partition, name: str, ask: Ask, free: Mapping[str, Amounts]) -> bool:
    node = partition.index.nodes[name]
    allowed = node.schedulable and ask.ask_class.mask.allows(node)
    return allowed and fits(ask.ask_class.node_demand, free[name])
