"""The health service for the probes of Kubernetes: gRPC without TLS and without authentication, on a separate port.

The service `""` reports that the process works. The service `readiness` reports that the core knows the whole cluster.

With an election, the service `leader` reports whether this shim leads and the core knows the whole cluster. A shim that
does not lead counts as ready once the shim itself knows the cluster.
"""

from __future__ import annotations

import asyncio

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

READINESS = "readiness"
LEADER = "leader"
LAST_WORDS_SECONDS = 0.5


class NoPortError(Exception):
    """A port that this process cannot open, because another process uses it or because of missing permission."""


class Probe:
    """A health service; `say_ready` and `say_leads` change its answers."""

    def __init__(self) -> None:
        self._servicer = health.aio.HealthServicer()
        self._server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        self._told: set[asyncio.Task[None]] = set()

    async def start(self, address: str) -> int:
        """Serve health at HOST:PORT, and return the port. Raises NoPortError if the port cannot be opened."""
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, self._server)
        try:
            port = self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise NoPortError(f"no health service at {address}: {error}") from error
        await self._set("", serving=True)
        await self._set(READINESS, serving=False)
        await self._set(LEADER, serving=False)
        await self._server.start()
        return port

    def say_ready(self, ready: bool) -> None:  # noqa: FBT001
        """Set the answer of the service `readiness` from now on."""
        self._say(READINESS, serving=ready)

    def say_leads(self, leads: bool) -> None:  # noqa: FBT001
        """Set the answer of the service `leader` from now on."""
        self._say(LEADER, serving=leads)

    def _say(self, service: str, *, serving: bool) -> None:
        telling = asyncio.create_task(self._set(service, serving=serving))
        self._told.add(telling)
        telling.add_done_callback(self._told.discard)

    async def stop(self) -> None:
        """Report that the service is ending, then stop it."""
        await self._servicer.enter_graceful_shutdown()
        await self._server.stop(LAST_WORDS_SECONDS)

    async def _set(self, service: str, *, serving: bool) -> None:
        answers = health_pb2.HealthCheckResponse
        status = answers.SERVING if serving else answers.NOT_SERVING
        await self._servicer.set(service, status)
