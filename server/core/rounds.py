"""The round loop after placement (interim: its owner replaces this file)."""

from dataclasses import dataclass, field

from server.books.partition import Partition
from server.model.decisions import Decision


@dataclass(slots=True)
class RoundResult:
    """What a round did."""

    notes: list[Decision] = field(default_factory=list)
    spent: int = 0
    more: bool = False


def run(partition: Partition, now: int, budget: int) -> RoundResult:
    """Nothing yet."""
    return RoundResult()


def next_due(partition: Partition, now: int) -> int | None:
    """Nothing yet."""
    return None
