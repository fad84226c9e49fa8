"""Who is due for a round: looked for in the books, so that no View is taken for nobody.

What stands here is necessary and cheap to ask; the policies and the laws decide. For reservations it costs a look at
each group of equal asks, not at each ask.
"""

from collections import Counter
from collections.abc import Iterator

from server.books import sharing, snapshot
from server.books.applications import Ask, Group
from server.books.partition import Partition
from server.books.queues import Queue, QueueState
from server.core import jobs, pacing, starving
from server.core.shortage import Shortage
from server.preemption import reservation
from server.scheduling.outranking import in_order

Counters = tuple[int, int]


def counters(partition: Partition) -> Counters:
    """What moves when an event may have made something possible: room, limits, nodes, ended commitments."""
    return partition.relief, len(partition.index.nodes)


def is_called_for(partition: Partition, now: int) -> bool:
    """Could there be anything that the last round has not seen?"""
    state = partition.round
    return (
        state.open
        or bool(partition.untold)
        or state.seen != counters(partition)
        or bool(partition.suspended)
        or (partition.quota_due and min(partition.quota_due.values()) <= now)
        or any(instant is not None and instant <= now for instant in instants(partition))
    )


def instants(partition: Partition) -> tuple[int | None, int | None]:
    """When time alone may let somebody reserve, and when claim."""
    return partition.round.due_ms, pacing.due_ms(partition)


def begin(partition: Partition) -> None:
    """A new round, unless one is open and nothing moved since: nobody is masked any more."""
    state, now = partition.round, counters(partition)
    state.claims_ms = None
    if not state.open or state.seen != now:
        state.seen = now
        state.masked.clear()


def claimants(partition: Partition, shortage: Shortage, now: int) -> snapshot.Due:
    """For whom others may go now: those who are due, as far as the pace of rounds admits them (P1)."""
    return snapshot.Due(
        claiming=pacing.admitted(partition, starving.claiming(partition, shortage, now), now),
        requiring=starving.requiring(partition),
        jobs=jobs.admitted(partition, jobs.waiting(partition, now), now),
        replacing=pacing.admitted(partition, jobs.replacing(partition, now), now),
    )


def may_trim(partition: Partition, now: int) -> bool:
    """Is more used than there is, where that is shared in proportion to weights (W3), and may it be trimmed now (P1)?"""
    settings = partition.spec.preemption
    shared_out = settings.enabled and sharing.is_shared_out(partition)
    is_due = shared_out and sharing.is_too_much_used(partition)
    return is_due and pacing.may_trim(partition, now)


def reserving(partition: Partition, now: int) -> list[Ask]:
    """Asks that may reserve, the oldest of each group, in order; sets the instant at which the next one comes of age."""
    state = partition.round
    state.due_ms = None
    if not partition.spec.reservations.enabled:
        return []
    held = _held(partition) if partition.dead else Counter()
    if not partition.dead or held.total() >= reservation.most(len(partition.index.nodes)):
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
    """Are fewer nodes reserved than may be?"""
    return _held(partition).total() < reservation.most(len(partition.index.nodes))


def _held(partition: Partition) -> Counter[str]:
    """Reservations by leaf."""
    return Counter(
        one.ask.application.leaf.path for one in partition.pledges.values() if one.reserves
    )


def _refresh_hopeless(partition: Partition) -> None:
    """Classes that no node could hold have hope again when a node opened or a pledge ended."""
    state = partition.round
    now = (partition.index.entered, state.pledges_ended)
    if now != state.hopeless_seen:
        state.hopeless_seen = now
        state.hopeless.clear()


def _stuck(partition: Partition, held: Counter[str]) -> Iterator[Group]:
    """Groups whose limits have room and whose class no node can take, in leaves that may still reserve."""
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
    """Does only a node keep the group waiting, and is there one that could hold it, as far as that is known?"""
    ask_class = group.ask_class
    return (
        ask_class.dead
        and ask_class.pledge is None
        and ask_class.number not in partition.round.hopeless
        and all(limiter.has_room(ask_class) for limiter in group.application.limits_of(ask_class))
    )


def reservable(group: Group, *, known_barren: bool) -> list[Ask]:
    """The group's first asks that may reserve at all, as many as a leaf may have and one more.

    A group in which none may is not walked again: only those that joined since are looked at.
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
    """Is it still in the group, and neither to be checked by its manager nor a member of a job?"""
    spec = ask.spec
    return ask.group is group and not spec.rm_check and not (spec.job_key and spec.min_members > 1)


def come_of_age(partition: Partition, oldest: list[Ask], now: int) -> Iterator[Ask]:
    """Those that have waited long enough; the first that has not is due when it will have."""
    for ask in oldest:
        comes = ask.pending_since + reservation.RESERVE_AFTER_MS
        instant = max(comes, ask.application.reserves_from_ms)
        if instant > now:
            state = partition.round
            state.due_ms = instant if state.due_ms is None else min(instant, state.due_ms)
            return
        yield ask
