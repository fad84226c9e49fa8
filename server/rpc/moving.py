"""The steps by which a core gives a partition to another group of cores, or takes a partition from another group (design 7.9)."""

from collections.abc import AsyncIterator
from itertools import count
from typing import Final, NamedTuple

import grpc
import structlog

from server.core.core import Core
from server.core.events import moving
from server.model.assignment import Assignment
from server.model.events import PartitionMoving
from server.model.moves import MoveStep
from server.replication import checkpoint
from server.rpc.errors import CallError, invalid, not_found, not_owner
from server.rpc.following import Replica
from server.rpc.limits import MOVE_BYTES_MAX
from server.rpc.pump import Pump
from server.rpc.reads import Question, Reads
from server.rpc.roles import CALLER
from server.rpc.sessions import Sessions
from server.state.partition import Partition

_log = structlog.get_logger(__name__)

GIVEN_UP_MS: Final = 60_000
"""The milliseconds after which a move that was not completed is given up.

When a move is given up, the former owner decides for the partition again.
"""
_PARTS_MAX: Final = MOVE_BYTES_MAX // moving.PART_BYTES


class Standing(NamedTuple):
    """The status of a partition at a core: the state in a word, and the other group if the partition moves."""

    state: str
    other: str = ""
    synced: bool = False
    next_revision: int = 0


