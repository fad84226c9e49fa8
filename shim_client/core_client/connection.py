"""The connection to the core: it registers, holds a session, and starts again when the session is lost.

When a core does not answer, the gRPC channel waits longer after each attempt. When a core answers and then drops
every session, this module waits longer after each attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import grpc
from grpc.aio import AioRpcError, Channel, Metadata

from shim_client.core_client.causes import cause, is_too_large
from shim_client.core_client.configuration import ConfigurationPost
from shim_client.core_client.streams import Session, SessionLostError
from shim_client.messages import ConfigurationReport, Decision, Report
from si.v1 import si_pb2
from si.v1.si_pb2_grpc import SchedulerStub

if TYPE_CHECKING:
    from si.v1.si_pb2_grpc import SchedulerAsyncStub

REGISTER_SECONDS_MAX = 20.0
"""Longest wait, in seconds, for the answer to one registration.

The time until a core answers at all is included.
"""
PAUSE_SECONDS_FIRST = 0.1
PAUSE_SECONDS_MAX = 5.0

CHANNEL_OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
)

_PASSING = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.CANCELLED,
    }
)


class CoreRefusedError(Exception):
    """A core that refuses this shim because of a bad configuration or a missing permission, or an address without a core."""


class NoCoreError(Exception):
    """No core answered, and the shim does not wait for one."""

    def __init__(self, error: AioRpcError) -> None:
        super().__init__(error.details())
        self.error = error


@dataclass(frozen=True, slots=True)
class CoreAddress:
    """The address of the core, and the credentials of the shim."""

    target: str
    credentials: grpc.ChannelCredentials | None = None
    token: str = field(default="", repr=False)

    def channel(self) -> Channel:
        """Return a channel, which connects when it is used."""
        if self.credentials is None:
            return grpc.aio.insecure_channel(self.target, options=CHANNEL_OPTIONS)
        return grpc.aio.secure_channel(self.target, self.credentials, options=CHANNEL_OPTIONS)

    def metadata(self) -> Metadata:
        """Return the metadata that every call carries."""
        return Metadata(("authorization", f"Bearer {self.token}")) if self.token else Metadata()


@dataclass(frozen=True, slots=True)
class Registration:
    """The values by which the shim identifies itself when it registers."""

    rm_id: str
    version: str
    policy_group: str
    queues: str
    instance: str = ""
    """Name of this process, which stays the same after a restart.

    Of several processes of one shim the core accepts the newest.
    """

    def message(self) -> si_pb2.RegisterResourceManagerRequest:
        """Return the registration message; `explicitSync` tells the core to place nothing before the sync is complete."""
        return si_pb2.RegisterResourceManagerRequest(
            rmID=self.rm_id,
            version=self.version,
            policyGroup=self.policy_group,
            config=self.queues,
            explicitSync=True,
            buildInfo={"instance": self.instance} if self.instance else {},
        )


class Listener(Protocol):
    """A receiver of the connection's events and of the core's decisions."""

    async def registered(self) -> None:
        """Note that a session has begun: everything has to be reported."""
        ...

    async def unreachable(self, why: str) -> None:
        """Note that no core answers; the connection retries until one does."""
        ...

    async def lost(self, why: str) -> None:
        """Note that the session has ended, or could not begin; the connection retries."""
        ...

    async def decided(self, decisions: list[Decision]) -> None:
        """Receive decisions of the core."""
        ...


Sleep = Callable[[float], Awaitable[None]]


class Connection:
    """A session with the core that is renewed when it is lost. Without `wait`, `run` fails when no core answers its first attempt."""

    def __init__(
        self,
        address: CoreAddress,
        registration: Registration,
        sleep: Sleep = asyncio.sleep,
        *,
        wait: bool = True,
    ) -> None:
        self._address = address
        self._registration = registration
        self._sleep = sleep
        self._wait = wait
        self._session: Session | None = None
        self._configuration = ConfigurationPost(address.metadata(), registration.rm_id)

    @property
    def target(self) -> str:
        """The core's address."""
        return self._address.target

    def send(self, reports: Iterable[Report]) -> None:
        """Send reports to the core; without a session only the newest configuration is kept, and sent later."""
        state = []
        for report in reports:
            if isinstance(report, ConfigurationReport):
                self._configuration.want(report)
            else:
                state.append(report)
        if self._session is not None:
            self._session.send(state)

    async def run(self, listener: Listener) -> None:
        """Hold sessions until cancelled. Raises CoreRefusedError, NoCoreError or SupersededError."""
        pause = PAUSE_SECONDS_FIRST
        async with self._address.channel() as channel:
            stub = SchedulerStub(channel)
            while True:
                why, was_real = await self._one_session(channel, stub, listener)
                await listener.lost(why)
                pause = PAUSE_SECONDS_FIRST if was_real else min(2 * pause, PAUSE_SECONDS_MAX)
                await self._sleep(pause)

    async def _one_session(
        self, channel: Channel, stub: SchedulerAsyncStub, listener: Listener
    ) -> tuple[str, bool]:
        """Run one session; return why it ended, and whether the core sent anything in it."""
        try:
            await self._introduce(stub, listener)
            await self._configuration.deliver(channel, listener.decided)
        except SessionLostError as lost:
            return str(lost), False
        session = Session(
            stub, self._registration.rm_id, self._address.metadata(), listener.decided
        )
        self._session = session
        try:
            await listener.registered()
            await self._hold(session, channel, listener)
        except SessionLostError as lost:
            return str(lost), session.heard
        finally:
            self._session = None
        return "the session ended", session.heard

    async def _hold(self, session: Session, channel: Channel, listener: Listener) -> None:
        """Run the streams and send new configurations until one of the two fails."""
        jobs = [
            asyncio.create_task(session.run()),
            asyncio.create_task(self._configuration.follow(channel, listener.decided)),
        ]
        try:
            done, _ = await asyncio.wait(jobs, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for job in jobs:
                job.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)
        for job in jobs:
            if job in done:
                job.result()

    async def _introduce(self, stub: SchedulerAsyncStub, listener: Listener) -> None:
        """Register the shim. Raises SessionLostError when a retry may succeed, NoCoreError, CoreRefusedError.

        The first attempt fails at once when no core listens, so that the user learns of it. The second attempt waits
        for a core.
        """
        where = f"the core at {self._address.target}"
        try:
            try:
                await self._register(stub, wait=False)
            except AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
                if not self._wait:
                    raise NoCoreError(error) from error
                await listener.unreachable(cause(error.details() or ""))
                await self._register(stub, wait=True)
        except AioRpcError as error:
            what = f"{error.code().name} {error.details() or ''}".rstrip()
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                what = f"no answer in {REGISTER_SECONDS_MAX:.0f} s"
            if error.code() in _PASSING and not is_too_large(error):
                raise SessionLostError(f"{where}: {what}") from error
            raise CoreRefusedError(f"{where} refused the registration: {what}") from error
        self._wait = True

    async def _register(self, stub: SchedulerAsyncStub, *, wait: bool) -> None:
        await stub.RegisterResourceManager(
            self._registration.message(),
            metadata=self._address.metadata(),
            timeout=REGISTER_SECONDS_MAX,
            wait_for_ready=wait,
        )
