"""The reports of user and group limits for the read side: each limit with the usage that counts against the limit."""

from collections import defaultdict
from collections.abc import Iterator

from server.model.quota import WILDCARD, UserLimit
from server.model.reports import UserLimitReport
from server.state.limits import Limiter, group_limit, user_limit
from server.state.partition import Partition
from server.state.queues import Queue
from server.state.types import NO_LIMIT

Reports = dict[str, tuple[UserLimitReport, ...]]
"""The limits that each queue sets, by the path of the queue."""


def limit_reports(partition: Partition) -> Reports:
    """Return the limits of all queues, in the order of the configuration.

    After the wildcard limit for users comes a report for each user to which this limit applies and who has an application.
    These reports are sorted by user name. The wildcard limit bounds the usage of each user alone.
    """
    limiting = [one for one in partition.queues.values() if one.spec.limits]
    if not limiting:
        return {}
    present: dict[str, list[str]] = defaultdict(list)
    for (path, kind, name), limiter in partition.limits.by_key.items():
        if kind == "user" and name and limiter.applications:
            present[path].append(name)
    return {
        queue.path: tuple(
            _report(partition, queue, kind, name) for kind, name in _named(queue, present)
        )
        for queue in limiting
    }


def _named(queue: Queue, present: dict[str, list[str]]) -> Iterator[tuple[str, str]]:
    """Yield the kind and the name of each user and group that a queue limits, each pair once."""
    known: dict[tuple[str, str], None] = {}
    for entry in queue.spec.limits:
        known.update(dict.fromkeys(("user", name) for name in entry.users))
        known.update(dict.fromkeys(("group", name) for name in entry.groups))
    for kind, name in known:
        yield kind, name
        if (kind, name) == ("user", WILDCARD):
            each = (("user", user) for user in sorted(present[queue.path]))
            yield from (one for one in each if one not in known)


def _report(partition: Partition, queue: Queue, kind: str, name: str) -> UserLimitReport:
    limiter = partition.limits.by_key.get((queue.path, kind, name))
    if limiter is not None:
        return report(partition, limiter)
    entry = _entry(queue, kind, name)
    most = dict(entry.max_resources)
    return UserLimitReport(queue.path, kind, name, most, {}, most, entry.max_applications)


def report(partition: Partition, limiter: Limiter) -> UserLimitReport:
    """Return one user or group limit with its usage, that is, the amount by which the limit's headroom is below its max."""
    entry = _entry(limiter.queue, limiter.kind, limiter.name)
    most = dict(entry.max_resources)
    lines = sorted(zip(partition.types.names, limiter.headroom, strict=True))
    usage = {name: most.get(name, NO_LIMIT) - left for name, left in lines}
    return UserLimitReport(
        queue=limiter.queue.path,
        kind=limiter.kind,
        name=limiter.name,
        max=most,
        usage={name: used for name, used in usage.items() if used},
        headroom={name: max(left, 0) for name, left in lines if name in most},
        max_applications=entry.max_applications,
        applications=limiter.applications,
    )


def _entry(queue: Queue, kind: str, name: str) -> UserLimit:
    entry = user_limit(queue.spec, name) if kind == "user" else group_limit(queue.spec, name)
    assert entry is not None, f"{kind} {name} has no limit in {queue.path}"
    return entry
