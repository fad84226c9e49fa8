"""The single writer: every change of usage, promises and waiting asks goes through these functions.

Each keeps the amounts, the heaps, the counts and the log of changed rows in step, so that `validate` holds
after every call. Nothing here decides.
"""

import bisect
import heapq

from server.books import ranking
from server.books.applications import Application, Ask, Group, Job
from server.books.classes import AskClass
from server.books.commitments import Commitment, CommitmentState
from server.books.limits import Limiter
from server.books.nodes import Foreign, Node
from server.books.partition import Partition
from server.books.queues import Queue
from server.model.fit import SHARE_UNBOUNDED, Amounts, Demand, share

# Usage and shares -----------------------------------------------------------------------------------------------


def _grown_share(amounts: Amounts, measure: Amounts, demand: Demand, before: int) -> int:
    """Add a demand and give the share: only the types that grew can raise it."""
    largest = before
    for index, quantity in demand:
        used = amounts[index] = amounts[index] + quantity
        base = measure[index]
        ratio = (used << 32) // base if base > 0 else SHARE_UNBOUNDED
        if ratio > largest:  # noqa: PLR1730 - on the placement path, and max() costs a call
            largest = ratio
    return largest


def charge(application: Application, demand: Demand) -> None:
    """Usage rises by a demand on the whole path; entries on the path are renewed."""
    leaf = application.leaf
    usage = application.usage
    if leaf.fair:
        application.share = _grown_share(usage, leaf.measure, demand, application.share)
        if application.entry is not None:
            ranking.renew(leaf, application)
    else:
        for index, quantity in demand:
            usage[index] += quantity
    queue = leaf
    parent = queue.parent
    while parent is not None:
        queue.share = _grown_share(queue.usage, queue.measure, demand, queue.share)
        if queue.entry is not None:
            ranking.renew(parent, queue)
        queue, parent = parent, parent.parent
    usage = queue.usage
    for index, quantity in demand:
        usage[index] += quantity
    for limiter in application.limiters:
        limiter.take(demand)


def discharge(partition: Partition, application: Application, demand: Demand) -> None:
    """Usage falls by a demand on the whole path; what waits for that room is tested at the next tick."""
    leaf = application.leaf
    _lessen(application.usage, demand)
    if leaf.fair:
        application.share = share(application.usage, leaf.measure)
        if application.entry is not None:
            ranking.renew(leaf, application)
    for queue in leaf.path_up():
        _lessen(queue.usage, demand)
        if queue.parent is None:
            break
        queue.share = share(queue.usage, queue.measure)
        if queue.entry is not None:
            ranking.renew(queue.parent, queue)
    for limiter in application.limiters:
        limiter.give(demand)
        relieve(partition, limiter)


def _lessen(amounts: Amounts, demand: Demand) -> None:
    for index, quantity in demand:
        amounts[index] -= quantity


def relieve(partition: Partition, limiter: Limiter) -> None:
    """A limiter may have room again for classes that it blocks."""
    if limiter.blocked and not limiter.relieved:
        limiter.relieved = True
        partition.relieved.append(limiter)


def fill(partition: Partition, node: Node, demand: Demand) -> None:
    """A node's free room falls."""
    free = node.free
    for index, quantity in demand:
        free[index] -= quantity
    partition.index.filled(node)


def empty(partition: Partition, node: Node, demand: Demand) -> None:
    """A node's free room rises."""
    free = node.free
    for index, quantity in demand:
        free[index] += quantity
    partition.index.emptied(node)


# Waiting asks ---------------------------------------------------------------------------------------------------


def enqueue(partition: Partition, ask: Ask) -> None:
    """A waiting ask joins its application: in its job while that gathers, else in its group."""
    application, ask_class, spec = ask.application, ask.ask_class, ask.spec
    application.asks[ask.key] = ask
    _count_waiting(partition, application.leaf, ask_class, 1)
    if spec.job_key and spec.min_members > 1 and ask.reservation is None:
        job = application.jobs.get(spec.job_key)
        if job is None:
            job = application.jobs[spec.job_key] = Job(
                partition.next_number(), application, spec.job_key, spec.min_members
            )
        if job.placed < job.min_members:
            _join_job(partition, job, ask)
            return
    key = (ask_class, spec.priority)
    group = application.groups.get(key)
    if group is None:
        group = application.groups[key] = Group(
            partition.next_number(), application, ask_class, spec.priority
        )
    _join_group(partition, group, ask)


