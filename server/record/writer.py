"""The thread that writes records, so that the scheduler never waits for a disk."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final

import structlog

STUCK_S: Final = 5.0
"""The largest number of seconds that the server waits at its end for one job, such as a sync that never returns."""

_log = structlog.get_logger("server.record")


class Scribe:
    """The thread that runs jobs one after another. If a job raises an exception, the exception is logged. Later jobs run nevertheless.

    The thread is a daemon, so Python does not wait for it at exit. Python would wait for threads of a `ThreadPoolExecutor`.
    """

    def __init__(self) -> None:
        self._jobs: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._done = 0
        self._thread = Thread(target=self._work, name="record", daemon=True)
        self._thread.start()

    def run(self, job: Callable[[], None]) -> None:
        """Queue a job for the thread."""
        self._submit(job).add_done_callback(_check)

    async def asked(self, job: Callable[[], bool]) -> bool:
        """Run a job in the thread, and return its result or raise its exception."""
        return bool(await asyncio.wrap_future(self._submit(job)))

    def close(self) -> None:
        """Wait until all jobs are done. If a job takes longer than `STUCK_S`, log that and stop waiting.

        If this job still returns before the process ends, the jobs queued after it run. Otherwise the lines of those jobs are
        lost.
        """
        self._jobs.put(None)
        done = -1
        while self._thread.is_alive() and self._done != done:
            done = self._done
            self._thread.join(STUCK_S)
        if self._thread.is_alive():
            _log.critical(
                "record-not-written",
                why=f"the disk has not answered for {STUCK_S:g} s",
                waiting=self._jobs.qsize() - 1,
            )

    def _submit(self, job: Callable[[], Any]) -> Future[Any]:
        asked: Future[Any] = Future()
        self._jobs.put((job, asked))
        return asked

    def _work(self) -> None:
        while (given := self._jobs.get()) is not None:
            _do(*given)
            self._done += 1


def _do(job: Callable[[], Any], asked: Future[Any]) -> None:
    """Run a job unless it was cancelled while it waited."""
    if asked.set_running_or_notify_cancel():
        try:
            result = job()
        except BaseException as error:
            asked.set_exception(error)
        else:
            asked.set_result(result)


def _check(done: Future[None]) -> None:
    error = done.exception()
    if error is not None:
        _log.critical("record-failed", exc_info=error)
