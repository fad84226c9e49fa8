"""Readers of the core: one reader serves all open pages with the same view, address and token.

A page is read at intervals, and at once when an event wakes its reader. After a read, the reader rests for at least
REST_FACTOR times the time that the read took. On average a page is read at most once in an interval, however many
events come. Within a short time, events may begin up to BURST reads earlier than the interval allows. While fewer than
FEW pages are open, the interval for reads after events is shorter. All open pages together are then read as often as
FEW pages would be. A page that no browser shows is not read.
"""

import asyncio
import hashlib
import math
import re
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Protocol

from evenhand_console.query import Query

ENTRIES_MAX: Final = 1000
"""Largest number of different pages that are kept up to date."""
REST_FACTOR: Final = 4
"""The rest after a read is at least this many times as long as the read, so that slow answers do not add to the core's load."""
BURST: Final = 3
"""The number of reads that events may begin before the interval allows them."""
FEW: Final = 10
"""The number of open pages below which events may begin more reads of each single page."""
TOGETHER_S: Final = 0.5
"""Waiting readers begin their reads at multiples of this time. Reads that arrive together take the core less time."""
REFUSED_S: Final = 30.0
"""Seconds between two reads of a page that asks to log in."""
LINGER_S: Final = 5.0
"""The seconds for which the latest fragment of a page is kept after its last user left.

A page and the stream that the browser opens next thus share one read.
"""
_REFUSED: Final = 401
_STATE_OF: Final = re.compile(r'State of <time datetime="([^"]{18})[^"]*">[^<]*</time>')
"""The pattern for the instant of the state that a page shows, without the last digit of the seconds.

A text of the core cannot match, because texts are escaped.
"""


class TooManyError(Exception):
    """The error for a page beyond ENTRIES_MAX, and for a page that was dropped to make room for another visitor's page."""


@dataclass(frozen=True, slots=True)
class Key:
    """The identity of a reader: the view, the address of the page, and the token."""

    view: str
    query: Query
    token: str = field(repr=False)


@dataclass(frozen=True)
class Fragment:
    """The part of a page that changes, as HTML, with the status of the read.

    The id of the fragment depends on the HTML alone.
    """

    html: str
    status: int = 200

    @cached_property
    def id(self) -> str:
        """The id of the fragment in a stream.

        A client that already has the fragment with this id gets only the fragments after it.

        Fragments that differ only by less than ten seconds in the instant of their state have the same id.
        """
        return hashlib.sha256(_STATE_OF.sub(r"\1", self.html).encode()).hexdigest()[:16]


Make = Callable[[Key, Fragment | None], Awaitable[Fragment]]
"""A function that reads and renders a fragment.

The second argument is the latest good fragment, which is shown if the core does not answer.
"""
Pause = Callable[[Key], float]
"""A function that returns the shortest time in seconds between two reads of a page."""


class Tokens(Protocol):
    """An object that is told which tokens have open pages. Only pages that the core answers count (see `Waking`)."""

    def open(self, token: str) -> None:
        """Count one more open page of the visitor with this token."""

    def close(self, token: str) -> None:
        """Count one open page less of the visitor with this token."""


class Readers:
    """The readers of all open pages: one reader for each different page."""

    def __init__(self, make: Make, pause: Pause, entries_max: int = ENTRIES_MAX) -> None:
        self._make = make
        self._pause = pause
        self._entries_max = entries_max
        self.tokens: Tokens | None = None
        self._entries: dict[Key, _Entry] = {}
        self._idle: dict[Key, asyncio.TimerHandle] = {}

    @property
    def readers(self) -> int:
        """The number of different pages that are read now."""
        return len(self._entries)

    def close(self) -> None:
        """Stop all readers."""
        for key in list(self._entries):
            self._drop(key)

    def wake(self, token: str, concerns: Callable[[Key], bool]) -> None:
        """Wake the readers of a token's pages for which `concerns` returns true.

        Each of these pages is read as soon as its reader has rested long enough since the last read.
        """
        for key, entry in self._entries.items():
            if key.token == token and concerns(key):
                entry.wake()

    async def latest(self, key: Key) -> Fragment:
        """Return the fragment of a page. The fragment is at most as old as the pause between two reads of this page.

        Raises TooManyError if `entries_max` other pages have users.
        """
        entry = self._entry(key)
        try:
            return await entry.fresh()
        finally:
            self._leave(key, entry)

    async def follow(self, key: Key, last_id: str = "") -> AsyncGenerator[Fragment, None]:
        """Yield the latest fragment of a page, unless its id is `last_id`, and then each later fragment.

        Raises TooManyError if `entries_max` other pages have users.

        A slow client may miss fragments, but never the latest one.
        """
        entry = self._entry(key)
        try:
            while True:
                fragment = await entry.other_than(last_id)
                last_id = fragment.id
                yield fragment
        finally:
            self._leave(key, entry)

    def _entry(self, key: Key) -> "_Entry":
        entry = self._entries.get(key)
        if entry is None or entry.failed:
            self._make_room(key.token)
            if entry is not None:
                self._drop(key)
            entry = _Entry(
                lambda latest: self._make(key, latest),
                self._pause(key),
                self._share,
                lambda: self._is_good(key),
            )
            self._entries[key] = entry
        if key in self._idle:
            self._idle.pop(key).cancel()
        entry.enter()
        return entry

    def _share(self) -> float:
        """Return the factor, at most 1, by which the interval of each page is multiplied while few pages are open."""
        return min(1.0, (len(self._entries) - len(self._idle)) / FEW)

    def _is_good(self, key: Key) -> None:
        if self.tokens is not None:
            self.tokens.open(key.token)

    def _make_room(self, token: str) -> None:
        """Drop a page if there are too many pages.

        Raises TooManyError if no page may be dropped in favour of a page of this token. The first choice is a page that
        asks to log in. The second choice is the page that has been without a user for longest. The third choice is the
        oldest page of the token with the most pages, if that token has at least two pages more than ``token``.
        """
        if len(self._entries) < self._entries_max:
            return
        refused = (key for key, entry in self._entries.items() if entry.refused)
        found = next(refused, None) or next(iter(self._idle), None) or self._of_most(token)
        if found is None:
            raise TooManyError
        self._drop(found)

    def _of_most(self, token: str) -> Key | None:
        counts = Counter(key.token for key in self._entries)
        (most, number), *_ = counts.most_common(1)
        if number < counts[token] + 2:
            return None
        return next(key for key in self._entries if key.token == most)

    def _leave(self, key: Key, entry: "_Entry") -> None:
        entry.leave()
        if entry.users or self._entries.get(key) is not entry:
            return
        if entry.failed or entry.refused:
            self._drop(key)
        else:
            loop = asyncio.get_running_loop()
            self._idle[key] = loop.call_later(LINGER_S, self._drop, key)

    def _drop(self, key: Key) -> None:
        entry = self._entries.pop(key)
        entry.stop()
        if entry.was_good and self.tokens is not None:
            self.tokens.close(key.token)
        if key in self._idle:
            self._idle.pop(key).cancel()


