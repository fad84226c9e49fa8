"""Signals as asyncio events: SIGINT and SIGTERM end the program, SIGHUP makes it read its files again."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any


def stop_event() -> asyncio.Event:
    """Return an event that SIGINT and SIGTERM set; an event loop must be running."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return stop


def hangup_event() -> asyncio.Event:
    """Return an event that SIGHUP sets; an event loop must be running."""
    hangup = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hangup.set)
    return hangup


async def until_stopped(work: Coroutine[Any, Any, None]) -> None:
    """Run the work until it ends, or cancel it when SIGINT or SIGTERM arrives.

    Raises the error that ends the work, unless the work was cancelled before.
    """
    stopped = asyncio.create_task(stop_event().wait())
    task = asyncio.create_task(work)
    await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if task.done():
        task.result()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
