"""What preemption destroyed, as the books have summed it up since this core started."""

from server.core.core import Core
from server.model.records import LostLine


def lost_work(core: Core, partition: str) -> list[LostLine]:
    """By policy, claimant and victim queue; KeyError for an unknown partition."""
    lines = core.state.partitions[partition].lost_work.lines
    return [LostLine(*line, lost) for line, lost in sorted(lines.items())]
