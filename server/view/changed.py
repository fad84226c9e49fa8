"""The hypothetical Views: the same partition with one thing changed, so that the planner says what it would do then."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from server.kernels.fit import Array, Mask
from server.model.quota import QueueSpec
from server.view.columns import NodeColumns
from server.view.queues import FrozenAmounts
from server.view.view import View
from server.view.waiting import ClassFacts, WaitingAsk


def with_queue(view: View, path: str, **fields: Any) -> View:  # noqa: ANN401 - fields of QueueFacts
    """Return a View in which one queue has other facts."""
    queues = dict(view.queues)
    queues[path] = replace(queues[path], **fields)
    return replace(view, queues=MappingProxyType(queues))


def with_max(view: View, path: str, more: Mapping[int, int]) -> View:
    """Return a View in which a queue's maximum is larger by so much, by type index."""
    before = view.queues[path].max
    most = tuple(
        None if one is None else one + more.get(index, 0) for index, one in enumerate(before)
    )
    return with_queue(view, path, max=most)


def with_guaranteed(view: View, path: str, guaranteed: FrozenAmounts) -> View:
    """Return a View in which a queue has another guarantee, in its specification too."""
    named = tuple(
        (name, amount) for name, amount in zip(view.types, guaranteed, strict=True) if amount
    )
    spec = replace(view.queues[path].spec, guaranteed=tuple(sorted(named)))
    return with_queue(view, path, guaranteed=guaranteed, spec=spec)


def with_properties(view: View, path: str, **properties: Any) -> View:  # noqa: ANN401 - of QueueProperties
    """Return a View in which a queue has other properties; those below it keep theirs."""
    spec: QueueSpec = view.queues[path].spec
    return with_queue(
        view, path, spec=replace(spec, properties=replace(spec.properties, **properties))
    )


def with_settings(view: View, **settings: Any) -> View:  # noqa: ANN401 - of PreemptionSettings
    """Return a View with other settings in the partition's `preemption` section."""
    return replace(view, settings=replace(view.settings, **settings))


def at(view: View, instant: int) -> View:
    """Return a View at a later instant, where nothing else has happened."""
    return replace(view, now=instant)


def saying(ask: WaitingAsk, **fields: Any) -> WaitingAsk:  # noqa: ANN401 - fields of AskSpec
    """Return an ask with other fields in its pod template."""
    return ask._replace(spec=replace(ask.spec, **fields))


def with_open_node(view: View, row: int) -> View:
    """Return a View in which a node takes placements again."""
    opened = view.nodes.open.copy()
    opened[row] = True
    return replace(view, nodes=replace(view.nodes, open=opened))


def closed_nodes(view: View, kind: ClassFacts) -> list[int]:
    """Return the nodes that take no placements and could hold the ask otherwise, in the order of arrival."""
    nodes = view.nodes
    rows = np.flatnonzero((nodes.numbers > 0) & ~nodes.open & nodes.opened & kind.allowed)
    found: list[int] = rows[nodes.numbers[rows].argsort(kind="stable")].tolist()
    return found


def with_node(view: View, shape: Mapping[int, int], name: str) -> View:
    """Return a View with one more node, with so much by type index."""
    nodes = view.nodes
    line = np.zeros((1, len(view.types)), dtype=np.int64)
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
        for index, (whole, port) in enumerate(zip(view.capacity, view.ports, strict=True))
    )
    return replace(view, nodes=added, node_count=view.node_count + 1, capacity=capacity)


def suited(kind: ClassFacts) -> ClassFacts:
    """Return the class in a View with one more node, which suits it."""
    return replace(kind, number=-kind.number, allowed=_with(kind.allowed, value=True))


def _and(column: Array, value: int) -> Array:
    return np.append(column, np.array([value], dtype=np.int64))


def _with(column: Mask, *, value: bool) -> Mask:
    return np.append(column, np.array([value], dtype=np.bool_))


def room_in_sum(view: View, kind: ClassFacts) -> tuple[int, ...]:
    """Return what all nodes that could take the ask have free together, by type; what is being released counts as free."""
    nodes = view.nodes
    rows = nodes.open & kind.allowed
    room = np.maximum(nodes.free[rows] + nodes.releasing[rows] + nodes.reserved[rows], 0)
    found: list[int] = room.sum(axis=0).tolist()
    return tuple(found)
