"""The move of a partition to another group of cores while both groups run (design 7.9).

The former owner stops deciding for the partition (`MoveStep.LEAVE`), and a copy of the partition goes to the new owner in
parts. The new owner takes the copy when a shim registers with the revision of the table that gives the partition to the new
owner. At most one of the two groups acts for the partition. The shim reports the partition only to the group that its table
names, and a core decides only for partitions that were reported to it. The shim's reports are compared with the copy, so the
copy may be older than the reports.
"""

import base64
import hashlib
import heapq
import io
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from server.core.events import configuration, moved, resuming
from server.core.state import Arrival, Leaving, Manager, MovedPartition, State
from server.model.decisions import Decision, Noted
from server.model.events import PartitionMoving
from server.model.moves import CHANGES_MAX, MoveStep, TableChange
from server.model.parts import whole
from server.model.reasons import Code
from server.state.digest import digest
from server.state.partition import Partition
from server.state.pickled import BadCheckpointError, Frames, frames_of, loaded, packed

TIMER: Final = moved.TIMER
PART_BYTES: Final = 1 << 18
"""The number of bytes of one part of a partition's copy."""
UNPACKED_BYTES_MAX: Final = 1 << 30
"""The largest number of bytes of a partition's copy after decompression.

A typical copy has about four times as many bytes after decompression as before.
"""


def copy_of(state: State, name: str) -> bytes:
    """Return a copy of a partition. The core must not change the partition while the copy is made."""
    return b"".join(packed(frames_of(moved.of(state, name))))


def parts_of(data: bytes) -> Iterator[bytes]:
    """Yield the parts of a partition's copy."""
    for at in range(0, len(data), PART_BYTES):
        yield data[at : at + PART_BYTES]


def encoded(part: bytes) -> str:
    """Return a part of a partition's copy in the encoding that events use."""
    return base64.b85encode(part).decode()


def in_the_way(state: State, name: str, group: str = "") -> str:
    """Return the partition whose move has to end before the partition ``name`` can move, or "" if no such move is in progress.

    ``group`` is the new owner, or "" if this core's group is the new owner.

    Two moves at the same time would get the same revision, because a move gets the next revision of this core's group.
    """
    leaving = state.leaving.get(name)
    if leaving is not None and leaving.group != group:
        return name
    others = [one for one in (*state.leaving, *state.arrivals) if one != name]
    return others[0] if others else ""


def move(state: State, event: PartitionMoving, now: int) -> list[Decision]:
    """Carry out one step of a move.

    Do nothing if the step does not fit the state: the caller reads the state afterwards to learn the result.
    """
    return _STEPS[event.step](state, event, now)


def _leave(state: State, event: PartitionMoving, now: int) -> list[Decision]:
    name = event.partition
    partition = state.partitions.get(name)
    if partition is None or in_the_way(state, name, event.group):
        return []
    # The copy contains the configuration in force.
    notes = whole(configuration.complete(state, partition, now))
    known = state.leaving.get(name)
    timers = [] if known is None else known.timers
    state.leaving[name] = Leaving(event.group, event.until_ms, timers)
    state.at(event.until_ms, TIMER, name, event.group)
    return [
        *notes,
        _note(name, f"moves to cores {event.group!r}: nothing is placed in it meanwhile"),
    ]


def _stay(state: State, event: PartitionMoving, now: int) -> list[Decision]:
    del now
    name = event.partition
    state.copies.pop(name, None)
    state.arrivals.pop(name, None)
    partition = state.partitions.get(name)
    return [] if partition is None else _stays(state, partition, "the move was given up")


def given_up(state: State, partition: Partition, now: int) -> list[Decision]:
    """Resume decisions for a partition whose move was not completed in time."""
    leaving = state.leaving.get(partition.name)
    if leaving is None or leaving.until_ms > now:
        return []
    return _stays(state, partition, "the move was not completed in time")


def _stays(state: State, partition: Partition, why: str) -> list[Decision]:
    leaving = state.leaving.pop(partition.name, None)
    if leaving is None:
        return []
    for timer in leaving.timers:
        heapq.heappush(state.timers, timer)
    partition.relief += 1
    return [_note(partition.name, f"stays here: {why}")]


def _left(state: State, event: PartitionMoving, now: int) -> list[Decision]:
    del now
    name, leaving = event.partition, state.leaving.get(event.partition)
    if leaving is None or leaving.group != event.group or state.assignment is None:
        return []
    del state.leaving[name]
    state.outdated.pop(name, None)
    partition = state.partitions.pop(name)
    whole(configuration.untie(partition))
    state.timers = [one for one in state.timers if one[3] != name]
    heapq.heapify(state.timers)
    change = TableChange(event.revision, name, event.group, event.group_revision)
    _change_table(state, change)
    return [_note(name, f"belongs to cores {event.group!r} from now on")]


