"""The lease as plain values, and the interface to the store of the lease."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol


class LeaseError(Exception):
    """A request to the store of the lease, with an unknown result: the store may have carried the request out."""


class LeaseTakenError(LeaseError):
    """A write that the store refused, because the lease has changed since it was read."""


class BadTermsError(ValueError):
    """Durations with which a lease cannot be held safely."""


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """The durations of a lease, in seconds."""

    duration: int = 6
    """How long a candidate waits before it takes the lease.

    The time is counted from the last change of the lease that the candidate saw.
    """
    renew: float = 2.0
    """The time from the start of one renewal to the start of the next. This time is also the longest wait for an answer."""
    margin: float = 1.0
    """The holder stops acting this long before another candidate can take the lease."""
    look: float = 0.25
    """How long a candidate waits before it reads the lease again.

    After a failed renewal, the holder waits equally long.
    """

    def check(self) -> None:
        """Raise BadTermsError if the duration is so short that one failed renewal would end the term."""
        if min(self.renew, self.margin, self.look) <= 0:
            raise BadTermsError("every duration of a lease must be longer than 0")
        if self.duration < self.margin + 2 * self.renew:
            least = self.margin + 2 * self.renew
            raise BadTermsError(
                f"a lease of {self.duration:g} s is too short: with a renewal every {self.renew:g} s and a margin of "
                f"{self.margin:g} s it must last at least {least:g} s"
            )


@dataclass(frozen=True, slots=True)
class Election:
    """The Lease by which one of several shims is elected (design 7.2)."""

    name: str = "evenhand-shim"
    namespace: str = ""
    """Namespace of the Lease. If this text is empty, the namespace of the ConfigMaps is used."""
    terms: LeaseTerms = field(default_factory=LeaseTerms)


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease as it was read at one version."""

    version: str
    holder: str
    """Identity of the process that has the lease; empty when the lease was released."""
    duration: float
    """The number of seconds that other candidates have to wait, as the holder wrote it."""
    transitions: int
    """How many times the lease was acquired, which is the epoch of its holder."""


@dataclass(frozen=True, slots=True)
class LeaseWrite:
    """A change of the lease. The store makes this change only if the lease still has the version `version`."""

    version: str
    """The version of the lease that was read; empty when there was no lease."""
    holder: str
    duration: int
    transitions: int
    acquires: bool = False
    """Whether the write begins a term. If not, the write renews the lease or raises its epoch."""


class LeaseStore(Protocol):
    """The store of one lease."""

    async def read(self) -> Lease | None:
        """Return the lease as it is now, never an older version from a cache. Return None if there is no lease.

        Raises LeaseError if the request fails.
        """
        ...

    async def write(self, change: LeaseWrite) -> Lease:
        """Write a change of the lease, and return the written lease. Raises LeaseTakenError, LeaseError."""
        ...
