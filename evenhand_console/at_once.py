"""Calls of one view that are made at the same time: the core answers questions that arrive together from one picture."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, TypeVar

CALLS_MAX: Final = 12
"""Largest number of such calls at a time, of all views together; further ones wait. All calls together are 32, as many as a caller may make."""

Answer = TypeVar("Answer")
_POOL: Final = ThreadPoolExecutor(CALLS_MAX, thread_name_prefix="console-call")
Extend = Callable[[], Callable[[], None]]
"""The function that keeps a connection open until the function that it returns is called."""
_EXTEND: Final[ContextVar[Extend | None]] = ContextVar("extend", default=None)


@contextmanager
def extending(extend: Extend) -> Iterator[None]:
    """Keep the connection of a view open for the reads that this thread begins in the block, until each of them has ended.

    A view ends before its reads if one of them fails.
    """
    before = _EXTEND.set(extend)
    try:
        yield
    finally:
        _EXTEND.reset(before)


def begin(read: Callable[[], Answer]) -> "Future[Answer]":
    """Begin a read in another thread. `result()` waits for its result, or raises its Fault.

    A read that was begun must not begin others, which could wait for its own place.
    """
    extend = _EXTEND.get()
    if extend is None:
        return _POOL.submit(read)
    end = extend()
    found = _POOL.submit(read)
    found.add_done_callback(lambda _: end())
    return found
