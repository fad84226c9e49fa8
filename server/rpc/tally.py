"""The count of the messages that the pump takes from streams, for sessions that can be resumed (design 7.5)."""

from collections import Counter

from server.model.events import Event, MessagesTaken
from server.rpc.sessions import Kind, Session, Sessions
from server.rpc.translate.allocations import Batch


class Tally:
    """The messages that the pump has taken and that the core has not counted yet."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._counts: Counter[tuple[str, Kind]] = Counter()
        self._ended: set[str] = set()

    def add(self, stream: Session | None, batch: Batch) -> None:
        """Count a message that came on a stream, if its manager has a session that can be resumed.

        Objects that were refused before they reached the core are part of no event, and their refusals have no number. A session
        with such objects therefore ends.
        """
        if stream is not None and self._sessions.is_counted(batch.rm_id):
            self._counts[batch.rm_id, stream.kind] += 1
            if batch.refusals:
                self._ended.add(batch.rm_id)
                self._sessions.end_session(batch.rm_id)

    def take(self) -> list[Event]:
        """Return the counts since the last call as events for the core, in a fixed order."""
        if not self._counts:
            return []
        counts, ended = self._counts, self._ended
        self._counts, self._ended = Counter(), set()
        return [
            MessagesTaken(
                rm_id,
                counts[rm_id, Kind.NODE],
                counts[rm_id, Kind.APPLICATION],
                counts[rm_id, Kind.ALLOCATION],
                rm_id in ended,
            )
            for rm_id in sorted({name for name, _ in counts})
        ]
