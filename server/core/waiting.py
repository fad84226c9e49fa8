"""Why asks wait, told to the shim once and again only when the reason changes (design 6.9)."""

from server.books.applications import Ask, Group, Job
from server.books.limits import Limiter
from server.books.partition import Partition
from server.model.decisions import AskState, AskStateChanged, Decision
from server.model.reasons import Code

TELL_MAX = 5_000
"""Asks that one tick speaks of; the others follow in the next."""


def tell(partition: Partition, now: int) -> tuple[list[Decision], bool]:
    """Say why asks wait that nobody has heard of yet; True when some are left for the next tick."""
    del now
    told: list[Decision] = []
    if not partition.untold:
        return told, False
    for group in list(partition.untold):
        if len(told) >= TELL_MAX:
            return told, True
        del partition.untold[group]
        code, reason = why(group)
        state = AskState.SKIPPED if code in _QUOTA else AskState.FAILED
        if isinstance(group, Job):
            _tell_each(group.members, code, reason, state, told)
            group.told = code
            continue
        asks = (
            group.untold
            if group.told == code
            else [ask for ask in group.asks if ask.group is group]
        )
        _tell_each(asks, code, reason, state, told)
        group.untold = []
        group.told = code
    return told, False


_QUOTA = frozenset(
    {Code.QUEUE_LIMIT, Code.USER_LIMIT, Code.GROUP_LIMIT, Code.GANG_GATHERING, Code.QUEUE_STOPPED}
)


def _tell_each(
    asks: list[Ask], code: Code, reason: str, state: AskState, told: list[Decision]
) -> None:
    for ask in asks:
        if ask.group is None or ask.code == code:
            continue
        ask.code = code
        application_id = ask.application.application_id
        told.append(AskStateChanged(ask.rm_id, application_id, ask.key, state, reason))


def why(group: Group | Job) -> tuple[Code, str]:
    """The first thing that holds a group back: its gathering, a limit from the leaf up, the nodes."""
    if isinstance(group, Job):
        if not group.gathered:
            have = len(group.members) + group.placed
            return (
                Code.GANG_GATHERING,
                f"{have} of {group.min_members} members of its job are there",
            )
        return Code.GANG_PARTIAL, "not all members of its job fit at once"
    for limiter in group.application.limiters:
        if not limiter.has_room(group.ask_class):
            return _CODES[limiter.kind], _limit_text(limiter)
    return Code.NO_NODE, "no node has room for it"


_CODES = {"queue": Code.QUEUE_LIMIT, "user": Code.USER_LIMIT, "group": Code.GROUP_LIMIT}


def _limit_text(limiter: Limiter) -> str:
    if limiter.kind == "queue":
        return f"queue {limiter.name} has no head-room for it"
    return f"{limiter.kind} {limiter.name} has no head-room for it in {limiter.queue.path}"
