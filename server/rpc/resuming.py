"""The offer of a manager to continue a session, and the test whether this core can accept the offer (design 7.5)."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

from server.core.state import Manager
from server.rpc.sessions import Kind, Sessions
from si.v1 import si_pb2


class Offer(NamedTuple):
    """The progress of a session according to its manager, by stream.

    ``received`` has the number of the last decision that the manager received. ``sent`` has the number of messages that the
    manager made. ``oldest`` has the number of the oldest message that it can still send.
    """

    session: str
    epoch: int
    instance: str
    received: Mapping[Kind, int]
    sent: Mapping[Kind, int]
    oldest: Mapping[Kind, int]

    @classmethod
    def of(cls, request: si_pb2.RegisterResourceManagerRequest) -> Self | None:
        """Return the offer in a registration, or None if there is none."""
        offer = request.resume
        if not offer.sessionID or request.forget:
            return None
        streams = {
            Kind.NODE: offer.nodes,
            Kind.APPLICATION: offer.applications,
            Kind.ALLOCATION: offer.allocations,
        }
        return cls(
            offer.sessionID,
            request.epoch,
            request.buildInfo.get("instance", ""),
            {kind: one.received for kind, one in streams.items()},
            {kind: one.sent for kind, one in streams.items()},
            {kind: one.oldest for kind, one in streams.items()},
        )

    def is_reached(self, manager: Manager | None) -> bool:
        """Return whether the core has this session, and has made every decision of this session that the manager received."""
        if manager is None or manager.session is None or manager.session.name != self.session:
            return False
        sent = manager.session.sent
        return all(sent.get(kind, 0) >= number for kind, number in self.received.items())

    def fits(self, manager: Manager | None, sessions: Sessions) -> bool:
        """Return whether this core can continue the session."""
        if manager is None or not manager.can_resume(self.session):
            return False
        return self.missing(manager, sessions) is not None

    def missing(
        self, manager: Manager | None, sessions: Sessions
    ) -> Mapping[Kind, Sequence[bytes]] | None:
        """Return the decisions that the manager has not received, by stream. Return None if the session cannot be continued."""
        if manager is None or manager.session is None or manager.session.name != self.session:
            return None
        if (manager.epoch, manager.instance) != (self.epoch, self.instance):
            return None
        taken = manager.session.taken
        for kind in Kind:
            if not self.oldest[kind] - 1 <= taken.get(kind, 0) <= self.sent[kind]:
                return None
        return sessions.missing(manager, self.received)

    @staticmethod
    def counts(manager: Manager) -> si_pb2.ResumedSession:
        """Return, for each stream, how many of its messages the core has taken."""
        assert manager.session is not None, "the session was just continued"
        taken = manager.session.taken
        return si_pb2.ResumedSession(
            nodes=taken.get(Kind.NODE, 0),
            applications=taken.get(Kind.APPLICATION, 0),
            allocations=taken.get(Kind.ALLOCATION, 0),
        )
