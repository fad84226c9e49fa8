"""Hypothetical snapshots: copies of the snapshot of a partition, each with one change.

The planner is called on such a snapshot to find what it would do after the change.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from server.kernels.fit import Array, Mask
from server.model.quota import QueueSpec
from server.snapshot.columns import NodeColumns
from server.snapshot.queues import FrozenAmounts
from server.snapshot.snapshot import Snapshot
from server.snapshot.waiting import ClassFacts, WaitingAsk


def with_queue(snapshot: Snapshot, path: str, **fields: Any) -> Snapshot:  # noqa: ANN401 - fields of QueueFacts
    """Return a snapshot in which the facts of one queue have these values."""
    queues = dict(snapshot.queues)
    queues[path] = replace(queues[path], **fields)
    return replace(snapshot, queues=MappingProxyType(queues))


def with_max(snapshot: Snapshot, path: str, more: Mapping[int, int]) -> Snapshot:
    """Return a snapshot in which a queue's maximum is raised by ``more``, by type index.

    Types without a maximum stay without a maximum.
    """
    before = snapshot.queues[path].max
    most = tuple(
        None if one is None else one + more.get(index, 0) for index, one in enumerate(before)
    )
    return with_queue(snapshot, path, max=most)


def with_guaranteed(snapshot: Snapshot, path: str, guaranteed: FrozenAmounts) -> Snapshot:
    """Return a snapshot in which a queue has another guarantee, in its facts and in its specification."""
    named = tuple(
        (name, amount) for name, amount in zip(snapshot.types, guaranteed, strict=True) if amount
    )
    spec = replace(snapshot.queues[path].spec, guaranteed=tuple(sorted(named)))
    return with_queue(snapshot, path, guaranteed=guaranteed, spec=spec)


def with_properties(snapshot: Snapshot, path: str, **properties: Any) -> Snapshot:  # noqa: ANN401 - of QueueProperties
    """Return a snapshot in which a queue has other properties. The queues below it keep their properties."""
    spec: QueueSpec = snapshot.queues[path].spec
    return with_queue(
        snapshot, path, spec=replace(spec, properties=replace(spec.properties, **properties))
    )


def with_settings(snapshot: Snapshot, **settings: Any) -> Snapshot:  # noqa: ANN401 - of PreemptionSettings
    """Return a snapshot with other settings in the partition's `preemption` section."""
    return replace(snapshot, settings=replace(snapshot.settings, **settings))


def at(snapshot: Snapshot, instant: int) -> Snapshot:
    """Return the snapshot with a later instant and no other change."""
    return replace(snapshot, now=instant)


def saying(ask: WaitingAsk, **fields: Any) -> WaitingAsk:  # noqa: ANN401 - fields of AskSpec
    """Return the ask with the given fields of its spec changed."""
    return ask._replace(spec=replace(ask.spec, **fields))


def with_open_node(snapshot: Snapshot, row: int) -> Snapshot:
    """Return a snapshot in which a node takes placements again."""
    opened = snapshot.nodes.open.copy()
    opened[row] = True
    return replace(snapshot, nodes=replace(snapshot.nodes, open=opened))


def closed_nodes(snapshot: Snapshot, kind: ClassFacts) -> list[int]:
    """Return the rows of the nodes that take no placements but satisfy the ask's constraint, in the order of arrival.

    Capacity is not checked. Nodes whose pods are not all known are left out.
    """
    nodes = snapshot.nodes
    rows = np.flatnonzero((nodes.numbers > 0) & ~nodes.open & nodes.opened & kind.allowed)
    found: list[int] = rows[nodes.numbers[rows].argsort(kind="stable")].tolist()
    return found


def with_node(snapshot: Snapshot, shape: Mapping[int, int], name: str) -> Snapshot:
    """Return a snapshot with one more node, which has this name. ``shape`` is the capacity of the new node by type index."""
    nodes = snapshot.nodes
    line = np.zeros((1, len(snapshot.types)), dtype=np.int64)
    for index, quantity in shape.items():
        line[0, index] = quantity
    added = NodeColumns(
        ids=(*nodes.ids, name),
        numbers=_and(nodes.numbers, int(nodes.numbers.max(initial=0)) + 1),
        capacity=np.concatenate([nodes.capacity, line]),
        free=np.concatenate([nodes.free, line]),
        releasing=np.concatenate([nodes.releasing, np.zeros_like(line)]),
        reserved=np.concatenate([nodes.reserved, np.zeros_like(line)]),
        open=_with(nodes.open, value=True),
        opened=_with(nodes.opened, value=True),
        held=_with(nodes.held, value=False),
        names=_and(nodes.names, int(nodes.names.max(initial=0)) + 1),
    )
    capacity = tuple(
        whole + (0 if port else shape.get(index, 0))
        for index, (whole, port) in enumerate(zip(snapshot.capacity, snapshot.ports, strict=True))
    )
    return replace(snapshot, nodes=added, node_count=snapshot.node_count + 1, capacity=capacity)


def suited(kind: ClassFacts) -> ClassFacts:
    """Return the class as it is needed in a snapshot with one more node: the constraint of the class allows the new node, too."""
    return replace(kind, number=-kind.number, allowed=_with(kind.allowed, value=True))


def _and(column: Array, value: int) -> Array:
    return np.append(column, np.array([value], dtype=np.int64))


def _with(column: Mask, *, value: bool) -> Mask:
    return np.append(column, np.array([value], dtype=np.bool_))


def free_in_sum(snapshot: Snapshot, kind: ClassFacts) -> tuple[int, ...]:
    """Return, for each type, the free capacity of all open nodes that the ask's constraint allows.

    Capacity that is being released counts as free, as does capacity of pledges that give way to claims. A node whose free
    capacity is negative adds 0.
    """
    nodes = snapshot.nodes
    rows = nodes.open & kind.allowed
    free = np.maximum(nodes.free[rows] + nodes.releasing[rows] + nodes.reserved[rows], 0)
    found: list[int] = free.sum(axis=0).tolist()
    return tuple(found)
