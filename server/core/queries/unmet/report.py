"""The report of unmet guarantees: every queue that is below its entitlement while asks below it wait. No function changes the state.

The report first reads the state and takes a snapshot. All later steps read only this snapshot, which never changes.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from server.core.core import Core
from server.core.queries.unmet import needs
from server.core.queries.unmet.asking import Planner
from server.core.queries.unmet.judge import judge
from server.model.unmet import Change, UnmetAsks, UnmetQueue, UnmetReport
from server.preemption import entitlement
from server.preemption.trial import Trial
from server.snapshot.snapshot import Snapshot

QUEUES_MAX: Final = 1_000
"""The largest number of queues of one report."""


class Prepared:
    """A report that is computed step by step. `queues` yields one queue after another, and `finish` adds the facts about all queues."""

    def __init__(self, found: needs.Needs) -> None:
        self._found = found
        self._planner = Planner(found.snapshot, found.listed)
        self._judged: dict[str, UnmetAsks] = {}
        self.over_promised = over_promised(found.snapshot)

    def queues(self) -> Iterator[UnmetQueue]:
        """Yield the queues below their entitlement. Each queue is judged only when the caller requests it.

        If several of these queues contain the same asks, the asks are judged only once.
        """
        types = frozenset(self.over_promised)
        for one in self._found.queues[:QUEUES_MAX]:
            asks = tuple(self._judge(need, types) for need in one.needs)
            yield UnmetQueue(one.queue, one.types, asks, one.others)

    def finish(self, queues: Sequence[UnmetQueue]) -> UnmetReport:
        """Return the report: the given results of the method `queues`, and the facts about all queues."""
        left_out = max(0, len(self._found.queues) - QUEUES_MAX)
        snapshot = self._found.snapshot
        return UnmetReport(
            snapshot.partition, tuple(queues), self.over_promised, self._planner.plans, left_out
        )

    def _judge(self, need: needs.Need, types: frozenset[str]) -> UnmetAsks:
        known = self._judged.get(need.ask.key)
        if known is None:
            known = judge(self._planner, need, types)
            known = self._judged[need.ask.key] = self._behind_reservations(known)
        return known

    def _behind_reservations(self, asks: UnmetAsks) -> UnmetAsks:
        """Return the answer for the asks.

        If the cure of the asks raises a maximum, and a reservation may use the new headroom first, the returned answer says
        until when the reservation may last.
        """
        found, reserved = asks.cure, self._found.reserved
        if found is None or found.change is not Change.RAISE_MAX or found.subject not in reserved:
            return asks
        text = f"{found.text}; a reservation there may come first, {reserved[found.subject]} at the latest"
        return replace(asks, cure=replace(found, text=text))


def prepared(core: Core, partition: str, now: int, queue: str = "") -> Prepared:
    """Read the state for a report on all queues, or on ``queue`` and the queues below it. Raise KeyError for an unknown partition.

    The steps of the returned report do not read the state.
    """
    return Prepared(needs.read(core.state, core.state.partitions[partition], queue, now))


def report(core: Core, partition: str, now: int, queue: str = "") -> UnmetReport:
    """Return the whole report at once, for all queues, or for ``queue`` and the queues below it.

    Raise KeyError for an unknown partition.
    """
    found = prepared(core, partition, now, queue)
    return found.finish(list(found.queues()))


def over_promised(snapshot: Snapshot) -> dict[str, int]:
    """Return, by type, the amount by which all guarantees together exceed the capacity of the nodes."""
    trial = Trial(snapshot)
    children: dict[str, list[str]] = {}
    for path in sorted(snapshot.queues):
        children.setdefault(snapshot.queues[path].parent, []).append(path)
    total = _owed(trial, children, next(iter(children.get("", ["root"]))))
    pairs = zip(snapshot.types, snapshot.capacity, strict=True)
    return {
        kind: total[at] - whole
        for at, (kind, whole) in enumerate(pairs)
        if total[at] > whole and not snapshot.ports[at]
    }


def _owed(trial: Trial, children: dict[str, list[str]], path: str) -> Counter[int]:
    """Return the entitlement of a queue: its own amount, or the sum of the entitlements of its children if that sum is larger."""
    below: Counter[int] = Counter()
    for child in children.get(path, []):
        below.update(_owed(trial, children, child))
    return below | Counter(dict(enumerate(entitlement.floor(trial, path))))