def _count_waiting(partition: Partition, leaf: Queue, ask_class: AskClass, count: int) -> None:
    ask_class.pending += count
    if not ask_class.dead:
        partition.live_asks += count
    partition.ask_count += count
    if ask_class.dead and not ask_class.pending:
        revive_class(partition, ask_class)
    queue: Queue | None = leaf
    while queue is not None:
        pending = queue.pending
        waiting = pending.get(ask_class, 0) + count
        if waiting:
            pending[ask_class] = waiting
        else:
            del pending[ask_class]
        queue.pending_asks += count
        limiter = queue.limiter
        if limiter is not None and ask_class in limiter.blocked:
            queue.blocked_asks += count
        queue = queue.parent


def _join_group(partition: Partition, group: Group, ask: Ask) -> None:
    ask.group = group
    asks = group.asks
    first = not group.live
    if first:
        asks.clear()
    if not asks or (asks[-1].pending_since, asks[-1].arrival) < (ask.pending_since, ask.arrival):
        asks.append(ask)
    else:
        first = first or ask.sort_key < asks[0].sort_key
        bisect.insort(asks, ask, key=_by_age)
    group.live += 1
    if not group.untold:
        partition.untold[group] = None
    group.untold.append(ask)
    if group.parked:
        return
    if group.ask_class.dead:
        park(group, group.ask_class.waiting)
        return
    if first or group.entry is None:
        ranking.push_group(group)
    else:
        ranking.raise_path(group.application, group.priority)


def _by_age(ask: Ask) -> tuple[int, int]:
    return ask.pending_since, ask.arrival


def _join_job(partition: Partition, job: Job, ask: Ask) -> None:
    ask.group = job
    bisect.insort(job.members, ask, key=lambda one: one.sort_key)
    job.min_members = ask.spec.min_members
    partition.untold[job] = None
    job_changed(partition, job)


def job_changed(partition: Partition, job: Job) -> None:
    """A job's members changed: it is tried (again) once it is complete, at the rank of its first member."""
    job.entry = None
    if job.gathered:
        job.priority = job.members[0].spec.priority
        if job.parked:
            job.parked = False
            partition.parked_jobs.remove(job)
        ranking.push_group(job)


def dequeue(partition: Partition, ask: Ask, *, for_good: bool = False) -> None:
    """A waiting ask leaves its group or job (placed, released or changed).

    One that is gone for good may leave a hole in its group, closed when it comes to the front; one that may
    come back with another place in the order must not.
    """
    group = ask.group
    ask.group = None
    del ask.application.asks[ask.key]
    _count_waiting(partition, ask.application.leaf, ask.ask_class, -1)
    if isinstance(group, Job):
        group.members.remove(ask)
        _job_lost(partition, group)
    elif group is not None:
        if not for_good and group.asks[0] is not ask:
            group.asks.remove(ask)
        _group_lost(partition, group)


def _job_lost(partition: Partition, job: Job) -> None:
    job.entry = None
    if job.parked:
        job.parked = False
        partition.parked_jobs.remove(job)
    drop_empty_job(partition, job)
    if job.members:
        job_changed(partition, job)


def drop_empty_job(partition: Partition, job: Job) -> None:
    """Forget a job without members, waiting or placed."""
    if not job.members and not job.placed:
        job.application.jobs.pop(job.key, None)
    if not job.members:
        partition.untold.pop(job, None)


def _group_lost(partition: Partition, group: Group) -> None:
    group.live -= 1
    if not group.live:
        _drop_group(partition, group)
        return
    asks = group.asks
    if asks[0].group is not group:
        while asks[0].group is not group:
            asks.popleft()
        if group.entry is not None:
            ranking.push_group(group)


def _drop_group(partition: Partition, group: Group) -> None:
    """Forget a group without asks; its entry, if it has one, dies by identity."""
    group.entry = None
    group.asks.clear()
    group.untold.clear()
    partition.untold.pop(group, None)
    application = group.application
    key = (group.ask_class, group.priority)
    if application.groups.get(key) is group:
        del application.groups[key]


def park(group: Group, waiting: list[Group]) -> None:
    """Put a group aside until the class or limiter that holds it back can take it again."""
    group.parked = True
    group.entry = None
    waiting.append(group)


