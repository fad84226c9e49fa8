"""What preemption destroyed, as the books have summed it up since this core started, or since an instant."""

from server.core.core import Core
from server.model.records import LostLine


def lost_work(core: Core, partition: str) -> list[LostLine]:
    """By policy, claimant and victim queue; KeyError for an unknown partition."""
    table = core.state.partitions[partition].lost_work
    return [
        LostLine(*line, lost, table.amounts.get(line, {}))
        for line, lost in sorted(table.lines.items())
    ]


def lost_work_since(core: Core, partition: str, instant: int) -> tuple[list[LostLine], int]:
    """Return what was lost to orders since the minute of an instant, and since when that is complete."""
    found, begin = core.state.partitions[partition].lost_work.since(instant)
    lines = [LostLine(*line, lost, amounts) for line, (lost, amounts) in sorted(found.items())]
    return lines, begin
