"""The reasons why asks wait. Each reason is sent to the shim once, and sent again only when the reason changes (design 6.9)."""

from collections.abc import Iterable, Iterator
from itertools import islice

from server.core.state import State
from server.core.wait_reasons import reservations
from server.core.wait_reasons.obstacles import Obstacles, in_the_way
from server.model.decisions import AskState, AskStateChanged, Decision
from server.model.phrases import agreeing, count, quantities
from server.model.reasons import Code
from server.scheduling.outranking import most_free
from server.state.applications import Ask, Gang, Group
from server.state.limits import CODES, Limiter
from server.state.partition import Partition
from server.state.placeholders import PLACEHOLDERS
from server.state.snapshotting import first_blocker

TELL_MAX = 2_500
"""The largest number of asks whose reasons for waiting one tick reports. The next ticks report the reasons of the remaining asks."""
TELL_BESIDE_MAX = 1_000
"""The largest number of asks whose reasons for waiting a tick reports if it has placements to send.

Placements are sent when the tick ends, and must not wait while texts are made.
"""
RETELL_MS = 60_000
"""The shortest time, in milliseconds, between two reports for one group that name different reservations."""


def tell(
    state: State, partition: Partition, now: int, most: int = TELL_MAX
) -> tuple[list[Decision], bool]:
    """Return the reasons for waiting that were not sent to the shim yet, for about ``most`` asks, and whether reasons are left to report."""
    told: list[Decision] = []
    _note_reserved(partition, now)
    if not partition.untold:
        return told, False
    obstacles = Obstacles(state, partition)
    for group in list(partition.untold):
        if len(told) >= most:
            return told, True
        first = next(_waiting(group), None)
        code = obstacles.code(first) if first else Code.NOT_TRIED
        if first and code is Code.NOT_TRIED:
            continue  # The tick in which the ask is tried reports the outcome.
        del partition.untold[group]
        if first:
            reason = _reason(partition, code, group, first, now)
            _tell_each(_listeners(group, code), code, reason, told)
            group.told = code
    return told, False


def _note_reserved(partition: Partition, now: int) -> None:
    """Mark groups whose reason for waiting changed because reservations changed.

    The next call of `tell` reports the marked groups. If a group's last reported reason names no reservation, but a reservation
    now keeps the group waiting, the group is reported at once. If the last reported reason names a reservation that has ended,
    and the group still waits, the group is reported at most once in RETELL_MS.
    """
    changes, known = partition.round, partition.round.reserved_told
    if changes.reservations_untold and partition.decisions.reservations:
        for ask_class in partition.classes.dead.within(most_free(partition)):
            groups = [one for one in ask_class.waiting if one.live and one.told == Code.NO_NODE]
            first = next((_waiting(one) for one in groups), iter(()))
            if any(in_the_way(partition, ask) for ask in islice(first, 1)):
                partition.untold.update(dict.fromkeys(groups))
    changes.reservations_untold = False
    for group, (commitment_id, told_ms) in list(known.items()):
        ended = commitment_id not in partition.decisions.open and now >= told_ms + RETELL_MS
        if group.live and not ended:
            continue
        del known[group]
        if group.live:
            for ask in _waiting(group):
                ask.code = ""
            group.told = ""
            partition.untold[group] = None


def _reason(partition: Partition, code: Code, group: Group | Gang, ask: Ask, now: int) -> str:
    """Return the text for a reason code.

    If the text names a reservation, record the reservation, so that the group is reported again when this reservation ends.
    """
    found = in_the_way(partition, ask) if code is Code.CAPACITY_RESERVED else []
    if not found or isinstance(group, Gang):
        return reason_of(code, group, ask)
    partition.round.reserved_told[group] = (found[0].commitment.commitment_id, now)
    return reservations.sentence(ask, found)


