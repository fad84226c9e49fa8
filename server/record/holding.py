"""The delay of decisions until their lines are safe in the decision log, as `evenhand serve --durable` requests.

The decisions of a slice (`server.rpc.pump`) are sent only when its lines are on the disk. Events that arrive during a sync are
handled together in the next slice, so that one sync serves all these events. A slice without lines for the log does not wait.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from server.record.recording import Recording

RETRY_S: Final = 0.25
"""The number of seconds between two attempts to write to a disk that fails."""
SLOW_S: Final = 1.0
"""The number of seconds without an answer after which the disk is reported as delaying decisions."""
SLOW_WHY: Final = f"the disk has not answered for {SLOW_S:.0f} s"


class Holding:
    """The wait of the pump before it sends decisions: the pump awaits `before_leaving`.

    The function ``asked`` runs a job in the thread that writes the log.
    """

    def __init__(
        self, recording: Recording, asked: Callable[[Callable[[], bool]], Awaitable[bool]]
    ) -> None:
        self._recording = recording
        self._asked = asked
        self._held = False
        self.tell: Callable[[bool], object] = bool
        """The function that is called with True when the disk begins to delay decisions, and with False when the delay has ended."""

    async def before_leaving(self) -> None:
        """Wait until all decisions made so far may be sent. If the disk fails, the wait has no time limit."""
        unsafe = self._recording.unsafe()
        if unsafe is None:
            return
        while not await self._written(unsafe.write):
            self._say(held=True)
            await asyncio.sleep(RETRY_S)
        self._say(held=False)
        self._recording.leave(unsafe)

    async def _written(self, write: Callable[[], bool]) -> bool:
        writing = asyncio.ensure_future(self._asked(write))
        try:
            await asyncio.wait({writing}, timeout=SLOW_S)
            if not writing.done():
                self._recording.slow = SLOW_WHY
                self._say(held=True)
            return await writing
        finally:
            self._recording.slow = ""
            writing.cancel()

    def _say(self, *, held: bool) -> None:
        if held != self._held:
            self._held = held
            self.tell(held)
