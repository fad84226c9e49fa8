"""The latest changes of decisions, numbered for watch calls, and the names of the pods in these decisions."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, count
from operator import attrgetter, itemgetter
from typing import Final, NamedTuple

from server.core.core import Core
from server.core.queries import known_decisions
from server.model.asks import Tags
from server.model.decisions import Decided, DecisionMoved, Decisions
from server.model.ranking import Ranking
from server.model.records import DecisionRecord, DecisionState
from server.rpc.limits import DECISION_CHANGES_KEPT_MAX
from server.rpc.pod_names import pod_name

_KEY: Final = attrgetter("key")
_LAST: Final = itemgetter(-1)
_TAGS: Final = attrgetter("tags")


class Change(NamedTuple):
    """A change of a decision: the decision was made, or it moved to another state. ``record`` is the decision as it was made."""

    number: int
    at_ms: int
    record: DecisionRecord
    moved: DecisionMoved | None

    @property
    def state(self) -> DecisionState:
        """The decision's state after the change."""
        return self.record.state if self.moved is None else self.moved.state


class _Held:
    """The tags of the pods that a decision names: victims, preemptors, protected pods and the candidates next to the victims.

    The tags are put into a map by key only on the first look-up, because few decisions are ever read.
    """

    __slots__ = ("_fresh", "_tags")

    def __init__(self) -> None:
        self._fresh: list[tuple[list[str], list[Tags]]] = []
        self._tags: dict[str, Tags] = {}

    def add(self, keys: list[str], tags: list[Tags]) -> None:
        """Add the tags of more pods. ``keys`` and ``tags`` must be in the same order."""
        self._fresh.append((keys, tags))

    @property
    def tags(self) -> dict[str, Tags]:
        """The tags by key."""
        for fresh in self._fresh:
            self._tags.update(zip(*fresh, strict=True))
        self._fresh.clear()
        return self._tags


def _candidates(ranking: Ranking | None) -> Iterable[str]:
    """Return the keys of the candidates in the excerpt of a ranking.

    Their names are stored because these pods may end while the decision is still reported.
    """
    return () if ranking is None else map(_LAST, ranking.candidates)


class DecisionLog:
    """The log of the last `DECISION_CHANGES_KEPT_MAX` changes. The pump calls `decided` for each batch of decisions."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._numbers = count(1)
        self._changes: deque[Change] = deque(maxlen=DECISION_CHANGES_KEPT_MAX)
        self._records: dict[str, DecisionRecord] = {}
        self._tags: dict[str, _Held] = {}

    def decided(self, decisions: Decisions, now: int) -> None:
        """Record the decisions that were made or moved."""
        for one in decisions.of(Decided, DecisionMoved):
            if isinstance(one, Decided):
                self._made(one.record, now)
            elif isinstance(one, DecisionMoved):
                self._moved(one)

    def sliced(self, events: int, seconds: float, now: int) -> None:
        """Ignore the end of a slice, because `decided` has recorded the decisions of the slice."""

    def idle(self) -> None:
        """Ignore that the pump is idle, because this object has no work to postpone."""

    def after(self, number: int) -> Iterator[Change]:
        """Return the changes whose number is greater than ``number``, oldest first."""
        return (change for change in self._changes if change.number > number)

    @property
    def first(self) -> int:
        """The number of the oldest change that is kept. If no change is kept, this is the number that the next change will have."""
        return self._changes[0].number if self._changes else self.last + 1

    @property
    def last(self) -> int:
        """The number of the latest change. The number is 0 if there was no change yet."""
        return self._changes[-1].number if self._changes else 0

    def names(self, partition: str, decision_id: str = "") -> Callable[[str], str]:
        """Return a function that takes a key and returns its pod's name, or "" if the name is not known.

        Names are known for the pods of the decision, while its changes are kept, and for pods of which the core still has the
        tags.
        """
        one_partition = self._core.state.partitions.get(partition)
        taken = self._tags.get(decision_id)
        held = {} if taken is None else taken.tags

        def name(key: str) -> str:
            found = held.get(key)
            if found is None and one_partition is not None:
                found = one_partition.tags_of(key)
            return pod_name(found) if found else ""

        return name

    def names_of(self, partition: str, keys: Iterable[str]) -> Callable[[str], str]:
        """Return a function that takes a key and returns the name that the pod has at this moment.

        The returned function returns "" for a key outside ``keys``.

        Any thread may call the function, because the function does not read the state.
        """
        one_partition = self._core.state.partitions.get(partition)
        asks = one_partition.asks if one_partition is not None else {}
        held = {key: asks[key].tags for key in keys if key in asks}

        def name(key: str) -> str:
            found = held.get(key)
            return pod_name(found) if found else ""

        return name

    def _made(self, record: DecisionRecord, now: int) -> None:
        """Record a decision that was made. After a veto, a decision is made again. The names of its earlier victims are kept."""
        self._add(now, record, None)
        if record.state.is_open:
            self._records[record.decision_id] = record
        one_partition = self._core.state.partitions.get(record.partition)
        if one_partition is not None:
            spared = chain.from_iterable(one.keys for one in record.spared)
            keys = chain(
                map(_KEY, record.victims),
                map(_KEY, record.beneficiaries),
                spared,
                _candidates(one_partition.decisions.rankings.get(record.decision_id)),
            )
            known = [ask for ask in map(one_partition.asks.get, keys) if ask is not None]
            held = self._tags.setdefault(record.decision_id, _Held())
            held.add(list(map(_KEY, known)), list(map(_TAGS, known)))

    def _moved(self, moved: DecisionMoved) -> None:
        """Record that a decision moved to another state.

        If an earlier process made the decision, the record of the decision is read from the core. A decision that the core no longer has is
        ignored.
        """
        record = self._records.get(moved.decision_id)
        record = record or known_decisions.decision(self._core, moved.decision_id)
        if record is not None:
            self._add(moved.at_ms, record, moved)
        if not moved.state.is_open:
            self._records.pop(moved.decision_id, None)

    def _add(self, at_ms: int, record: DecisionRecord, moved: DecisionMoved | None) -> None:
        full = len(self._changes) == DECISION_CHANGES_KEPT_MAX
        gone = self._changes[0] if full else None
        self._changes.append(Change(next(self._numbers), at_ms, record, moved))
        if gone is not None and not gone.state.is_open:
            self._tags.pop(gone.record.decision_id, None)
