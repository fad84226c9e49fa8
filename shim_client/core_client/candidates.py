"""The cores among which a shim chooses: each core with its channel and its health checks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import grpc
from grpc.aio import AioRpcError, Channel
from grpc_health.v1 import health_pb2, health_pb2_grpc

from shim_client.core_client.address import CoreAddress
from si.v1.si_pb2_grpc import SchedulerStub

if TYPE_CHECKING:
    from si.v1.si_pb2_grpc import SchedulerAsyncStub

HEALTH_SECONDS_MAX = 1.0
"""Longest wait, in seconds, for the answer to a health check, if the shim has several cores."""
SERVICE = "si.v1.Scheduler"
LEADER = "leader"
"""The service name whose status in a core's health service is SERVING while the core leads."""
PROCESS = "process."
"""The beginning of the service name that stands for one process in a core's health service.

The name of the process follows.
"""

_UNKNOWN = frozenset({grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.NOT_FOUND})
"""Status codes of the answer when a core has no health service, or when its health service does not know the service name."""


class Core:
    """A core with its open channel."""

    def __init__(self, address: CoreAddress, *, quick: bool) -> None:
        self.address = address
        self._quick = quick
        self.channel: Channel = address.channel(quick=quick)
        self._is_silent = False
        """Whether the core did not answer the last health check."""

    async def serves(self, service: str) -> bool:
        """Return whether the core's health service reports the given service name as serving.

        Raises AioRpcError if the core does not answer or does not know the service.

        If the core did not answer, the next health check uses a new channel. After its failed attempts to connect, the
        old channel would refuse calls for a moment, even if the core runs again.
        """
        if self._is_silent:
            await self.close()
            self.channel = self.address.channel(quick=self._quick)
        # The library's type annotations declare no methods for this stub.
        stub: Any = health_pb2_grpc.HealthStub(self.channel)
        request = health_pb2.HealthCheckRequest(service=service)
        try:
            answer = await stub.Check(
                request, metadata=self.address.metadata(), timeout=HEALTH_SECONDS_MAX
            )
        except AioRpcError as error:
            self._is_silent = error.code() not in _UNKNOWN
            raise
        self._is_silent = False
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    async def renew(self) -> None:
        """Replace the channel by a new channel if the credentials have changed since the present channel was made."""
        address = self.address.renewed()
        if address is not self.address:
            self.address = address
            await self.close()
            self.channel = address.channel(quick=self._quick)

    async def close(self) -> None:
        """Close the channel."""
        await self.channel.close()

    @property
    def stub(self) -> SchedulerAsyncStub:
        """The gRPC stub by which the core's methods are called."""
        return SchedulerStub(self.channel)


async def leaders_first(cores: Sequence[Core]) -> list[Core]:
    """Return the cores that lead already, then the other cores.

    Cores that lead keep the order of the list, and so do the other cores.

    A core that leads has the state of this resource manager. A core that does not lead may lack this state, for
    example because the core was just started.
    """
    leads = await asyncio.gather(*(_has(core, LEADER) for core in cores))
    return [
        one
        for wanted in (True, False)
        for one, led in zip(cores, leads, strict=True)
        if led is wanted
    ]


async def successor_first(cores: Sequence[Core], process: str) -> list[Core]:
    """Return the cores of a list in another order: first the core whose process has this name, then all other cores.

    The other cores keep their order. When the core of this process has answered, do not wait for the answers of the
    other cores.
    """
    asked = {asyncio.create_task(_has(core, f"{PROCESS}{process}")): core for core in cores}
    waiting, found = set(asked), list[Core]()
    while waiting and not found:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        found = [asked[one] for one in done if one.result()]
    for one in waiting:
        one.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    return found + [one for one in cores if one not in found]


async def _has(core: Core, service: str) -> bool:
    """Return whether a core reports a service name as serving.

    Return False for a core that does not answer, or does not know the service.
    """
    try:
        return await core.serves(service)
    except AioRpcError:
        return False
