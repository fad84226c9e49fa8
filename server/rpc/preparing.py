"""The preparation of a configuration between other work, so that applying it hardly delays placements and health checks."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from server.core.core import Core
from server.model.quota import Configuration
from server.rpc.pump import Pump


@asynccontextmanager
async def prepared(
    core: Core, pump: Pump, configuration: Configuration | None
) -> AsyncIterator[None]:
    """Prepare a configuration, and let the caller apply it in this context.

    When the context ends, wait until all partitions have the configuration in force, and free objects that are no longer used.
    The preparation is done in pieces, between which other tasks of the event loop run. Only one configuration may be prepared
    at a time (`Owners.changing`).
    """
    if configuration is None:
        yield
        return
    before = [*core.state.configuration.partitions]  # freed after the application, in pieces
    try:
        for _ in core.prepare(configuration):
            await asyncio.sleep(0)
        yield
        while core.state.outdated:
            await pump.settled()
    finally:
        for _ in core.drop_prepared():
            await asyncio.sleep(0)
        while before:
            del before[-1]
            await asyncio.sleep(0)
