"""Those who watch: how many there are at the most, and how they wait for a change."""

from collections.abc import Iterator
from contextlib import contextmanager

from server.rpc.failures import draining, too_many
from server.rpc.limits import WATCHERS_MAX
from server.rpc.pump import Pump


class Watchers:
    """Counts the open watch streams of all services together."""

    def __init__(self, pump: Pump) -> None:
        self._pump = pump
        self._open = 0

    def now(self) -> int:
        """Unix milliseconds."""
        return self._pump.now()

    async def change(self, seen: int) -> int:
        """Returns the state's version when it is another than the one seen (-1: none yet)."""
        if self._pump.version == seen:
            await self._pump.changed.wait()
        if self._pump.stopping:
            raise draining()
        return self._pump.version

    @contextmanager
    def watching(self) -> Iterator[None]:
        """One more, as long as it lasts; raises CallError when there are too many."""
        if self._open >= WATCHERS_MAX:
            raise too_many("watch streams", WATCHERS_MAX)
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1
