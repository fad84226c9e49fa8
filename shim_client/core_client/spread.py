"""Groups of cores: each group decides for some of the partitions (design 7.6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shim_client.core_client.address import CoreAddress


@dataclass(frozen=True, slots=True)
class CoreGroup:
    """A group of cores. The shim uses the first core of the group that accepts the shim.

    The first group of a list also decides for all partitions that no group names.
    """

    name: str
    addresses: tuple[CoreAddress, ...]
    partitions: tuple[str, ...] = ()
    revision: int = 0
    """The revision of the group in the table of cores.

    A core that has another revision of its group refuses the shim.
    """


Cores = CoreAddress | Sequence[CoreAddress | CoreGroup]
"""One core, several cores of which one decides at a time, or groups of cores."""


def groups_of(cores: Cores) -> list[CoreGroup]:
    """Return the groups of cores; a single group without a name if one group decides for all partitions."""
    listed = [cores] if isinstance(cores, CoreAddress) else list(cores)
    groups = [one for one in listed if isinstance(one, CoreGroup)]
    addresses = [one for one in listed if isinstance(one, CoreAddress)]
    return groups or [CoreGroup("", tuple(addresses))]
