"""List and watch: everything that happens in the cluster, as news for the mirror.

First every kind is listed, in the order of specification 1.7, then every kind is watched from the
version of its list.  A version that is too old (410) or a watch that fails means a new list, whose
gaps the mirror takes for deletions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from shim_client.cluster import KINDS, ClusterError, ClusterReader, GoneError, Listing, WatchEvent

PAUSE_SECONDS_FIRST = 0.2
PAUSE_SECONDS_MAX = 30.0

Tell = Callable[[Listing | WatchEvent], Awaitable[None]]
Sleep = Callable[[float], Awaitable[None]]


async def follow(reader: ClusterReader, tell: Tell, sleep: Sleep = asyncio.sleep) -> None:
    """List, then watch every kind until cancelled."""
    versions = {}
    for kind in KINDS:
        listing = await _list(reader, kind, sleep)
        await tell(listing)
        versions[kind] = listing.version
    async with asyncio.TaskGroup() as watches:
        for kind, version in versions.items():
            watches.create_task(_watch(reader, kind, version, tell, sleep))


async def _watch(reader: ClusterReader, kind: str, version: int, tell: Tell, sleep: Sleep) -> None:
    pause = PAUSE_SECONDS_FIRST
    while True:
        try:
            async for event in reader.watch(kind, version):
                await tell(event)
                version = event.version
                pause = PAUSE_SECONDS_FIRST
            continue
        except GoneError:
            pass  # Only a new list tells what was missed.
        except ClusterError:
            await sleep(pause)
            pause = min(2 * pause, PAUSE_SECONDS_MAX)
        listing = await _list(reader, kind, sleep)
        await tell(listing)
        version = listing.version


async def _list(reader: ClusterReader, kind: str, sleep: Sleep) -> Listing:
    """Return the list of a kind, tried until the cluster gives it."""
    pause = PAUSE_SECONDS_FIRST
    while True:
        try:
            return await reader.list_objects(kind)
        except ClusterError:
            await sleep(pause)
            pause = min(2 * pause, PAUSE_SECONDS_MAX)
