"""Partitions that another group of cores owned before, taken over with everything that its core knew of them (design 7.6)."""

from server.core.state import State
from server.state.partition import Partition


def adopt(state: State, former: State) -> list[str]:
    """Take the partitions that this core owns and does not have yet from the state of their former core. Return their names.

    Asks keep their ages and back-offs. Queues keep their timers. Open decisions stay open. The former core must not decide for
    these partitions any more, and its state must not be used afterwards, because the objects are moved.
    """
    taken = []
    for spec in state.own(state.configuration):
        partition = former.partitions.get(spec.name)
        if partition is None or partition.retired or not _is_empty(state.partitions.get(spec.name)):
            continue
        state.partitions[spec.name] = partition
        taken.append(spec.name)
        for due, _, kind, name, subject in sorted(former.timers):
            if name == spec.name:
                state.at(due, kind, name, subject)
        _add_manager(state, former, partition.owner)
    return taken


def _is_empty(partition: Partition | None) -> bool:
    return partition is None or not (partition.index.nodes or partition.applications)


def _add_manager(state: State, former: State, rm_id: str) -> None:
    """Add the former core's facts about a manager. Facts that this core already has about the manager are kept."""
    there = former.managers.get(rm_id)
    if there is None:
        return
    here = state.managers.setdefault(rm_id, there)
    for group, allowed in there.disruptions_allowed.items():
        here.disruptions_allowed.setdefault(group, allowed)
