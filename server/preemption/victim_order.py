"""The order of victims (V2, P6): lists of sort keys that are compared one after another, with the allocation's id last.

Each policy has a list. The list begins with fixed keys. `preemption.order` of a partition may replace the keys after the fixed
keys. A key is a whole number or a text, read from a row of the snapshot. The allocation with the lower value is evicted first. A
policy searches in this order, and uses it to break ties. The modules that search for victims decide which sets of victims are
legal and which set is the smallest.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Final

from server.kernels import cover
from server.model.comparing import FIXED, PROPORTIONAL, TAILS
from server.model.quota import PreemptionSettings
from server.model.ranking import Rank, Ranked
from server.preemption.trial import Trial
from server.snapshot.columns import GANG, NOT_STARTED, OPTED_OUT, ORIGINATOR, PLACEHOLDER

Read = Callable[[int], Rank]
"""A function from a row of the snapshot to the value of one key."""
Exhausted = Callable[[int], bool]
"""A function that says whether a row counts as opted out, because its disruption budget is used up (V5)."""
MOVING: Final = frozenset({"fit", "job-broken"})
"""The keys whose value for an allocation depends on the lacking types, or may change after a plan."""


def order(settings: PreemptionSettings, what: str) -> tuple[str, ...]:
    """Return all keys of the list ``what`` (claim, quota, required-node, job or trim), the fixed keys first."""
    return (*FIXED[what], *tail(settings, what))


def tail(settings: PreemptionSettings, what: str) -> tuple[str, ...]:
    """Return the keys after the fixed keys of the list ``what``: those in the partition's configuration, or else the default keys."""
    written = {
        "claim": settings.order_claim,
        "quota": settings.order_quota,
        "required-node": settings.order_required_node,
        "job": settings.order_job,
        "trim": settings.order_trim,
    }[what]
    if written:
        return written
    proportional = what == "claim" and settings.entitlement == "proportional"
    return PROPORTIONAL if proportional else TAILS[what]


