"""The latest decisions, numbered for watch calls, and totals since the start."""

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import count, groupby, islice, repeat
from operator import attrgetter
from typing import Any, Final, NamedTuple

from server.model import phrases
from server.model.decisions import (
    ApplicationAccepted,
    ApplicationRejected,
    ApplicationUpdated,
    ApplicationUpdateRejected,
    AskRejected,
    AskReleased,
    AskStateChanged,
    Decided,
    Decision,
    DecisionMoved,
    Decisions,
    NodeAccepted,
    NodeRejected,
    Noted,
    Placed,
    PlanCheckEnded,
    PlanCheckRequested,
    Released,
    ShadowDecided,
    Withdrawn,
    is_barrier,
)
from server.model.shadow import sentence
from server.rpc.limits import EVENTS_KEPT_MAX

_NAMED_MAX: Final = 3
"""The largest number of asks that the record of a plan check names."""


class Record(NamedTuple):
    """A decision as users read it: with names, a reason code and a sentence."""

    kind: str
    subject: str
    code: str
    message: str
    partition: str = ""
    queue: str = ""
    node_id: str = ""
    application_id: str = ""


KINDS: Final = (
    "placed",
    "released",
    "rejected",
    "waiting",
    "allocation",
    "ask",
    "application",
    "node",
    "queue",
    "manager",
    "configuration",
    "decision",
    "shadow",
)
"""The values of `Record.kind`: first the kinds of decisions, then the kinds of the core's notes."""


class Entry(NamedTuple):
    """A decision with its number and instant."""

    number: int
    at_ms: int
    decision: Decision


class History:
    """The last `EVENTS_KEPT_MAX` decisions. The pump calls `decided` with each batch of decisions."""

    def __init__(self) -> None:
        self.last = 0
        """The number of the latest entry, or 0 if there was none yet."""
        self._entries: deque[tuple[int, int, Decision]] = deque(maxlen=EVENTS_KEPT_MAX)
        self.totals: Counter[tuple[str, str]] = Counter()
        """The totals by kind of decision (placed, released, rejected) and partition. Refused nodes are not counted."""
        self._latest: dict[str, int] = {}
        """The number of the latest entry by kind of event."""

    def decided(self, decisions: Decisions, now: int) -> None:
        """Record every decision except the refusals of barrier asks (`decisions.BARRIER`).

        A client sends a barrier ask only to get its refusal, so that such a refusal reports no fault.
        """
        if AskRejected in decisions.kinds:
            decisions = Decisions([one for one in decisions.all if not is_barrier(one)])
        self.last += len(decisions)
        latest = decisions.all[-EVENTS_KEPT_MAX:]
        numbers = count(self.last - len(latest) + 1)
        self._entries.extend(zip(numbers, repeat(now), latest, strict=False))
        before = self.last - len(decisions)
        for kind, begin, end in decisions.runs:
            if kind in _COUNTED:
                self._count(_COUNTED[kind], decisions.all[begin:end])
            for at in range(begin, end) if kind is Noted else (end - 1,):
                self._latest[kind_of(decisions.all[at])] = before + at + 1

    def sliced(self, events: int, seconds: float, now: int) -> None:
        """Ignore the end of a slice, because `decided` has recorded the decisions of the slice."""

    def idle(self) -> None:
        """Ignore that the pump is idle, because this object has no work to postpone."""

    def after(self, number: int) -> Iterator[Entry]:
        """Yield the entries whose number is greater than ``number``, oldest first.

        Earlier entries are not read, because streams call this method many times a second.
        """
        for entry in self._later(number):
            yield Entry(*entry)

    def of_kinds_after(self, number: int, kinds: Collection[str], most: int) -> list[Entry]:
        """Return the first ``most`` entries of these kinds whose number is greater than ``number``, oldest first.

        The console's overview page asks every few seconds for a few kinds, while nearly all entries are placements. Therefore no
        entry is read if none of these kinds occurred, and an entry of another kind costs a fraction of a microsecond.
        """
        latest = max((self._latest.get(kind, 0) for kind in kinds), default=0)
        if latest <= max(number, self.first - 1):
            return []
        types = {Noted, *(one for one, kind in _KINDS.items() if kind in kinds)}
        alike = [one for one in self._later(number) if type(one[2]) in types]
        found = (Entry(*one) for one in alike if kind_of(one[2]) in kinds)
        return list(islice(found, most))

    def _later(self, number: int) -> Iterable[tuple[int, int, Decision]]:
        """Return the parts of the entries whose number is greater than ``number``, oldest first."""
        return reversed([*islice(reversed(self._entries), max(self.last - number, 0))])

    def kinds_after(self, number: int) -> list[str]:
        """Return the kinds of all entries whose number is greater than ``number``, sorted by name.

        Entries that have been dropped count, too.
        """
        return sorted(kind for kind, latest in self._latest.items() if latest > number)

    @property
    def first(self) -> int:
        """The number of the oldest entry that is kept.

        If no entry is kept, this is the number that the next entry will have.
        """
        return self._entries[0][0] if self._entries else self.last + 1

    def _count(self, word: str, found: Iterable[Decision]) -> None:
        """Add decisions of one kind to the totals.

        Neighbouring decisions of one partition are added in one step, because the decisions of a batch are nearly always of one
        partition.
        """
        for partition, alike in groupby(map(_PARTITION, found)):
            self.totals[word, partition] += len(list(alike))


_PARTITION: Final = attrgetter("partition")
_COUNTED: Final[Mapping[type, str]] = {
    Placed: "placed",
    Released: "released",
    AskReleased: "released",
    AskRejected: "rejected",
    ApplicationRejected: "rejected",
    ApplicationUpdateRejected: "rejected",
}