def wake(groups: list[Group]) -> None:
    """Groups that were put aside may be placeable again."""
    for group in groups:
        group.parked = False
        if group.live:
            ranking.push_group(group)


# Classes without a node, limits without room --------------------------------------------------------------------


def kill_class(partition: Partition, ask_class: AskClass) -> None:
    """No node takes the class now; it stays dead until room appears somewhere (design 6.5)."""
    ask_class.dead = True
    partition.dead[ask_class] = None
    partition.live_asks -= ask_class.pending


def revive_class(partition: Partition, ask_class: AskClass) -> None:
    """Some node may take the class again."""
    ask_class.dead = False
    partition.dead.pop(ask_class, None)
    partition.live_asks += ask_class.pending
    waiting = ask_class.waiting
    ask_class.waiting = []
    wake(waiting)


def block_class(limiter: Limiter, ask_class: AskClass) -> list[Group]:
    """The limiter has no room for the class; gives the list in which its groups are put aside."""
    waiting = limiter.blocked.get(ask_class)
    if waiting is None:
        waiting = limiter.blocked[ask_class] = []
        if limiter.kind == "queue":
            limiter.queue.blocked_asks += limiter.queue.pending.get(ask_class, 0)
    return waiting


def unblock_class(limiter: Limiter, ask_class: AskClass) -> None:
    """The limiter may have room for the class again."""
    waiting = limiter.blocked.pop(ask_class)
    queue = limiter.queue
    if limiter.kind == "queue":
        queue.blocked_asks -= queue.pending.get(ask_class, 0)
        ranking.reenter(queue)
    wake(waiting)


# Placing and releasing ------------------------------------------------------------------------------------------


def place(partition: Partition, ask: Ask, node: Node, now: int) -> None:
    """A waiting ask gets its node and becomes an allocation."""
    dequeue(partition, ask)
    settle(partition, ask, node, now)


def place_first(partition: Partition, group: Group, node: Node, now: int) -> Ask:
    """The same for the first ask of the group that stands on top of its application's heap: the usual case."""
    application, asks = group.application, group.asks
    ask = asks.popleft()
    ask.group = None
    del application.asks[ask.key]
    group.live -= 1
    if group.live:
        first = asks[0]
        while first.group is not group:
            asks.popleft()
            first = asks[0]
        group.entry = entry = (
            -group.priority,
            first.pending_since,
            first.arrival,
            group.number,
            group,
        )
        heapq.heapreplace(application.heap, entry)
    else:
        _drop_group(partition, group)
    _seat(partition, ask, node, now)
    _count_placed(partition, application.leaf, group.ask_class)
    charge(application, group.ask_class.demand)
    return ask


def _count_placed(partition: Partition, leaf: Queue, ask_class: AskClass) -> None:
    """One waiting ask less, of a class that is neither dead nor blocked on the path."""
    ask_class.pending -= 1
    partition.live_asks -= 1
    partition.ask_count -= 1
    queue: Queue | None = leaf
    while queue is not None:
        pending = queue.pending
        waiting = pending[ask_class] - 1
        if waiting:
            pending[ask_class] = waiting
        else:
            del pending[ask_class]
        queue.pending_asks -= 1
        queue = queue.parent


def settle(partition: Partition, ask: Ask, node: Node, now: int) -> None:
    """Write an ask that waits nowhere as an allocation; room is not asked for (recovery, design 1.10)."""
    _seat(partition, ask, node, now)
    charge(ask.application, ask.ask_class.demand)


def _seat(partition: Partition, ask: Ask, node: Node, now: int) -> None:
    """The node's side of a placement, and the ask's own."""
    application = ask.application
    ask.node = node
    ask.placed_ms = now
    ask.code = ""
    node.allocations[ask.key] = ask
    application.allocations[ask.key] = ask
    fill(partition, node, ask.ask_class.node_demand)
    if ask.spec.min_members > 1:
        _count_member(partition, application, ask, 1)
    partition.changed.append(ask)


def _count_member(partition: Partition, application: Application, ask: Ask, count: int) -> None:
    spec = ask.spec
    if spec.min_members > 1 and spec.job_key:
        job = application.jobs.get(spec.job_key)
        if job is None:
            job = application.jobs[spec.job_key] = Job(
                partition.next_number(), application, spec.job_key, spec.min_members
            )
        job.placed += count
        if job.members:
            job_changed(partition, job)