class Comparator:
    """The comparison of rows of a Trial's snapshot by a list of keys.

    ``exhausted`` says which rows count as opted out because their disruption budgets are used up. The answer may change after
    each plan.
    """

    def __init__(
        self, trial: Trial, keys: Sequence[str], exhausted: Exhausted | None = None
    ) -> None:
        self.trial = trial
        self._exhausted = exhausted
        self._sizes: dict[object, int] = {}
        self._weights: tuple[int, ...] = ()
        self._lacking: Container[int] = ()
        self._broken: tuple[int, frozenset[tuple[int, str]]] = (-1, frozenset())
        self._reads = tuple(_READS[word](self) for word in keys)
        self._moves = exhausted is not None or not MOVING.isdisjoint(keys)
        self._known: dict[int, tuple[Rank, ...]] = {}

    def in_order(self, rows: Iterable[int], lacking: Container[int] = ()) -> list[int]:
        """Return the rows in the order of eviction. ``lacking`` has the indices of the lacking types."""
        self._lacking = lacking
        return sorted(rows, key=self._key if self._moves else self._kept)

    def ranks(self, rows: Iterable[int], lacking: Container[int] = ()) -> list[Ranked]:
        """Return, for each row in the given order, the values by which rows are compared. The last value is the allocation's id."""
        self._lacking = lacking
        return list(map(self._key if self._moves else self._kept, rows))

    def _key(self, row: int) -> tuple[Rank, ...]:
        return (*[read(row) for read in self._reads], self.trial.snapshot.allocations.keys[row])

    def _kept(self, row: int) -> tuple[Rank, ...]:
        """Return the values by which a row is compared, read once and then cached."""
        known = self._known.get(row)
        if known is None:
            known = self._known[row] = self._key(row)
        return known

    def read(self, row: int, lacking: Container[int] = ()) -> tuple[Rank, ...]:
        """Return the values by which a row is compared, except the last one, the allocation's id."""
        self._lacking = lacking
        return tuple([read(row) for read in self._reads])

    # Keys that are more than a column ---------------------------------------------------------------------

    def protection(self) -> Read:
        """Return the key that puts opted-out pods last.

        The value is 0, except for a pod that opted out or whose disruption budget is used up.
        """
        flags, exhausted = self.trial.snapshot.allocations.flags.item, self._exhausted
        if exhausted is None:
            return lambda row: flags(row) & OPTED_OUT
        return lambda row: bool(flags(row) & OPTED_OUT) or exhausted(row)

    def kind(self) -> Read:
        """Return the first key of required-node preemption (G11).

        The value is 2 for an originator, 1 for a pod that opted out or whose disruption budget is used up, and else 0.
        """
        protection, originator = self.protection(), self.originator()
        return lambda row: 2 if originator(row) else int(bool(protection(row)))

    def originator(self) -> Read:
        """Return the key that puts the originator of an application last."""
        flags = self.trial.snapshot.allocations.flags.item
        return lambda row: flags(row) & ORIGINATOR

    def placeholder(self) -> Read:
        """Return the key that puts placeholders first, because nothing runs in them."""
        flags = self.trial.snapshot.allocations.flags.item
        return lambda row: not flags(row) & PLACEHOLDER

    def priority(self) -> Read:
        """Return the key that puts a lower priority first."""
        priority: Read = self.trial.snapshot.allocations.priorities.item
        return priority

    def age(self) -> Read:
        """Return the key that puts the younger allocation first."""
        created = self.trial.snapshot.allocations.created_ms.item
        return lambda row: -created(row)

    def not_running(self) -> Read:
        """Return the key that puts pods that do not run yet first."""
        started = self.trial.snapshot.allocations.started_ms.item
        return lambda row: started(row) != NOT_STARTED

    def running_time(self) -> Read:
        """Return the key that puts the shorter running time first. A pod that does not run yet has run for 0 ms."""
        return self._running_ms

    def _running_ms(self, row: int) -> int:
        started = int(self.trial.snapshot.allocations.started_ms[row])
        return 0 if started == NOT_STARTED else max(0, self.trial.snapshot.now - started)

    def lost_work(self) -> Read:
        """Return the key that puts the least lost work first.

        The value is the running time multiplied by the value of `size`, an exact whole number.
        """
        return lambda row: self._running_ms(row) * self._size(row)

    def size(self) -> Read:
        """Return the key that puts smaller allocations first.

        The value is the largest share of the partition's capacity in any type that the allocation holds, as an exact whole
        number.
        """
        return self._size

    def _size(self, row: int) -> int:
        snapshot = self.trial.snapshot
        if not self._weights:
            self._weights = cover.measures(snapshot.capacity)
        demand = snapshot.allocations.demands[row]
        known = self._sizes.get(demand)
        if known is None:
            shares = (amount * self._weights[index] for index, amount in demand)
            known = self._sizes[demand] = max(shares, default=0)
        return known

    def fit(self) -> Read:
        """Return the key that puts the closest match first.

        The value is the number of types that the allocation holds but that are not among the lacking types.
        """
        demands = self.trial.snapshot.allocations.demands
        return lambda row: sum(index not in self._lacking for index, _ in demands[row])

    def gang(self) -> Read:
        """Return the key that keeps the members of one gang together. The value is the gang's name, or "" for a pod without a gang."""
        specs = self.trial.snapshot.allocations.specs

        def read(row: int) -> str:
            spec = specs[row]
            return "" if spec is None else spec.gang_key

        return read

    def job_broken(self) -> Read:
        """Return the key that puts members of gangs that already lose members before members of whole gangs."""
        columns = self.trial.snapshot.allocations
        flags, applications = columns.flags.item, columns.applications.item

        def read(row: int) -> bool:
            spec = columns.specs[row]
            if spec is None or not flags(row) & GANG:
                return True
            return (applications(row), spec.gang_key) not in self._broken_gangs()

        return read

    def _broken_gangs(self) -> frozenset[tuple[int, str]]:
        """Return the gangs that lose members through open decisions and the plans so far."""
        plans = self.trial.mark()
        if self._broken[0] != plans:
            columns = self.trial.snapshot.allocations
            self._broken = plans, columns.gangs_without(self.trial.standing)
        return self._broken[1]


_READS: Final[Mapping[str, Callable[[Comparator], Read]]] = {
    "protection": Comparator.protection,
    "originator": Comparator.originator,
    "placeholder": Comparator.placeholder,
    "priority": Comparator.priority,
    "job-broken": Comparator.job_broken,
    "not-running": Comparator.not_running,
    "lost-work": Comparator.lost_work,
    "age": Comparator.age,
    "running-time": Comparator.running_time,
    "size": Comparator.size,
    "fit": Comparator.fit,
    "kind": Comparator.kind,
    "job": Comparator.gang,
}
