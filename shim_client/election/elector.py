"""The loop that acquires and renews the lease, and informs the shim when it may act and when it must stop acting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from shim_client.election.candidate import Candidate
from shim_client.election.lease import (
    Lease,
    LeaseError,
    LeaseStore,
    LeaseTakenError,
    LeaseWrite,
)

Seconds = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Term:
    """A term in which this process leads: the number of the term, and the epoch with which the term began."""

    number: int
    epoch: int


class LeaseLostError(Exception):
    """The end of a term: possibly this process does not hold the lease any more, so that it must not change objects."""


class Elector:
    """The loop that carries out the steps of one candidate.

    Run `run` as a task. `missed` is called with the error of each failed request.
    """

    def __init__(
        self,
        store: LeaseStore,
        candidate: Candidate,
        clock: Seconds,
        missed: Callable[[LeaseError], None] = lambda _error: None,
    ) -> None:
        """Make the loop of a candidate; `clock` returns seconds and also counts while the machine sleeps."""
        self._store = store
        self._candidate = candidate
        self._clock = clock
        self._missed = missed
        self._one_request = asyncio.Lock()
        self._changed = asyncio.Event()
        self._acting: Term | None = None

    @property
    def identity(self) -> str:
        """The name of this process in the lease."""
        return self._candidate.identity

    async def run(self) -> None:
        """Acquire the lease when it is free, and renew it while this process holds it, until cancelled."""
        while True:
            started = self._clock()
            await self._step()
            await asyncio.sleep(self._candidate.pause(started, self._clock()))

    async def acquired(self) -> Term:
        """Wait until this process holds the lease in a term that this method has not returned before, and return the term.

        From then on the process may act.
        """
        before = 0 if self._acting is None else self._acting.number
        while self._candidate.term <= before or not self._candidate.holds(self._clock()):
            await self._changed.wait()
        self._acting = Term(self._candidate.term, self._candidate.epoch)
        return self._acting

    async def lost(self, term: Term) -> None:
        """Wait until a term has ended."""
        while (left := self._candidate.seconds_left(term.number, self._clock())) > 0:
            try:
                async with asyncio.timeout(left):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def seconds_left(self) -> float:
        """Return for how many seconds this process surely may act: 0 before it leads, and after its term."""
        if self._acting is None:
            return 0.0
        return self._candidate.seconds_left(self._acting.number, self._clock())

    @property
    def epoch(self) -> int:
        """The epoch of the term in which this process leads, 0 if it does not lead."""
        return self._candidate.epoch if self.seconds_left() > 0 else 0

    async def raised(self, term: Term, above: int) -> Term:
        """Raise the epoch of a term above the given epoch, which a core knows from an earlier lease.

        Return the term with the new epoch. Raises LeaseLostError if the term ended before the new epoch was written to
        the lease. The store refuses to write the new epoch if another process has taken the lease. After a request that
        failed, wait as `run` does.
        """
        while self._candidate.seconds_left(term.number, self._clock()) > 0:
            async with self._one_request:
                change = self._candidate.raising(above, self._clock())
                if change is not None and await self._write(change):
                    return Term(term.number, self._candidate.epoch)
            await self._step()
            if self._candidate.must_read(self._clock()):
                await asyncio.sleep(self._candidate.terms.look)
        raise LeaseLostError("the lease was lost before its epoch was raised")

    def resign(self) -> None:
        """End the present term: this process must not change objects any more.

        Any process, including this process, can acquire the lease again.
        """
        self._candidate.end_term()
        self._wake()

    async def release(self) -> None:
        """Give the lease back, if this process holds it, so that another process can take it at once.

        Call this method after `run` has ended and all requests in flight are done. If the store does not answer, other
        processes have to wait until the lease has lapsed.
        """
        async with self._one_request:
            if not self._candidate.holds(self._clock()):
                return
            if self._candidate.must_read(self._clock()):
                await self._read()
            change = self._candidate.release(self._clock())
            if change is not None:
                await self._write(change)

    async def _step(self) -> None:
        """Read the lease if it has to be read, and write it if a write is due."""
        async with self._one_request:
            if self._candidate.must_read(self._clock()) and not await self._read():
                return
            change = self._candidate.next_write(self._clock())
            if change is not None:
                await self._write(change)

    async def _read(self) -> bool:
        try:
            async with asyncio.timeout(self._candidate.terms.renew):
                lease = await self._store.read()
        except (LeaseError, TimeoutError) as error:
            self._failed(error)
            return False
        self._candidate.saw(lease, self._clock())
        self._wake()
        return True

    async def _write(self, change: LeaseWrite) -> bool:
        started = self._clock()
        try:
            async with asyncio.timeout(self._candidate.terms.renew):
                lease: Lease = await self._store.write(change)
        except (LeaseError, TimeoutError) as error:
            self._candidate.is_unsure()
            if not isinstance(error, LeaseTakenError):
                self._failed(error)
            self._wake()
            return False
        except asyncio.CancelledError:
            self._candidate.is_unsure()
            raise
        self._candidate.wrote(change, lease, started, self._clock())
        self._wake()
        return True

    def _failed(self, error: LeaseError | TimeoutError) -> None:
        seconds = self._candidate.terms.renew
        late = LeaseError(f"no answer within {seconds:g} s")
        self._missed(error if isinstance(error, LeaseError) else late)

    def _wake(self) -> None:
        self._changed.set()
        self._changed.clear()