def _placed(one: Placed) -> Record:
    message = f"placed on node {one.node_id}"
    return Record(
        "placed",
        one.key,
        "placed",
        message,
        one.partition,
        one.queue,
        one.node_id,
        one.application_id,
    )


def _released(one: Released | AskReleased) -> Record:
    code = one.termination.name.lower().replace("_", "-")
    message = one.message or f"released: {code}"
    return Record(
        "released", one.key, code, message, one.partition, application_id=one.application_id
    )


def _withdrawn(one: Withdrawn) -> Record:
    message = f"the release by decision {one.decision_id} is withdrawn: {one.reason}"
    return Record("allocation", one.key, "withdrawn", message, one.partition)


def _plan_check(one: PlanCheckRequested) -> Record:
    where = ", ".join(f"{key} on {node_id}" for key, node_id in one.placements[:_NAMED_MAX])
    more = len(one.placements) - _NAMED_MAX
    further = f" and {more} more" if more > 0 else ""
    victims = phrases.count(len(one.victims), "pod")
    asked = f"its manager is asked whether {where}{further} would fit without {victims}"
    return Record("ask", one.placements[0][0], "plan-check", asked, one.partition)


def _plan_check_ended(one: PlanCheckEnded) -> Record:
    message = f"plan check {one.check_id} has ended: {one.reason}"
    return Record("manager", one.rm_id, "plan-check-ended", message, one.partition)


def _ask_rejected(one: AskRejected) -> Record:
    return Record(
        "rejected",
        one.key,
        "ask-rejected",
        one.reason,
        one.partition,
        application_id=one.application_id,
    )


def _ask_state(one: AskStateChanged) -> Record:
    code = one.code or one.state.name.lower()
    return Record("waiting", one.key, code, one.reason, application_id=one.application_id)


def _application_accepted(one: ApplicationAccepted) -> Record:
    message = f"accepted in queue {one.queue}" if one.queue else "accepted"
    return Record("application", one.application_id, "accepted", message, one.partition, one.queue)


def _application_rejected(one: ApplicationRejected | ApplicationUpdateRejected) -> Record:
    return Record("rejected", one.application_id, "application-rejected", one.reason, one.partition)


def _application_updated(one: ApplicationUpdated) -> Record:
    message = one.message or f"now {one.state}"
    return Record("application", one.application_id, one.state.lower(), message, one.partition)


def _node_accepted(one: NodeAccepted) -> Record:
    return Record("node", one.node_id, "accepted", "accepted", node_id=one.node_id)


def _node_rejected(one: NodeRejected) -> Record:
    return Record("rejected", one.node_id, "node-rejected", one.reason, node_id=one.node_id)


def _made(one: Decided) -> Record:
    found = one.record
    queue = found.shrink.queue if found.shrink is not None else ""
    queue = found.beneficiaries[0].queue if found.beneficiaries else queue
    return Record("decision", found.decision_id, found.state, found.summary, found.partition, queue)


def _moved(one: DecisionMoved) -> Record:
    code = "vetoed" if one.key else one.state.value
    what = f"victim {one.key} cannot be taken away" if one.key else f"now {one.state}"
    message = f"{what}: {one.reason}" if one.reason else what
    return Record("decision", one.decision_id, code, message, one.partition)


def _shadowed(one: ShadowDecided) -> Record:
    found = one.record
    code = "ended" if found.ended_ms else found.difference.value
    return Record(
        "shadow",
        found.key,
        code,
        sentence(found),
        found.partition,
        found.queue,
        application_id=found.application_id,
    )


def _noted(one: Noted) -> Record:
    return Record(one.kind, one.subject, one.code, one.message, one.partition)


_RECORDS: Final[Mapping[type, Callable[[Any], Record]]] = {
    Placed: _placed,
    Released: _released,
    AskReleased: _released,
    Withdrawn: _withdrawn,
    PlanCheckRequested: _plan_check,
    PlanCheckEnded: _plan_check_ended,
    AskRejected: _ask_rejected,
    AskStateChanged: _ask_state,
    Decided: _made,
    DecisionMoved: _moved,
    ApplicationAccepted: _application_accepted,
    ApplicationRejected: _application_rejected,
    ApplicationUpdateRejected: _application_rejected,
    ApplicationUpdated: _application_updated,
    NodeAccepted: _node_accepted,
    NodeRejected: _node_rejected,
    ShadowDecided: _shadowed,
    Noted: _noted,
}


_KINDS: Final[Mapping[type, str]] = {
    Placed: "placed",
    Released: "released",
    AskReleased: "released",
    Withdrawn: "allocation",
    PlanCheckRequested: "ask",
    PlanCheckEnded: "manager",
    AskRejected: "rejected",
    AskStateChanged: "waiting",
    Decided: "decision",
    DecisionMoved: "decision",
    ApplicationAccepted: "application",
    ApplicationRejected: "rejected",
    ApplicationUpdateRejected: "rejected",
    ApplicationUpdated: "application",
    NodeAccepted: "node",
    NodeRejected: "rejected",
    ShadowDecided: "shadow",
}


def kind_of(decision: Decision) -> str:
    """Return the kind that the record of a decision has.

    Finding the kind takes a fraction of the time that `record` takes.
    """
    return decision.kind if isinstance(decision, Noted) else _KINDS[type(decision)]


def record(decision: Decision) -> Record:
    """Return the record of a decision, for users."""
    return _RECORDS[type(decision)](decision)
