"""The facts that one candidate knows about the lease, and its next step; pure functions with the time as an argument.

At most one candidate holds the lease at any instant, whatever the delays and failures of requests. The condition is that
the candidates' clocks gain or lose less than the margin while a lease lasts. There are three reasons:

- The holder counts the lease's `duration` from the *start* of its last successful write. The store changed the lease
  after this start. The holder stops `margin` before `duration` has passed.
- Another candidate counts the duration from the *receipt* of the last change that it saw. The store changed the lease
  before this receipt. The candidate takes the lease when the duration that the holder wrote has passed.
- Each write names the version of the lease that was read. The store refuses a write if the lease no longer has that
  version: the write arrived late, or its writer has not seen the last renewal.

A term that has lapsed never comes back. A holder that renewed too late has to acquire the lease again, with the next
epoch.
"""

from __future__ import annotations

from shim_client.election.lease import Lease, LeaseTerms, LeaseWrite


class Candidate:
    """One candidate for the lease.

    Instants are seconds of a clock that never goes back and also counts while the machine sleeps.
    """

    def __init__(self, identity: str, terms: LeaseTerms) -> None:
        """Make a candidate. No other process, and no earlier run of this process, may have the same identity."""
        terms.check()
        self.identity = identity
        self.terms = terms
        self.term = 0
        """The number of times that this candidate acquired the lease."""
        self.epoch = 0
        """The epoch of the candidate's last term, 0 before its first term."""
        self._until: float | None = None
        """The instant at which the candidate's term ends, None if it has no term."""
        self._seen: Lease | None = None
        self._seen_at = 0.0
        self._highest = 0
        """The highest epoch that was seen. The next term's epoch is higher, even if the lease was deleted meanwhile."""
        self._is_known = False
        """Whether `_seen` equals the lease in the store, as far as this candidate knows."""

    def holds(self, now: float) -> bool:
        """Return whether it is certain that the candidate holds the lease."""
        return self._until is not None and now < self._until

    def seconds_left(self, term: int, now: float) -> float:
        """Return for how many seconds the candidate surely holds the lease in this term, 0 if the term has ended."""
        if term != self.term or self._until is None:
            return 0.0
        return max(0.0, self._until - now)

    def must_read(self, now: float) -> bool:
        """Return whether the lease has to be read before the candidate can write it."""
        return not self._is_known or not self.holds(now)

    def saw(self, lease: Lease | None, now: float) -> None:
        """Record the lease as it was read."""
        if lease != self._seen:
            self._seen, self._seen_at = lease, now
        self._is_known = True
        if lease is not None:
            self._highest = max(self._highest, lease.transitions)
        if lease is None or (lease.holder, lease.transitions) != (self.identity, self.epoch):
            self._until = None

    def next_write(self, now: float) -> LeaseWrite | None:
        """Return the write that is due now: a renewal, or the acquisition of a lease that is free.

        Return None if another candidate holds the lease, or if this candidate has to read the lease first.
        """
        if not self._is_known:
            return None
        lease = self._seen
        if lease is not None and self.holds(now):
            return self._write(lease.version, self.epoch)
        if lease is None:
            return self._write("", self._highest + 1, acquires=True)
        if lease.holder not in {"", self.identity} and now < self._seen_at + lease.duration:
            return None
        return self._write(lease.version, self._highest + 1, acquires=True)

    def raising(self, epoch: int, now: float) -> LeaseWrite | None:
        """Return the write that raises the epoch of the present term above the given epoch.

        Return None if the candidate does not hold the lease, or has to read the lease first.
        """
        if not self._is_known or self._seen is None or not self.holds(now):
            return None
        return self._write(self._seen.version, max(epoch, self.epoch) + 1)

    def end_term(self) -> None:
        """End the term. The candidate may acquire the lease again, in another term."""
        self._until = None

    def release(self, now: float) -> LeaseWrite | None:
        """End the term and return the write that gives the lease back.

        Return None if the candidate does not hold the lease, or has to read the lease first.
        """
        held = self.holds(now)
        self.end_term()
        if not held or not self._is_known or self._seen is None:
            return None
        return LeaseWrite(self._seen.version, "", self.terms.duration, self.epoch)

    def wrote(self, change: LeaseWrite, lease: Lease, started: float, now: float) -> None:
        """Record a successful write, given the instants at which its request started and at which its answer came."""
        lapsed = self._until is None or now >= self._until
        self._seen, self._seen_at, self._is_known = lease, now, True
        self._highest = max(self._highest, lease.transitions)
        if change.holder != self.identity:
            return
        if change.acquires:
            self.term += 1
        elif lapsed:
            self._until = None
            return
        self.epoch = lease.transitions
        self._until = started + self.terms.duration - self.terms.margin

    def is_unsure(self) -> None:
        """Record that a write failed.

        The lease has to be read again, because the store may still have carried out the write.
        """
        self._is_known = False

    def pause(self, started: float, now: float) -> float:
        """Return how many seconds to wait before the next step, given the instant at which the last step started."""
        if self.holds(now):
            return max(0.0, started + self.terms.renew - now) if self._is_known else self.terms.look
        if self._is_known and self._seen is not None and self._seen.holder:
            free_in = self._seen_at + self._seen.duration - now
            if 0 < free_in < self.terms.look:
                return free_in
        return self.terms.look

    def _write(self, version: str, transitions: int, *, acquires: bool = False) -> LeaseWrite:
        return LeaseWrite(version, self.identity, self.terms.duration, transitions, acquires)
