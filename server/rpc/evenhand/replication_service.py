"""The ReplicationService: it streams a checkpoint of this core and then its input to followers (design 7.3)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import asdict
from itertools import count

import grpc

from evenhand.v1 import replication_pb2 as pb
from server.model.events import PartitionMoving
from server.model.moves import MoveStep
from server.replication import checkpoint
from server.replication.feed import Feed, Follower, Slice
from server.rpc.errors import CallError, draining, too_many
from server.rpc.following import State
from server.rpc.handing_over import HandingOver
from server.rpc.limits import ALIVE_S, CHECKPOINT_PART_BYTES, FOLLOWERS_MAX
from server.rpc.moving import Moving
from server.rpc.pump import Pump
from server.rpc.reads import Question, Reads
from server.rpc.roles import CALLER


class ReplicationService:
    """The service for followers. A core that follows another core has no followers of its own."""

    def __init__(
        self, feed: Feed, pump: Pump, reads: Reads, handing: HandingOver, moving: Moving
    ) -> None:
        self._handing = handing
        self._moving = moving
        self._acknowledgements = handing.acknowledgements
        self._feed = feed
        self._pump = pump
        self._reads = reads
        self._replica = handing.replica
        self._numbers = count(1)

    async def follow(self, request: pb.FollowRequest) -> AsyncIterator[pb.FollowResponse]:
        """Yield the checkpoint, then the slices of input as the core gets them. Raise CallError if this core cannot be followed."""
        if failure := self._replica.not_leader("follow this core"):
            raise failure
        if request.layout != checkpoint.layout():
            raise CallError(
                grpc.StatusCode.FAILED_PRECONDITION,
                "OTHER_LAYOUT",
                f"the state or input of version {request.version!r} has another layout than that of {self._feed.version}: "
                "start both cores with one version, or compare the versions by an input trace (`evenhand replay`)",
            )
        if sum(not one.is_log for one in self._feed.followers) >= FOLLOWERS_MAX:
            raise too_many("followers", FOLLOWERS_MAX)
        wake = asyncio.Event()
        name = request.name or CALLER.get().name
        follower = Follower(name, wake.set, process=request.process)
        self._feed.join(follower)
        try:
            async for part in self._checkpoint():
                yield pb.FollowResponse(checkpoint=part)
            async for response in self._slices(follower, wake):
                yield response
        finally:
            self._feed.leave(follower)
            self._acknowledgements.look()

    async def _checkpoint(self) -> AsyncIterator[bytes]:
        """Yield the parts of a checkpoint, then an empty part. The checkpoint is made in a copy of this process."""
        question = Question("Follow", str(next(self._numbers)).encode(), CALLER.get())

        def read() -> bytes:
            return b"".join(self._feed.checkpoint())

        data = await self._reads.answer(question, read)
        for at in range(0, len(data), CHECKPOINT_PART_BYTES):
            yield data[at : at + CHECKPOINT_PART_BYTES]
        yield b""

    async def _slices(
        self, follower: Follower, wake: asyncio.Event
    ) -> AsyncIterator[pb.FollowResponse]:
        """Yield slices until the pump has ended and all slices were sent, so that a follower of a core that ends misses nothing.

        Even then the stream stays open while this core waits for acknowledgements. If this core no longer leads, the stream ends
        as soon as all slices were sent.
        """
        asked = self._acknowledgements
        while not self._pump.ended or follower.is_waiting or asked.is_asked:
            wake.clear()
            if follower.is_behind:
                message = "this follower is too slow for its leader: it has to join again"
                raise CallError(grpc.StatusCode.RESOURCE_EXHAUSTED, "FOLLOWER_SLOW", message)
            taken = follower.take()
            for one in taken:
                found = _slice(one, self._feed.position)
                found.acknowledge = asked.is_asked
                yield pb.FollowResponse(slice=found)
            if not taken and (failure := self._replica.not_leader("follow this core")):
                raise failure
            if not taken:
                alive = pb.Alive(
                    position=self._feed.position,
                    now_ms=self._pump.now(),
                    acknowledge=asked.is_asked,
                )
                yield pb.FollowResponse(alive=alive)
            with suppress(TimeoutError):
                async with asyncio.timeout(ALIVE_S):
                    await wake.wait()
        raise draining()

    async def acknowledge(self, request: pb.AcknowledgeRequest) -> pb.AcknowledgeResponse:
        """Record the position up to which a follower has received the input of this core."""
        self._acknowledgements.received(request.process, request.position)
        return pb.AcknowledgeResponse()

    async def hand_over(self, request: pb.HandOverRequest) -> pb.HandOverResponse:
        """Hand over to a follower, and return which one. Raise CallError if the hand-over is refused."""
        term = self._feed.term
        done = await self._handing.hand_over(request.to)
        stopped_ms = round(done.seconds * 1000)
        return pb.HandOverResponse(
            follower=done.follower, position=done.position, term=term, stopped_ms=stopped_ms
        )

    async def get_move(self, request: pb.GetMoveRequest) -> pb.GetMoveResponse:
        """Return the status of a partition at this core (design 7.9)."""
        table, found = self._moving.table(), self._moving.standing(request.partition)
        return pb.GetMoveResponse(
            state=found.state,
            group=table.group,
            revision=table.revision,
            other=found.other,
            synced=found.synced,
            layout=checkpoint.layout(),
            next_revision=found.next_revision,
        )

    async def export_partition(
        self, request: pb.ExportPartitionRequest
    ) -> AsyncIterator[pb.ExportPartitionResponse]:
        """Stop deciding for a partition, and yield the parts of a copy of it."""
        await self._moving.leave(request.partition, request.to, request.revision)
        async for part in self._moving.copy(request.partition):
            yield pb.ExportPartitionResponse(part=part)

    async def import_partition(
        self, request: pb.ImportPartitionRequest
    ) -> pb.ImportPartitionResponse:
        """Receive one part of a copy of a partition. The last part completes the copy."""
        event = PartitionMoving(
            MoveStep.PART,
            request.partition,
            request.former,
            request.revision,
            number=request.number,
        )
        await self._moving.take_part(event, request.part, request.layout)
        if request.last:
            await self._moving.arrived(event)
        return pb.ImportPartitionResponse()

    async def complete_move(self, request: pb.CompleteMoveRequest) -> pb.CompleteMoveResponse:
        """Drop a partition that another group owns from now on."""
        event = PartitionMoving(
            MoveStep.LEFT, request.partition, request.to, request.revision, request.to_revision
        )
        await self._moving.complete(event)
        return pb.CompleteMoveResponse()

    async def cancel_move(self, request: pb.CancelMoveRequest) -> pb.CancelMoveResponse:
        """Give up a move that was not completed."""
        await self._moving.cancel(request.partition)
        return pb.CancelMoveResponse()

    async def get_replication(
        self, _request: pb.GetReplicationRequest
    ) -> pb.GetReplicationResponse:
        """Return whether this core leads or follows, and how many events and ticks the core has received."""
        replica = self._replica
        leads = replica.state is State.LEADER
        return pb.GetReplicationResponse(
            state=replica.state,
            position=self._feed.position,
            leader="" if leads else replica.leader,
            leader_position=self._feed.position if leads else replica.leader_position,
            heard_ms=0 if leads else replica.heard_ms,
            difference=replica.difference,
            now_ms=self._pump.now(),
            process=replica.process,
            term=self._feed.term,
            streams=replica.streams(),
            followers=[
                pb.FollowerState(name=one.name, sent_position=one.position)
                for one in self._feed.followers
                if not one.is_log
            ],
            log=None if replica.log is None else pb.LogState(**asdict(replica.log)),
        )


def _slice(one: Slice, leader_position: int) -> pb.InputSlice:
    return pb.InputSlice(
        position=one.position,
        decided=one.decided,
        digest=one.digest,
        input=one.input,
        begins=one.begins,
        leader_position=leader_position,
    )
