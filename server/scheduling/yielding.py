"""Free capacity that is reserved is offered to asks of higher priority, once nothing else can be placed.

One reservation after the other is lifted, in the order in which they were made. Groups that outrank its owner, and
that only it keeps waiting, are woken and placed in the usual order; all others stay put aside. Afterwards the
reservation is laid back on what is left, and its owner takes the node if it fits. Jobs are tried as a whole, with all
reservations lifted that they outrank.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from server.books import backlog, journal, ranking
from server.books.applications import Ask, Group, Job
from server.books.classes import AskClass
from server.books.commitments import Pledge
from server.books.limits import Limiter
from server.books.nodes import Node
from server.books.partition import Partition
from server.books.queues import QueueState
from server.scheduling import cycle
from server.scheduling.gangs import try_job
from server.scheduling.outranking import is_candidate, lifted, may_use, outranks
from server.scheduling.placement import fits_pledged, may_take


@dataclass(slots=True)
class _Woken:
    """What is awake while a reservation is lifted: groups, classes that were dead, and what limits blocked before."""

    groups: dict[Group, None] = field(default_factory=dict)
    classes: dict[AskClass, None] = field(default_factory=dict)
    blocked: list[tuple[Limiter, AskClass, list[Group]]] = field(default_factory=list)


def run(partition: Partition, now: int, budget: int, placed: list[Ask]) -> int:
    """Offer reserved capacity until no ask takes any; gives the budget that is left. Call it when the cycle has ended.

    Where a placement made something else possible, ordinary placement comes first again. When the budget ends between
    two reservations the next tick goes on behind those that were offered already.
    """
    turn = partition.round
    while budget > 0 and partition.reservations and _is_due(partition):
        if _has_moved(partition):
            budget = _place_others(partition, now, budget, placed)
            continue
        cycle.settle(partition)
        if turn.reservations_moved:
            turn.reservations_offered.clear()
        before = len(placed)
        budget = _round(partition, now, budget, placed)
        turn.reservations_moved = False  # what was put aside by the offers themselves moves nothing
        if len(placed) > before:
            budget = _place_others(partition, now, budget, placed)
            turn.reservations_moved = True
        elif not _has_moved(partition):
            if budget > 0:
                turn.reservations_offered.clear()
            return budget
    return budget


def _has_moved(partition: Partition) -> bool:
    """Did room appear that ordinary placement has not seen yet?"""
    return bool(partition.index.freed or partition.relieved)


def _place_others(partition: Partition, now: int, budget: int, placed: list[Ask]) -> int:
    """Place without reserved capacity what may have become possible; gives the budget that is left."""
    cycle.refresh(partition)
    cycle.wake_jobs(partition)
    return cycle.run(partition, now, budget, placed)


def _is_due(partition: Partition) -> bool:
    """Has something changed, or was the last round of offers cut off, or does an owner wait with its node for others?"""
    turn = partition.round
    return (
        turn.reservations_moved
        or bool(turn.reservations_offered)
        or any(held.yields for held in partition.reservations.values())
    )


def _round(partition: Partition, now: int, budget: int, placed: list[Ask]) -> int:
    """Offer each reservation once, up to the first after which ordinary placement comes first."""
    offered = partition.round.reservations_offered
    for held in list(partition.reservations.values()):
        if held.ask.key in offered and not held.yields:
            continue
        offered.add(held.ask.key)
        budget -= _offer(partition, held, now, placed)
        if _has_moved(partition):
            return budget
        budget -= _serve(partition, held, now, placed)
        if budget <= 0 or _has_moved(partition):
            return budget
    return _offer_to_jobs(partition, now, budget, placed)


def _serve(partition: Partition, held: Pledge, now: int, placed: list[Ask]) -> int:
    """The owner takes its node if those of higher priority left enough. Gives the steps spent."""
    if not held.yields:
        return 0
    held.yields = False
    ask_class = held.ask.ask_class
    if not fits_pledged(ask_class, held):
        return 0
    if not all(one.has_room(ask_class) for one in held.ask.application.limits_of(ask_class)):
        partition.index.mark_freed(held.node)  # a limit keeps it waiting now, not its node
        return 0
    return cycle.fulfil(partition, held, held.node, now, placed)


def _offer(partition: Partition, held: Pledge, now: int, placed: list[Ask]) -> int:
    """Place asks that outrank the owner, with its reservation lifted, and return the steps spent.

    One reservation is offered as a whole, whatever budget is left: a step for each ask that takes capacity, and one for
    each class of asks that finds none.
    """
    woken, spent = _Woken(), 0
    with lifted(partition, (held,)):
        for group in list(dict.fromkeys(_candidates(partition, held))):
            _wake(partition, group, woken)
        if woken.groups:
            spent = cycle.run_woken(partition, now, placed)
    _put_back(partition, woken)
    return spent


def _candidates(partition: Partition, held: Pledge) -> Iterator[Group]:
    """Groups that outrank the owner and wait for what the lifted reservation keeps: the node, or room in a limit."""
    node = held.node
    for ask_class in list(partition.dead):
        waiting = ask_class.waiting
        if waiting and may_use(ask_class) and may_take(ask_class, node):
            yield from (one for one in waiting if one.parked and is_candidate(one, held))
    for limiter in _limits(held):
        for ask_class, waiting in limiter.blocked.items():
            if not may_use(ask_class) or not limiter.has_room(ask_class):
                continue
            if not ask_class.dead or may_take(ask_class, node):
                yield from (one for one in waiting if one.parked and is_candidate(one, held))


def _limits(held: Pledge) -> Iterator[Limiter]:
    """The limits in which the reservation counts."""
    for queue in held.ask.application.leaf.path_up():
        if queue.limiter is not None:
            yield queue.limiter
        if queue.firm is not None and held.ask.ask_class.firm:
            yield queue.firm


def _wake(partition: Partition, group: Group, woken: _Woken) -> None:
    """Take the group out of the list in which it was put aside, and let it stand in the order again."""
    ask_class = group.ask_class
    if ask_class.dead:
        ask_class.dead = False
        del partition.dead[ask_class]
        partition.live_asks += ask_class.pending
        woken.classes[ask_class] = None
    for limiter in group.application.limits_of(ask_class):
        if ask_class in limiter.blocked:
            woken.blocked.append((limiter, ask_class, limiter.blocked.pop(ask_class)))
            if limiter.kind == "queue":
                limiter.queue.blocked_asks -= limiter.queue.pending.get(ask_class, 0)
                ranking.reenter(limiter.queue)
    for waiting in (ask_class.waiting, *(one for _, _, one in woken.blocked)):
        if group in waiting:
            waiting.remove(group)
    group.parked = False
    woken.groups[group] = None
    ranking.push_group(group)


def _put_back(partition: Partition, woken: _Woken) -> None:
    """All that is still waiting stands where it stood before."""
    for limiter, ask_class, waiting in woken.blocked:
        rest = [one for one in waiting if one.live]
        if rest:
            backlog.block_class(limiter, ask_class).extend(rest)
    for ask_class in woken.classes:
        if ask_class.pending and not ask_class.dead:
            backlog.kill_class(partition, ask_class)
    for group in woken.groups:
        if group.live and not group.parked and group.ask_class in woken.classes:
            backlog.park(group, group.ask_class.waiting)


# Jobs ---------------------------------------------------------------------------------------------------------------


def _offer_to_jobs(partition: Partition, now: int, budget: int, placed: list[Ask]) -> int:
    """The first parked job that fits with the capacity that is reserved below it is placed as a whole."""
    mark = (partition.relief, partition.placements)
    for job in sorted(partition.parked_jobs, key=lambda one: one.members[0].sort_key):
        below = [] if job.tried_reserved == mark else list(_outranked(partition, job))
        if not below:
            continue
        seats = _seats(partition, job, below)
        budget -= len(job.members)
        for ask, node in seats:
            journal.place(partition, ask, node, now)
            placed.append(ask)
        if not seats:
            job.tried_reserved = mark
        if seats or budget <= 0:
            return budget
    return budget


def _outranked(partition: Partition, job: Job) -> Iterator[Pledge]:
    leaf, least = job.application.leaf, min(one.spec.priority for one in job.members)
    if any(queue.state is QueueState.STOPPED for queue in leaf.path_up()):
        return
    yield from (one for one in partition.reservations.values() if outranks(leaf, least, one))


def _seats(partition: Partition, job: Job, below: list[Pledge]) -> list[tuple[Ask, Node]]:
    dead = list(dict.fromkeys(one.ask_class for one in job.members if one.ask_class.dead))
    with lifted(partition, below):
        for ask_class in dead:
            ask_class.dead = False
        seats = try_job(partition, job)
        for ask_class in dead:
            ask_class.dead = True
    return seats
