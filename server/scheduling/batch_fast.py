"""The placement, in one batch, of many plain asks that arrived since the last tick.

The plain implementation is `cycle`, which places asks one by one. Both implementations give the same result (design 6.3).
Before each placement, the cycle searches for the next ask; after it, the cycle updates the changed shares up to the root. Under
three conditions, the order of the asks does not depend on the placements: only these asks can be placed, all of them have the
same priority, and no limit can be reached. `kernels.turns` then sorts the asks, each ask in that order gets a node, and the sum
of the asks of each queue is charged as usage. Asks of a batch that does not meet these conditions are enqueued. The cycle then
places them, with the same result (tests/simulation/test_twins.py).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any, Final

from server.kernels.turns import Children, Turns, in_turn
from server.model.fit import Amounts
from server.scheduling.ordering import next_group
from server.scheduling.placement import take_nodes_fast
from server.state import journal_fast, pending, usage
from server.state.applications import Application, Ask, Gang, Group
from server.state.equivalence import AskClass
from server.state.limits import Limiter
from server.state.partition import Partition
from server.state.queues import Queue, QueueState

LEAST: Final = 48
"""The number of asks below which placing the asks one at a time is faster than a batch."""
_STOPPED: Final = QueueState.STOPPED
"""`QueueState.STOPPED`, looked up once because each access to a member of an enumeration is slow."""
_application = attrgetter("application")
_ask_class = attrgetter("ask_class")
_blocked = attrgetter("blocked")
_group = attrgetter("application", "ask_class", "spec.priority")
_is_fair = attrgetter("fair")
_leaf = attrgetter("leaf")
_name = attrgetter("name")
_number = attrgetter("number")
_share = attrgetter("share")
_since = attrgetter("pending_since")
_spec = attrgetter("spec")
_usage = attrgetter("usage")


@dataclass(slots=True)
class Burst:
    """The asks of a batch by age, with their applications, classes and queues.

    Applications are sorted by number and queues by name, because numbers and names break ties between equal shares.
    """

    asks: Sequence[Ask]
    applications: list[Application]
    classes: list[AskClass]
    rungs: list[list[Queue]]
    """The queues by level, the deepest level first.

    A leaf above the deepest level also appears in each deeper level, as its own child.
    """
    columns: list[int]
    """The indices of the requested types."""


def run(partition: Partition, now: int, budget: int, placed: list[Ask]) -> int:
    """Place the unqueued asks in one batch if that gives the same result as the cycle. Return the budget of steps that is left.

    Placed asks are appended to ``placed`` in order, and cost one step each. All other asks are enqueued.
    """
    asks = partition.unqueued
    if not asks:
        return budget
    before = len(placed)
    if LEAST <= len(asks) <= budget and _is_alone(partition):
        placed += _place(partition, now)
    pending.enqueue_unqueued(partition)
    return budget - (len(placed) - before)


def _free(partition: Partition, asks: Sequence[Ask]) -> Sequence[Ask]:
    """Return the asks without those that are known to fit no node, or to exceed a limit.

    Such asks do not affect the order of other asks.
    """
    if partition.classes.dead:
        asks = [ask for ask in asks if not ask.ask_class.dead]
    limited = [one for one in set(map(_application, asks)) if one.limiters]
    blocked = {one: set(chain.from_iterable(map(_blocked, one.limiters))) for one in limited}
    if any(blocked.values()):
        asks = [ask for ask in asks if ask.ask_class not in blocked.get(ask.application, ())]
    return asks


def _is_alone(partition: Partition) -> bool:
    """Return whether only unqueued asks can be placed.

    Return False if a complete gang still has to be tried, or if a group may be placeable.
    """
    if partition.gangs.ready:
        return False
    return not partition.classes.live_asks or next_group(partition, _any_group) is None


def _any_group(_group: Group | Gang) -> bool:
    """Return True, so that `next_group` treats every group as placeable."""
    return True


def _gather(asks: Sequence[Ask]) -> Burst:
    ages = list(map(_since, asks))
    if ages != sorted(ages):
        asks = sorted(asks, key=_since)
    applications = sorted(set(map(_application, asks)), key=_number)
    classes = list(dict.fromkeys(map(_ask_class, asks)))
    rungs = _rungs(list(dict.fromkeys(map(_leaf, applications))))
    columns = sorted({index for one in classes for index, _ in one.demand})
    return Burst(asks, applications, classes, rungs, columns)


def _rungs(leaves: list[Queue]) -> list[list[Queue]]:
    """Return the queues of each level, from the level of the deepest leaf up to the children of the root."""
    rungs, here = [], leaves
    for depth in range(max((len(leaf.climb) for leaf in leaves), default=0), 0, -1):
        rungs.append(sorted(here, key=_name))
        here = list(dict.fromkeys(_next(one, depth) for one in here))
    return rungs


def _next(queue: Queue, depth: int) -> Queue:
    """Return the queue's parent if the queue is at ``depth``. If the queue is above ``depth``, return the queue itself."""
    return queue if len(queue.climb) < depth else queue.climb[0][1]


def _is_simple(partition: Partition, burst: Burst) -> bool:
    """Return whether the order of the asks depends only on shares, ages and names.

    This is so under three conditions. No queue is stopped, changes priorities, or blocks asks already. All asks have the same
    priority. No ask has preferences.
    """
    if not burst.rungs or len({spec.priority for spec in set(map(_spec, burst.asks))}) != 1:
        return False
    if any(one.preferred is not None for one in burst.classes):
        return False
    known = dict.fromkeys([partition.root, *chain.from_iterable(burst.rungs)])
    return not any(
        queue.state is _STOPPED or queue.offset or queue.fence or _holds_back(queue)
        for queue in known
    )


