"""A core on a loopback port of this process, and short functions to call it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message
from google.rpc import error_details_pb2  # type: ignore[import-untyped]
from grpc_status import rpc_status

from server.core.core import Core
from server.rpc.endpoint import Endpoint, Setting
from server.rpc.evenhand.inspect_service import About
from server.rpc.following import Joining, Replica
from server.rpc.identity import Identities
from server.rpc.pump import Observer, Time
from server.rpc.sessions import Sessions
from si.v1 import si_pb2 as si
from si.v1 import si_pb2_grpc as rpc

RM = "rm"
_PROCESSES = count(1)
PATIENCE_S = 60.0
SETTING = Setting(Identities(), About("test", 1), lambda _kind, _objects, _context: None)

_Answer = TypeVar("_Answer", bound=Message)


@dataclass
class Clock:
    """Unix milliseconds that only a test moves."""

    ms: int = 1_700_000_000_000

    def now(self) -> int:
        """Return the clock's instant in milliseconds."""
        return self.ms


@dataclass
class Served:
    """A running endpoint and a channel to it."""

    core: Core
    endpoint: Endpoint
    pump: asyncio.Task[None]
    port: int
    channel: grpc.aio.Channel
    clock: Clock
    streams: list[Any] = field(default_factory=list)

    @property
    def stub(self) -> Any:
        """Return the scheduler's stub."""
        return rpc.SchedulerStub(self.channel)

    async def register(self, rm_id: str = RM, **more: Any) -> None:
        """Register the resource manager."""
        request = si.RegisterResourceManagerRequest(rmID=rm_id, **more)
        await self.stub.RegisterResourceManager(request)

    async def open(self, method: str, first: Message | None = None) -> "Stream":
        """Open a stream and send its first message, if any."""
        stream = Stream(getattr(self.stub, method)())
        self.streams.append(stream)
        if first is not None:
            await stream.send(first)
        return stream

    async def ready(
        self, nodes: int = 1, queue: str = "root.a", rm_id: str = RM, **more: Any
    ) -> "Stream":
        """Register, create nodes and the application `app`, and return the allocation stream."""
        await self.register(rm_id, **more)
        brought = si.NodeRequest(rmID=rm_id, nodes=[node(f"n{i}") for i in range(nodes)])
        await (await self.open("UpdateNode", brought)).read(si.NodeResponse)
        await self.submit("app", queue, rm_id)
        return await self.open("UpdateAllocation")

    async def submit(self, application_id: str, queue: str, rm_id: str = RM) -> "Stream":
        """Submit an application."""
        new = si.AddApplicationRequest(applicationID=application_id, queueName=queue)
        stream = await self.open("UpdateApplication", si.ApplicationRequest(rmID=rm_id, new=[new]))
        answer = await stream.read(si.ApplicationResponse)
        assert not answer.rejected, answer
        return stream

    def cut(self) -> None:
        """End all streams from outside, as the death of the manager's process does."""
        for stream in self.streams:
            stream.call.cancel()


class Stream:
    """One stream of a client; each wait has a limit."""

    def __init__(self, call: Any) -> None:
        self.call = call

    async def send(self, message: Message) -> None:
        """Send a message on the stream."""
        await asyncio.wait_for(self.call.write(message), PATIENCE_S)

    async def close(self) -> None:
        """Close the sending side of the stream."""
        await self.call.done_writing()

    async def next(self) -> Any:
        """Return the next answer, None when the stream has ended or failed."""
        try:
            answer = await asyncio.wait_for(self.call.read(), PATIENCE_S)
        except grpc.aio.AioRpcError:
            return None
        return None if answer is grpc.aio.EOF else answer

    async def read(self, kind: type[_Answer]) -> _Answer:
        """Return the next answer, after a check that it is of this kind."""
        answer = await self.next()
        assert isinstance(answer, kind), f"{await self.call.code()}: {await self.call.details()}"
        return answer

    async def all(self, kind: type[_Answer]) -> _Answer:
        """Return everything until the stream ends, as one answer."""
        whole = kind()
        while (answer := await self.next()) is not None:
            whole.MergeFrom(answer)
        return whole

    async def end(self) -> tuple[grpc.StatusCode, str]:
        """Return how the stream ended: the status code, and the reason in the details."""
        while await self.next() is not None:
            pass
        return await self.call.code(), reason(await rpc_status.aio.from_call(self.call))


