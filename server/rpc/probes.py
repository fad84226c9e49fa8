"""The health service for probes.

Every caller that reaches a port may call it, and its open calls are therefore limited in number. A watcher that does not read
does not block others. In `grpc_health.v1.health`, a client that does not read would keep a server from stopping: that module
holds a lock while it writes to watchers, and a change of the status needs the same lock.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeAlias

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2

from server.rpc.errors import not_found, too_many
from server.rpc.grpc_types import Handlers
from server.rpc.handlers import handlers
from server.rpc.limits import HEALTH_WATCHES_MAX
from server.rpc.reads import Answers, InPlace

_SERVICE: Final[Any] = health_pb2.DESCRIPTOR.services_by_name["Health"]
SERVICE_NAME: Final = str(_SERVICE.full_name)

LOOK_S: Final = 1.0
"""The seconds after which a watch computes the status of a service again."""

_Request = health_pb2.HealthCheckRequest
_Answer = health_pb2.HealthCheckResponse
_Statuses: TypeAlias = dict[str, Any]
"""The values of `HealthCheckResponse.ServingStatus` by service. The values are Any, because the stubs have no type for them."""
_All: Final = GetMessageClass(_SERVICE.methods_by_name["List"].output_type)


class Health:
    """The health of services by name. The empty name is the whole server."""

    def __init__(self) -> None:
        self._statuses: _Statuses = {}
        self._computed: Mapping[str, Callable[[], bool]] = {}
        """The functions that return whether a service answers now, by name."""
        self._changed = asyncio.Event()
        """The event that is set at each change of a status, and then replaced by a new event."""
        self._watches = 0

    def handlers(self) -> Handlers:
        """Return the handlers of the health service by method."""
        return handlers(_SERVICE, self, Answers(InPlace(), lambda _request, _answer: None))

    def serve(self, names: Iterable[str]) -> None:
        """Report to every caller that these services answer."""
        self._set(dict.fromkeys(names, _Answer.SERVING))

    def mark(self, name: str, *, serving: bool) -> None:
        """Report to every caller whether this service answers now.

        Other services are unchanged.
        """
        status = _Answer.SERVING if serving else _Answer.NOT_SERVING
        self._set({**self._statuses, name: status})

    def compute(self, services: Mapping[str, Callable[[], bool]]) -> None:
        """Report the health of these services by functions, which are called for each answer."""
        self._computed = services

    def finish(self) -> None:
        """Report to every caller that no service answers any longer."""
        names, self._computed = (*self._statuses, *self._computed), {}
        self._set(dict.fromkeys(names, _Answer.NOT_SERVING))

    async def check(self, request: _Request) -> _Answer:
        """Return the health of a service.

        Raise CallError if there is no such service.
        """
        statuses = self._now()
        if request.service not in statuses:
            raise not_found("service", request.service)
        return _Answer(status=statuses[request.service])

    async def list(self, _: Message) -> Message:
        """Return the health of every service."""
        found = {name: _Answer(status=status) for name, status in self._now().items()}
        return _All(statuses=found)

    async def watch(self, request: _Request) -> AsyncIterator[_Answer]:
        """Yield the health of a service, now and at each change.

        An unknown service has the status SERVICE_UNKNOWN.

        Raise CallError if too many watches are open.
        """
        if self._watches >= HEALTH_WATCHES_MAX:
            raise too_many("watches of health", HEALTH_WATCHES_MAX)
        self._watches += 1
        try:
            last = None
            while True:
                changed = self._changed
                status = self._now().get(request.service, _Answer.SERVICE_UNKNOWN)
                if status != last:
                    last = status
                    yield _Answer(status=status)
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await changed.wait()
        finally:
            self._watches -= 1

    def _now(self) -> _Statuses:
        """Return the statuses of all services at this moment."""
        found = {
            name: _Answer.SERVING if serves() else _Answer.NOT_SERVING
            for name, serves in self._computed.items()
        }
        return self._statuses | found

    def _set(self, statuses: _Statuses) -> None:
        self._statuses = statuses
        self._changed.set()
        self._changed = asyncio.Event()
