"""The amounts of a queue in one resource type: used, guaranteed, deserved, lent, promised, max and unmet."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from evenhand.v1 import inspect_pb2
from evenhand_cli.faults import Fault
from evenhand_cli.near import near_matches
from evenhand_cli.render.amounts import in_order
from evenhand_console.bars import Bar, bar

DEFAULT: Final = "default"
"""The partition that the core shows if a request names none."""


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
    """The part of the entitlement that the queue lacks, and for which asks wait."""
    bar: Bar


@dataclass(frozen=True, slots=True)
class Placed:
    """A queue with its place in the tree of queues."""

    queue: inspect_pb2.Queue
    depth: int
    limits: Mapping[str, int]
    """The smallest max of the queue and of all queues above it."""
    lent: Mapping[str, int]


def partition_named(
    partitions: Iterable[inspect_pb2.Partition], name: str
) -> inspect_pb2.Partition:
    """Return the partition with this name. If there is no such partition, return a partition without nodes, queues and pods."""
    return next((one for one in partitions if one.name == name), inspect_pb2.Partition(name=name))


def capacity_in(partitions: Iterable[inspect_pb2.Partition], name: str) -> Mapping[str, int]:
    """Return the capacity of the partition with this name by resource type.

    Return an empty table if there is no such partition.
    """
    return dict(partition_named(partitions, name).capacity)


def shown_partition(partitions: Iterable[inspect_pb2.Partition], wanted: str) -> str:
    """Return the name of the partition that the core shows: `wanted`, or the core's default if `wanted` is empty."""
    names = [one.name for one in partitions]
    return wanted or (DEFAULT if DEFAULT in names else next(iter(names), ""))


def requested_partition(wanted: str) -> str:
    """Return the name that the core will use for the partition of a request.

    The console needs this name before it has an answer of the core, which would contain the name.
    """
    return wanted.lower() or DEFAULT


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


def every_queue(root: inspect_pb2.Queue) -> Iterator[inspect_pb2.Queue]:
    """Yield each queue of a tree, parents before their children."""
    stack = [root]
    while stack:
        one = stack.pop()
        yield one
        stack += reversed(one.children)


def at_path(root: inspect_pb2.Queue, capacity: Mapping[str, int], path: str) -> Placed:
    """Return the queue at a path, or the root if the path is empty. Raises Fault if there is no such queue."""
    wanted = path or root.path
    one = Placed(root, 0, _limits(capacity, root), {})
    while one.queue.path != wanted:
        children = one.queue.children
        child = next((each for each in children if f"{wanted}.".startswith(f"{each.path}.")), None)
        if child is None:
            near = near_matches(path, [each.path for each in every_queue(root)])
            advice = near or "choose one on the page of all queues"
            raise Fault(f"there is no queue `{path}`", where="argument queue", advice=advice)
        lent = lending(children)[child.path] if child.path == wanted else {}
        one = Placed(child, one.depth + 1, _limits(one.limits, child), lent)
    return one


def lending(siblings: Sequence[inspect_pb2.Queue]) -> dict[str, dict[str, int]]:
    """Return, by path and resource type, the amount that each sibling lends.

    If shares follow weights, the core reports how much of a deserved share other queues use. If shares do not follow
    weights, the amounts that siblings use above their guarantees are added up. This sum is divided among the siblings
    that use less than their guarantees, in proportion to the unused parts of these guarantees. No sibling lends more
    than its unused part.
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
    return in_order(any_kinds_of(one.queue))


def any_kinds_of(queue: inspect_pb2.Queue) -> set[str]:
    """Return the resource types that a queue uses, wants, or has an amount for, as a set."""
    share = queue.proportional_share.deserved
    return {*queue.guaranteed, *queue.max, *queue.usage, *queue.pending, *share}


def numbers(one: Placed, kind: str) -> Numbers:
    """Return the numbers of a queue in a resource type."""
    queue = one.queue
    deserved = _at(queue.proportional_share.deserved, kind)
    guaranteed, own_max = _at(queue.guaranteed, kind), _at(queue.max, kind)
    used, promised = queue.usage.get(kind, 0), queue.promised.get(kind, 0)
    waiting = queue.pending.get(kind, 0)
    unmet = _unmet(queue, kind)
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
    """Return, by resource type, the amount that a queue lacks of its entitlement.

    The amount is limited to the amount for which asks wait.
    """
    if not queue.pending:
        return {}
    found = {kind: _unmet(queue, kind) for kind in queue.pending}
    return {kind: found[kind] for kind in in_order(kind for kind, value in found.items() if value)}


def _unmet(queue: inspect_pb2.Queue, kind: str) -> int:
    entitled = max(queue.guaranteed.get(kind, 0), queue.proportional_share.entitled.get(kind, 0))
    held = queue.usage.get(kind, 0) - queue.releasing.get(kind, 0) + queue.promised.get(kind, 0)
    return max(0, min(entitled - held, queue.pending.get(kind, 0)))


def _at(values: Mapping[str, int], kind: str) -> int | None:
    return values.get(kind)


def _limits(above: Mapping[str, int], queue: inspect_pb2.Queue) -> dict[str, int]:
    kinds = {*above, *queue.max}
    return {
        kind: min(values[kind] for values in (above, queue.max) if kind in values) for kind in kinds
    }
