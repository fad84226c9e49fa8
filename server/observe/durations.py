"""Histograms of durations by queue: waits, preemptions, unmet guarantees, and lost work.

The sources are decisions that have been made and the state after them, so that no decision depends on this module.
While decisions are made, placements are only collected. The collected placements are counted when the pump is idle, for
a scrape, or when `COLLECTED_MAX` is reached.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from operator import attrgetter
from typing import Final

from server.core.core import Core
from server.model.decisions import AskStateChanged, DecisionMoved, Decisions, Placed
from server.model.records import DecisionRecord, DecisionState
from server.observe.histograms import Histogram
from server.state.applications import Ask
from server.state.partition import Partition
from server.state.queues import Queue

COLLECTED_MAX: Final = 50_000
"""The number of collected placements at which they are counted without waiting for idle time. Counting this many takes about 15 ms."""
CODES_MIN: Final = 10_000
"""Codes of asks that no longer wait are removed only if more reason codes than this number are stored."""
WATCHED_MAX: Final = 1_000
"""The largest number of queues whose guarantee is watched at the same time."""
CHECK_MS: Final = 1_000
"""The shortest time in milliseconds between two checks of all watched guarantees while the pump is busy."""
IDLE_QUEUES_MAX: Final = 100
"""If at most this many queues are watched, all of them are checked each time that the pump is idle. That takes about 0.2 ms."""
IDLE_CHECK_MS: Final = 250
"""The shortest time in milliseconds between two checks when the pump is idle, if more queues are watched than `IDLE_QUEUES_MAX`."""
NO_CODE: Final = "none"
"""The value of the label ``code`` for an ask that was placed before a reason was reported."""

_PARTITION: Final = attrgetter("partition")
_KEY: Final = attrgetter("key")
_CODE: Final = attrgetter("code")
_APPLICATION: Final = attrgetter("application_id")
_OF: Final = attrgetter("application")
_CREATED: Final = attrgetter("created_ms")


class Waits:
    """The histogram of waits: from the creation of an ask until its placement, by queue and last reported reason."""

    def __init__(self, core: Core) -> None:
        self.histogram = Histogram(
            "evenhand_wait_seconds",
            "Seconds from the creation of an ask until its placement, by the last reported reason",
            "code",
        )
        self._core = core
        self._codes: dict[str, str] = {}
        self._codes_max = CODES_MIN
        self._collected: list[tuple[str, int, Sequence[Ask | None], list[str]]] = []
        self._many = 0

    def decided(self, decisions: Decisions, now: int) -> None:
        """Remember the reported reasons, and collect the placements."""
        changed = decisions.of(AskStateChanged)
        if changed:
            self._codes.update(zip(map(_KEY, changed), map(_CODE, changed), strict=True))
        if Placed in decisions.kinds:
            self._collect(decisions.of(Placed), now)
        if self._many >= COLLECTED_MAX:
            self.count()
        if len(self._codes) > self._codes_max:
            self._prune()

    def _collect(self, placed: Sequence[Placed], now: int) -> None:
        names = set(map(_PARTITION, placed))
        for name in names:
            partition = self._core.state.partitions.get(name)
            if partition is not None:
                own = (
                    placed if len(names) == 1 else [one for one in placed if one.partition == name]
                )
                keys = list(map(_KEY, own))
                self._collected.append((name, now, list(map(partition.asks.get, keys)), keys))
                self._many += len(keys)

    def count(self) -> None:
        """Count the collected placements."""
        collected, self._collected, self._many = self._collected, [], 0
        for partition, now, found, keys in collected:
            codes: Iterable[str] = repeat(NO_CODE, len(keys))
            if self._codes:
                codes = [self._codes.pop(key, NO_CODE) for key in keys]
            asks = found
            if None in found:
                pairs = zip(found, codes, strict=True)
                kept = [(one, code) for one, code in pairs if one is not None]
                asks, codes = [one for one, _ in kept], [code for _, code in kept]
            alike = Counter(zip(map(_OF, asks), codes, map(_CREATED, asks), strict=True))
            for (application, code, created), times in alike.items():
                self.histogram.add((partition, application.leaf.path, code), now - created, times)

    def _prune(self) -> None:
        """Remove the codes of asks that no longer wait, so that at most one code is stored for each ask of the core."""
        known = self._core.state.partitions.values()
        codes = self._codes
        self._codes = {
            key: code for key, code in codes.items() if any(key in one.asks for one in known)
        }
        self._codes_max = max(CODES_MIN, 2 * len(self._codes))


class Guarantees:
    """The histogram of unmet guarantees: from the instant at which a guarantee is found unmet until it is met or no ask waits.

    The guarantee of a queue is unmet under two conditions: an ask waits in the queue or below it, and the queue is below its
    guarantee in every guaranteed type that this ask requests. Victims that are still terminating do not count as usage. Shares by
    weight are left out.
    """

    def __init__(self, core: Core) -> None:
        self.histogram = Histogram(
            "evenhand_guarantee_unmet_seconds",
            "Seconds from finding that a guarantee is unmet until it was met or no ask waited",
        )
        self._core = core
        self._watched: dict[Queue, tuple[Partition, int | None]] = {}
        self._new: list[Queue] = []
        """The watched queues that have not been checked yet."""
        self._checked_ms = 0
        self._stale = False

    def decided(self, decisions: Decisions) -> None:
        """Watch the queues in which asks have begun to wait."""
        self._stale = True
        for application_id in set(map(_APPLICATION, decisions.of(AskStateChanged))):
            for partition in self._core.state.partitions.values():
                application = partition.applications.get(application_id)
                if application is not None:
                    self._watch(partition, application.leaf)

    def _watch(self, partition: Partition, leaf: Queue) -> None:
        for queue in leaf.path_up():
            full = len(self._watched) >= WATCHED_MAX
            if queue.spec.guaranteed and queue not in self._watched and not full:
                self._watched[queue] = partition, None
                self._new.append(queue)

    def sliced(self, now: int) -> None:
        """Check all watched queues.

        If less than `CHECK_MS` have passed since all were checked, check only the queues that were not checked yet.
        """
        self._check_after(CHECK_MS, now)

    def idle(self, now: int) -> None:
        """Check all watched queues, unless many are watched.

        If more than `IDLE_QUEUES_MAX` are watched and less than `IDLE_CHECK_MS` have passed since all were checked, check only the
        queues that were not checked yet. Without this pause, a core with many watched queues would do little but check them,
        because it is idle after almost every ask. A check that is left out is made after a later slice, or before the next
        scrape.
        """
        self._check_after(0 if len(self._watched) <= IDLE_QUEUES_MAX else IDLE_CHECK_MS, now)

    def _check_after(self, pause_ms: int, now: int) -> None:
        if self._stale and now >= self._checked_ms + pause_ms:
            self.check(now)
        else:
            self._check(self._new, now)
            self._new.clear()

    def check(self, now: int) -> None:
        """Check all watched queues, if anything has changed since the last check."""
        if not self._stale:
            return
        self._stale, self._checked_ms = False, now
        self._check(list(self._watched), now)
        self._new.clear()

    def _check(self, queues: Iterable[Queue], now: int) -> None:
        for queue in queues:
            partition, since = self._watched[queue]
            waits = self._is_known(partition, queue) and any(True for _ in queue.waiting_classes())
            unmet = waits and is_unmet(partition, queue)
            if since is not None and not unmet:
                self.histogram.add((partition.name, queue.path), now - since)
            if not waits:
                del self._watched[queue]
            elif not unmet:
                self._watched[queue] = partition, None
            elif since is None:
                self._watched[queue] = partition, now

    def _is_known(self, partition: Partition, queue: Queue) -> bool:
        known = self._core.state.partitions.get(partition.name) is partition
        return known and partition.queues.get(queue.path) is queue

    def unmet(self) -> Iterator[tuple[str, str, int]]:
        """Yield the partition and path of each queue whose guarantee is unmet, and the instant at which this was found."""
        for queue, (partition, since) in self._watched.items():
            if since is not None:
                yield partition.name, queue.path, since


def is_unmet(partition: Partition, queue: Queue) -> bool:
    """Return whether the guarantee of a queue is unmet, see `Guarantees`."""
    index = partition.types.index
    short = {
        index[kind]: queue.usage[index[kind]] - queue.releasing[index[kind]] < quantity
        for kind, quantity in queue.spec.guaranteed
        if quantity and kind in index
    }
    if not any(short.values()):
        return False
    for ask_class in queue.waiting_classes():
        held = [short[at] for at, _ in ask_class.demand if at in short]
        if held and all(held):
            return True
    return False


class Durations:
    """The observer of decisions that keeps all histograms by queue."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._now = 0
        self._waits = Waits(core)
        self._guarantees = Guarantees(core)
        self._preemption = Histogram(
            "evenhand_preemption_seconds",
            "Seconds from a decision of preemption until it is fulfilled, by the queue it is for",
            "policy",
        )
        self._lost = Histogram(
            "evenhand_lost_work_seconds",
            "Seconds that an evicted pod had run when its eviction was ordered, by its queue",
            "policy",
        )

    @property
    def histograms(self) -> tuple[Histogram, ...]:
        """Return all histograms."""
        return self._waits.histogram, self._preemption, self._guarantees.histogram, self._lost

    def decided(self, decisions: Decisions, now: int) -> None:
        """Collect the placements of a slice, watch the queues in which asks began to wait, and count the preemption decisions that ended."""
        self._waits.decided(decisions, now)
        self._guarantees.decided(decisions)
        for moved in decisions.of(DecisionMoved):
            partition = self._core.state.partitions.get(moved.partition)
            record = partition and partition.decisions.records.get(moved.decision_id)
            if record and not moved.state.is_open and not moved.key:
                self._ended(record, moved)

    def _ended(self, record: DecisionRecord, moved: DecisionMoved) -> None:
        """Count a decision that has ended, and the work lost with the victims that were evicted."""
        queue = _claimant(record)
        if moved.state is DecisionState.FULFILLED and queue:
            labels = record.partition, queue, record.policy
            self._preemption.add(labels, moved.at_ms - record.at_ms)
        gone = frozenset(record.confirmed)
        for one in record.victims:
            if one.key in gone:
                self._lost.add((record.partition, one.queue, record.policy), one.ran_ms)

    def sliced(self, now: int) -> None:
        """Check the guarantees of watched queues after a slice."""
        self._now = now
        if not self._core.is_amid:
            self._guarantees.sliced(now)

    def idle(self) -> None:
        """Count the collected placements, and check the guarantees that are due."""
        self._waits.count()
        if not self._core.is_amid:
            self._guarantees.idle(self._now)

    def unmet(self) -> Iterator[tuple[str, str, int]]:
        """Yield the partition and path of each queue whose guarantee is unmet, and the instant at which this was found."""
        return self._guarantees.unmet()

    def prepare(self) -> None:
        """Count the collected placements, and check all guarantees. If a histogram has no free line, free the lines of removed queues."""
        self.idle()
        if not self._core.is_amid:
            self._guarantees.check(self._now)
        full = [one for one in self.histograms if one.folded]
        if full:
            known = frozenset(_queues(self._core.state.partitions.values()))
            for one in full:
                one.keep(known)

    def text(self) -> str:
        """Return all histograms in Prometheus' text form."""
        return "".join(one.text() for one in self.histograms)


def _claimant(record: DecisionRecord) -> str:
    """Return the queue for which a decision frees capacity, or the queue whose usage a quota run or a trim reduces.

    Return "" for a quota run or a trim that an earlier process began, if it is known only from the annotations of its victims.
    """
    if record.shrink is not None:
        return record.shrink.queue
    return record.beneficiaries[0].queue if record.beneficiaries else ""


def _queues(partitions: Iterable[Partition]) -> Iterator[tuple[str, str]]:
    for partition in partitions:
        for path in partition.queues:
            yield partition.name, path