class Moving:
    """The steps of moves at one core. Each step but `standing` goes through the pump, so that followers and the log get the step."""

    def __init__(
        self, core: Core, pump: Pump, reads: Reads, replica: Replica, sessions: Sessions
    ) -> None:
        self._core = core
        self._pump = pump
        self._reads = reads
        self._replica = replica
        self._sessions = sessions
        self._numbers = count(1)

    def table(self) -> Assignment:
        """Return the core's table. Raise CallError if the core has no table."""
        assignment = self._core.state.assignment
        if assignment is None:
            message = "this core has no table of cores: start it with --cores and --group"
            raise _refused("NO_TABLE", message)
        return assignment

    def standing(self, name: str) -> Standing:
        """Return the status of a partition at this core."""
        state = self._core.state
        self.table()
        if (arrival := state.arrivals.get(name)) is not None:
            return Standing("arrived", arrival.group, next_revision=arrival.revision)
        partition = state.partitions.get(name)
        if partition is None or partition.retired or state.other_owner(name):
            return Standing("absent")
        leaving = state.leaving.get(name)
        if leaving is not None:
            return Standing("leaving", leaving.group)
        manager = state.managers.get(partition.owner)
        return Standing("owned", synced=manager is not None and manager.synced)

    async def leave(self, name: str, to: str, revision: int) -> None:
        """Stop deciding for a partition. Raise CallError if this core cannot give the partition away."""
        partition = self._owned(name, to, revision)
        self._check_synced(partition)
        until = self._pump.now() + GIVEN_UP_MS
        await self._pump.ask(PartitionMoving(MoveStep.LEAVE, name, to, until_ms=until))
        leaving = self._core.state.leaving.get(name)
        if leaving is None or leaving.group != to:
            self._check_free(name, to)
            raise not_found("partition", name)  # A configuration has just removed the partition.

    async def copy(self, name: str) -> AsyncIterator[bytes]:
        """Yield the parts of a copy of a partition that moves to another group. The copy is made in a copy of this process."""
        question = Question("ExportPartition", str(next(self._numbers)).encode(), CALLER.get())
        data = await self._reads.answer(question, lambda: moving.copy_of(self._core.state, name))
        if len(data) > MOVE_BYTES_MAX:
            await self.cancel(name)
            raise _refused(
                "TOO_LARGE",
                f"the partition has {len(data):,} bytes, {MOVE_BYTES_MAX:,} can be moved",
            )
        for part in moving.parts_of(data):
            yield part

    async def take_part(self, event: PartitionMoving, part: bytes, layout: str) -> None:
        """Receive one part of a copy of a partition. Raise CallError if this core could not read the copy, or already owns the partition."""
        self._check_leads()
        mine = self.table().revision
        if layout != checkpoint.layout():
            raise _refused("OTHER_LAYOUT", "the former owner has another version: upgrade it first")
        if len(part) > moving.PART_BYTES or not 0 <= event.number < _PARTS_MAX:
            raise invalid(
                "INVALID_PART", ("part", f"at most {_PARTS_MAX} parts of {moving.PART_BYTES} bytes")
            )
        if self._core.state.configuration.partition(event.partition) is None:
            raise not_found("partition", event.partition)
        if event.revision != mine + 1:
            raise _other_table(mine, event.revision - 1)
        self._check_free(event.partition)
        await self._pump.ask(event._replace(content=moving.encoded(part)))

    async def arrived(self, event: PartitionMoving) -> None:
        """Complete the copy of a partition, of which all parts have arrived. Raise CallError if the copy cannot be used."""
        self._check_leads()
        await self._pump.ask(event._replace(step=MoveStep.ARRIVED, number=0, content=""))
        if event.partition not in self._core.state.arrivals:
            raise _refused("BAD_COPY", f"the copy of partition {event.partition!r} cannot be used")
        _log.info("partition-arrived", partition=event.partition, former=event.group)

    async def complete(self, event: PartitionMoving) -> None:
        """Drop a partition that another group owns from now on, and let the managers register with the new table."""
        name, to = event.partition, event.group
        self._check_leads()
        if self.table().owner(name) == to:
            return
        leaving = self._core.state.leaving.get(name)
        if leaving is None or leaving.group != to or event.revision != self.table().revision + 1:
            raise _not_leaving(name, to)
        await self._pump.ask(event)
        if self.table().owner(name) != to:
            raise _not_leaving(name, to)  # The move has just been given up.
        self._sessions.hand_over(
            CallError(
                grpc.StatusCode.UNAVAILABLE,
                "PARTITION_MOVED",
                f"partition {name!r} belongs to cores {to!r} now: register again",
                # Managers have to register with this process. A follower may not know of the move yet, and could
                # continue the session without it.
                facts={"process": self._replica.process},
            )
        )
        _log.info("partition-moved", partition=name, to=to, revision=event.revision)

    async def cancel(self, name: str) -> None:
        """Give up a move that was not completed."""
        self._check_leads()
        self.table()
        await self._pump.ask(PartitionMoving(MoveStep.STAY, name))

    def _check_leads(self) -> None:
        if failure := self._replica.not_leader("move a partition"):
            raise failure

    def _owned(self, name: str, to: str, revision: int) -> Partition:
        """Return a partition that this core can give to a group."""
        self._check_leads()
        table, state = self.table(), self._core.state
        if table.revision != revision:
            raise _other_table(table.revision, revision)
        if owner := state.other_owner(name):
            raise not_owner(owner, state.why_absent(name))
        partition = state.partitions.get(name)
        if partition is None or partition.retired:
            raise not_found("partition", name)
        if to in {"", table.group}:
            raise invalid(
                "INVALID_GROUP", ("to", f"cores {table.group!r} own the partition already")
            )
        self._check_free(name, to)
        return partition

    def _check_free(self, name: str, to: str = "") -> None:
        """Raise CallError if another move of these cores has to end first."""
        if other := moving.in_the_way(self._core.state, name, to):
            message = (
                f"these cores have a move of partition {other!r} that has not ended: complete it, or move that partition "
                "to the cores that have it, which gives the move up"
            )
            raise _refused("OTHER_MOVE", message)

    def _check_synced(self, partition: Partition) -> None:
        if not self._core.state.reported(partition):
            message = (
                f"resource manager {partition.owner!r} has not reported everything yet: try again"
            )
            raise CallError(grpc.StatusCode.UNAVAILABLE, "NOT_SYNCED", message)


def _other_table(mine: int, theirs: int) -> CallError:
    message = f"this core has revision {mine} of its group in the table of cores, yours has {theirs}: use the newer table"
    return _refused("OTHER_TABLE", message)


def _not_leaving(name: str, to: str) -> CallError:
    message = f"partition {name!r} is not being moved to cores {to!r}: begin the move again"
    return _refused("NOT_LEAVING", message)


def _refused(reason: str, message: str) -> CallError:
    return CallError(grpc.StatusCode.FAILED_PRECONDITION, reason, message)