def reason(status: Any) -> str:
    """Return the reason in the ErrorInfo of a status, "" when it has none."""
    for detail in status.details if status else ():
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info):
            assert info.domain == "evenhand"
            return str(info.reason)
    return ""


async def refusal(call: Awaitable[Any]) -> tuple[grpc.StatusCode, str, list[str]]:
    """Return how a unary call failed: the code, the reason, and the fields that its details name."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        failed: Any = error
        status = rpc_status.from_call(failed)
        return error.code(), reason(status), _fields(status)
    raise AssertionError("the call did not fail")


def _fields(status: Any) -> list[str]:
    named = []
    for detail in status.details if status else ():
        bad = error_details_pb2.BadRequest()
        if detail.Unpack(bad):
            named += [violation.field for violation in bad.field_violations]
    return named


def resource(**quantities: int) -> si.Resource:
    """Return a resource message with these quantities."""
    return si.Resource(resources={name: si.Quantity(value=n) for name, n in quantities.items()})


def node(node_id: str, **more: Any) -> si.NodeInfo:
    """Return a node with capacity for a hundred asks."""
    facts: dict[str, Any] = {
        "action": si.NodeInfo.CREATE,
        "schedulableResource": resource(vcore=100),
        **more,
    }
    return si.NodeInfo(nodeID=node_id, **facts)


def ask(key: str, **more: Any) -> si.Allocation:
    """Return an ask for one millicore."""
    facts: dict[str, Any] = {
        "applicationID": "app",
        "resourcePerAlloc": resource(vcore=1),
        **more,
    }
    return si.Allocation(allocationKey=key, **facts)


def soft_mark(decision: str, beneficiary: str, node_id: str) -> si.ReleasingMark:
    """Return the mark that a restarted shim finds on a pod it had marked for another operator (C8, J11)."""
    return si.ReleasingMark(
        terminationType=si.PREEMPTED_BY_SCHEDULER,
        decisionID=decision,
        releasedFor=beneficiary,
        nodeID=node_id,
        delivery="soft",
    )


def asks(*keys: str, rm_id: str = RM, **more: Any) -> si.AllocationRequest:
    """Return a message of asks."""
    return si.AllocationRequest(rmID=rm_id, allocations=[ask(key, **more) for key in keys])


async def until(true: Callable[[], bool]) -> None:
    """Wait until the event loop makes the condition true. Raises AssertionError when it does not."""
    for _ in range(int(PATIENCE_S * 1000)):
        if true():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it did not come")


@asynccontextmanager
async def serving(  # noqa: PLR0913, PLR0917 - one function for all that a test may want to be different
    setting: Setting = SETTING,
    observers: tuple[Observer, ...] = (),
    core: Core | None = None,
    seconds: Callable[[], float] = lambda: 0.0,
    leaders: tuple[str, ...] = (),
    port: int = 0,
    log: str = "",
    token_file: Path | None = None,
) -> AsyncIterator[Served]:
    """Hold a core on a port of loopback; without ``seconds`` the core's work takes no time.

    With ``leaders`` it follows one of these cores until a manager registers at it, with ``log`` the core that writes this log.
    Without ``port`` any free one is taken.
    """
    clock = Clock()
    core = core or Core()
    joining = Joining(leaders, token_file=token_file, log=log)
    process = str(next(_PROCESSES))
    setting = replace(setting, replica=Replica(joining.names, process=process))
    endpoint = Endpoint(core, Sessions(), Time(clock.now, seconds), setting, observers)
    endpoint.follow(joining.opened(f"core-{process}"))
    port = await endpoint.start(f"127.0.0.1:{port}", None)
    pump = asyncio.create_task(endpoint.run())
    options = (("grpc.use_local_subchannel_pool", 1),)
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
            served = Served(core, endpoint, pump, port, channel, clock)
            yield served
            served.cut()
    finally:
        await endpoint.drain(pump, 1.0)


def with_identities(identities: Identities) -> Setting:
    """Return the usual setting with these identities."""
    return replace(SETTING, identities=identities)
