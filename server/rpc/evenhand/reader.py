"""What a caller may read of the core: everything, or for a viewer its own queues (design 1.14)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from server.core import inspect
from server.core.core import Core
from server.model.queue_settings import SettingsReport
from server.model.quota import DEFAULT_PARTITION, ROOT, is_below
from server.model.reports import (
    AllocationReport,
    ApplicationReport,
    NodeReport,
    PartitionReport,
    QueueReport,
)
from server.rpc.evenhand.pages import Page
from server.rpc.failures import not_found
from server.rpc.roles import Caller, Role

_NO_QUEUE: Final = "queue"

_Report = TypeVar("_Report")
Listing = tuple[Sequence[_Report], str]
"""One page of reports, and the token of the next or ""."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Which allocations; what is empty does not narrow."""

    partition: str
    queue: str = ""
    application_id: str = ""
    node_id: str = ""
    asks: bool = False


class Reader:
    """Reads the core between ticks, as one caller may see it."""

    def __init__(self, core: Core, caller: Caller) -> None:
        self._core = core
        self._caller = caller

    @property
    def sees_cluster(self) -> bool:
        """May the caller see what belongs to nobody, or to everybody?"""
        return self._caller.role is not Role.VIEWER

    @property
    def visible_queue(self) -> str:
        """The queue of a viewer; empty for those who see the cluster."""
        return "" if self.sees_cluster else self._caller.queue

    def partition_name(self, name: str) -> str:
        """The partition that a request means; raises CallError NOT_FOUND."""
        known = name.lower() or DEFAULT_PARTITION
        if known not in self._core.state.partitions:
            raise not_found("partition", known)
        return known

    def partitions(self) -> Sequence[PartitionReport]:
        """All partitions; of one a viewer learns here the name and the kind."""
        found = inspect.partitions(self._core)
        if self.sees_cluster:
            return found
        known = self._core.state.partitions
        return [
            without_numbers(one) for one in found if self._caller.queue in known[one.name].queues
        ]

    def partition(self, name: str) -> PartitionReport:
        """One partition; raises CallError NOT_FOUND."""
        known = self.partition_name(name)
        return next(one for one in self.partitions() if one.name == known)

    def tree(self, partition: str) -> QueueReport:
        """The queues of a partition, or a viewer's subtree; raises CallError NOT_FOUND."""
        root = inspect.queue_tree(self._core, self.partition_name(partition))
        found = _find(root, self._caller.queue)
        if found is None:
            raise not_found(_NO_QUEUE, self._caller.queue)
        return found if self.sees_cluster or found.path == ROOT else with_own_headroom(found)

    def queue(self, partition: str, path: str) -> QueueReport:
        """One queue with all below it; raises CallError NOT_FOUND where the caller sees none."""
        found = _find(self.tree(partition), path)
        if found is None:
            raise not_found(_NO_QUEUE, path)
        return found

    def settings(self, partition: str, queue: str, page: Page) -> Listing[SettingsReport]:
        """What is set for a queue and all below it; raises CallError NOT_FOUND."""
        name = self.partition_name(partition)
        path = self.queue(name, queue.lower()).path if queue else self.tree(name).path
        return page.read(
            lambda start, size: inspect.queue_settings(
                self._core, name, path, start=start, size=size
            )
        )

    def applications(self, partition: str, queue: str, page: Page) -> Listing[ApplicationReport]:
        """Applications of a queue and all below it."""
        name, path = self.partition_name(partition), self._queue(queue)
        return page.read(
            lambda start, size: inspect.applications(self._core, name, path, start=start, size=size)
        )

    def allocations(self, scope: Scope, page: Page) -> Listing[AllocationReport]:
        """Allocations, and what waits; foreign ones belong to no queue and so to no viewer."""
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

    def asks(self, scope: Scope, most: int) -> Sequence[AllocationReport]:
        """What waits in the scope, at the most so many of it."""
        found, _ = self.allocations(scope, Page(0, most))
        return [one for one in found if not one.node_id]

    def nodes(self, partition: str, page: Page) -> Listing[NodeReport]:
        """Nodes of a partition."""
        name = self.partition_name(partition)
        return page.read(
            lambda start, size: inspect.nodes(self._core, name, start=start, size=size)
        )

    def _queue(self, path: str) -> str:
        """The queue that a request means, never above the caller's own."""
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
    """A partition of which only the name and the kind are told."""
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
    )


def with_own_headroom(report: QueueReport, above: Mapping[str, int] | None = None) -> QueueReport:
    """Return a viewer's queue with the headroom that it and the queues below it leave: that of others tells what they use."""
    room = dict(above or {})
    for kind, most in report.max.items():
        own = max(most - report.usage.get(kind, 0) - report.promised.get(kind, 0), 0)
        room[kind] = min(own, room.get(kind, own))
    children = tuple(with_own_headroom(one, room) for one in report.children)
    return replace(report, headroom=dict(sorted(room.items())), children=children)
