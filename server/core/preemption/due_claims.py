"""The asks that are due for preemption (G1, G2, G11), found in the live state, so that a snapshot is taken only when there is work.

The checks in this module take little time: they test only necessary conditions for a claim, once for each group of equal asks.
Policies and rules decide later whether pods are evicted.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from server.core.preemption.deficits import Shortage
from server.model.policies import GUARANTEED, REPLACING, REQUIRED_NODE, Delay, facts
from server.model.quota import PreemptionPolicy
from server.preemption.claims import guarantee
from server.state import pending, sharing
from server.state.applications import Ask, Gang, Group
from server.state.equivalence import AskClass
from server.state.partition import Partition
from server.state.queues import Queue, QueueState

NEVER: Final = 1 << 62


def claiming(partition: Partition, shortage: Shortage, now: int) -> list[Ask]:
    """Return the asks that may claim now.

    From each group, return as many asks as the deficits of the group's queues admit.

    If some asks may claim only later, schedule a round for the earliest of these asks.
    """
    if not are_claims_on(partition):
        return []
    asks: list[Ask] = []
    for leaf in open_leaves(partition):
        if shortage.may_lack(leaf):
            asks += _of_leaf(partition, leaf, shortage, now)
    return asks


def are_claims_on(partition: Partition) -> bool:
    """Return whether the partition's policies let single asks claim."""
    settings = partition.spec.preemption
    return settings.enabled and settings.lists(GUARANTEED)


def open_leaves(partition: Partition) -> Iterator[Queue]:
    """Yield the leaves that have waiting asks and may preempt (see `is_open`)."""
    for queue in partition.queues.values():
        if is_open_leaf(queue):
            yield queue


def is_open_leaf(queue: Queue) -> bool:
    """Return whether a queue is a leaf that has waiting asks and may preempt (see `is_open`)."""
    return queue.leaf and bool(queue.pending_asks) and is_open(queue)


def is_open(leaf: Queue) -> bool:
    """Return whether asks of the leaf may preempt: preemption is on for the leaf (G3), and no queue on its path is stopped."""
    if leaf.spec.properties.preemption_policy is PreemptionPolicy.DISABLED:
        return False
    return not any(queue.state is QueueState.STOPPED for queue in leaf.path_up())


def _of_leaf(partition: Partition, leaf: Queue, shortage: Shortage, now: int) -> Iterator[Ask]:
    for group in stuck_groups(leaf):
        yield from of_group(partition, group, shortage, now)


def of_group(partition: Partition, group: Group, shortage: Shortage, now: int) -> Iterator[Ask]:
    """Yield the asks of a group that may claim now, as many as the deficits of the group's queues admit.

    The group must be stuck (`is_stuck`).
    """
    most = shortage.lacking(group.application.leaf, group.ask_class.demand)
    if most:
        yield from due(partition, group, most, now, guarantee.NAME)


def stuck_groups(leaf: Queue) -> Iterator[Group]:
    """Yield the groups of the leaf that have waiting asks for which preemption may help (see `is_stuck`)."""
    for application in leaf.applications.values():
        for group in application.groups.values():
            if group.live and is_stuck(group):
                yield group


def is_stuck(group: Group) -> bool:
    """Return whether preemption may help the group.

    Preemption may help under two conditions: the group lacks a node or headroom in a queue, and no decision keeps capacity for
    the group.

    Return False if the limit of a user or group, or the limit of firm pods, also blocks the group. Also return False for asks
    that require a node by name. Policy `required-node` plans for such asks, only on the required node and whatever the
    entitlement of their queue (G1, G11).
    """
    ask_class = group.ask_class
    held = ask_class.pledge
    if (held is not None and not held.reserves) or ask_class.constraints.required_node:
        return False
    if held is not None and held.commitment.facts.gang and held.ask.spec.min_members > 1:
        return False  # its gang is planned for again as a whole (J8)
    blocking = [
        one for one in group.application.limits_of(ask_class) if not one.has_headroom(ask_class)
    ]
    # A node is reserved only for an ask that no node takes. Placement may not have tried the ask's class since
    # the ask got its reservation.
    stuck = ask_class.dead or bool(blocking) or held is not None
    return stuck and all(one.kind == "queue" for one in blocking)


def due(partition: Partition, group: Group, most: int, now: int, policy: str) -> Iterator[Ask]:
    """Yield those asks of the group whose delay and back-off under a policy have ended, in the order of P4, at most ``most`` asks (G1, I5).

    If no ask of the group is due, the group *rests*: no ask of the group is examined again before the first of these asks
    becomes due.
    """
    if _rests(partition, group, now, policy):
        return
    found, earliest = 0, NEVER
    for ask, instant in _instants(partition, group, now, policy):
        if instant > now:
            earliest = min(earliest, instant)
            continue
        yield ask
        found += 1
        if found >= most:
            return
    call_again(partition, earliest)
    if not found:
        partition.round.tries.let_rest(group, policy, (partition.spec, earliest))


def _rests(partition: Partition, group: Group, now: int, policy: str) -> bool:
    rests = partition.round.tries.rest(group, policy)
    if rests is None or rests[0] is not partition.spec or rests[1] <= now:
        return False
    call_again(partition, rests[1])
    return True


