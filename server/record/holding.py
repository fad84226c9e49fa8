"""Holds decisions back until their lines are safe in the decision log: `evenhand serve --durable`.

Nothing of a slice leaves before the disk has its lines. Meanwhile events gather, so that one sync serves all of them; a slice
without lines for the log waits for nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from server.record.recording import Recording

RETRY_S: Final = 0.25
"""How often a disk that took nothing is tried again."""
SLOW_S: Final = 1.0
"""A disk that has not answered for so long is said to hold decisions back."""
SLOW_WHY: Final = f"the disk has not answered for {SLOW_S:.0f} s"


class Holding:
    """What the pump waits for before decisions leave; ``asked`` runs a job in the thread that writes."""

    def __init__(
        self, recording: Recording, asked: Callable[[Callable[[], bool]], Awaitable[bool]]
    ) -> None:
        self._recording = recording
        self._asked = asked
        self._held = False
        self.tell: Callable[[bool], object] = bool
        """Hears when the disk begins to hold decisions back, and when it no longer does."""

    async def before_leaving(self) -> None:
        """Return when all that was decided so far may leave, however long the disk takes nothing."""
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
