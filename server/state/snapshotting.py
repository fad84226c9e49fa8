"""Snapshots of partitions, from which all planners read the mutable state (design 6.1)."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from server.kernels.fit import Mask
from server.model.asks import has_classes
from server.model.fit import Amounts
from server.model.parts import Parts, whole
from server.model.reasons import Code
from server.model.resources import Limit
from server.snapshot.node_search import NodeRanking
from server.snapshot.pace import LOSS, Pace
from server.snapshot.queues import NO_PATH, Bounds, FrozenAmounts, QueueFacts
from server.snapshot.snapshot import Snapshot
from server.snapshot.waiting import ClassFacts, FirmUse, OpenCommitment, WaitingAsk, WaitingGang
from server.state import sharing
from server.state.applications import Ask, Gang, Group
from server.state.constraints import NodeMask
from server.state.equivalence import AskClass
from server.state.limits import Limiter
from server.state.partition import Partition
from server.state.queues import Queue, QueueState


class GangDue(NamedTuple):
    """A gang that the snapshot must contain.

    The asks in ``members`` wait, or have a pledge that gives way to claims. ``placed`` is the number of running members.
    """

    key: str
    number: int
    members: Sequence[Ask]
    placed: int
    size: int


class Due(NamedTuple):
    """The waiting asks that the snapshot must contain.

    Three lists have the asks for which a node may be reserved, the asks that may claim, and the asks that require a node. The
    policies plan for each gang in ``gangs`` as a whole. The asks in ``replacing`` may replace allocations of their own queue.
    """

    reserving: Sequence[Ask] = ()
    claiming: Sequence[Ask] = ()
    requiring: Sequence[Ask] = ()
    gangs: Sequence[GangDue] = ()
    replacing: Sequence[Ask] = ()


def take(
    partition: Partition, now: int, asks: Iterable[Ask] = (), due: Due | None = None
) -> Snapshot:
    """Return a snapshot of the present state of a partition, with the given waiting asks.

    The cost is proportional to the changes since the last snapshot, plus a copy of the columns that changed.
    """
    due = due or Due()
    catch_up(partition)
    columns = partition.columns
    allocations = columns.allocations.freeze()
    releasing = columns.allocations.releasing(columns.nodes.count)
    index, shared_out = partition.index, sharing.is_shared_out(partition)
    return Snapshot(
        partition=partition.name,
        now=now,
        types=tuple(partition.types.names),
        ports=tuple(bool(one) for one in partition.types.synthetic),
        nodes=columns.nodes.freeze(releasing),
        allocations=allocations,
        queues=queues(partition),
        leaf_paths={queue.number: path for path, queue in partition.queues.items()},
        waiting=waiting(partition, (*asks, *due.reserving)),
        claims=waiting(partition, due.claiming),
        daemons=waiting(partition, due.requiring),
        settings=partition.spec.preemption,
        disruptions=_disruptions(partition),
        commitments=_commitments(partition),
        sort=NodeRanking(index.weights, index.packing),
        node_count=len(index.nodes),
        capacity=tuple(partition.capacity),
        pace=_pace(partition, now),
        runs={one.queue: one.created_ms for one in partition.decisions.open.values() if one.queue},
        pending=sharing.pending(partition) if shared_out else {},
        total=sharing.total(partition) if shared_out else (),
        whole=sharing.whole(partition) if shared_out else (),
        gangs=gangs(partition, due.gangs),
        replacing=waiting(partition, due.replacing),
        firm=_firm_use(partition),
        frozen=partition.thrashing.active(now),
        tables=columns.tables,
    )


def catch_up(partition: Partition) -> None:
    """Write the changes of the state since the last snapshot to the columns."""
    whole(catch_up_in_parts(partition))


def catch_up_in_parts(partition: Partition) -> Parts[None]:
    """Do the work of `catch_up` in parts.

    Before the last part, the caller must not read or change the state.
    """
    columns, index = partition.columns, partition.index
    wider = columns.widen(len(partition.types))
    changed = index.changed_slots()
    nodes = partition.node_slots.nodes
    slots = list(range(len(nodes))) if wider else changed
    yield from columns.nodes.fill(slots, nodes)
    yield from columns.allocations.fill(columns.changed)
    columns.changed.clear()


def _pace(partition: Partition, now: int) -> Pace:
    """Return the releases of the last round, and the releases of earlier rounds that began within the window of the pace (P5).

    The result has the losses of queues in the last round only, because each round measures again by how much queues exceed their
    entitlements (P9).
    """
    state, window = partition.round, partition.spec.preemption.pace_window_ms
    if not state.released:
        return Pace(state.began_ms)
    last = state.released[-1]
    whole = Counter(last.taken)
    for one in state.released[:-1]:
        if one.began_ms + window > now:
            whole.update({what: much for what, much in one.taken.items() if what[0] != LOSS})
    return Pace(state.began_ms, bool(last.taken), MappingProxyType(whole))


# Queues ---------------------------------------------------------------------------------------------------------


def queues(partition: Partition) -> MappingProxyType[str, QueueFacts]:
    """Return the facts of all queues. If a queue has not changed, its facts are the same object as in the previous snapshot."""
    before = partition.columns.queues
    weak = reserved(partition)
    nothing = (0,) * len(partition.types)
    facts = {
        path: _queue(partition, queue, tuple(weak.get(path, nothing)), before.get(path))
        for path, queue in partition.queues.items()
    }
    if len(facts) != len(before) or any(before.get(path) is not one for path, one in facts.items()):
        partition.columns.queues = MappingProxyType(facts)
    return partition.columns.queues


def reserved(partition: Partition) -> dict[str, Amounts]:
    """Return, for each queue, the promised amounts that give way to claims.

    These amounts are left out when the usage of a queue is compared with its entitlement.
    """
    sums: dict[str, Amounts] = {}
    for held in partition.decisions.pledges.values():
        for queue in held.ask.application.leaf.path_up() if held.reserves else ():
            amounts = sums.setdefault(queue.path, partition.types.zeros())
            for index, quantity in held.demand:
                amounts[index] += quantity
    return sums


def _queue(
    partition: Partition, queue: Queue, weak: FrozenAmounts, before: QueueFacts | None
) -> QueueFacts:
    usage, promised = tuple(queue.usage), tuple(queue.promised)
    releasing, stopped = tuple(queue.releasing), queue.state is QueueState.STOPPED
    if (
        before is not None
        and before.spec is queue.spec
        and before.number == queue.number
        and (before.usage, before.promised, before.releasing) == (usage, promised, releasing)
        and (before.stopped, before.commitments) == (stopped, queue.pledges)
        and before.reserved == weak
        and before.deserved is partition.deserved.get(queue.path)
    ):
        return before
    return QueueFacts(
        path=queue.path,
        parent=NO_PATH if queue.parent is None else queue.parent.path,
        number=queue.number,
        leaf=queue.leaf,
        managed=queue.managed,
        stopped=stopped,
        guaranteed=_amounts(partition, queue.spec.guaranteed),
        max=_most(partition, queue),
        deserved=partition.deserved.get(queue.path),
        usage=usage,
        releasing=releasing,
        promised=promised,
        reserved=weak,
        commitments=queue.pledges,
        spec=queue.spec,
    )


def _amounts(partition: Partition, limit: Limit) -> FrozenAmounts:
    quantities = dict(limit)
    return tuple(quantities.get(name, 0) for name in partition.types.names)


def _most(partition: Partition, queue: Queue) -> Bounds:
    """Return the max of a queue by type. The root has no max, even if its specification has one (see `tree`)."""
    quantities = dict(queue.spec.max or ()) if queue.parent is not None else {}
    return tuple(quantities.get(name) for name in partition.types.names)


def _disruptions(partition: Partition) -> Mapping[str, int]:
    """Return, for each disruption group, how many more evictions the group allows (V5).

    Victims whose eviction is ordered and that still run are subtracted. The number of a group may thus be negative.
    """
    left = dict(partition.disruptions)
    for ask in partition.decisions.leaving.values():
        for group in ask.spec.disruption_groups:
            left[group] = left.get(group, 0) - 1
    return MappingProxyType(left)


# Waiting asks ---------------------------------------------------------------------------------------------------


def waiting(partition: Partition, asks: Iterable[Ask]) -> tuple[WaitingAsk, ...]:
    """Return the facts of waiting asks for a snapshot."""
    classes: dict[AskClass, ClassFacts] = {}
    groups: dict[tuple[Group | Gang | None, AskClass], _Shared] = {}
    found = []
    for ask in asks:
        like = (ask.group, ask.ask_class)
        shared = groups.get(like)
        if shared is None:
            shared = groups[like] = _shared(partition, ask, classes)
        found.append(_ask(ask, shared, partition.round.cycles - ask.cycle))
    return tuple(found)


class _Shared(NamedTuple):
    """The facts that all asks of one group and class share."""

    kind: ClassFacts
    leaf: str
    code: Code
    within_limits: bool


def _shared(partition: Partition, ask: Ask, classes: dict[AskClass, ClassFacts]) -> _Shared:
    ask_class, application = ask.ask_class, ask.application
    kind = classes.get(ask_class)
    if kind is None:
        kind = classes[ask_class] = class_facts(partition, ask_class)
    own = (one for one in application.limiters if one.kind != "queue")
    within_limits = all(limiter.has_headroom(ask_class) for limiter in own)
    return _Shared(kind, application.leaf.path, _code(ask, first_blocker(ask)), within_limits)


def _ask(ask: Ask, shared: _Shared, missed: int) -> WaitingAsk:
    return WaitingAsk(
        key=ask.key,
        rm_id=ask.rm_id,
        application_id=ask.application.application_id,
        leaf=shared.leaf,
        kind=shared.kind,
        spec=ask.spec,
        pending_since=ask.pending_since,
        arrival=ask.arrival,
        code=shared.code,
        within_limits=shared.within_limits,
        reserved=ask.pledge is not None,
        missed=missed,
    )


def gangs(partition: Partition, due: Iterable[GangDue]) -> tuple[WaitingGang, ...]:
    """Return the facts of gangs for a snapshot."""
    return tuple(_gang(partition, one) for one in due)


def _gang(partition: Partition, due: GangDue) -> WaitingGang:
    """Return the facts of a gang, with its members in the order of J8."""
    members = sorted(waiting(partition, due.members), key=gang_order)
    return WaitingGang(
        due.key, due.number, tuple(members), due.placed, due.size, _within_limits(due.members)
    )


def gang_order(ask: Ask | WaitingAsk) -> tuple[int, int, str]:
    """Return the sort key by which the members of a gang get their nodes: priority, age, allocation id (J8)."""
    return -ask.spec.priority, ask.pending_since, ask.key


def _within_limits(members: Sequence[Ask]) -> bool:
    """Return whether the limits of the members' user and group have headroom for all members together."""
    wanted: Counter[int] = Counter()
    for ask in members:
        for index, quantity in ask.ask_class.demand:
            wanted[index] += quantity
    people = (one for one in members[0].application.limiters if one.kind != "queue")
    return all(one.headroom[index] >= much for one in people for index, much in wanted.items())


