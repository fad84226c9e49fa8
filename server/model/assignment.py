"""The assignment of partitions to groups of cores: which group decides for which partition (design 7.6)."""

from collections.abc import Mapping
from typing import NamedTuple


class Assignment(NamedTuple):
    """The table of partitions as one core reads it. ``owners`` has the group of each partition that the table names.

    ``rest`` is the group of all other partitions, so that each partition has exactly one owner.
    """

    group: str
    """The group of this core."""
    owners: Mapping[str, str]
    rest: str
    revision: int = 0
    """The revision of this group in the table. Cores and shims of a group work together only if their revisions are equal."""

    def owner(self, partition: str) -> str:
        """Return the group that decides for a partition."""
        return self.owners.get(partition, self.rest)

    def owns(self, partition: str) -> bool:
        """Return whether this core's group decides for a partition."""
        return self.owner(partition) == self.group
