"""The reports of queues on the read side: amounts, headroom, share and effective properties."""

from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from server.core.preemption.deficits import Shortage
from server.model.fit import SHARE_ONE, SHARE_UNBOUNDED, Amounts, share
from server.model.quota import PREEMPTION_DELAY, QUOTA_DELAY, QueueProperties
from server.model.reports import QueueReport, ShareReport
from server.preemption.proportion import QueueStanding, Share, ShareLevel
from server.state import quota_timers, reranking, sharing
from server.state.equivalence import AskClass
from server.state.partition import Partition
from server.state.queues import Queue
from server.state.types import NO_LIMIT, replaced

UNBOUNDED_PPM = -1
"""The number that is reported as the share of a queue if the queue uses a type of which it is entitled to no amount."""
_EFFECTIVE_KEPT = 64
"""The number of results of `_effective` that are cached."""


def queue_report(partition: Partition, queue: Queue | None = None) -> QueueReport:
    """Return the report of a queue, by default of the root. The report contains the reports of all queues below the queue."""
    top = queue or partition.root
    above = _Above(list(partition.capacity), [NO_LIMIT] * len(partition.types), {})
    for one in reversed(list(top.path_up())[1:]):
        above = _below(partition, one, above)
    return _queue_report(partition, top, above, share_reports(partition))


class _Above(NamedTuple):
    """The amounts that a queue inherits from its ancestors, by type.

    ``measure`` has the amounts by which usage is divided to get a share, for types that the queue does not guarantee. ``left``
    is the headroom under the limits of the ancestors.
    """

    measure: Amounts
    left: Amounts
    shown: dict[str, int]
    """The headroom by type name, as reports have it."""


def _below(partition: Partition, queue: Queue, above: _Above) -> _Above:
    """Return what the children of a queue inherit. A queue without a limit passes on what it inherits itself."""
    most, limiter = queue.spec.max, queue.limiter
    if not most and limiter is None:
        return above
    measure = replaced(above.measure, most, partition.types.index)
    if limiter is None:
        return above._replace(measure=measure)
    left = list(map(min, above.left, limiter.headroom))
    return _Above(measure, left, headroom(partition, left))


def _queue_report(
    partition: Partition, queue: Queue, above: _Above, shares: Mapping[str, ShareReport]
) -> QueueReport:
    """Return the report of one queue with all queues below it.

    An open page of the console reads all queues after each decision. Therefore values that many queues share are computed once,
    and an amount that is zero for most queues is computed only if it is not zero.
    """
    named, spec = partition.types.named, queue.spec
    inherited = _below(partition, queue, above)
    children = tuple(
        [
            _queue_report(partition, queue.children[name], inherited, shares)
            for name in sorted(queue.children)
        ]
    )
    waiting = queue.waiting() if queue.pending or queue.parent is None else None
    exceeded = quota_timers.over(partition, queue) if spec.max else ()
    own = queue.applications.values()
    allocations = applications_waiting = 0
    for application in own:
        allocations += len(application.allocations)
        applications_waiting += bool(application.asks)
    return QueueReport(
        path=queue.path,
        leaf=queue.leaf,
        managed=queue.managed,
        state=queue.state.value,
        guaranteed=dict(spec.guaranteed),
        max=dict(spec.max or ()),
        usage=named(queue.usage),
        promised=named(queue.promised) if any(queue.promised) else {},
        pending=named(pending_of(partition, waiting)) if waiting else {},
        releasing=named(queue.releasing) if any(queue.releasing) else {},
        headroom=inherited.shown.copy(),
        weight=spec.weight,
        max_applications=spec.max_applications,
        applications=len(own) + sum([one.applications for one in children]),
        pending_asks=waiting.total() if waiting else 0,
        allocations=allocations + sum([one.allocations for one in children]),
        share_ppm=_in_millionths(queue, _measure(partition, queue, inherited)),
        properties=properties(queue),
        preemption_delay_ms=spec.properties.preemption_delay_ms,
        children=children,
        over_max=over_max(partition, queue) if exceeded else {},
        quota_due_ms=partition.quota_due.get(queue.path, 0),
        not_enforced=(quota_timers.why_not(partition, queue) or "") if exceeded else "",
        applications_waiting=applications_waiting
        + sum([one.applications_waiting for one in children]),
        proportional=shares.get(queue.path),
    )


def _measure(partition: Partition, queue: Queue, inherited: _Above) -> Amounts:
    """Return, by type, the amounts by which the usage of a queue is divided to get its share.

    The result equals that of `_basis`.
    """
    if partition.shared_for is not None:
        return queue.basis
    return replaced(inherited.measure, queue.spec.guaranteed, partition.types.index)


def share_reports(partition: Partition) -> dict[str, ShareReport]:
    """Return the share report of each queue by its path, if shares follow weights (W4, W5).

    Return {} if shares do not follow weights in this partition.
    """
    if not sharing.is_shared_out(partition):
        return {}
    shares = Shortage(partition).shares
    return {
        path: _share_report(partition, shares.of(path), standing)
        for path, standing in shares.standings().items()
    }


