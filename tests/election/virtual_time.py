"""An event loop whose time passes only while it waits, so that minutes of timers run in milliseconds."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Jumping(selectors.DefaultSelector):
    """A selector that moves the loop's time on instead of waiting."""

    seconds = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        assert timeout is not None, "every task waits for something that never comes"
        self.seconds += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """The event loop."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Return the seconds since the loop began."""
        return self._jumping.seconds


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run the work in virtual time, and return its result."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
