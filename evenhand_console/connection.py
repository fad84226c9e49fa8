"""The connection to the core that decides, shared by all readers and renewed when another core decides."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Final

import typer

from evenhand_cli.connect import Opener

RENEW_S: Final = 5.0
"""The seconds for which a connection to a core that does not decide is kept.

After that, the console looks again for the core that decides.
"""


class Connection:
    """A connection that is opened when it is first needed. The methods of the object may be called from several threads."""

    def __init__(self, opener: Opener, clock: Callable[[], float]) -> None:
        """Make a connection. ``clock`` returns seconds that never decrease."""
        self._opener = opener
        self._clock = clock
        self._lock = threading.Lock()
        self._current: Opened | None = None

    @contextmanager
    def lease(self) -> "Iterator[Opened]":
        """Yield the open connection. The connection stays open until the block ends, even if `retire` is called during the block.

        Raises Fault if no connection can be opened.
        """
        with self._lock:
            if self._current is None:
                self._current = Opened(self._opener, self._clock())
            opened = self._current
            opened.users += 1
        try:
            yield opened
        finally:
            self._end_user(opened)

    def extend(self, opened: "Opened") -> Callable[[], None]:
        """Keep a leased connection open until the returned function is called, even if the block of the lease ends before.

        A call that begins on a closed channel of gRPC ends the whole process.
        """
        with self._lock:
            opened.users += 1
        return partial(self._end_user, opened)

    def retire(self, opened: "Opened", after_s: float = 0.0) -> None:
        """Let the next reader open another connection, if `opened` is the present one and at least `after_s` seconds old."""
        with self._lock:
            if opened is self._current and self._clock() - opened.since_s >= after_s:
                self._current = None
                self._close_unused(opened)

    def close(self) -> None:
        """Close the connection as soon as its last reader has ended."""
        with self._lock:
            opened, self._current = self._current, None
            if opened is not None:
                self._close_unused(opened)

    def _end_user(self, opened: "Opened") -> None:
        with self._lock:
            opened.users -= 1
            self._close_unused(opened)

    def _close_unused(self, opened: "Opened") -> None:
        if opened is not self._current and not opened.users:
            opened.close()


class Opened:
    """An open connection, and the number of its readers."""

    def __init__(self, opener: Opener, since_s: float) -> None:
        """Open a connection. ``since_s`` is the present instant."""
        self._stack = ExitStack()
        self.core = self._stack.enter_context(opener())
        self.since_s = since_s
        self.users = 0

    def close(self) -> None:
        """Close the connection.

        Groups of cores that could not be reached cause no error, because the pages have named these groups.
        """
        with suppress(typer.Exit):
            self._stack.close()