def first_blocker(ask: Ask) -> Limiter | None:
    """Return the first limit of an ask that has too little headroom for the ask. Return None if all limits have enough headroom.

    For a firm ask, the limits of firm use come first, from the leaf up. The limits of queues come next, from the leaf up. The
    limits of the user and of the group come last.
    """
    limiters = ask.application.limits_of(ask.ask_class)
    return next((one for one in limiters if not one.has_headroom(ask.ask_class)), None)


def _code(ask: Ask, blocker: Limiter | None) -> Code:
    """Return the code of the reason why the ask waits, without examining nodes."""
    if any(queue.state is QueueState.STOPPED for queue in ask.application.leaf.path_up()):
        return Code.QUEUE_STOPPED
    if isinstance(ask.group, Gang):
        return Code.GANG_PARTIAL if ask.group.gathered else Code.GANG_GATHERING
    if blocker is not None:
        return blocker.code
    return Code.NO_NODE if ask.ask_class.dead else Code.NOT_TRIED


def class_facts(partition: Partition, ask_class: AskClass) -> ClassFacts:
    """Return the facts of a class, with the nodes that its constraint allows."""
    knows_firm = has_classes(partition.spec.preemption)  # J4; a shadow may not
    return ClassFacts(
        ask_class.number,
        ask_class.demand,
        ask_class.node_demand,
        allowed(partition, ask_class.mask),
        ask_class.gang_class if knows_firm else None,
    )


