"""Calls of one view that are made at the same time: the core answers questions that arrive together from one picture."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar

CALLS_MAX: Final = 20
"""Largest number of such calls at a time, of all views together; further ones wait."""

Answer = TypeVar("Answer")
_POOL: Final = ThreadPoolExecutor(CALLS_MAX, thread_name_prefix="console-call")


def begin(read: Callable[[], Answer]) -> "Future[Answer]":
    """Begin a read in another thread. `result()` waits for its result, or raises its Fault.

    A read that was begun must not begin others, which could wait for its own place.
    """
    return _POOL.submit(read)
