"""The reports that wait for one stream."""

from __future__ import annotations

import asyncio
from typing import Any

from shim_client.messages import Report

OUTBOX_MAX = 500_000
"""Maximum number of reports that wait for one stream.

If more reports wait, the core evidently does not read them, and the session is restarted.
"""


class Outbox:
    """A queue of reports for one stream."""

    def __init__(self) -> None:
        self._waiting: list[Any] = []
        self._filled = asyncio.Event()

    def put(self, report: Report) -> None:
        """Add a report."""
        self._waiting.append(report)
        self._filled.set()

    async def fills_within(self, seconds: float) -> bool:
        """Wait for a report; return whether one arrived within the given seconds."""
        try:
            async with asyncio.timeout(seconds):
                await self._filled.wait()
        except TimeoutError:
            return False
        return True

    def is_full(self) -> bool:
        """Return whether more than `OUTBOX_MAX` reports wait."""
        return len(self._waiting) > OUTBOX_MAX

    async def take(self) -> list[Any]:
        """Wait until a report exists, then remove and return all waiting reports."""
        await self._filled.wait()
        self._filled.clear()
        taken, self._waiting = self._waiting, []
        return taken
