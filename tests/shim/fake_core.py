"""A minimal core behind a real gRPC server: it accepts everything, and places pods where a test says."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Final

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from si.v1 import si_pb2, si_pb2_grpc
from tests.shim.polling import until

BARRIER = "evenhand.io/barrier"
CLOSED_S: Final = 3.0
"""Seconds that a core waits for the other cores to know that their streams are closed, before it answers a registration."""


class FakeCore(si_pb2_grpc.SchedulerServicer):
    """A core that accepts nodes and applications, answers barriers, and keeps every message."""

    def __init__(self) -> None:
        self.registrations: list[si_pb2.RegisterResourceManagerRequest] = []
        self.registered_with: list[dict[str, str]] = []
        """The metadata of each registration."""
        self.messages: list[Any] = []
        self.place_on = ""
        """The node on which every ask is placed after the sync; empty: asks are not placed."""
        self.refuse: tuple[grpc.StatusCode, str] | None = None
        self.answers_after = -1
        """The number of registrations that `refuse` refuses; with -1 it refuses all."""
        self.refuse_with: Any = None
        """A `google.rpc.Status` with which registrations are refused, details included."""
        self.resumes = False
        """Whether registrations continue the session that they offer."""
        self.refused = asyncio.Event()
        self.refusals = 0
        self.stream_metadata: list[dict[str, str]] = []
        self.open_streams = 0
        self.others: tuple[FakeCore, ...] = ()
        self.open_elsewhere: list[int] = []
        """At each registration the number of streams at the other cores that stay open until the registration is answered."""
        self.asks: dict[str, si_pb2.Allocation] = {}
        self.allocations: dict[str, si_pb2.Allocation] = {}
        self.synced = 0
        self._outboxes: dict[str, asyncio.Queue[Any]] = {}
        self.leads: bool | None = None
        """Whether the health service says that this core leads; None: there is no health service."""
        self.process = ""
        """The name of this core's process in its health service."""
        self._server: grpc.aio.Server | None = None
        self.port = 0

    async def start(self, port: int = 0, credentials: grpc.ServerCredentials | None = None) -> str:
        """Serve, with TLS if credentials are given. Return the address."""
        self._server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        si_pb2_grpc.add_SchedulerServicer_to_server(self, self._server)
        if self.leads is not None:
            found = health.HealthServicer()
            found.set("si.v1.Scheduler", health_pb2.HealthCheckResponse.SERVING)
            status = health_pb2.HealthCheckResponse
            found.set("leader", status.SERVING if self.leads else status.NOT_SERVING)
            found.set(f"process.{self.process}", status.SERVING)
            health_pb2_grpc.add_HealthServicer_to_server(found, self._server)
        where = f"127.0.0.1:{port}"
        if credentials is None:
            self.port = self._server.add_insecure_port(where)
        else:
            self.port = self._server.add_secure_port(where, credentials)
        await self._server.start()
        return f"127.0.0.1:{self.port}"

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(None)

    async def _open_elsewhere(self) -> int:
        """Wait until the other cores know that their streams are closed. Return how many stay open nevertheless.

        The shim closes its streams before it registers, but on connections of their own, so that the news can come later.
        """
        others = [one for one in self.others if one is not self]
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSED_S):
                await until(lambda: not any(one.open_streams for one in others))
        return sum(one.open_streams for one in others)

    def end_streams(self, code: grpc.StatusCode, details: str) -> None:
        """End all streams with a status."""
        for outbox in self._outboxes.values():
            outbox.put_nowait((code, details))

    def end_with(self, status: Any) -> None:
        """End all streams as unavailable, with a `google.rpc.Status`, details included."""
        trailing = (("grpc-status-details-bin", status.SerializeToString()),)
        for outbox in self._outboxes.values():
            outbox.put_nowait((grpc.StatusCode.UNAVAILABLE, status.message, trailing))

    def say(self, stream: str, response: Any) -> None:
        self._outboxes[stream].put_nowait(response)

    async def RegisterResourceManager(self, request: Any, context: Any) -> Any:  # noqa: N802
        if self.refuse is not None and self.refusals != self.answers_after:
            self.refusals += 1
            self.refused.set()
            await context.abort(*self.refuse)
        if (status := self.refuse_with) is not None:
            self.refusals += 1
            self.refused.set()
            details = (("grpc-status-details-bin", status.SerializeToString()),)
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, status.message, details)
        self.open_elsewhere.append(await self._open_elsewhere())
        self.registrations.append(request)
        self.registered_with.append(dict(context.invocation_metadata()))
        self.asks.clear()
        self.allocations.clear()
        if self.resumes and (offer := request.resume).sessionID:
            self.synced = 1
            taken = offer.nodes.sent, offer.applications.sent, offer.allocations.sent
            return si_pb2.RegisterResourceManagerResponse(resumed=_resumed(*taken))
        return si_pb2.RegisterResourceManagerResponse()

    async def UpdateNode(self, requests: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        async for response in self._stream("nodes", requests, context, self._nodes):
            yield response

    async def UpdateApplication(self, requests: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        async for response in self._stream("applications", requests, context, self._applications):
            yield response

    async def UpdateAllocation(self, requests: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        async for response in self._stream("allocations", requests, context, self._pods):
            yield response

    async def _stream(
        self, name: str, requests: Any, context: Any, answer: Any
    ) -> AsyncIterator[Any]:
        outbox: asyncio.Queue[Any] = asyncio.Queue()
        self._outboxes[name] = outbox
        self.stream_metadata.append(dict(context.invocation_metadata()))
        self.open_streams += 1

        async def read() -> None:
            async for request in requests:
                self.messages.append(request)
                response = answer(request)
                if response is not None:
                    outbox.put_nowait(response)

        reader = asyncio.create_task(read())
        try:
            while True:
                response = await outbox.get()
                if isinstance(response, tuple):
                    await context.abort(*response)
                yield response
        finally:
            self.open_streams -= 1
            reader.cancel()

    def _nodes(self, request: Any) -> Any:
        if request.HasField("syncComplete"):
            self.synced += 1
            self._place(self.asks.values())
        made = [
            node.nodeID for node in request.nodes if node.action == si_pb2.NodeInfo.CREATE_DRAIN
        ]
        accepted = [si_pb2.AcceptedNode(nodeID=name) for name in made]
        return si_pb2.NodeResponse(accepted=accepted) if made else None

    def _applications(self, request: Any) -> Any:
        accepted = [
            si_pb2.AcceptedApplication(applicationID=new.applicationID) for new in request.new
        ]
        return si_pb2.ApplicationResponse(accepted=accepted) if accepted else None

    def _pods(self, request: Any) -> Any:
        refused = []
        for item in request.allocations:
            if item.applicationID == BARRIER:
                refused.append(
                    si_pb2.RejectedAllocation(allocationKey=item.allocationKey, reason="unknown")
                )
            elif item.nodeID:
                self.allocations[item.allocationKey] = item
            else:
                self.asks[item.allocationKey] = item
                if self.synced:
                    self._place([item])
        for end in request.releases.allocationsToRelease:
            self.asks.pop(end.allocationKey, None)
            self.allocations.pop(end.allocationKey, None)
        return si_pb2.AllocationResponse(rejectedAllocations=refused) if refused else None

    def _place(self, asks: Any) -> None:
        if not self.place_on:
            return
        placed = [
            si_pb2.Allocation(
                allocationKey=ask.allocationKey,
                applicationID=ask.applicationID,
                nodeID=self.place_on,
            )
            for ask in asks
        ]
        if placed:
            self.say("allocations", si_pb2.AllocationResponse(new=placed))


def _resumed(nodes: int, applications: int, allocations: int) -> si_pb2.ResumedSession:
    return si_pb2.ResumedSession(nodes=nodes, applications=applications, allocations=allocations)
