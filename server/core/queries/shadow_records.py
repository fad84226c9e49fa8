"""The queries about shadows: the records of a shadow, and the shadow's verdict on a waiting ask. No query changes the state."""

from collections.abc import Iterator

from server.core.core import Core
from server.core.queries import verdicts
from server.core.shadow import side, standing
from server.model.phrases import count
from server.model.records import Verdict
from server.model.shadow import Choice, ShadowReport
from server.state.applications import Ask
from server.state.partition import Partition
from server.state.shadow import Shadow


def reports(core: Core, partition: str = "") -> list[ShadowReport]:
    """Return a report for each shadow that has begun, or only for the shadow of the partition that is named."""
    known = core.state.partitions.values()
    return [report for one in known if partition in ("", one.name) for report in _report(one)]


def _report(partition: Partition) -> Iterator[ShadowReport]:
    known = partition.shadow
    if known is not None and known.live is partition.spec:
        yield ShadowReport(
            partition.name,
            partition.spec.preemption.shadow,
            known.since_ms,
            tuple(known.records.values()),
            dict(known.sums),
            dict(known.told),
            known.forgotten,
        )


def would(core: Core, key: str, now: int) -> Verdict | None:
    """Return a verdict with the shadow's plan for a waiting ask, or with the rule that forbids a plan under the shadow's settings.

    Return None in three cases: no ask with the key waits, the ask waits for a placeholder, or no shadow of the present
    configuration has begun.
    """
    for partition in core.state.partitions.values():
        ask, known = partition.asks.get(key), partition.shadow
        if ask is None or ask.node is not None or known is None:
            continue
        if known.live is not partition.spec:
            return None
        held = next((one for one in known.held.values() if key in one.subjects), None)
        record = known.records.get(key)
        if held is not None and record is not None and record.shadow is not None:
            return _decided(record.shadow, record.at_ms)
        partition.disruptions = core.state.disruptions(partition)
        return _verdict(side.seen(partition, known), known, ask, now)
    return None


def _verdict(other: Partition, known: Shadow, ask: Ask, now: int) -> Verdict | None:
    """Return the verdict on the ask as in a turn of the shadow: the standing decisions are applied first.

    Unlike a turn, the query does not end decisions that no longer stand.
    """
    with side.settled(other):
        return verdicts.of_ask(
            other, ask, now, lambda trial: standing.lay_copy(other, known, trial)
        )


def _decided(choice: Choice, at_ms: int) -> Verdict:
    going = len(choice.victims)
    because = (
        f"{count(going, 'allocation')} would be evicted from node {choice.node_id}"
        if going
        else f"it would get capacity on node {choice.node_id}"
    )
    return Verdict(choice.policy, "", because, choice.node_id, at_ms=at_ms)
