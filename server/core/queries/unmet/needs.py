"""The queues below their entitlement, read from the state. All later steps of the report need only a snapshot."""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Final, NamedTuple

from server.core.preemption import due_gangs
from server.core.queries.large_enough import excluded
from server.core.queries.unmet.kinds import Kind, kinds
from server.core.queries.unmet.listing import listing
from server.core.state import State
from server.core.wait_reasons import reservations
from server.core.wait_reasons.obstacles import Obstacles
from server.model.policies import LISTED
from server.model.quota import is_below
from server.model.reasons import Code
from server.model.reports import Excluded
from server.model.unmet import UnmetType
from server.preemption import entitlement
from server.preemption.claims.turn_order import Claimant
from server.preemption.gangs.eligibility import added
from server.preemption.trial import Trial
from server.snapshot.snapshot import Snapshot
from server.snapshot.waiting import WaitingAsk, WaitingGang
from server.state import snapshotting
from server.state.commitments import Pledge
from server.state.limits import Limiter
from server.state.partition import Partition

KINDS_MAX: Final = 3
"""The largest number of kinds of asks of one queue that are judged. For further kinds, the report has only their number."""


class Limited(NamedTuple):
    """A limit of a user or group without headroom for the asks, and the amounts that the limit lacks for these asks, by type."""

    name: str
    lacks: dict[str, int]


class Wait(NamedTuple):
    """The instant from which a policy may plan for an ask, and whether the back-off after a refusal sets that instant."""

    due_ms: int
    backs_off: bool


class Need(NamedTuple):
    """The equal asks of one leaf, or a gang, with facts from the state: the first ask, the number of asks, and why they wait.

    ``claimant`` is the first ask, or the gang as a whole (J8), and has to get capacity. ``decision`` is the decision that frees
    capacity for the first ask. ``waits`` has, for each policy, the instant from which the policy may plan for that ask. The
    instants differ, because some policies have no delay (J3, W6, I5). ``code`` says why the ask waits.
    """

    ask: WaitingAsk
    claimant: Claimant
    number: int
    types: frozenset[str]
    code: Code
    decision: str
    node_id: str
    waits: Mapping[str, Wait]
    limited: tuple[Limited, ...]
    excluded: tuple[Excluded, ...] = ()

    @property
    def gang(self) -> WaitingGang | None:
        """Return the gang that is judged as a whole. Return None for single asks."""
        return self.claimant if isinstance(self.claimant, WaitingGang) else None

    @property
    def gang_key(self) -> str:
        """Return the gang's name, or "" for single asks."""
        return "" if self.gang is None else self.gang.key


class Unmet(NamedTuple):
    """A queue below its entitlement: the types that it lacks, at most KINDS_MAX kinds of its waiting asks, and the number of its other kinds."""

    queue: str
    types: tuple[UnmetType, ...]
    needs: tuple[Need, ...]
    others: int


class Needs(NamedTuple):
    """The facts on which the report is based. Any thread may read them.

    ``listed`` is the partition as if policy `job` were listed. ``reserved`` has, for each queue, the latest end of the
    reservations of asks in that queue or below it.
    """

    snapshot: Snapshot
    listed: Snapshot
    queues: tuple[Unmet, ...]
    reserved: Mapping[str, str]


def read(state: State, partition: Partition, queue: str, now: int) -> Needs:
    """Return the facts about the queues of a partition that are below their entitlement, the worst queue first.

    If ``queue`` is not "", return only this queue and the queues below it.
    """
    partition.disruptions = state.disruptions(partition)
    short = _short(Trial(snapshotting.take(partition, now)), queue)
    groups = _groups(state, partition, short)
    whole = [one.kind.gang for one in groups if one.kind.gang is not None]
    due = snapshotting.Due(claiming=[one.kind.first for one in groups], gangs=whole)
    snapshot = snapshotting.take(partition, now, due=due)
    listed = listing(partition, snapshot) if whole else snapshot
    unmet = _unmet(short, list(_needs(snapshot, groups)))
    return Needs(snapshot, listed, tuple(sorted(unmet, key=_worst_first)), _reserved(partition))


def _reserved(partition: Partition) -> dict[str, str]:
    last: dict[str, Pledge] = {}
    for held in partition.decisions.reservations.values():
        for queue in held.ask.application.leaf.path_up():
            last[queue.path] = max(last.get(queue.path, held), held, key=_ends)
    return {path: reservations.until(held) for path, held in last.items()}


def _ends(held: Pledge) -> int:
    return held.commitment.expires_ms or 1 << 62


