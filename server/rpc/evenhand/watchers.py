"""The open watch streams: the limit on their number, and their wait for a change of the state."""

from collections.abc import Iterator
from contextlib import contextmanager

from server.rpc.errors import draining, too_many
from server.rpc.limits import WATCHERS_MAX
from server.rpc.pump import Pump


class Watchers:
    """The count of open watch streams of all services together."""

    def __init__(self, pump: Pump) -> None:
        self._pump = pump
        self._open = 0

    def now(self) -> int:
        """Return the time in Unix milliseconds."""
        return self._pump.now()

    async def change(self, seen: int) -> int:
        """Return the state's version as soon as it differs from ``seen``.

        A caller that has seen no version yet passes -1.

        Raise CallError when the server stops.
        """
        if self._pump.version == seen:
            await self._pump.changed.wait()
        if self._pump.stopping:
            raise draining()
        return self._pump.version

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Count a watch stream while it is open.

        Raise CallError if too many watch streams are open.
        """
        if self._open >= WATCHERS_MAX:
            raise too_many("watch streams", WATCHERS_MAX)
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1
