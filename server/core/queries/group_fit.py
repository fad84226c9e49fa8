"""The fit of a group of asks: how many asks fit now, and which amounts the nodes lack for the other asks.

Members are placed one after another, as in placement. For each member, the limits of queues, users and groups are checked
first, and then the best-ranked node is chosen. A member that gets no node is charged to the node that lacks least for it. The
missing amount of the group is the sum of the amounts that these nodes lack at the end. If exactly that amount were free on
these nodes, all members would have a node.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from server.model.fit import Demand
from server.model.reports import Excluded, GroupFit, LimitFit, NodeFit
from server.preemption import admission
from server.preemption.policy import Plan, PlannedPledge
from server.preemption.trial import Trial
from server.snapshot.queues import QueueFacts
from server.snapshot.tentative import Tentative
from server.snapshot.waiting import ClassFacts, WaitingAsk
from server.state.applications import Application, Gang
from server.state.limits import Limiter

NAME: Final = "tentative"
"""The policy name of the tentative pledges that this module makes while it searches for nodes."""
NODES_MAX: Final = 5
"""The largest number of nodes that an answer names."""
TRIED_MAX: Final = 1_000
"""The largest number of members for which a node is searched. If there are more members, the answer says so."""


class PersonLimit(NamedTuple):
    """The headroom under a limit of a user or group, by type index, at the instant when the state was read."""

    kind: str
    name: str
    queue: str
    headroom: tuple[int, ...]


class Members(NamedTuple):
    """The asks that have to fit together, in placement order.

    ``running`` is the number of members that run already. ``size`` is the number of members that the gang needs, or 0 if there
    is no gang or its size is not known. ``people`` has the limits of users and groups. ``excluded`` contains the nodes that are
    large enough but excluded by the constraints of the asks.
    """

    name: str
    asks: Sequence[WaitingAsk]
    running: int = 0
    size: int = 0
    people: tuple[PersonLimit, ...] = ()
    key: str = ""
    gang: bool = True
    placeholders: bool = False
    excluded: tuple[Excluded, ...] = ()


def person_limits(application: Application | None) -> tuple[PersonLimit, ...]:
    """Return the limits of an application's user and group with their headroom now. Return () if ``application`` is None."""
    found: Iterable[Limiter] = () if application is None else application.limiters
    return tuple(
        PersonLimit(one.kind, one.name, one.queue.path, tuple(one.headroom))
        for one in found
        if one.kind in {"user", "group"}
    )


def gang_name(gang: Gang) -> str:
    """Return the name under which users know a gang: its key, or for a gang of placeholders the id of the application."""
    if is_of_placeholders(gang):
        return f"placeholders of application {gang.application.application_id}"
    return f"gang {gang.key}"


def is_of_placeholders(gang: Gang) -> bool:
    """Return whether the gang has waiting members, and all of these are placeholders."""
    return bool(gang.members) and all(one.spec.placeholder for one in gang.members)


def group_fit(trial: Trial, members: Members) -> GroupFit:
    """Return how many members fit now, and the amounts that are missing for the other members, after the plans of the Trial.

    The Trial is unchanged afterwards. The amounts that members lack are computed as if the victims of these plans were gone.
    However, a member that needs the capacity of these victims does not count as fitting *now*.
    """
    asks = members.asks[:TRIED_MAX]
    assignment = _Assignment(trial)
    left = [one for one in asks if not assignment.place(one.kind)]
    without = [one for one in left if not assignment.owe(one.kind)]
    limits = tuple(_limits(trial, asks, members.people))
    fitting = (
        _placed(trial, asks, members.people) if limits or trial.plans else len(asks) - len(left)
    )
    nodes, missing = assignment.told(), Counter[str](assignment.missing())
    for one in without:
        missing.update(dict(one.spec.resource))
    rest = Counter[str]()
    for one in left:
        rest.update(dict(one.spec.resource))
    return GroupFit(
        name=members.name,
        members=len(members.asks),
        running=members.running,
        size=members.size,
        fitting=fitting,
        on_nodes=len(asks) - len(left),
        missing=dict(sorted(missing.items())),
        rest=dict(sorted(rest.items())),
        without_node=len(without),
        nodes=nodes[:NODES_MAX],
        nodes_left_out=len(nodes[NODES_MAX:]),
        limits=limits,
        looked_at=len(asks),
        key=members.key,
        gang=members.gang,
        placeholders=members.placeholders,
        excluded=members.excluded if without else (),
    )


def free_row(trial: Trial, ask: WaitingAsk) -> int:
    """Return the row of the node on which placement would put the ask at once.

    Return -1 if no node takes the ask at once, or if a limit of the ask's queues has no headroom.
    """
    free = ask.within_limits and trial.snapshot.may_place(ask.leaf)
    return (
        trial.best(ask.kind) if free and admission.has_headroom(trial, ask.leaf, ask.kind) else -1
    )


# Nodes ----------------------------------------------------------------------------------------------------------