class _Entry:
    """The reader of one page: a task that reads the page while the page has users."""

    def __init__(
        self,
        make: Callable[[Fragment | None], Awaitable[Fragment]],
        pause_s: float,
        share: Callable[[], float],
        on_good: Callable[[], None],
    ) -> None:
        self._make = make
        self._pause_s = pause_s
        self._share = share
        self._on_good = on_good
        self._latest: Fragment | None = None
        self._good: Fragment | None = None
        self._woken = asyncio.Event()
        self._used = asyncio.Event()
        self._changed = asyncio.Condition()
        self._task = asyncio.create_task(self._run())
        self._stopped = False
        self.users = 0

    @property
    def failed(self) -> bool:
        """Whether the task of the reader has ended, which happens only if a view has a defect."""
        return self._task.done()

    @property
    def refused(self) -> bool:
        """Whether the page asks the visitor to log in."""
        return self._latest is not None and self._latest.status == _REFUSED

    @property
    def was_good(self) -> bool:
        """Whether the core has answered a read of the page."""
        return self._good is not None

    def enter(self) -> None:
        """Count one more user of the page."""
        self.users += 1
        self._used.set()

    def leave(self) -> None:
        """Remove one user of the page from the count."""
        self.users -= 1
        if not self.users:
            self._used.clear()

    def wake(self) -> None:
        """Let the page be read as soon as its reader has rested long enough since the last read."""
        self._woken.set()

    async def fresh(self) -> Fragment:
        """Return the latest fragment, or wait for the first fragment."""
        return await self._when(lambda _: True)

    async def other_than(self, last_id: str) -> Fragment:
        """Wait until the latest fragment has an id other than `last_id`, and return this fragment."""
        return await self._when(lambda latest: latest.id != last_id)

    def stop(self) -> None:
        """Stop reading the page. All users of the page get a TooManyError."""
        self._stopped = True
        self._task.cancel()

    async def _when(self, wanted: Callable[[Fragment], bool]) -> Fragment:
        async with self._changed:
            while self._latest is None or not wanted(self._latest):
                if self._stopped:
                    raise TooManyError
                if self._task.done():
                    self._task.result()  # This raises the error if a defect in a view has ended the task.
                await self._changed.wait()
            return self._latest

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        next_s = loop.time()
        try:
            while True:
                self._woken.clear()
                took = await self._read()
                interval_s = max(self._share() * self._pause_s, (1 + REST_FACTOR) * took)
                next_s = max(next_s, loop.time() - took) + interval_s
                await self._rest(REST_FACTOR * took, next_s - BURST * interval_s)
                if not self.users:
                    self._latest = None  # The fragment would be too old for the next user.
                    await self._used.wait()
        finally:
            async with self._changed:
                self._changed.notify_all()

    async def _read(self) -> float:
        """Read the page once, and return the seconds that the read took."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        fragment = await self._make(self._good)
        if fragment.status == 200:  # noqa: PLR2004
            if not self.was_good:
                self._on_good()
            self._good = fragment
        async with self._changed:
            self._latest = fragment
            self._changed.notify_all()
        return loop.time() - started

    async def _rest(self, least: float, not_before: float) -> None:
        """Wait until the page is to be read again.

        The wait lasts for the pause of the page, or for `least` seconds if that is longer. An event ends the wait
        earlier, but not before the instant `not_before`.
        """
        now = asyncio.get_running_loop().time()
        if self.refused:
            await asyncio.sleep(max(REFUSED_S, least))
            return
        due = _together(now + max(least, self._pause_s), self._pause_s)
        if not_before > now:
            await asyncio.sleep(min(_together(not_before, self._pause_s), due) - now)
        with suppress(TimeoutError):
            async with asyncio.timeout_at(due):
                await self._woken.wait()


def _together(at_s: float, pause_s: float) -> float:
    """Return the instant at which a read begins.

    The instant is `at_s`, or the next multiple of TOGETHER_S if the pause is at least TOGETHER_S. With such multiples,
    several readers begin together.
    """
    return math.ceil(at_s / TOGETHER_S) * TOGETHER_S if pause_s >= TOGETHER_S else at_s
