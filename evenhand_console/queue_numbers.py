"""The amounts of a queue in one resource type: used, guaranteed, deserved, lent, promised, max and unmet."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from evenhand.v1 import inspect_pb2
from evenhand_cli.faults import Fault
from evenhand_cli.near import near_matches
from evenhand_cli.render.amounts import in_order
from evenhand_console.bars import Bar, bar


@dataclass(frozen=True, slots=True)
class Numbers:
    """The amounts of a queue in one resource type. An amount is None if the queue has no such limit or share."""

    kind: str
    used: int
    guaranteed: int | None
    deserved: int | None
    lent: int
    """The part of the guarantee, or of the deserved share, that other queues use."""
    promised: int
    max: int | None
    waiting: int
    unmet: int
    """The amount of its entitlement that the queue lacks and for which asks wait."""
    bar: Bar


@dataclass(frozen=True, slots=True)
class Placed:
    """A queue with its place in the tree of queues."""

    queue: inspect_pb2.Queue
    depth: int
    limits: Mapping[str, int]
    """The smallest max of the queue and of all queues above it."""
    lent: Mapping[str, int]


def capacity_in(partitions: Iterable[inspect_pb2.Partition], name: str) -> Mapping[str, int]:
    """Return the capacity of the partition with this name by resource type. Return an empty table if there is none."""
    return next((dict(one.capacity) for one in partitions if one.name == name), {})


def placed(root: inspect_pb2.Queue, capacity: Mapping[str, int]) -> Iterator[Placed]:
    """Yield each queue of a tree, parents before their children."""
    stack = [Placed(root, 0, _limits(capacity, root), {})]
    while stack:
        one = stack.pop()
        yield one
        children = list(one.queue.children)
        lent = lending(children)
        stack += [
            Placed(child, one.depth + 1, _limits(one.limits, child), lent[child.path])
            for child in reversed(children)
        ]


def at_path(root: inspect_pb2.Queue, capacity: Mapping[str, int], path: str) -> Placed:
    """Return the queue at a path, or the root if the path is empty. Raises Fault if there is no such queue."""
    every = list(placed(root, capacity))
    wanted = path or root.path
    found = next((one for one in every if one.queue.path == wanted), None)
    if found is None:
        near = near_matches(path, [one.queue.path for one in every])
        advice = near or "choose one on the page of all queues"
        raise Fault(f"there is no queue `{path}`", where="argument queue", advice=advice)
    return found


def lending(siblings: Sequence[inspect_pb2.Queue]) -> dict[str, dict[str, int]]:
    """Return, by path and resource type, the amount that each sibling lends.

    If shares follow weights, the core reports how much of a deserved share other queues use. Otherwise some siblings use more
    than their guarantees. The other siblings lend them that amount, in proportion to the unused parts of their own guarantees.
    """
    lent: dict[str, dict[str, int]] = {}
    for one in siblings:
        lent[one.path] = dict(one.proportional_share.preempting)
    for kind in {kind for one in siblings for kind in one.guaranteed}:
        unused = {
            one.path: max(
                0, one.guaranteed[kind] - one.usage.get(kind, 0) - one.promised.get(kind, 0)
            )
            for one in siblings
            if kind in one.guaranteed and kind not in one.proportional_share.deserved
        }
        borrowed = sum(
            max(0, one.usage.get(kind, 0) - one.guaranteed.get(kind, 0)) for one in siblings
        )
        total = sum(unused.values())
        for path, part in unused.items():
            lent[path][kind] = min(part, borrowed * part // total) if total else 0
    return lent


def kinds_of(one: Placed) -> list[str]:
    """Return the resource types that a queue uses, wants, or has an amount for."""
    queue = one.queue
    share = queue.proportional_share.deserved
    return in_order((*queue.guaranteed, *queue.max, *queue.usage, *queue.pending, *share))


def numbers(one: Placed, kind: str) -> Numbers:
    """Return the numbers of a queue in a resource type."""
    queue = one.queue
    deserved = _at(queue.proportional_share.deserved, kind)
    guaranteed, own_max = _at(queue.guaranteed, kind), _at(queue.max, kind)
    used, promised = queue.usage.get(kind, 0), queue.promised.get(kind, 0)
    waiting = queue.pending.get(kind, 0)
    entitled = max(guaranteed or 0, queue.proportional_share.entitled.get(kind, 0))
    held = used - queue.releasing.get(kind, 0) + promised
    unmet = max(0, min(entitled - held, waiting))
    shown = {
        "used": used,
        "promised": promised,
        "guaranteed": guaranteed,
        "deserved": deserved,
        "max": own_max,
    }
    known = {name: value for name, value in shown.items() if value is not None}
    drawn = bar(kind, known, one.limits.get(kind, 0), short=unmet > 0)
    lent = one.lent.get(kind, 0)
    return Numbers(kind, used, guaranteed, deserved, lent, promised, own_max, waiting, unmet, drawn)


def unmet_of(queue: inspect_pb2.Queue) -> dict[str, int]:
    """Return, by resource type, the amount that a queue lacks of its entitlement, at most the amount for which asks wait."""
    one = Placed(queue, 0, {}, {})
    found = {kind: numbers(one, kind).unmet for kind in kinds_of(one)}
    return {kind: value for kind, value in found.items() if value}


def _at(values: Mapping[str, int], kind: str) -> int | None:
    return values.get(kind)


def _limits(above: Mapping[str, int], queue: inspect_pb2.Queue) -> dict[str, int]:
    kinds = {*above, *queue.max}
    return {
        kind: min(values[kind] for values in (above, queue.max) if kind in values) for kind in kinds
    }
