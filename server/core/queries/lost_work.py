"""The work that preemption destroyed, summed up since this core started, or since a given instant."""

from collections.abc import Mapping

from server.core.core import Core
from server.model.records import Amounts, Lost, LostLine
from server.state.lost_work import LossKey, LostWork


def lost_work(core: Core, partition: str) -> list[LostLine]:
    """Return the lost work for each combination of policy, preempting queue and victim queue.

    Raise KeyError for an unknown partition.
    """
    return _whole(core.state.partitions[partition].lost.by_queue)


def lost_owners(core: Core, partition: str) -> list[LostLine]:
    """Return the lost work for each combination of policy, preempting queue, victim queue, and user and application of the victims.

    Raise KeyError for an unknown partition.
    """
    return _whole(core.state.partitions[partition].lost.by_owner)


def lost_work_since(core: Core, partition: str, instant: int) -> tuple[list[LostLine], int]:
    """Return the sums of work lost by evictions that were ordered since a given instant, which is rounded down to a minute.

    Also return the instant from which the sums are complete.

    Instants are Unix milliseconds. Raise KeyError for an unknown partition.
    """
    found, begin = core.state.partitions[partition].lost.by_queue.since(instant)
    return _lines(found), begin


def lost_owners_since(core: Core, partition: str, instant: int) -> tuple[list[LostLine], int]:
    """Return the sums of `lost_work_since`, split further by the user and the application of the victims."""
    found, begin = core.state.partitions[partition].lost.by_owner.since(instant)
    return _lines(found), begin


def _whole(table: LostWork) -> list[LostLine]:
    return _lines({line: (lost, table.amounts.get(line, {})) for line, lost in table.lines.items()})


def _lines(found: Mapping[LossKey, tuple[Lost, Amounts]]) -> list[LostLine]:
    return [
        LostLine(
            line.policy, line.claimant, line.victim, lost, amounts, line.user, line.application
        )
        for line, (lost, amounts) in sorted(found.items())
    ]