def _share_report(partition: Partition, share_of: Share, standing: QueueStanding) -> ShareReport:
    named, names = partition.types.named, partition.types.names
    sides = zip(names, standing.sides, strict=True)
    return ShareReport(
        deserved=named(share_of.deserved),
        entitled=named(share_of.entitled),
        allocated=named(standing.allocated),
        preempting=named(standing.preempting),
        standing={name: side.value for name, side in sides if side is not ShareLevel.EVEN},
    )


def over_max(partition: Partition, queue: Queue) -> dict[str, int]:
    """Return the amounts by which the usage of a queue exceeds its maximum, by type name. Releasing allocations count as gone."""
    index, most = partition.types.index, dict(queue.spec.max or ())
    return {
        kind: queue.usage[index[kind]] - queue.releasing[index[kind]] - most[kind]
        for kind in quota_timers.over(partition, queue)
    }


def headroom(partition: Partition, amounts: Amounts) -> dict[str, int]:
    """Return the headroom by type name, from amounts by type index.

    Types without a limit are left out, and negative headroom becomes 0.
    """
    names = partition.types.names
    limited = (
        (name, max(left, 0)) for name, left in zip(names, amounts, strict=True) if is_limited(left)
    )
    return dict(sorted(limited))


def is_limited(left: int) -> bool:
    """Return whether a headroom comes from a limit. For a type that no queue on the path limits, the headroom is about NO_LIMIT."""
    return left < NO_LIMIT >> 1


def pending_of(partition: Partition, counts: Counter[AskClass]) -> Amounts:
    """Return the sum of the requests of waiting asks, given the number of asks of each class."""
    amounts = partition.types.zeros()
    for ask_class, count in counts.items():
        for index, quantity in ask_class.demand:
            amounts[index] += quantity * count
    return amounts


def share_ppm(partition: Partition, queue: Queue) -> int:
    """Return the dominant share of a queue in millionths.

    Return UNBOUNDED_PPM if the queue uses a type of which it is entitled to no amount.
    """
    return _in_millionths(queue, _basis(partition, queue))


def _in_millionths(queue: Queue, basis: Amounts) -> int:
    found = share(queue.usage, basis)
    return (
        UNBOUNDED_PPM
        if found >= SHARE_UNBOUNDED
        else (found * 1_000_000 + SHARE_ONE // 2) // SHARE_ONE
    )


def dominant_type(partition: Partition, queue: Queue) -> str:
    """Return the type of the dominant share, or "" if the queue uses no resources."""
    lines = zip(partition.types.names, queue.usage, _basis(partition, queue), strict=True)
    parts = {name: share((used,), (base,)) for name, used, base in lines if used > 0}
    return max(parts, key=parts.__getitem__, default="")


def compared_with(partition: Partition, queue: Queue, kind: str) -> str:
    """Return a text that names the divisor of a share: the amount by which the usage of a type is divided (O2, W5)."""
    if partition.shared_for is not None:
        return "what it is entitled to by weight"
    if kind in dict(queue.spec.guaranteed):
        return "its guarantee"
    for one in queue.path_up():
        if kind in dict(one.spec.max or ()):
            return "its max" if one is queue else f"the max of queue {one.path}"
    return "what the partition has"


def _basis(partition: Partition, queue: Queue) -> Amounts:
    return reranking.measure(partition, queue) if partition.shared_for is None else queue.basis


def properties(queue: Queue) -> dict[str, str]:
    """Return the values in force of the properties that the core knows, by their names in `queues.yaml`.

    Properties that the core does not know are included as the configuration has them.
    """
    effective = _effective(queue.spec.properties)
    raw = queue.spec.raw_properties
    return dict(sorted({**raw, **effective}.items())) if raw else dict(effective)


@lru_cache(_EFFECTIVE_KEPT)
def _effective(own: QueueProperties) -> Mapping[str, str]:
    """Return the texts of the properties that the core knows, by name.

    Results are cached, because most queues of a cluster have equal properties.
    """
    found = {
        "application.sort.policy": own.sort_policy.value,
        "application.sort.priority": "enabled" if own.priority_sort else "disabled",
        "priority.policy": own.priority_policy.value,
        "priority.offset": str(own.priority_offset),
        "preemption.policy": own.preemption_policy.value,
        PREEMPTION_DELAY: duration_text(own.preemption_delay_ms),
    }
    if own.preemption_minruntime_ms:
        found["preemption.minruntime"] = duration_text(own.preemption_minruntime_ms)
    if own.quota_delay_ms:
        found[QUOTA_DELAY] = duration_text(own.quota_delay_ms)
    return dict(sorted(found.items()))


def duration_text(milliseconds: int) -> str:
    """Return a duration in the largest unit that divides it: 90s, 5m, 1500ms."""
    for unit, length in (("h", 3_600_000), ("m", 60_000), ("s", 1_000)):
        if milliseconds and milliseconds % length == 0:
            return f"{milliseconds // length}{unit}"
    return f"{milliseconds}ms"