def _instants(
    partition: Partition, group: Group, now: int, policy: str
) -> Iterator[tuple[Ask, int]]:
    """Yield the asks of a group, in the order of P4, each with the instant from which it may preempt.

    Asks that may not preempt are left out. If the group keeps its asks in the order of P4, stop after the first ask whose delay
    is not over, because the asks after it are younger.
    """
    delay = delay_ms(partition, group.application.leaf, policy)
    refused_ms = _refused_ms(partition, group, policy)
    for ask in group.asks if group.in_turn else sorted(group.asks, key=pending.by_turn):
        spec = ask.spec
        if ask.group is not group or not spec.allow_preempt_other or spec.may_fail_to_bind:
            continue
        instant = max(ask.pending_since + delay, ask.tried_ms)
        if _was_refused(instant, refused_ms):
            instant = refused_ms + longest_backoff(partition, (ask,))
        yield ask, instant
        if group.in_turn and ask.pending_since + delay > now:
            return


def _refused_ms(partition: Partition, group: Group, policy: str) -> int:
    """Return the instant at which preemption was last refused to a group, or 0 if it was never refused.

    For replacements within a queue, a refusal since the present search began is ignored. Such a refusal was the answer to a
    claim in this round. The refused ask may still replace pods of its queue.
    """
    refused_ms, search = partition.round.tries.refused_ms(group), partition.round.group_search
    is_of_search = (
        search is not None and refused_ms >= search.began_ms and facts(policy) in REPLACING
    )
    return 0 if is_of_search else refused_ms


def _was_refused(instant: int, refused_ms: int) -> bool:
    """Return whether an ask that may preempt from ``instant`` on was already due when its group was refused.

    ``refused_ms`` is 0 if the group was never refused.

    An ask that became due after the refusal is tried without the back-off.
    """
    return bool(refused_ms) and instant <= refused_ms


def awaits(partition: Partition, ask: Ask, policy: str) -> tuple[int, bool]:
    """Return the instant from which a policy may plan for a waiting ask (G1, I5), and whether a back-off sets that instant.

    Gangs, and asks that require a node by name (DaemonSet pods), have no delay.
    """
    group = ask.group
    assert group is not None, f"ask {ask.key} waits"
    refused_ms = partition.round.tries.refused_ms(group)
    whole = isinstance(group, Gang)
    delays = not whole and not ask.spec.constraints.required_node
    delay = delay_ms(partition, ask.application.leaf, policy) if delays else 0
    instant = max(ask.pending_since + delay, ask.tried_ms)
    if _was_refused(instant, refused_ms) or (whole and refused_ms):
        return refused_ms + backoff_of(partition, ask), True
    return instant, False


def backoff_of(partition: Partition, ask: Ask) -> int:
    """Return the back-off of an ask after a refusal, in milliseconds (C6). For a gang, this is the longest back-off of its members."""
    return longest_backoff(partition, ask.group.members if isinstance(ask.group, Gang) else (ask,))


def longest_backoff(partition: Partition, asks: Iterable[Ask]) -> int:
    """Return the longest back-off of the asks after a refusal, in milliseconds.

    Decisions without effect double the back-off (C6).
    """
    return max([partition.spec.preemption.backoff_ms, *(ask.wait_ms for ask in asks)])


def delay_ms(partition: Partition, leaf: Queue, policy: str) -> int:
    """Return how many milliseconds an ask of the leaf waits before it may claim (G1) or replace pods of its queue (I5).

    If shares follow weights, an ask may claim at once (W6). For replacements within a queue the delay remains even if shares
    follow weights, because such a replacement gives no queue a larger share.
    """
    delay = facts(policy).delay
    if delay is Delay.NONE:
        return 0
    if delay is Delay.QUEUE_UNLESS_SHARED_OUT and sharing.is_shared_out(partition):
        return 0
    return leaf.spec.properties.preemption_delay_ms


def call_again(partition: Partition, instant: int) -> None:
    """Schedule a round for the instant from which an ask may preempt. The pace may delay the round (P1)."""
    if instant == NEVER:
        return
    known = partition.round.claims_ms
    partition.round.claims_ms = instant if known is None else min(instant, known)


# Required nodes -----------------------------------------------------------------------------------------------------


def requiring(partition: Partition, now: int) -> list[Ask]:
    """Return the waiting asks that require a node by name.

    An ask is returned only if all pods of its node are known (`Node.opened`), and the node has changed since the ask was last
    refused (G11).

    If a manager refused an ask repeatedly or gave no answer, the ask is left out until its back-off ends (design 1.8).
    """
    settings = partition.spec.preemption
    if not settings.enabled or not settings.lists(REQUIRED_NODE):
        return []
    return [
        ask for ask_class in _required(partition) for ask in _untried(partition, ask_class, now)
    ]


def _required(partition: Partition) -> list[AskClass]:
    classes = dict.fromkeys(partition.classes.dead.requiring)
    for queue in partition.queues.values():
        if queue.limiter is not None:
            for ask_class in queue.limiter.blocked:
                if ask_class.constraints.required_node:
                    classes[ask_class] = None
    return [one for one in classes if one.pending]


def _untried(partition: Partition, ask_class: AskClass, now: int) -> Iterator[Ask]:
    node = partition.index.nodes.get(ask_class.constraints.required_node)
    held = ask_class.pledge
    if node is None or not node.opened or (held is not None and not held.reserves):
        return
    for group in _groups(partition, ask_class):
        for ask in group.asks:
            if ask.group is not group or partition.round.tries.node_seen(ask) == node.changes:
                continue
            refused_ms = partition.round.tries.refused_ms(group)
            retry_ms = refused_ms + backoff_of(partition, ask) if refused_ms else 0
            if retry_ms > now:
                call_again(partition, retry_ms)
            else:
                yield ask


def _groups(partition: Partition, ask_class: AskClass) -> list[Group]:
    """Return the groups of a class that are parked because no node takes the class, or because the limit of a queue blocks it."""
    groups = list(ask_class.waiting)
    for queue in partition.queues.values():
        if queue.limiter is not None:
            groups += queue.limiter.blocked.get(ask_class, [])
    return groups
