"""The lists and watches that pass all objects and changes of the cluster to the shim's state machine.

First every kind is listed, in the order of `KINDS`. After the lists, every kind is watched from the version of its
list. A watch that is cut continues from the last version that was seen. A kind is listed again when that version is
too old (HTTP 410), or when the watch fails repeatedly. The state machine treats known objects that the new list lacks
as deleted. A kind that the cluster does not serve is listed again every `UNSERVED_SECONDS`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    retry_if_not_exception_type,
    stop_after_attempt,
    wait_exponential,
)

from shim_client.cluster import (
    KINDS,
    Change,
    ClusterError,
    ClusterReader,
    GoneError,
    Listing,
    WatchEvent,
)

PAUSE_SECONDS_FIRST = 0.2
PAUSE_SECONDS_MAX = 30.0
UNSERVED_SECONDS = 30.0
"""Seconds until a kind that the cluster does not serve is listed again, because the cluster may serve it later."""
RESUMES_MAX = 6
"""Maximum number of failed watches in succession without an event; then the kind is listed again."""

Missed = Callable[[str, ClusterError], None]
"""A function that is called for each failed list or watch with its kind and error."""
Tell = Callable[[Listing | WatchEvent], Awaitable[None]]
Sleep = Callable[[float], Awaitable[None]]


def _unheard(_kind: str, _error: ClusterError) -> None:
    """Ignore a failed list or watch."""


async def listed(
    reader: ClusterReader, kind: str, sleep: Sleep = asyncio.sleep, missed: Missed = _unheard
) -> Listing:
    """Return all objects of a kind; retry until the cluster answers."""
    tries = AsyncRetrying(
        sleep=sleep, retry=_FAILED, wait=_pause, before_sleep=_telling(kind, missed)
    )
    listing: Listing = await tries(reader.list_objects, kind)
    return listing


async def follow(
    reader: ClusterReader, tell: Tell, sleep: Sleep = asyncio.sleep, missed: Missed = _unheard
) -> None:
    """List every kind, then watch every kind until cancelled."""
    kinds = [_Kind(kind, reader, tell, sleep, missed) for kind in KINDS]
    for kind in kinds:
        await kind.list()
    async with asyncio.TaskGroup() as watches:
        for kind in kinds:
            watches.create_task(kind.watch())


@dataclass(slots=True)
class _Kind:
    """A kind that is watched from the last version that was seen."""

    name: str
    reader: ClusterReader
    tell: Tell
    sleep: Sleep
    missed: Missed
    version: int = 0
    served: bool = True

    async def list(self) -> None:
        """List the kind and pass the list to the state machine; retry until the cluster answers."""
        listing = await listed(self.reader, self.name, self.sleep, self.missed)
        await self.tell(listing)
        self.version, self.served = listing.version, listing.served

    async def watch(self) -> None:
        """Pass every change of the kind to the state machine until cancelled."""
        while True:
            while not self.served:
                await self.sleep(UNSERVED_SECONDS)
                await self.list()
            try:
                await self._watch_on()
            except ClusterError:
                await self.list()

    async def _watch_on(self) -> None:
        """Follow one watch to its end, with a few retries.

        Raises ClusterError if the last retry fails, or at once if the version is too old to watch from.
        """
        tries = AsyncRetrying(
            sleep=self.sleep,
            retry=_FAILED & _NOT_GONE,
            wait=_pause,
            before_sleep=_telling(self.name, self.missed),
            stop=stop_after_attempt(RESUMES_MAX),
            reraise=True,
        )
        await tries(self._watch_once)

    async def _watch_once(self) -> None:
        """Follow one watch to its end.

        Raises GoneError for a version that is too old, and ClusterError if the watch failed without an event.
        """
        heard = False
        try:
            async for event in self.reader.watch(self.name, self.version):
                if event.change is not Change.BOOKMARK:
                    await self.tell(event)
                self.version, heard = event.version, True
        except GoneError:
            raise
        except ClusterError:
            if not heard:
                raise
        if not heard:
            await self.sleep(PAUSE_SECONDS_FIRST)


_FAILED = retry_if_exception_type(ClusterError)
_NOT_GONE = retry_if_not_exception_type(GoneError)


def _telling(kind: str, missed: Missed) -> Callable[[RetryCallState], None]:
    """Return a function that reports a failure; the function is called before the pause that follows the failure."""

    def tell(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, ClusterError):
            missed(kind, error)

    return tell


_doubling = wait_exponential(multiplier=PAUSE_SECONDS_FIRST, max=PAUSE_SECONDS_MAX)


def _pause(state: RetryCallState) -> float:
    """Return the pause after a failure in seconds: twice the last pause.

    If the cluster requested a longer pause, return the requested pause.
    """
    error = state.outcome.exception() if state.outcome else None
    asked = error.retry_after if isinstance(error, ClusterError) else 0.0
    return max(_doubling(state), min(asked, PAUSE_SECONDS_MAX))
