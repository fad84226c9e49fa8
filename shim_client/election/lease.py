"""The lease as values, and the interface to the store that keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class LeaseError(Exception):
    """A request for the lease without a known result: it may have been carried out."""


class LeaseTakenError(LeaseError):
    """A write that the store refused, because the lease has changed since it was read."""


class BadTermsError(ValueError):
    """Durations with which a lease cannot be held safely."""


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """The durations of a lease, in seconds."""

    duration: int = 6
    """How long other candidates wait after the last change that they saw before they take the lease."""
    renew: float = 2.0
    """How long after the start of a renewal the next one starts; also the longest wait for an answer."""
    margin: float = 1.0
    """How long before the lease can be taken its holder stops to act."""
    look: float = 0.25
    """How long a candidate waits before it reads the lease again, and a holder after a failed renewal."""

    def check(self) -> None:
        """Raise BadTermsError unless a renewal can fail once before the holder has to stop."""
        if min(self.renew, self.margin, self.look) <= 0:
            raise BadTermsError("every duration of a lease must be longer than 0")
        if self.duration < self.margin + 2 * self.renew:
            least = self.margin + 2 * self.renew
            raise BadTermsError(
                f"a lease of {self.duration:g} s is too short: with a renewal every {self.renew:g} s and a margin of "
                f"{self.margin:g} s it must last at least {least:g} s"
            )


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease as it was read at one version."""

    version: str
    holder: str
    """Identity of the process that has the lease; empty when it was given back."""
    duration: float
    """Seconds that other candidates wait, as the holder wrote them."""
    transitions: int
    """How often the lease was acquired: the epoch of its holder."""


@dataclass(frozen=True, slots=True)
class LeaseWrite:
    """A change of the lease, which the store makes only if the lease still has the version that was read."""

    version: str
    """The version that was read; empty when there was no lease."""
    holder: str
    duration: int
    transitions: int
    acquires: bool = False
    """Whether another term begins, not only another renewal."""


class LeaseStore(Protocol):
    """The store of one lease."""

    async def read(self) -> Lease | None:
        """Return the lease as it is now, not as it was a while ago; None when there is none. Raises LeaseError."""
        ...

    async def write(self, change: LeaseWrite) -> Lease:
        """Write the lease and return what is written. Raises LeaseTakenError, LeaseError."""
        ...