def allowed(partition: Partition, mask: NodeMask) -> Mask:
    """Return a mask of the node rows on which a constraint holds."""
    rows = len(partition.node_slots.nodes)
    verdicts = np.zeros(rows, dtype=np.bool_)
    if mask.names is None:
        known = np.frombuffer(bytes(mask.allowed[:rows]), dtype=np.bool_)
        verdicts[: len(known)] = known
    else:
        named = [partition.index.nodes.get(name) for name in mask.names]
        verdicts[[node.slot for node in named if node is not None and mask.allows(node)]] = True
    verdicts.flags.writeable = False
    return verdicts


# Commitments ----------------------------------------------------------------------------------------------------


def _commitments(partition: Partition) -> tuple[OpenCommitment, ...]:
    """Return one commitment for each pledge, in the order in which the pledges were made."""
    return tuple(
        OpenCommitment(
            held.commitment.commitment_id,
            held.commitment.policy,
            key,
            held.ask.application.leaf.path,
            held.node.slot,
            held.demand,
            held.node_demand,
            held.reserves,
        )
        for key, held in partition.decisions.pledges.items()
    )


def _firm_use(partition: Partition) -> Mapping[str, FirmUse]:
    """Return the firm use of each queue (J4). Return {} if asks have no classes.

    The amounts that firm asks hold are computed as if all ordered releases were complete. Firm asks count as waiting if their
    pledges give way to claims.
    """
    if not has_classes(partition.spec.preemption):
        return {}
    going = [partition.asks[key] for key in partition.columns.allocations.dying()]
    yielding = [held.ask for held in partition.decisions.pledges.values() if held.reserves]
    less = _demands_by_queue(partition, (one for one in (*going, *yielding) if one.ask_class.firm))
    more = _demands_by_queue(partition, (one for one in yielding if one.ask_class.firm))
    nothing = partition.types.zeros()
    found = {}
    for path, queue in partition.queues.items():
        lines = zip(queue.firm_held, less.get(path, nothing), strict=True)
        held = tuple(one - gone for one, gone in lines)
        parts = zip(held, queue.firm_waiting, more.get(path, nothing), strict=True)
        found[path] = FirmUse(held, tuple(map(sum, parts)), tuple(more.get(path, nothing)))
    return found


def _demands_by_queue(partition: Partition, asks: Iterable[Ask]) -> dict[str, Amounts]:
    """Return, for each queue, the sum of the demands of those asks that are in that queue or below it."""
    sums: dict[str, Amounts] = {}
    for ask in asks:
        for queue in ask.application.leaf.path_up():
            amounts = sums.setdefault(queue.path, partition.types.zeros())
            for index, quantity in ask.ask_class.demand:
                amounts[index] += quantity
    return sums
