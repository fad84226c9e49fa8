"""The samples of a core for the history. Samples are made in a copy of the core's process, so that no decision waits for a sample."""

import pickle
from collections.abc import Iterator

from server.core.core import Core
from server.core.queries import inspect
from server.history.samples import PODS, Picture, Pod, Sample
from server.model.reports import AllocationReport, QueueReport


def usage(core: Core, now: int) -> bytes:
    """Return the encoded samples of all partitions."""
    found = [
        tuple(Sample(name, now, list(_rows(inspect.queue_tree(core, name)))))
        for name in sorted(core.state.partitions)
    ]
    return pickle.dumps(found, pickle.HIGHEST_PROTOCOL)


def pods(core: Core, number: int) -> bytes:
    """Return the encoded pictures of the partitions whose managers have completed their sync.

    ``number`` is the number of the last item that was queued before the pictures.
    """
    managers, partitions = core.state.managers, core.state.partitions
    found = [
        tuple(Picture(name, number, [tuple(one) for one in _pods(core, name)]))
        for name, one_partition in sorted(partitions.items())
        if one_partition.owner in managers and managers[one_partition.owner].synced
    ]
    return pickle.dumps(found, pickle.HIGHEST_PROTOCOL)


def _rows(queue: QueueReport) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    deserved = queue.proportional.deserved if queue.proportional is not None else {}
    measures = (queue.usage, queue.guaranteed, deserved, queue.promised, queue.pending)
    for kind in sorted({one for each in measures for one in each}):
        values = tuple(each.get(kind, 0) for each in measures)
        if any(values):
            yield queue.path, kind, values
    if queue.allocations or queue.pending_asks:
        yield queue.path, PODS, (queue.allocations, 0, 0, 0, queue.pending_asks)
    for child in queue.children:
        yield from _rows(child)


def _pods(core: Core, partition: str) -> Iterator[Pod]:
    users = {
        one.application_id: (one.rm_id, one.user) for one in inspect.applications(core, partition)
    }
    for one in inspect.allocations(core, partition, asks=True):
        if not one.foreign:
            yield _pod(one, *users.get(one.application_id, ("", "")))


def _pod(one: AllocationReport, rm_id: str, user: str) -> Pod:
    return Pod(
        rm_id,
        one.key,
        one.application_id,
        one.queue,
        user,
        one.node_id,
        tuple(sorted(one.resource.items())),
        one.priority,
        one.created_ms,
        one.placed_ms,
        one.code,
        one.tags,
    )
