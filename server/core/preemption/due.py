"""The asks that are due for a round, found in the live state, so that a snapshot is taken only when there is work.

The checks here are necessary conditions and cheap; policies and rules decide. For reservations the cost is one look at each
group of equal asks, not at each ask.
"""

from collections import Counter
from collections.abc import Iterator

from server.core.preemption import due_claims, due_gangs, pacing
from server.core.preemption.deficits import Shortage
from server.preemption.nodes import reservation
from server.scheduling.outranking import in_order
from server.state import sharing, snapshotting
from server.state.applications import Ask, Group
from server.state.partition import Partition
from server.state.queues import Queue, QueueState

Counters = tuple[int, int]


def counters(partition: Partition) -> Counters:
    """Return counters that change when an event may have made a decision possible.

    Such events concern capacity, limits, nodes and ended decisions.
    """
    return partition.relief, len(partition.index.nodes)


def is_called_for(partition: Partition, now: int) -> bool:
    """Return whether something may have changed that the last round has not considered."""
    state = partition.round
    return (
        state.open
        or bool(partition.untold)
        or state.seen != counters(partition)
        or bool(partition.decisions.suspended)
        or (partition.quota_due and min(partition.quota_due.values()) <= now)
        or any(instant is not None and instant <= now for instant in instants(partition))
    )


def instants(partition: Partition) -> tuple[int | None, int | None]:
    """Return when time alone may let an ask reserve, and when it may let an ask claim."""
    return partition.round.due_ms, pacing.due_ms(partition)


def begin(partition: Partition) -> None:
    """Begin a round; clear the masks unless a round is open and nothing has changed since."""
    state, now = partition.round, counters(partition)
    state.claims_ms = None
    if not state.open or state.seen != now:
        state.seen = now
        state.masked.clear()


def claimants(partition: Partition, shortage: Shortage, now: int) -> snapshotting.Due:
    """Return the asks and gangs that may preempt now, limited by the pace of rounds (P1)."""
    return snapshotting.Due(
        claiming=pacing.admitted(partition, due_claims.claiming(partition, shortage, now), now),
        requiring=due_claims.requiring(partition),
        jobs=due_gangs.admitted(partition, due_gangs.waiting(partition, now), now),
        replacing=pacing.admitted(partition, due_gangs.replacing(partition, now), now),
    )


def may_trim(partition: Partition, now: int) -> bool:
    """Return whether surplus may be reclaimed now (P1): shares follow weights, and usage exceeds capacity (W3)."""
    settings = partition.spec.preemption
    shared_out = settings.enabled and sharing.is_shared_out(partition)
    is_due = shared_out and sharing.is_too_much_used(partition)
    return is_due and pacing.may_trim(partition, now)


def reserving(partition: Partition, now: int) -> list[Ask]:
    """Return the asks that may reserve, the oldest of each group, in order; set the instant at which the next ask may."""
    state = partition.round
    state.due_ms = None
    if not partition.spec.reservations.enabled:
        return []
    held = _held(partition) if partition.classes.dead else Counter()
    if not partition.classes.dead or held.total() >= reservation.most(len(partition.index.nodes)):
        if partition.untold:
            state.barren.clear()
        return []
    _refresh_hopeless(partition)
    asks: list[Ask] = []
    barren: set[int] = set()
    for group in _stuck(partition, held):
        oldest = reservable(group, known_barren=group.number in state.barren)
        if not oldest:
            barren.add(group.number)
        asks += come_of_age(partition, oldest, now)
    state.barren = barren
    return in_order(asks)


def may_reserve_more(partition: Partition) -> bool:
    """Return whether fewer nodes are reserved than the limit allows."""
    return _held(partition).total() < reservation.most(len(partition.index.nodes))


def _held(partition: Partition) -> Counter[str]:
    """Return the number of reservations by leaf."""
    return Counter(
        one.ask.application.leaf.path
        for one in partition.decisions.pledges.values()
        if one.reserves
    )


def _refresh_hopeless(partition: Partition) -> None:
    """Forget which classes no node could hold, if a node opened or a pledge ended."""
    state = partition.round
    now = (partition.index.entered, state.pledges_ended)
    if now != state.hopeless_seen:
        state.hopeless_seen = now
        state.hopeless.clear()


def _stuck(partition: Partition, held: Counter[str]) -> Iterator[Group]:
    """Yield groups whose limits have headroom and whose class no node can take, in leaves below their limit of reservations."""
    for leaf in partition.queues.values():
        if not leaf.leaf or not leaf.pending_asks or not _may_reserve(leaf, held):
            continue
        for application in leaf.applications.values():
            for group in application.groups.values():
                if is_stuck(partition, group):
                    yield group


def _may_reserve(leaf: Queue, held: Counter[str]) -> bool:
    return held[leaf.path] < reservation.RESERVATIONS_PER_LEAF and not any(
        queue.state is QueueState.STOPPED for queue in leaf.path_up()
    )


def is_stuck(partition: Partition, group: Group) -> bool:
    """Return whether the group lacks only a node, and some node could hold it as far as is known."""
    ask_class = group.ask_class
    return (
        ask_class.dead
        and ask_class.pledge is None
        and ask_class.number not in partition.round.hopeless
        and all(limiter.has_room(ask_class) for limiter in group.application.limits_of(ask_class))
    )


def reservable(group: Group, *, known_barren: bool) -> list[Ask]:
    """Return the group's first asks that qualify for a reservation: up to one more than a leaf may have.

    A group in which no ask qualified is not searched again. Only asks that joined since then are checked.
    """
    if known_barren and not any(_is_plain(ask, group) for ask in group.untold):
        return []
    found: list[Ask] = []
    for ask in group.asks:
        if _is_plain(ask, group):
            found.append(ask)
            if len(found) > reservation.RESERVATIONS_PER_LEAF:
                break
    return found


def _is_plain(ask: Ask, group: Group) -> bool:
    """Return whether the ask is still in the group, needs no check by its manager, and is not a member of a gang."""
    spec = ask.spec
    return ask.group is group and not spec.rm_check and not (spec.job_key and spec.min_members > 1)


def come_of_age(partition: Partition, oldest: list[Ask], now: int) -> Iterator[Ask]:
    """Yield the asks that have waited long enough; for the first that has not, set the instant at which it will have."""
    for ask in oldest:
        comes = ask.pending_since + reservation.RESERVE_AFTER_MS
        instant = max(comes, ask.application.reserves_from_ms)
        if instant > now:
            state = partition.round
            state.due_ms = instant if state.due_ms is None else min(instant, state.due_ms)
            return
        yield ask