def _worst_first(one: Unmet) -> tuple[Fraction, str]:
    """Return a sort key: queues that lack a larger part of their entitlement come first, and equal queues are sorted by path."""
    lacking = max(Fraction(each.missing, each.entitled) for each in one.types)
    return -lacking, one.queue


def _short(trial: Trial, below: str) -> dict[str, tuple[UnmetType, ...]]:
    """Return, for each queue, the types of which the queue has less than its entitlement."""
    found: dict[str, tuple[UnmetType, ...]] = {}
    for path in sorted(trial.snapshot.queues):
        if not below or is_below(path, below):
            pairs = zip(
                trial.snapshot.types, entitlement.floor(trial, path), trial.held(path), strict=True
            )
            types = tuple(
                UnmetType(name, owed, held, owed - held)
                for name, owed, held in pairs
                if held < owed
            )
            if types:
                found[path] = types
    return found


class _Found(NamedTuple):
    """The asks of one kind, with facts from the state about why they wait."""

    kind: Kind
    code: Code
    waits: Mapping[str, Wait]
    limited: tuple[Limited, ...]
    excluded: tuple[Excluded, ...]


def _groups(
    state: State, partition: Partition, short: dict[str, tuple[UnmetType, ...]]
) -> list[_Found]:
    """Return the kinds of waiting asks that request a type that a queue on the path of their leaf lacks."""
    obstacles = Obstacles(state, partition)
    found: list[_Found] = []
    for path, leaf in sorted(partition.queues.items()):
        if not (leaf.leaf and leaf.pending_asks):
            continue
        missing = {
            one.resource_type for queue in leaf.path_up() for one in short.get(queue.path, ())
        }
        if missing:
            found += [
                _of_kind(partition, obstacles, kind)
                for kind in kinds(partition, path)
                if not missing.isdisjoint(kind.types)
            ]
    return found


def _of_kind(partition: Partition, obstacles: Obstacles, kind: Kind) -> _Found:
    first = kind.first
    waits = {policy: Wait(*due_gangs.awaits(partition, first, policy)) for policy in LISTED}
    limits = [one for one in first.application.limiters if one.kind != "queue"]
    limited = tuple(_limited(partition, kind, one) for one in limits)
    code = obstacles.code(first)
    alike = dict.fromkeys((one.spec.constraints, one.ask_class.node_demand) for one in kind.members)
    kept_from = (excluded(partition, *one) for one in alike)
    lacking = tuple(one for one in limited if one.lacks)
    return _Found(kind, code, waits, lacking, next(filter(None, kept_from), ()))


def _limited(partition: Partition, kind: Kind, limiter: Limiter) -> Limited:
    """Return the amounts that a limit of a user or group lacks for all asks of one kind together."""
    names = partition.types.names
    wanted = added(one.ask_class.demand for one in kind.members)
    lacks = {
        names[at]: more - limiter.headroom[at] for at, more in wanted if more > limiter.headroom[at]
    }
    name = f"{limiter.kind} {limiter.name} in queue {limiter.queue.path}"
    return Limited(name, dict(sorted(lacks.items())))


def _needs(snapshot: Snapshot, groups: list[_Found]) -> Iterator[Need]:
    """Yield one `Need` for each kind of asks, filled from the snapshot, in the order in which the kinds were found."""
    singles, whole = iter(snapshot.claims), iter(snapshot.gangs)
    for one in groups:
        yield _need(one, next(singles), None if one.kind.gang is None else next(whole))


def _need(found: _Found, ask: WaitingAsk, gang: WaitingGang | None) -> Need:
    held = found.kind.first.pledge
    decided = held is not None and not held.reserves
    return Need(
        ask,
        ask if gang is None else gang,
        found.kind.number,
        found.kind.types,
        found.code,
        held.commitment.commitment_id if held is not None and decided else "",
        held.node.node_id if held is not None and decided else "",
        found.waits,
        found.limited,
        found.excluded,
    )


def _unmet(short: dict[str, tuple[UnmetType, ...]], needs: list[Need]) -> Iterator[Unmet]:
    for path, types in short.items():
        missing = {one.resource_type for one in types}
        below = [
            one
            for one in needs
            if is_below(one.ask.leaf, path) and not missing.isdisjoint(one.types)
        ]
        below.sort(key=lambda one: one.ask.order)
        if below:
            others = sum(one.number for one in below[KINDS_MAX:])
            yield Unmet(path, types, tuple(below[:KINDS_MAX]), others)
