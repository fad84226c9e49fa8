"""The part of the core that a caller may read: everything, or for a viewer its own queues (design 1.14)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from server.core.core import Core
from server.core.queries import inspect
from server.model.queue_settings import SettingsReport
from server.model.quota import DEFAULT_PARTITION, ROOT, is_below
from server.model.reports import (
    AllocationReport,
    ApplicationReport,
    NodeReport,
    PartitionReport,
    QueueReport,
    UserLimitReport,
)
from server.rpc.errors import not_found, not_owner
from server.rpc.evenhand.pages import Page
from server.rpc.roles import Caller, Role

_NO_QUEUE: Final = "queue"

_Report = TypeVar("_Report")
Listing = tuple[Sequence[_Report], str]
"""One page of reports, and the token of the next page or ""."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The filter of a listing of allocations. An empty field does not restrict the listing."""

    partition: str
    queue: str = ""
    application_id: str = ""
    node_id: str = ""
    asks: bool = False


class Reader:
    """The reader of the core between ticks, limited to what one caller may see."""

    def __init__(self, core: Core, caller: Caller) -> None:
        self._core = core
        self._caller = caller

    @property
    def sees_cluster(self) -> bool:
        """Whether the caller may see what belongs to no queue or to all queues, such as nodes."""
        return self._caller.role is not Role.VIEWER

    @property
    def visible_queue(self) -> str:
        """The queue of a viewer, or "" for a caller that sees the cluster."""
        return "" if self.sees_cluster else self._caller.queue

    def partition_name(self, name: str) -> str:
        """Return the name of the partition that a request means.

        Raise CallError NOT_FOUND if there is no such partition, and NOT_OWNER if another group of cores decides for it.
        """
        known, state = name.lower() or DEFAULT_PARTITION, self._core.state
        if known not in state.partitions:
            owner = state.other_owner(known)
            if owner:
                raise not_owner(owner, state.why_absent(known))
            raise not_found("partition", known)
        return known

    def partitions(self) -> Sequence[PartitionReport]:
        """Return all partitions.

        A viewer gets only the partitions that have the viewer's queue. Of each partition, a viewer gets the name, the node order, and
        whether the sync of its manager is complete.
        """
        found = inspect.partitions(self._core, counted=False)
        if self.sees_cluster:
            return found
        known = self._core.state.partitions
        return [
            without_numbers(one) for one in found if self._caller.queue in known[one.name].queues
        ]

    def partition(self, name: str) -> PartitionReport:
        """Return the report of a partition.

        Raise CallError NOT_FOUND if there is no such partition, or if the partition does not have the viewer's queue.
        """
        known = self.partition_name(name)
        found = next((one for one in self.partitions() if one.name == known), None)
        if found is None:
            raise not_found(_NO_QUEUE, self._caller.queue)
        return found

    def tree(self, partition: str) -> QueueReport:
        """Return the queues of a partition, or for a viewer only the viewer's queue and the queues below it.

        Raise CallError NOT_FOUND if the partition does not exist, or does not have the viewer's queue.
        """
        found = self._report(self.partition_name(partition), self._caller.queue)
        return found if self.sees_cluster or found.path == ROOT else with_own_headroom(found)

    def queue(self, partition: str, path: str) -> QueueReport:
        """Return a queue with all queues below it.

        Raise CallError NOT_FOUND if the caller may not see the queue.
        """
        if self._caller.queue == ROOT:
            return self._report(self.partition_name(partition), path)
        found = _find(self.tree(partition), path)
        if found is None:
            raise not_found(_NO_QUEUE, path)
        return found

    def _report(self, partition: str, path: str) -> QueueReport:
        if path not in self._core.state.partitions[partition].queues:
            raise not_found(_NO_QUEUE, path)
        return inspect.queue_tree(self._core, partition, path)

    def limits(self, partition: str) -> Mapping[str, Sequence[UserLimitReport]]:
        """Return the user and group limits of each queue that the caller sees.

        Raise CallError NOT_FOUND if there is no such partition.
        """
        found = inspect.user_limits(self._core, self.partition_name(partition))
        return {path: rows for path, rows in found.items() if self._caller.sees(path)}

    def settings(self, partition: str, queue: str, page: Page) -> Listing[SettingsReport]:
        """Return the settings of a queue and of all queues below it.

        Raise CallError NOT_FOUND if there is no such queue.
        """
        name = self.partition_name(partition)
        path = queue.lower() or self._caller.queue
        known = self._core.state.partitions[name].queues
        if path not in known or not self._caller.sees(path):
            raise not_found(_NO_QUEUE, path)
        return page.read(
            lambda start, size: inspect.queue_settings(
                self._core, name, path, start=start, size=size
            )
        )

    def applications(self, partition: str, queue: str, page: Page) -> Listing[ApplicationReport]:
        """Return the applications of a queue and of all queues below it.

        A viewer that may not see the queue gets the applications of its own queue.
        """
        name, path = self.partition_name(partition), self._queue(queue)
        return page.read(
            lambda start, size: inspect.applications(self._core, name, path, start=start, size=size)
        )

    def allocations(self, scope: Scope, page: Page) -> Listing[AllocationReport]:
        """Return allocations and asks. A viewer gets no foreign pods, because foreign pods belong to no queue."""
        name, path = self.partition_name(scope.partition), self._queue(scope.queue)
        return page.read(
            lambda start, size: inspect.allocations(
                self._core,
                name,
                path,
                scope.application_id,
                scope.node_id,
                scope.asks,
                start=start,
                size=size,
            )
        )

    def asks(self, scope: Scope, most: int, start: int = 0) -> Sequence[AllocationReport]:
        """Return the asks on one page of the allocations and asks of the scope.

        The page begins at index ``start`` and has at most ``most`` allocations and asks. An application's allocations come
        before its asks.
        """
        found, _ = self.allocations(scope, Page(start, most))
        return [one for one in found if not one.node_id]

    def nodes(self, partition: str, page: Page) -> Listing[NodeReport]:
        """Return the nodes of a partition."""
        name = self.partition_name(partition)
        return page.read(
            lambda start, size: inspect.nodes(self._core, name, start=start, size=size)
        )

    def _queue(self, path: str) -> str:
        """Return the queue that a request names.

        If the request names no queue, or a queue that a viewer may not see, return the viewer's own queue.

        For a caller that sees the cluster and names no queue, return "", which means all queues.
        """
        if not path:
            return self.visible_queue
        wanted = path.lower()
        return wanted if self._caller.sees(wanted) else self._caller.queue


def _find(report: QueueReport, path: str) -> QueueReport | None:
    if report.path == path:
        return report
    for child in report.children:
        if is_below(path, child.path):
            return _find(child, path)
    return None


def without_numbers(report: PartitionReport) -> PartitionReport:
    """Return the report with only the name of the partition, its node order, and whether its manager's sync is complete."""
    return replace(
        report,
        nodes=0,
        schedulable_nodes=0,
        applications=0,
        allocations=0,
        foreign=0,
        asks=0,
        reservations=0,
        capacity={},
        usage={},
        foreign_usage={},
        waiting={},
        promised={},
        pending={},
        queues=0,
    )


def with_own_headroom(report: QueueReport, above: Mapping[str, int] | None = None) -> QueueReport:
    """Return the report of a viewer's queue, with headroom computed from the limits of this queue and the queues below it only.

    The limits of the queues above are left out, because headroom under these limits reveals what other tenants use.
    """
    left = dict(above or {})
    for kind, most in report.max.items():
        own = max(most - report.usage.get(kind, 0) - report.promised.get(kind, 0), 0)
        left[kind] = min(own, left.get(kind, own))
    children = tuple(with_own_headroom(one, left) for one in report.children)
    return replace(report, headroom=dict(sorted(left.items())), children=children)
