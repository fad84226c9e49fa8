"""A store of one lease with the guarantees of an API server, and with delays and failures that a test chooses."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from shim_client.election.lease import Lease, LeaseError, LeaseTakenError, LeaseWrite

T = TypeVar("T")


@dataclass
class Server:
    """The server: each change is made at one instant, and only of the version that the client names."""

    lease: Lease | None = None
    version: int = 0
    changes: list[tuple[float, Lease | None]] = field(default_factory=list)

    def read(self) -> Lease | None:
        return self.lease

    def write(self, change: LeaseWrite) -> Lease:
        there = "" if self.lease is None else self.lease.version
        if there != change.version:
            raise LeaseTakenError(f"version {there}, not {change.version}")
        self.version += 1
        self.lease = Lease(str(self.version), change.holder, change.duration, change.transitions)
        self.changes.append((asyncio.get_running_loop().time(), self.lease))
        return self.lease

    def delete(self) -> None:
        self.lease = None
        self.changes.append((asyncio.get_running_loop().time(), None))


@dataclass
class Link:
    """One client's way to the server. A request that its client gave up may still be carried out, and later."""

    server: Server
    there: Callable[[], float] = lambda: 0.01
    back: Callable[[], float] = lambda: 0.01
    fails: Callable[[], bool] = lambda: False
    cut: bool = False
    cut_next: bool = False
    """Whether the way is cut after the next answer that arrives."""
    requests: int = 0
    _late: set[asyncio.Task[Any]] = field(default_factory=set)

    async def read(self) -> Lease | None:
        return await self._do(self.server.read)

    async def write(self, change: LeaseWrite) -> Lease:
        return await self._do(lambda: self.server.write(change))

    async def _do(self, deed: Callable[[], T]) -> T:
        self.requests += 1
        carried = asyncio.ensure_future(self._carry(deed))
        self._late.add(carried)
        carried.add_done_callback(self._late.discard)
        carried.add_done_callback(lambda done: done.cancelled() or done.exception())
        answer = await asyncio.shield(carried)
        await asyncio.sleep(self.back())
        if self.cut or self.fails():
            raise LeaseError("the answer was lost")
        if self.cut_next:
            self.cut, self.cut_next = True, False
        return answer

    async def _carry(self, deed: Callable[[], T]) -> T:
        await asyncio.sleep(self.there())
        if self.cut or self.fails():
            raise LeaseError("the request was lost")
        return deed()


def moody(dice: random.Random, server: Server) -> Link:
    """Return a way whose mood changes: quick, slow, very slow, and with failures in both directions."""
    if dice.random() < 0.15:
        return Link(server, back=lambda: dice.uniform(1.2, 1.95))
    slowness = dice.choice((0.02, 0.3, 1.5, 6.0))
    failing = dice.choice((0.0, 0.0, 0.1, 0.4))
    return Link(
        server,
        there=lambda: dice.random() ** 3 * slowness,
        back=lambda: dice.random() ** 3 * slowness,
        fails=lambda: dice.random() < failing,
    )
