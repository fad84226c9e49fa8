"""Calls of one view that are made at the same time. If calls arrive together, the core answers all of them from one state."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, TypeVar

CALLS_MAX: Final = 12
"""Largest number of calls that views make at the same time, all views together. Further calls wait.

All calls of the console together are at most 32, which is the core's limit for one caller.
"""

Answer = TypeVar("Answer")
_POOL: Final = ThreadPoolExecutor(CALLS_MAX, thread_name_prefix="console-call")
Extend = Callable[[], Callable[[], None]]
"""A function that keeps a connection open, and returns a function.

After the returned function was called, the connection may be closed.
"""
_EXTEND: Final[ContextVar[Extend | None]] = ContextVar("extend", default=None)


@contextmanager
def extending(extend: Extend) -> Iterator[None]:
    """Keep the connection of a view open until each read that this thread begins in the block has ended.

    The connection has to stay open because a view ends at its first failed read, while its other reads still run.
    """
    before = _EXTEND.set(extend)
    try:
        yield
    finally:
        _EXTEND.reset(before)


def begin(read: Callable[[], Answer]) -> "Future[Answer]":
    """Begin a read in another thread, and return its Future.

    The method `result()` of the Future waits for the result, or raises the Fault of the read. A read must not begin
    other reads. Otherwise all threads could wait for reads that no thread is free to run.
    """
    extend = _EXTEND.get()
    if extend is None:
        return _POOL.submit(read)
    end = extend()
    found = _POOL.submit(read)
    found.add_done_callback(lambda _: end())
    return found
