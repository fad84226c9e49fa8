"""The usage of applications and queues. Each change updates amounts, shares, headroom and heap entries together.

Only `journal` and, for many asks at once, `journal_fast` change usage.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Final

from server.model.fit import SHARE_UNBOUNDED, Amounts, Demand, Scale, share
from server.state import ranking
from server.state.applications import Application, Ask
from server.state.equivalence import AskClass
from server.state.limits import Limiter
from server.state.partition import Partition
from server.state.queues import Queue

_ALIKE: Final = attrgetter("application", "ask_class")


def _grown_share(amounts: Amounts, scales: list[Scale], demand: Demand, before: int) -> int:
    """Add a demand to the amounts, and return the new share, which equals the result of `model.fit.share`.

    Only the types that grew can raise the share.
    """
    largest = before
    for index, quantity in demand:
        used = amounts[index] = amounts[index] + quantity
        shift, base = scales[index]
        ratio = (used << shift) // base if base else SHARE_UNBOUNDED
        if ratio > largest:  # noqa: PLR1730 - on the placement path, and max() costs a call
            largest = ratio
    return largest


def charge(application: Application, demand: Demand) -> None:
    """Add a demand to the usage of the application and of all queues on its path, and replace their heap entries."""
    leaf = application.leaf
    usage = application.usage
    if leaf.fair:
        application.share = _grown_share(usage, leaf.measure_scales, demand, application.share)
        if application.entry is not None:
            ranking.renew_application(leaf, application)
    else:
        for index, quantity in demand:
            usage[index] += quantity
    upper = leaf
    for queue, upper in leaf.climb:
        queue.share = _grown_share(queue.usage, queue.basis_scales, demand, queue.share)
        if queue.entry is not None:
            ranking.renew_queue(upper, queue)
    usage = upper.usage
    for index, quantity in demand:
        usage[index] += quantity
    for limiter in application.limiters:
        limiter.take(demand)


def discharge(partition: Partition, application: Application, demand: Demand) -> None:
    """Subtract a demand from the usage of the application and of all queues on its path.

    The next tick tests the asks that wait for the freed headroom.
    """
    leaf = application.leaf
    _lessen(application.usage, demand)
    _rank_application(application)
    upper = leaf
    for queue, upper in leaf.climb:
        _lessen(queue.usage, demand)
        _rank_queue(upper, queue)
    _lessen(upper.usage, demand)
    _give(partition, application, demand)


def discharge_all(partition: Partition, asks: Iterable[Ask]) -> None:
    """Discharge many allocations at once, and count their amounts as lost by an external event (invariant 18)."""
    charged = _alike(asks)
    for (application, ask_class), many in charged.items():
        demand = ask_class.demand
        if many > 1:
            demand = tuple((index, many * quantity) for index, quantity in demand)
        _lessen(application.usage, demand)
        _give(partition, application, demand)
    for application in dict.fromkeys(application for application, _ in charged):
        _rank_application(application)
    for queue, sums in _of_queues(partition, charged).items():
        for index, much in enumerate(sums):
            queue.usage[index] -= much
            queue.lost[index] += much
        if queue.parent is not None:
            _rank_queue(queue.parent, queue)


def _rank_application(application: Application) -> None:
    """Recompute the share of an application whose usage fell, and replace its heap entry."""
    leaf = application.leaf
    if leaf.fair:
        application.share = share(application.usage, leaf.measure)
        if application.entry is not None:
            ranking.renew_application(leaf, application)


def _rank_queue(parent: Queue, queue: Queue) -> None:
    """Recompute the share of a queue whose usage fell, and replace its heap entry."""
    queue.share = share(queue.usage, queue.basis)
    if queue.entry is not None:
        ranking.renew_queue(parent, queue)


def _give(partition: Partition, application: Application, demand: Demand) -> None:
    """Add a demand back to the headroom of all limits of an application."""
    for limiter in application.limiters:
        limiter.give(demand)
        relieve(partition, limiter)


def _lessen(amounts: Amounts, demand: Demand) -> None:
    for index, quantity in demand:
        amounts[index] -= quantity


def relieve(partition: Partition, limiter: Limiter) -> None:
    """List a limiter for a test at the next tick, because it may have headroom for classes that it blocks."""
    if limiter.blocked and not limiter.relieved:
        limiter.relieved = True
        partition.limits.relieved.append(limiter)


def count_releasing(partition: Partition, asks: Iterable[Ask]) -> None:
    """Add allocations that were just marked as releasing to the releasing amounts of their queues.

    The amounts are summed for each queue first, so that each queue is changed once.
    """
    for queue, amounts in _of_queues(partition, _alike(asks)).items():
        for index, quantity in enumerate(amounts):
            queue.releasing[index] += quantity


def _alike(asks: Iterable[Ask]) -> Counter[tuple[Application, AskClass]]:
    """Return the number of allocations of each application and class. Allocations of one application and class are charged together."""
    return Counter(map(_ALIKE, asks))


def _of_queues(
    partition: Partition, charged: Mapping[tuple[Application, AskClass], int]
) -> dict[Queue, Amounts]:
    """Return, for each queue, the sum of the demands of the allocations that are in that queue or below it."""
    leaves: dict[Queue, Amounts] = {}
    for (application, ask_class), many in charged.items():
        amounts = leaves.get(application.leaf)
        if amounts is None:
            amounts = leaves[application.leaf] = partition.types.zeros()
        for index, quantity in ask_class.demand:
            amounts[index] += many * quantity
    sums = dict(leaves)
    for leaf, amounts in leaves.items():
        for _, parent in leaf.climb:
            known = sums.get(parent)
            sums[parent] = amounts if known is None else list(map(int.__add__, known, amounts))
    return sums


def promise(leaf: Queue, demand: Demand, sign: int, *, firm: bool) -> None:
    """Add a demand to the promises of the queues on the path, and subtract the demand from their headroom.

    If ``sign`` is -1, do the reverse.
    """
    for queue in leaf.path_up():
        for index, quantity in demand:
            queue.promised[index] += sign * quantity
        if queue.limiter is not None:
            (queue.limiter.take if sign > 0 else queue.limiter.give)(demand)
    if firm:
        hold_firm(leaf, demand, sign)


# Firm asks (J4) -----------------------------------------------------------------------------------------------------


def hold_firm(leaf: Queue, demand: Demand, sign: int) -> None:
    """Add a demand to the firm usage and promises of the queues on the path. If ``sign`` is -1, subtract the demand."""
    for queue in leaf.path_up():
        for index, quantity in demand:
            queue.firm_held[index] += sign * quantity
        if queue.firm is not None:
            (queue.firm.take if sign > 0 else queue.firm.give)(demand)


def await_firm(leaf: Queue, demand: Demand, sign: int) -> None:
    """Add a demand to the requests of waiting firm asks without a pledge, in each queue on the path.

    If ``sign`` is -1, subtract the demand.
    """
    for queue in leaf.path_up():
        for index, quantity in demand:
            queue.firm_waiting[index] += sign * quantity


def relieve_firm(partition: Partition, leaf: Queue) -> None:
    """List the limiters on the path for a test at the next tick.

    Asks that did not fit may fit now, because firm asks hold or request less than before.
    """
    for queue in leaf.path_up():
        for limiter in (queue.firm, queue.limiter):
            if limiter is not None:
                relieve(partition, limiter)