class _Assignment:
    """The tentative assignment of members to nodes.

    For each node, the assignment counts the members that the node takes and the members that are charged to the node.
    """

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._tentative: Tentative = trial.tentative()
        self._placed: Counter[int] = Counter()
        self._owed: Counter[int] = Counter()
        self._kinds: dict[int, None] = {}

    def place(self, kind: ClassFacts) -> bool:
        """Assign one ask. Return False if no node takes it now."""
        self._kinds.update(dict.fromkeys(at for at, _ in kind.node_demand))
        row = self._tentative.place(kind)
        if row >= 0:
            self._placed[row] += 1
        return row >= 0

    def owe(self, kind: ClassFacts) -> bool:
        """Charge one ask to the node that lacks least for it.

        Return False if no node would be large enough, even when empty, for this ask and the asks that are assigned or charged
        to it.
        """
        row = self._tentative.owe(kind)
        if row >= 0:
            self._owed[row] += 1
        return row >= 0

    def missing(self) -> dict[str, int]:
        """Return, by type, the sum of the amounts that the nodes lack for the members that are charged to them."""
        total = Counter[str]()
        for row in self._owed:
            total.update(self._lacks(row))
        return dict(total)

    def told(self) -> tuple[NodeFit, ...]:
        """Return the nodes for the report: first the nodes that lack some amount, then the other nodes.

        Within each of these two sets, nodes come in the order in which they were first used.
        """
        rows = dict.fromkeys([*self._owed, *self._placed])
        return tuple(map(self._node, rows))

    def _node(self, row: int) -> NodeFit:
        snapshot = self._trial.snapshot
        free = self._trial.free_on(row)
        return NodeFit(
            snapshot.nodes.ids[row],
            {snapshot.types[at]: max(free[at], 0) for at in self._kinds if not snapshot.ports[at]},
            self._placed[row],
            self._owed[row],
            self._lacks(row),
        )

    def _lacks(self, row: int) -> dict[str, int]:
        types = self._trial.snapshot.types
        return {types[at]: lack for at, lack in self._tentative.lacks(row, self._kinds).items()}


# Limits ---------------------------------------------------------------------------------------------------------


def _placed(trial: Trial, asks: Sequence[WaitingAsk], people: Sequence[PersonLimit]) -> int:
    """Return how many asks can be placed now, one after another.

    Each ask needs headroom under every limit, and a node.
    """
    mark, count = trial.mark(), 0
    headrooms = [list(one.headroom) for one in people]
    for one in asks:
        demand = one.kind.demand
        if any(headroom[at] < wanted for headroom in headrooms for at, wanted in demand):
            continue
        row = free_row(trial, one)
        if row < 0:
            continue
        trial.apply(Plan(NAME, (PlannedPledge(one, row, trial.snapshot.nodes.ids[row]),)))
        count += 1
        for headroom in headrooms:
            for at, wanted in demand:
                headroom[at] -= wanted
    trial.rollback(mark)
    return count


def _limits(
    trial: Trial, asks: Sequence[WaitingAsk], people: Sequence[PersonLimit]
) -> Iterator[LimitFit]:
    """Yield the limits that have no headroom for all members together, the leaf's limits first."""
    by_leaf: dict[str, list[WaitingAsk]] = {}
    for one in asks:
        by_leaf.setdefault(one.leaf, []).append(one)
    paths = {queue.path: queue for leaf in by_leaf for queue in trial.snapshot.path_up(leaf)}
    for path, queue in paths.items():
        below = [
            one for one in asks if path in {up.path for up in trial.snapshot.path_up(one.leaf)}
        ]
        for kind, headroom in _headrooms(trial, queue, below[0].kind):
            yield from _limit(trial, LimitFit(kind, path, path, 0, {}), headroom, below)
    for person in people:
        headroom = dict(enumerate(person.headroom))
        yield from _limit(
            trial, LimitFit(person.kind, person.name, person.queue, 0, {}), headroom, asks
        )


def _headrooms(
    trial: Trial, queue: QueueFacts, kind: ClassFacts
) -> Iterator[tuple[str, dict[int, int]]]:
    """Yield the headroom of a queue for asks of a class: under its maximum, and for firm asks also under its guarantee (J4)."""
    used, promised = trial.used(queue.path), trial.promised(queue.path)
    bounds = {at: admission.most(trial, queue, at, kind) for at, _ in kind.demand}
    yield (
        "queue",
        {at: most - used[at] - promised[at] for at, most in bounds.items() if most is not None},
    )
    if kind.firm:
        held = trial.firm_held(queue.path)
        yield (
            "firm",
            {at: queue.guaranteed[at] - held[at] for at in bounds if queue.guaranteed[at]},
        )


def _limit(
    trial: Trial, limit: LimitFit, headroom: dict[int, int], asks: Sequence[WaitingAsk]
) -> Iterator[LimitFit]:
    """Yield the limit with the amounts that it lacks for all asks together. Yield nothing if the limit lacks no amount."""
    total = Counter[int]()
    held, full = 0, False
    for one in asks:
        total.update(dict(one.kind.demand))
        full = full or _over(headroom, total, one.kind.demand)
        held += not full
    missing = {
        trial.snapshot.types[at]: total[at] - left
        for at, left in headroom.items()
        if total[at] > left
    }
    if missing:
        yield LimitFit(limit.kind, limit.name, limit.queue, held, dict(sorted(missing.items())))


def _over(headroom: dict[int, int], total: Counter[int], demand: Demand) -> bool:
    return any(at in headroom and total[at] > headroom[at] for at, _ in demand)
