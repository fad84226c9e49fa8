"""The connection that all readers share: to the core that decides, and to a follower if views read at a follower.

The connection is renewed when another core decides, and when a follower may be read again.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from typing import Final

import grpc
import typer

from evenhand_cli.connect import Core
from evenhand_cli.faults import Fault
from evenhand_console.followers import Newest, reader_of

RENEW_S: Final = 5.0
"""The seconds for which the connection is kept if its core does not decide.

After that, the console looks again for the core that decides.
"""

Open = Callable[[str], AbstractContextManager[Core]]
"""A function that opens a connection.

Its argument is the visitor's token, with which the cores are asked which of them decides.
"""


class Connection:
    """A connection that is opened when it is first needed. Its methods may be called from several threads."""

    def __init__(self, opener: Open, clock: Callable[[], float]) -> None:
        """Make a connection that is not open yet. ``clock`` returns seconds that never decrease."""
        self._opener = opener
        self.clock = clock
        self._lock = threading.Lock()
        self._current: Opened | None = None
        self._renewing = False
        self.newest = Newest()
        """The newest state of the core that an answer has shown."""

    @contextmanager
    def lease(self, token: str = "") -> "Iterator[Opened]":
        """Yield the open connection.

        If no connection is open, open one with the visitor's token. The connection stays open until the block ends,
        even if `retire` is called during the block. Raises Fault if no connection can be opened.
        """
        with self._lock:
            if self._current is None:
                self._current = Opened(self._opener, token, self.clock(), self.newest)
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
        """Let the next reader open another connection.

        Do nothing unless `opened` is the present connection and at least `after_s` seconds old.
        """
        with self._lock:
            if opened is self._current and self.clock() - opened.since_s >= after_s:
                self._current = None
                self._close_unused(opened)

    def leave_follower(self, opened: "Opened") -> None:
        """From now on, read at the core that decides. End the streams of events from the follower."""
        with self._lock:
            if opened.reader is None:
                return
            opened.reader = None
            opened.since_s = self.clock()
            streams = list(opened.streams)
        for one in streams:
            one.cancel()

    def renew(self, opened: "Opened", token: str) -> None:
        """Open another connection in a thread, if `opened` is the current one and is at least RENEW_S old.

        Readers use the current connection until the other one is open, because opening takes seconds if a core does not
        answer.
        """
        with self._lock:
            is_young = self.clock() - opened.since_s < RENEW_S
            if self._renewing or opened is not self._current or is_young:
                return
            self._renewing = True
        thread = partial(threading.Thread, name="console-renew", daemon=True)
        thread(target=self._renew, args=(opened, token)).start()

    def _renew(self, before: "Opened", token: str) -> None:
        fresh: Opened | None = None
        try:
            with suppress(Fault):
                fresh = Opened(self._opener, token, self.clock(), self.newest)
        finally:
            with self._lock:
                self._renewing = False
                before.since_s = self.clock()
                if fresh is not None and self._current is before:
                    self._current = fresh
                    self._close_unused(before)
                elif fresh is not None:
                    fresh.close()

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

    def __init__(self, opener: Open, token: str, since_s: float, newest: Newest) -> None:
        """Open a connection. ``since_s`` is the present instant.

        A follower answers only from a state that is not older than ``newest``.
        """
        self._stack = ExitStack()
        self.core = self._stack.enter_context(opener(token))
        self.reader = reader_of(self.core, newest)
        """The connection with which views read at a follower, or None while they read at the core that decides."""
        self.streams: set[grpc.Call] = set()
        """The streams of events from the follower."""
        self.since_s = since_s
        """The instant at which the connection was opened or, if later, at which `renew` last tried to replace it."""
        self.users = 0

    def close(self) -> None:
        """Close the connection.

        If groups of cores could not be reached, no error is raised, because the pages have named these groups.
        """
        with suppress(typer.Exit):
            self._stack.close()
