"""The preemption decisions that the core still has: all open decisions, and the most recent ended decisions."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from server.core.core import Core
from server.model.ranking import DECIDING, NOT_NEEDED, Ranking
from server.model.records import DecisionRecord, Level, Spared, touches

PODS: Final = "pods"
"""The resource type that counts pods: every pod requests one."""


def decisions(  # noqa: PLR0913, PLR0917 - each argument narrows what is asked
    core: Core,
    partition: str = "",
    policy: str = "",
    queue: str = "",
    open_only: bool = False,  # noqa: FBT001, FBT002 - the flag of the wire
    since_ms: int = 0,
) -> list[DecisionRecord]:
    """Return the decisions that match all given filters, oldest first.

    With ``queue``, decisions of the queues below it are included. Decisions that were made and ended before ``since_ms`` are
    left out.
    """
    found = [
        one
        for one in _of(core, partition)
        if (not policy or one.policy == policy)
        and (not open_only or one.state.is_open)
        and max(one.at_ms, one.ended_ms) >= since_ms
        and touches(one, queue)
    ]
    return sorted(found, key=lambda one: one.at_ms)


def decision(core: Core, decision_id: str) -> DecisionRecord | None:
    """Return the decision with this id.

    Return None if no decision has this id, or if the decision ended so long ago that its record was dropped.
    """
    for state in core.state.partitions.values():
        if decision_id in state.decisions.records:
            return state.decisions.records[decision_id]
    return None


def spared(core: Core, record: DecisionRecord) -> tuple[Spared, ...]:
    """Return the candidates that the decision did not evict, each with the reason why it was not evicted.

    The reason is one of three: a rule protects the candidate, the candidate was not needed, or its node was not chosen.
    """
    ranking = ranking_of(core, record)
    told = {one.law for one in record.spared}
    if ranking is None or NOT_NEEDED in told:
        return record.spared
    return (*record.spared, *ranking.not_taken({one.key for one in record.victims}))


def levels(core: Core, record: DecisionRecord) -> tuple[Level, ...]:
    """Return the amounts of queues at the time when the decision was made.

    The queues are those that influenced the decision, and the queues of its victims.

    For a victim's queue, only some types are reported: the types that the claiming queue lacks or that a queue has to free, and
    the requested types of which a queue on the victim's path has a guarantee.
    """
    ranking = ranking_of(core, record)
    if ranking is None:
        return record.levels
    asked = {name for one in record.beneficiaries for name, _ in one.resource}
    wanted = {one.resource_type for one in record.levels if one.role == DECIDING}
    if record.shrink is not None:
        wanted.update(record.shrink.target)
    found = ranking.levels(record.victims, wanted, asked)
    return (*record.levels, *(found or ranking.levels(record.victims, asked - {PODS})))


def whole(core: Core, record: DecisionRecord) -> DecisionRecord:
    """Return the record completed with `spared` and `levels`, which are derived from the separately stored ranking."""
    return replace(record, spared=spared(core, record), levels=levels(core, record))


def ranking_of(core: Core, record: DecisionRecord) -> Ranking | None:
    """Return the order in which a decision chose its victims. Return None if the decision was made before the last restart of the core."""
    state = core.state.partitions.get(record.partition)
    return None if state is None else state.decisions.rankings.get(record.decision_id)


def evicted_later(core: Core, record: DecisionRecord, key: str) -> str:
    """Return the id of the later decision that evicts an allocation. Return "" if the core knows no such decision."""
    state = core.state.partitions.get(record.partition)
    ask = None if state is None else state.asks.get(key)
    if state is None or (ask is not None and not ask.releasing):
        return ""
    after = (one for one in state.decisions.records.values() if one.at_ms >= record.at_ms)
    found = (
        one.decision_id
        for one in after
        if one.decision_id != record.decision_id
        and key not in one.stayed
        and any(victim.key == key for victim in one.victims)
    )
    return next(found, "")


def _of(core: Core, partition: str) -> Iterator[DecisionRecord]:
    for name, state in core.state.partitions.items():
        if not partition or name == partition:
            yield from state.decisions.records.values()
