"""The amounts that firm asks hold and want in each queue, for a snapshot (J4)."""

from collections.abc import Iterable, Mapping

from server.model.asks import PLAIN, job_class
from server.model.fit import Amounts
from server.snapshot.waiting import FirmUse
from server.state.applications import Ask
from server.state.partition import Partition


def facts(partition: Partition) -> Mapping[str, FirmUse]:
    """Return by queue the firm amounts held once all ordered releases are done, and wanted; {} if no ask is firm (J4)."""
    if job_class(PLAIN, partition.spec.preemption) is None:
        return {}
    going = [partition.asks[key] for key in partition.columns.allocations.dying()]
    yielding = [held.ask for held in partition.decisions.pledges.values() if held.reserves]
    less = _sums(partition, (one for one in (*going, *yielding) if one.ask_class.firm))
    more = _sums(partition, (one for one in yielding if one.ask_class.firm))
    nothing = partition.types.zeros()
    found = {}
    for path, queue in partition.queues.items():
        lines = zip(queue.firm_held, less.get(path, nothing), strict=True)
        held = tuple(one - gone for one, gone in lines)
        parts = zip(held, queue.firm_waiting, more.get(path, nothing), strict=True)
        found[path] = FirmUse(held, tuple(map(sum, parts)), tuple(more.get(path, nothing)))
    return found


def _sums(partition: Partition, asks: Iterable[Ask]) -> dict[str, Amounts]:
    """Return by queue the sum of the demands of asks in it and below it."""
    sums: dict[str, Amounts] = {}
    for ask in asks:
        for queue in ask.application.leaf.path_up():
            amounts = sums.setdefault(queue.path, partition.types.zeros())
            for index, quantity in ask.ask_class.demand:
                amounts[index] += quantity
    return sums