def _holds_back(queue: Queue) -> bool:
    """Return whether the queue's limit already blocks some asks.

    The cycle spends steps of the budget on blocked asks, but a batch would not. The results of the cycle and the batch would
    therefore differ.
    """
    return queue.limiter is not None and bool(queue.limiter.blocked)


# Turns --------------------------------------------------------------------------------------------------------------


def _turns(burst: Burst) -> Turns | None:
    """Return the order of the asks, and the usage and the shares of the queues after the last ask.

    Return None if a number is too large for an array.
    """
    places = {one: at for at, one in enumerate(burst.applications)}
    kinds = {one: at for at, one in enumerate(burst.classes)}
    demands = [_line(dict(one.demand), burst.columns) for one in burst.classes]
    return in_turn(
        list(map(places.__getitem__, map(_application, burst.asks))),
        list(map(kinds.__getitem__, map(_ask_class, burst.asks))),
        demands,
        [_applications(burst), *_queues(burst)],
    )


def _line(amounts: dict[int, int], columns: Iterable[int]) -> Amounts:
    return [amounts.get(index, 0) for index in columns]


def _picked(columns: Sequence[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Return a function that picks the values of these columns from a line of amounts. There must be at least one column."""
    if len(columns) > 1:
        return itemgetter(*columns)
    return lambda line: (line[columns[0]],)


def _applications(burst: Burst) -> Children:
    some, pick = burst.applications, _picked(burst.columns)
    leaves = list(map(_leaf, some))
    places = {leaf: at for at, leaf in enumerate(burst.rungs[0])}
    above = list(map(places.__getitem__, leaves))
    return Children(
        above,
        list(map(_is_fair, leaves)),
        list(map(pick, map(_usage, some))),
        list(map(_share, some)),
        above,
        [pick(leaf.measure_scales) for leaf in places],
    )


def _queues(burst: Burst) -> Iterator[Children]:
    pick, depth = _picked(burst.columns), len(burst.rungs)
    for rung, above in zip(burst.rungs, [*burst.rungs[1:], []], strict=True):
        places = {queue: at for at, queue in enumerate(above)}
        yield Children(
            [places.get(_next(queue, depth), 0) for queue in rung],
            [len(queue.climb) == depth for queue in rung],
            list(map(pick, map(_usage, rung))),
            list(map(_share, rung)),
            range(len(rung)),
            [pick(queue.basis_scales) for queue in rung],
        )
        depth -= 1


def _wanted(burst: Burst, turns: Turns) -> dict[Limiter, Amounts]:
    """Return, by limit and column, the amount that would be charged if all asks were placed."""
    wanted: dict[Limiter, Amounts] = {}
    for application, after in zip(burst.applications, turns.usage[0], strict=True):
        if application.limiters:
            before = application.usage
            own = [much - before[at] for at, much in zip(burst.columns, after, strict=True)]
            for limiter in application.limiters:
                known = wanted.get(limiter)
                wanted[limiter] = own if known is None else list(map(int.__add__, known, own))
    return wanted


def _is_headroom_left(burst: Burst, wanted: dict[Limiter, Amounts]) -> bool:
    """Return whether every limit has headroom for the whole amount that would be charged to it."""
    return all(
        not much or much <= limiter.headroom[at]
        for limiter, sums in wanted.items()
        for at, much in zip(burst.columns, sums, strict=True)
    )


# Placing ------------------------------------------------------------------------------------------------------------


def _place(partition: Partition, now: int) -> list[Ask]:
    """Place the unqueued asks in their order until an ask finds no node, and return the placed asks.

    Place no ask if the batch is not simple, or if a limit could be reached.
    """
    burst = _gather(_free(partition, partition.unqueued))
    turns = _turns(burst) if _is_simple(partition, burst) else None
    if turns is None or not _is_headroom_left(burst, wanted := _wanted(burst, turns)):
        return []
    asks = burst.asks
    line = list(map(asks.__getitem__, turns.order))
    nodes = take_nodes_fast(partition.index, map(_ask_class, line))
    assigned = line[: len(nodes)]
    journal_fast.assign(partition, assigned, nodes, now)
    if len(assigned) == len(asks):
        _charge(burst, turns, wanted)
    else:
        for ask in assigned:
            usage.charge(ask.application, ask.ask_class.demand)
    if len(assigned) == len(partition.unqueued):
        partition.unqueued = []
        partition.numbers += turns.groups  # as if they had waited in groups
    else:
        _leave_rest(partition)
    return assigned


def _leave_rest(partition: Partition) -> None:
    """Sort the asks that found no node by group, and keep them unqueued.

    When these asks are enqueued later, their groups are created in the order of the first ask of each group.
    """
    asks = partition.unqueued
    partition.unqueued = rest = [ask for ask in asks if ask.node is None]
    firsts = {group: at for at, group in reversed(list(enumerate(map(_group, asks))))}
    rest.sort(key=lambda ask: firsts[_group(ask)])
    partition.numbers += len(firsts) - len(set(map(_group, rest)))


def _charge(burst: Burst, turns: Turns, wanted: dict[Limiter, Amounts]) -> None:
    columns, amounts, shares = burst.columns, turns.usage, turns.shares
    journal_fast.charge_limits(columns, wanted)
    journal_fast.charge_applications(
        columns, zip(burst.applications, amounts[0], shares[0], strict=True)
    )
    depth = len(burst.rungs)
    for rung, usage_of, shares_of in zip(burst.rungs, amounts[1:], shares[1:], strict=True):
        after = zip(rung, usage_of, shares_of, strict=True)
        journal_fast.charge_queues(columns, (line for line in after if len(line[0].climb) == depth))
        depth -= 1
