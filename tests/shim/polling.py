"""Waiting for a condition with a limit."""

import asyncio
from collections.abc import Callable

SECONDS_MAX = 60


async def until(condition: Callable[[], bool], pause: float = 0.005) -> None:
    """Wait until the condition holds; errors: TimeoutError."""
    async with asyncio.timeout(SECONDS_MAX):
        # The condition depends on a server, a cluster and a client, which share no event to wait for.
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(pause)