def _part(state: State, event: PartitionMoving, now: int) -> list[Decision]:
    del now
    if in_the_way(state, event.partition):
        return []
    if event.number == 0:
        state.copies.clear()
        state.copies[event.partition] = []
    parts = state.copies.get(event.partition)
    if parts is not None and len(parts) == event.number:
        parts.append(event.content)
    return []


def _arrived(state: State, event: PartitionMoving, now: int) -> list[Decision]:
    """Read the copy of a partition, and store it until a shim registers with the new table.

    An earlier copy of the partition is replaced, because it belongs to a move that was given up.
    """
    del now
    name, parts = event.partition, state.copies.pop(event.partition, [])
    if in_the_way(state, name):
        return []
    state.arrivals.clear()
    try:
        data = b"".join(map(base64.b85decode, parts))
        frames = Frames(io.BytesIO(data), UNPACKED_BYTES_MAX)
        found = loaded(frames, MovedPartition)
        frames.end()
    except (BadCheckpointError, ValueError) as error:
        return [_note(name, f"its copy from cores {event.group!r} cannot be used: {error}")]
    state.arrivals[name] = Arrival(found, event.group, event.revision)
    return [_note(name, f"its copy came from cores {event.group!r}")]


def take(state: State, revision: int, now: int, rm_id: str) -> list[Decision]:
    """Take the partition whose move has this revision of the table, because its manager has registered with that revision.

    Return the decisions to report.
    """
    assignment = state.assignment
    if assignment is None or revision <= assignment.revision:
        return []
    for name, arrival in state.arrivals.items():
        if arrival.revision == revision and _is_of(arrival, rm_id):
            return _take(state, assignment.group, name, now)
    return []


def take_named(state: State, now: int) -> None:
    """Take the partition whose copy has arrived, if the core was started with a table that names this group as the owner."""
    assignment = state.assignment
    if assignment is None:
        return
    for name, arrival in list(state.arrivals.items()):
        if arrival.revision == assignment.revision and assignment.owns(name):
            _take(state, assignment.group, name, now)


def known_manager(state: State, revision: int, rm_id: str) -> Manager | None:
    """Return the last registration of a manager at this core, or else at the former owner of a partition.

    The partition is the one that moves to this core with ``revision``.
    """
    known = state.managers.get(rm_id)
    found = [one.moved.manager for one in state.arrivals.values() if one.revision == revision]
    return known or next((one for one in found if one is not None and one.rm_id == rm_id), None)


def _is_of(arrival: Arrival, rm_id: str) -> bool:
    """Return whether the core may take the partition when this manager registers.

    The manager must own the partition, unless no manager owns it.
    """
    manager = arrival.moved.manager
    return manager is None or manager.rm_id == rm_id


def _take(state: State, group: str, name: str, now: int) -> list[Decision]:
    """Record the move to this core's group in the table, and take the partition unless this core already has objects in it."""
    arrival = state.arrivals[name]
    _change_table(state, TableChange(arrival.revision, name, group, arrival.revision))
    return _begin(state, arrival, now) if moved.is_empty(state.partitions.get(name)) else []


def _begin(state: State, arrival: Arrival, now: int) -> list[Decision]:
    """Take a partition. The next reports of its manager are compared with the copy that arrived."""
    partition, former = arrival.moved.partition, arrival.moved.manager
    moved.take(state, arrival.moved)
    if former is not None:
        resuming.begin(partition, former)
        former.session = None
    notes = [_note(partition.name, f"belongs to these cores now; cores {arrival.group!r} had it")]
    if arrival.moved.configuration != state.configuration.digest:
        notes += whole(configuration.adapt(state, partition, now))
    return notes


def _change_table(state: State, change: TableChange) -> None:
    """Record a move in the core's own table.

    If a partition's copy arrived for this revision or for an older revision, the copy can no longer be taken.
    """
    assignment = state.assignment
    assert assignment is not None, "a core without a table moves nothing"
    for name in [name for name, one in state.arrivals.items() if one.revision <= change.revision]:
        del state.arrivals[name]
    owners = {**assignment.owners, change.partition: change.group}
    state.assignment = assignment._replace(owners=owners, revision=change.revision)
    state.changes = (*state.changes, change)[-CHANGES_MAX:]


def digest_of(state: State) -> bytes:
    """Return the digest of all recorded moves of a core."""
    text = hashlib.sha256(repr((state.leaving, state.copies, state.changes)).encode())
    for name, one in state.arrivals.items():
        facts = (name, one.group, one.revision, one.moved.timers, one.moved.manager)
        text.update(repr((*facts, digest(one.moved.partition))).encode("utf-8", "surrogatepass"))
    return text.digest()


def _note(partition: str, message: str) -> Decision:
    return Noted("queue", "root", Code.PARTITION_MOVED, message, partition)


_Step = Callable[[State, PartitionMoving, int], list[Decision]]
_STEPS: Final[Mapping[MoveStep, _Step]] = {
    MoveStep.LEAVE: _leave,
    MoveStep.STAY: _stay,
    MoveStep.LEFT: _left,
    MoveStep.PART: _part,
    MoveStep.ARRIVED: _arrived,
}
