"""The decisions of preemption that the core still knows: all that are open, and the last that ended."""

from collections.abc import Iterator

from server.core.core import Core
from server.model.quota import is_below
from server.model.records import DecisionRecord


def decisions(  # noqa: PLR0913, PLR0917 - each argument narrows what is asked
    core: Core,
    partition: str = "",
    policy: str = "",
    queue: str = "",
    open_only: bool = False,  # noqa: FBT001, FBT002 - the flag of the wire
    since_ms: int = 0,
) -> list[DecisionRecord]:
    """Decisions, oldest first. A queue stands for all below it; ``since_ms`` is when one was made, or ended."""
    found = [
        one
        for one in _of(core, partition)
        if (not policy or one.policy == policy)
        and (not open_only or one.state.is_open)
        and max(one.at_ms, one.ended_ms) >= since_ms
        and (not queue or touches(one, queue))
    ]
    return sorted(found, key=lambda one: one.at_ms)


def decision(core: Core, decision_id: str) -> DecisionRecord | None:
    """The decision with this id; None when it never was, or ended long ago."""
    for books in core.state.partitions.values():
        if decision_id in books.decisions:
            return books.decisions[decision_id]
    return None


def touches(record: DecisionRecord, queue: str) -> bool:
    """Does a decision give to a queue, or take from it, or from one below it?"""
    return any(is_below(path, queue) for path in _queues(record))


def _of(core: Core, partition: str) -> Iterator[DecisionRecord]:
    for name, books in core.state.partitions.items():
        if not partition or name == partition:
            yield from books.decisions.values()


def _queues(record: DecisionRecord) -> Iterator[str]:
    if record.shrink is not None:
        yield record.shrink.queue
    yield from (one.queue for one in record.beneficiaries)
    yield from (one.queue for one in record.victims)
