"""The events whose kinds are reported to a viewer: the events of its own queues, and no other events.

The instant of a message is information, too. For this reason a viewer gets a message only for an event that it may read, and no
message when something happens to other tenants. An event without a queue, such as one of a node or of a configuration, is not
reported to viewers.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from server.core.core import Core
from server.core.queries import known_decisions
from server.model.decisions import (
    ApplicationAccepted,
    ApplicationUpdated,
    AskRejected,
    AskReleased,
    AskStateChanged,
    Decided,
    Decision,
    DecisionMoved,
    Noted,
    Placed,
    Released,
    ShadowDecided,
    Withdrawn,
)
from server.model.records import DecisionRecord
from server.rpc.evenhand.redaction import above
from server.rpc.event_buffer import History, kind_of

_OF_APPLICATIONS: Final = (Released, AskReleased, AskRejected, ApplicationUpdated)
_OF_PODS: Final = frozenset({"ask", "allocation"})


class TenantEvents:
    """The number of the latest event by queue and kind, for the queues of the viewers that wait for events.

    An event counts for its queue and for all queues above it. All streams share one object, which reads each event once, and
    only while there is a stream.
    """

    def __init__(self, core: Core, history: History) -> None:
        self._core = core
        self._history = history
        self._read = 0
        self._streams: Counter[str] = Counter()
        self._latest: dict[str, dict[str, int]] = {}

    @contextmanager
    def watching(self, queue: str) -> Iterator[None]:
        """Record the events of a queue and of the queues below it during the block."""
        if not self._streams:
            self._read = self._history.last
        self._streams[queue] += 1
        try:
            yield
        finally:
            self._streams[queue] -= 1
            if not self._streams[queue]:
                del self._streams[queue]
                self._latest.pop(queue, None)

    def kinds_after(self, queue: str, number: int) -> list[str]:
        """Return the kinds of events of a watched queue and of the queues below it, sorted by name.

        Only events with a number greater than ``number`` count.
        """
        for entry in self._history.after(self._read):
            paths = set(self._queues(entry.decision))
            for path in paths.union(*map(above, paths)).intersection(self._streams):
                self._latest.setdefault(path, {})[kind_of(entry.decision)] = entry.number
        self._read = self._history.last
        latest = self._latest.get(queue, {})
        return sorted(kind for kind, last in latest.items() if last > number)

    def _queues(self, decision: Decision) -> Iterable[str]:
        """Return the queues whose viewers are informed of the event."""
        if isinstance(decision, _OF_APPLICATIONS):
            return self._of_application(decision)
        if isinstance(decision, AskStateChanged | Withdrawn):
            partition = decision.partition if isinstance(decision, Withdrawn) else ""
            return self._of_pod(partition, decision.key, decision.rm_id)
        if isinstance(decision, DecisionMoved):
            return self._of_move(decision)
        return self._of_note(decision) if isinstance(decision, Noted) else _named(decision)

    def _of_application(
        self, decision: Released | AskReleased | AskRejected | ApplicationUpdated
    ) -> Iterable[str]:
        """Return the queue of the event's application.

        Return no queue if the application was removed meanwhile, because its queue is then not known.
        """
        known = self._core.state.partitions.get(decision.partition)
        found = known and known.applications.get(decision.application_id)
        return (found.leaf.path,) if found and found.rm_id == decision.rm_id else ()

    def _of_note(self, note: Noted) -> Iterable[str]:
        if note.kind in _OF_PODS:
            return self._of_pod(note.partition, note.subject, note.rm_id)
        return (note.subject,) if note.kind == "queue" else ()

    def _of_pod(self, partition: str, key: str, rm_id: str) -> Iterable[str]:
        """Return the queue of a pod.

        Return no queue if several pods may be meant, because one of these pods may belong to another tenant.
        """
        known = self._core.state.partitions
        among = [known[partition]] if partition in known else known.values()
        asks = [one.asks[key] for one in among if key in one.asks]
        found = [one.application.leaf.path for one in asks if one.rm_id == rm_id]
        return found if len(found) == 1 else ()

    def _of_move(self, moved: DecisionMoved) -> Iterable[str]:
        """Return the queues of a decision or, for a veto, the queue of the victim."""
        record = known_decisions.decision(self._core, moved.decision_id)
        if record is None:
            return ()
        if moved.key:
            return [one.queue for one in record.victims if one.key == moved.key]
        return _concerned(record)


def _named(decision: Decision) -> Iterable[str]:
    """Return the queues that the decision itself names. A decision that concerns no queue names no queue."""
    if isinstance(decision, Decided):
        return _concerned(decision.record)
    if isinstance(decision, ShadowDecided):
        return (decision.record.queue,)
    if isinstance(decision, Placed | ApplicationAccepted) and decision.queue:
        return (decision.queue,)
    return ()


def _concerned(record: DecisionRecord) -> Iterable[str]:
    """Return the queues whose viewers may read a part of the decision, by the rules of `redaction.side_of`."""
    queues = {one.queue for one in record.beneficiaries} | {one.queue for one in record.victims}
    return queues if record.shrink is None else queues | {record.shrink.queue}
