"""The report: every queue that lacks what it is entitled to while asks below it wait (4.1.12). Changes nothing.

The state is read first; what follows looks at an immutable snapshot alone.
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
"""The most queues of one report."""


class Prepared:
    """The report in the making: `queues` gives one after the other, `finish` what is reported of them together."""

    def __init__(self, found: needs.Needs) -> None:
        self._found = found
        self._planner = Planner(found.snapshot, found.listed)
        self._judged: dict[str, UnmetAsks] = {}
        self.over_promised = over_promised(found.snapshot)

    def queues(self) -> Iterator[UnmetQueue]:
        """Yield queues, judged as they are taken; asks that wait below several unmet queues are judged once."""
        types = frozenset(self.over_promised)
        for one in self._found.queues[:QUEUES_MAX]:
            asks = tuple(self._judge(need, types) for need in one.needs)
            yield UnmetQueue(one.queue, one.types, asks, one.others)

    def finish(self, queues: Sequence[UnmetQueue]) -> UnmetReport:
        """Return the whole report."""
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
        """Add to the cure for how long reservations may keep what a larger maximum would allow."""
        found, reserved = asks.cure, self._found.reserved
        if found is None or found.change is not Change.RAISE_MAX or found.subject not in reserved:
            return asks
        text = f"{found.text}; a reservation there may come first, {reserved[found.subject]} at the latest"
        return replace(asks, cure=replace(found, text=text))


def prepared(core: Core, partition: str, now: int, queue: str = "") -> Prepared:
    """Read the state, here and never again; of a queue and those below it when it is named. KeyError: no partition."""
    return Prepared(needs.read(core.state, core.state.partitions[partition], queue, now))


def report(core: Core, partition: str, now: int, queue: str = "") -> UnmetReport:
    """Return the whole report at once."""
    found = prepared(core, partition, now, queue)
    return found.finish(list(found.queues()))


def over_promised(snapshot: Snapshot) -> dict[str, int]:
    """Return by how much all guarantees together pass what the nodes have, by type."""
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
    """Return what a queue and those below it are entitled to: its own figure, or their sum where that is larger."""
    below: Counter[int] = Counter()
    for child in children.get(path, []):
        below.update(_owed(trial, children, child))
    return below | Counter(dict(enumerate(entitlement.floor(trial, path))))
