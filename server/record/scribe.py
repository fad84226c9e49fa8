"""The thread that writes records, so that the scheduler never waits for a disk."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import structlog

_log = structlog.get_logger("server.record")


class Scribe:
    """Does jobs one after the other. A defect in one is said, and stops neither the next one nor the server."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="record")

    def run(self, job: Callable[[], None]) -> None:
        """Does it some time soon."""
        self._thread.submit(job).add_done_callback(_check)

    async def asked(self, job: Callable[[], bool]) -> bool:
        """Does it as soon as it can, and gives what comes of it. Raises what the job raises."""
        return await asyncio.wrap_future(self._thread.submit(job))

    def close(self) -> None:
        """Waits until all is done."""
        self._thread.shutdown()


def _check(done: Future[None]) -> None:
    error = done.exception()
    if error is not None:
        _log.critical("record-failed", exc_info=error)