def _waiting(group: Group | Gang) -> Iterator[Ask]:
    """Yield the waiting members of a gang, or the waiting asks of a group.

    The list of a group may still contain asks that have left the group, because they got a pledge or a node. Asks that have
    left the group are skipped.
    """
    if isinstance(group, Gang):
        return iter(group.members)
    return (ask for ask in group.asks if ask.group is group)


def _listeners(group: Group | Gang, code: Code) -> Iterable[Ask]:
    """Return the asks to report.

    Of a gang, these are all asks. Of a group, these are all asks if the reason for waiting changed, and otherwise the asks that
    are new since the last report.
    """
    if isinstance(group, Gang):
        return group.members
    new, group.untold = group.untold, []
    return new if group.told == code else _waiting(group)


_QUOTA = frozenset(
    {
        Code.QUEUE_LIMIT,
        Code.FIRM_LIMIT,
        Code.USER_LIMIT,
        Code.GROUP_LIMIT,
        Code.GANG_GATHERING,
        Code.GANG_COUNTING,
        Code.PLACEHOLDERS_GATHERING,
        Code.PLACEHOLDER_AWAITED,
        Code.PLACEHOLDER_GOING,
        Code.QUEUE_STOPPED,
    }
)


def _tell_each(asks: Iterable[Ask], code: Code, reason: str, told: list[Decision]) -> None:
    state = AskState.SKIPPED if code in _QUOTA else AskState.FAILED
    word = code.value
    for ask in asks:
        if ask.group is None or ask.code == code:
            continue
        ask.code = code
        application_id = ask.application.application_id
        told.append(AskStateChanged(ask.rm_id, application_id, ask.key, state, reason, word))


def reason_of(code: Code, group: Group | Gang, ask: Ask) -> str:
    """Return the text of the Kubernetes event about the pod for a reason code. Return "" for a code that needs no text."""
    if isinstance(group, Gang) and group.key == PLACEHOLDERS and code in _OF_PLACEHOLDERS:
        reserve = group.application.reserve
        wanted = quantities({} if reserve is None else reserve.wanted)
        return _OF_PLACEHOLDERS[code].format(wanted=wanted)
    if isinstance(group, Gang) and code is Code.GANG_GATHERING:
        have = len(group.members) + group.placed
        return f"{have} of {count(group.min_members, 'member')} of its gang {agreeing('are', have)} there"
    if code in CODES.values():
        limiter = first_blocker(ask)
        return _limit_text(limiter) if limiter else ""
    return _TEXTS.get(code, "")


_OF_PLACEHOLDERS = {
    Code.GANG_GATHERING: "it waits for the remaining placeholders of its application: {wanted} in all are declared",
    Code.GANG_PARTIAL: "not all placeholders of its application fit at once, {wanted} in all",
}
_TEXTS = {
    Code.PLACEHOLDERS_GATHERING: "its application begins when all its placeholders have their places",
    Code.PLACEHOLDER_AWAITED: "a placeholder of its task group holds its place, or is to",
    Code.PLACEHOLDER_GOING: "it replaces a placeholder as soon as that has ended",
    Code.GANG_COUNTING: "its gang is counted: it counts as complete when no further member arrives for a while",
    Code.GANG_PARTIAL: "not all members of its gang fit at once",
    Code.QUEUE_STOPPED: "its queue is stopped and places nothing",
    Code.NO_NODES: "there is no node that takes placements",
    Code.NO_NODE_CONSTRAINTS: "its constraints allow none of the nodes that take placements",
    Code.NO_NODE_CAPACITY: "it is larger than every node that its constraints allow",
    Code.CAPACITY_RESERVED: "a node has free capacity for it that is reserved for another ask",
    Code.NO_NODE: "no node that could hold it has enough free capacity now",
}


def _limit_text(limiter: Limiter) -> str:
    if limiter.kind == "queue":
        return f"queue {limiter.name} has no headroom for it"
    if limiter.kind == "firm":
        return f"queue {limiter.name} guarantees its firm pods no more"
    return f"{limiter.kind} {limiter.name} has no headroom for it in {limiter.queue.path}"