def unsettle(partition: Partition, ask: Ask) -> None:
    """Take an allocation off its node and out of all usage; the ask waits nowhere afterwards."""
    node, application, ask_class = ask.node, ask.application, ask.ask_class
    assert node is not None
    if ask.releasing:
        set_releasing(partition, ask, releasing=False)
    ask.node = None
    del node.allocations[ask.key]
    del application.allocations[ask.key]
    empty(partition, node, ask_class.node_demand)
    discharge(partition, application, ask_class.demand)
    _count_member(partition, application, ask, -1)
    job = application.jobs.get(ask.spec.job_key)
    if job is not None:
        drop_empty_job(partition, job)
    partition.changed.append(ask)
    partition.shorten_changed()
    partition.relief += 1


def set_started(partition: Partition, ask: Ask, started_ms: int | None) -> None:
    """The shim says since when an allocation runs; None: not yet."""
    if ask.started_ms != started_ms:
        ask.started_ms = started_ms
        partition.changed.append(ask)


def set_releasing(partition: Partition, ask: Ask, *, releasing: bool) -> None:
    """Mark an allocation whose release was ordered and is not confirmed, or take the mark away."""
    if ask.releasing == releasing:
        return
    ask.releasing = releasing
    partition.changed.append(ask)
    sign = 1 if releasing else -1
    for queue in ask.application.leaf.path_up():
        for index, quantity in ask.ask_class.demand:
            queue.releasing[index] += sign * quantity


def settle_foreign(partition: Partition, foreign: Foreign) -> None:
    """A foreign pod occupies its node."""
    partition.foreign[foreign.key] = foreign
    foreign.node.foreign[foreign.key] = foreign
    for index, quantity in foreign.demand:
        partition.foreign_usage[index] += quantity
    fill(partition, foreign.node, foreign.demand)


def unsettle_foreign(partition: Partition, foreign: Foreign) -> None:
    """A foreign pod is gone."""
    del partition.foreign[foreign.key]
    del foreign.node.foreign[foreign.key]
    for index, quantity in foreign.demand:
        partition.foreign_usage[index] -= quantity
    empty(partition, foreign.node, foreign.demand)
    partition.relief += 1


# Pledges --------------------------------------------------------------------------------------------------------


def pledge(partition: Partition, commitment: Commitment) -> None:
    """Room on a node and head-room on the path are promised to a waiting ask before they are free (design 6.6)."""
    ask = commitment.ask
    dequeue(partition, ask)
    shared = ask.ask_class
    ask.ask_class = partition.private_class(shared)
    partition.leave_class(shared)
    ask.ask_class.reservation = commitment
    ask.reservation = commitment
    commitment.state = CommitmentState.ORDERED
    partition.commitments[commitment.commitment_id] = commitment
    commitment.node.pledges[ask.key] = commitment
    fill(partition, commitment.node, commitment.node_demand)
    for queue in ask.application.leaf.path_up():
        for index, quantity in commitment.demand:
            queue.promised[index] += quantity
        queue.reservations += 1
        if queue.limiter is not None:
            queue.limiter.take(commitment.demand)
    enqueue(partition, ask)


def unpledge(partition: Partition, commitment: Commitment, state: CommitmentState) -> None:
    """A commitment ends: the room it held is everybody's again; the ask, if it waits, is an ordinary one again."""
    ask = commitment.ask
    waiting = ask.group is not None
    if waiting:
        dequeue(partition, ask)
    commitment.state = state
    partition.round.pledges_ended += 1
    del partition.commitments[commitment.commitment_id]
    del commitment.node.pledges[ask.key]
    ask.reservation = None
    empty(partition, commitment.node, commitment.node_demand)
    for queue in ask.application.leaf.path_up():
        for index, quantity in commitment.demand:
            queue.promised[index] -= quantity
        queue.reservations -= 1
        if queue.limiter is not None:
            queue.limiter.give(commitment.demand)
            relieve(partition, queue.limiter)
    private = ask.ask_class
    ask.ask_class = partition.class_of(ask.spec, partition.constraints_of(ask.spec, ask.key))
    partition.leave_class(private)
    partition.relief += 1
    if waiting:
        enqueue(partition, ask)
