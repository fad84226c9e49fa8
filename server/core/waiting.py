"""Why asks wait, told to the shim once and again only when the reason changes (design 6.9)."""

from collections.abc import Iterable, Iterator

from server.books.applications import Ask, Group, Job
from server.books.limits import CODES, Limiter
from server.books.partition import Partition
from server.books.snapshot import first_blocker
from server.core.obstacles import Obstacles
from server.core.state import State
from server.model.decisions import AskState, AskStateChanged, Decision
from server.model.reasons import Code

TELL_MAX = 5_000
"""Asks that one tick speaks of; the others follow in the next."""


def tell(state: State, partition: Partition) -> tuple[list[Decision], bool]:
    """Say why asks wait that nobody has heard of yet; True when some are left for the next tick."""
    told: list[Decision] = []
    if not partition.untold:
        return told, False
    obstacles = Obstacles(state, partition)
    for group in list(partition.untold):
        if len(told) >= TELL_MAX:
            return told, True
        first = next(_waiting(group), None)
        code = obstacles.code(first) if first else Code.NOT_TRIED
        if first and code is Code.NOT_TRIED:
            continue  # The tick that tries it will know.
        del partition.untold[group]
        if first:
            _tell_each(_listeners(group, code), code, reason_of(code, group, first), told)
            group.told = code
    return told, False


def _waiting(group: Group | Job) -> Iterator[Ask]:
    """The members that wait, those of a group that were pledged or taken elsewhere left out."""
    if isinstance(group, Job):
        return iter(group.members)
    return (ask for ask in group.asks if ask.group is group)


def _listeners(group: Group | Job, code: Code) -> Iterable[Ask]:
    """Those who have not heard it: all when the reason is another than before, else who came since."""
    if isinstance(group, Job):
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
    for ask in asks:
        if ask.group is None or ask.code == code:
            continue
        ask.code = code
        application_id = ask.application.application_id
        told.append(AskStateChanged(ask.rm_id, application_id, ask.key, state, reason))


def reason_of(code: Code, group: Group | Job, ask: Ask) -> str:
    """The code in words, for the object's own event."""
    if isinstance(group, Job) and code is Code.GANG_GATHERING:
        have = len(group.members) + group.placed
        return f"{have} of {group.min_members} members of its job are there"
    if code in CODES.values():
        limiter = first_blocker(ask)
        return _limit_text(limiter) if limiter else ""
    return _TEXTS.get(code, "")


_TEXTS = {
    Code.PLACEHOLDERS_GATHERING: "its application begins when all its placeholders have their places",
    Code.PLACEHOLDER_AWAITED: "a placeholder of its task group holds its place, or is to",
    Code.PLACEHOLDER_GOING: "it takes the place of a placeholder as soon as that is gone",
    Code.GANG_COUNTING: "its job gathers: it is whole when no further member comes for a while",
    Code.GANG_PARTIAL: "not all members of its job fit at once",
    Code.QUEUE_STOPPED: "its queue is stopped and places nothing",
    Code.NO_NODES: "there is no node that takes placements",
    Code.NO_NODE_CONSTRAINTS: "its constraints allow none of the nodes that take placements",
    Code.NO_NODE_CAPACITY: "it is larger than every node that its constraints allow",
    Code.NO_NODE: "no node that could hold it has room for it now",
}


def _limit_text(limiter: Limiter) -> str:
    if limiter.kind == "queue":
        return f"queue {limiter.name} has no head-room for it"
    if limiter.kind == "firm":
        return f"queue {limiter.name} guarantees its firm pods no more"
    return f"{limiter.kind} {limiter.name} has no head-room for it in {limiter.queue.path}"
