"""The `Picture` of an answer says which state the answer shows.

The picture has the number of events and ticks that the core had received (the position), the leader if this core follows one, and
the managers that are away or still syncing. The event loop runs nothing between the making of an answer and the making of its
picture. The answer and its picture therefore show the same state.
"""

from collections.abc import Callable

from google.protobuf.message import Message

from evenhand.v1 import inspect_pb2 as pb
from server.core.core import Core
from server.replication.feed import Feed
from server.rpc.following import Replica, State
from server.rpc.presence import Presence
from server.rpc.roles import CALLER, Role

FIELD = "picture"
_ANOTHER = "another core"
"""The name of a leader for a viewer, who gets no addresses."""
_EARLIER_RUN = "an earlier run"
"""The name that a restarted core shows in place of a leader until a manager registers."""


class Pictures:
    """The function object that fills in the field `picture` of answers that have this field."""

    def __init__(
        self, core: Core, feed: Feed, replica: Replica, presence: Presence, now: Callable[[], int]
    ) -> None:
        self._core = core
        self._feed = feed
        self._replica = replica
        self._presence = presence
        self._now = now

    def complete(self, request: Message, answer: Message) -> None:
        """Fill the field `picture` of an answer, for the partition that the request names or for all partitions."""
        if FIELD in answer.DESCRIPTOR.fields_by_name:
            picture = self.picture(str(getattr(request, "partition", "")))
            answer.picture.CopyFrom(picture)  # type: ignore[attr-defined]

    def picture(self, partition: str = "") -> pb.Picture:
        """Return the picture of a partition, or of all partitions if the name is empty or unknown.

        A viewer gets no names of managers.
        """
        state, now = self._core.state, self._now()
        away = self._presence.away(now)
        replica, position = self._replica, self._feed.position
        leads = replica.state is State.LEADER
        known = state.partitions.get(partition.lower())
        owners = list(state.managers) if known is None else [known.owner]
        named = CALLER.get().role is not Role.VIEWER
        return pb.Picture(
            taken_at_ms=now,
            away=[
                pb.AbsentManager(rm_id=one if named else "", since_ms=away[one])
                for one in owners
                if one in away
            ],
            syncing=[
                one if named else ""
                for one in owners
                if one in state.managers and not state.managers[one].synced and one not in away
            ],
            position=position,
            follows=_leader(replica, named=named),
            behind=replica.behind(position),
            heard_ms=0 if leads else replica.heard_ms,
            term=self._feed.term,
        )


def _leader(replica: Replica, *, named: bool) -> str:
    """Return, as text, the core whose state the answer shows. Return "" for a core that decides."""
    if replica.state is State.LEADER:
        return ""
    if replica.state is State.RESTORED and not replica.heard_ms:
        return _EARLIER_RUN
    return replica.leader if named else _ANOTHER
