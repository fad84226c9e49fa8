"""The transfer of partitions from another group of cores, with all state that the former core has about them (design 7.6, 7.9)."""

from typing import Final

from server.core.state import MovedPartition, State
from server.state.partition import Partition

TIMER: Final = "move"
"""The kind of the timer at which a move is given up. The new owner of the partition does not get this timer."""


def of(state: State, name: str) -> MovedPartition:
    """Return all state that a core has about a partition, for another core to take.

    The returned objects are not copied: they are the objects of the state.
    """
    partition = state.partitions[name]
    timers = [one for one in state.timers if one[3] == name and one[2] != TIMER]
    leaving = state.leaving.get(name)
    if leaving is not None:
        timers += leaving.timers
    manager = state.managers.get(partition.owner)
    return MovedPartition(partition, sorted(timers), manager, state.configuration.digest)


def take(state: State, moved: MovedPartition) -> None:
    """Add a partition of another core. If this core already stores facts about the partition's manager, these facts are kept."""
    partition = moved.partition
    state.partitions[partition.name] = partition
    for due, _, kind, name, subject in moved.timers:
        state.at(due, kind, name, subject)
    there = moved.manager
    if there is None:
        return
    here = state.managers.setdefault(there.rm_id, there)
    for group, allowed in there.disruptions_allowed.items():
        here.disruptions_allowed.setdefault(group, allowed)


def adopt(state: State, former: State) -> list[str]:
    """Take, from the state of their former core, the partitions that this core owns and does not have yet.

    Return the names of these partitions. Asks keep their ages and back-offs. Queues keep their timers. Open decisions stay
    open. After this call, the former core must not decide for these partitions, and its state must not be used, because the
    objects are moved.
    """
    taken = []
    for spec in state.own(state.configuration):
        partition = former.partitions.get(spec.name)
        if partition is None or partition.retired or not is_empty(state.partitions.get(spec.name)):
            continue
        take(state, of(former, spec.name))
        if spec.name in former.outdated:
            state.outdated[spec.name] = former.outdated[spec.name]
        taken.append(spec.name)
    return taken


def is_empty(partition: Partition | None) -> bool:
    """Return whether a core has no objects in a partition, so that the partition can be taken from another core."""
    return partition is None or not (partition.index.nodes or partition.applications)
