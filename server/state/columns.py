"""The arrays behind a snapshot: rows of nodes and of allocations. These arrays are filled only when a snapshot is taken (design 6.1).

A placement changes Python objects and adds its ask to a set of changed asks. A changed node adds its slot to a set of dirty
slots. This module writes both sets into the rows, and copies the changed arrays for the next snapshot. Arrays that did not
change are shared with the previous snapshot.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from server.kernels.fit import Array, Mask
from server.model.asks import AskSpec
from server.model.fit import Demand
from server.model.parts import Parts
from server.snapshot.columns import (
    NOT_STARTED,
    RELEASING,
    REPLACED,
    VETOED,
    AllocationColumns,
    NodeColumns,
    flags_of,
)
from server.snapshot.queue_tables import QueueTables
from server.snapshot.queues import QueueFacts

if TYPE_CHECKING:
    from server.state.applications import Ask
    from server.state.nodes import Node

Table = npt.NDArray[Any]
_Item = TypeVar("_Item")
ROWS_OF_PART: Final = 2_000
"""The largest number of rows that one part of the work writes. A part takes 3 to 5 ms."""


class NodeRows:
    """One row for each node slot of the partition, including slots without a node."""

    __slots__ = (
        "_capacity",
        "_free",
        "_frozen",
        "_held",
        "_ids",
        "_names",
        "_numbers",
        "_open",
        "_opened",
        "_reserved",
        "count",
    )

    def __init__(self) -> None:
        self.count = 0
        self._ids: list[str] = []
        self._names: Array | None = None
        self._numbers = np.zeros(0, dtype=np.int64)
        self._capacity = np.zeros((0, 0), dtype=np.int64)
        self._free = np.zeros((0, 0), dtype=np.int64)
        self._reserved = np.zeros((0, 0), dtype=np.int64)
        self._open = np.zeros(0, dtype=np.bool_)
        self._opened = np.zeros(0, dtype=np.bool_)
        self._held = np.zeros(0, dtype=np.bool_)
        self._frozen: NodeColumns | None = None

    def widen(self, width: int) -> None:
        """Add columns for more resource types.

        Afterwards the rows of all nodes must be filled again, because the nodes may have amounts of the new types.
        """
        self._capacity = _widened(self._capacity, width)
        self._free = _widened(self._free, width)
        self._reserved = _widened(self._reserved, width)

    def fill(self, slots: Sequence[int], nodes: Sequence["Node | None"]) -> Parts[None]:
        """Write, in parts, the rows of the nodes in these slots. ``nodes`` has one item for each slot of the partition.

        If a slot is empty, ``nodes`` has None in place of its node.
        """
        if not slots:
            return
        self._grow(max(slots) + 1)
        self._frozen = None
        for some in _pieces(slots):
            self._write(some, [nodes[slot] for slot in some])
            if len(slots) > ROWS_OF_PART:
                yield

    def _write(self, slots: Sequence[int], nodes: Sequence["Node | None"]) -> None:
        nothing = [0] * self._capacity.shape[1]
        for slot, node in zip(slots, nodes, strict=True):
            name = node.node_id if node else ""
            if self._ids[slot] != name:
                self._ids[slot], self._names = name, None
        at = list(slots)
        self._numbers[at] = [node.number if node else 0 for node in nodes]
        self._capacity[at] = [node.capacity if node else nothing for node in nodes]
        self._free[at] = [node.free if node else nothing for node in nodes]
        self._reserved[at] = [_reserved(node, nothing) for node in nodes]
        self._open[at] = [node is not None and node.entry is not None for node in nodes]
        self._opened[at] = [node is not None and node.opened for node in nodes]
        self._held[at] = [node is not None and bool(node.pledges) for node in nodes]

    def _grow(self, rows: int) -> None:
        self.count = max(self.count, rows)
        self._ids += [""] * (self.count - len(self._ids))
        self._numbers = _grown(self._numbers, rows)
        self._capacity = _grown(self._capacity, rows)
        self._free = _grown(self._free, rows)
        self._reserved = _grown(self._reserved, rows)
        self._open = _grown(self._open, rows)
        self._opened = _grown(self._opened, rows)
        self._held = _grown(self._held, rows)

    def freeze(self, releasing: Array) -> NodeColumns:
        """Return the rows in the form in which a snapshot holds them.

        If the rows and ``releasing`` are the same as before, return the previous object.
        """
        if self._frozen is None or self._frozen.releasing is not releasing:
            rows = self.count
            self._frozen = NodeColumns(
                tuple(self._ids),
                _frozen(self._numbers[:rows]),
                _frozen(self._capacity[:rows]),
                _frozen(self._free[:rows]),
                releasing,
                _frozen(self._reserved[:rows]),
                _frozen(self._open[:rows]),
                _frozen(self._opened[:rows]),
                _frozen(self._held[:rows]),
                self._places(),
            )
        return self._frozen

    def _places(self) -> Array:
        """Return, for each row, the rank of its node id among all node ids. Ranks are recomputed only when an id changed."""
        if self._names is None:
            places = np.zeros(len(self._ids), dtype=np.int64)
            places[sorted(range(len(self._ids)), key=self._ids.__getitem__)] = np.arange(
                len(places)
            )
            places.flags.writeable = False
            self._names = places
        return self._names


def _reserved(node: "Node | None", nothing: list[int]) -> list[int]:
    """Return, by type, the capacity of those pledges on the node, such as reservations, that give way to claims."""
    if node is None or not node.pledges:
        return nothing
    sums = list(nothing)
    for held in node.pledges.values():
        for index, quantity in held.node_demand if held.reserves else ():
            sums[index] += quantity
    return sums


class AllocationRows:
    """One row for each allocation, at the index `Ask.row`. Rows of ended allocations are reused.

    ``_facts`` has the other whole numbers of allocations, such as priorities: one line for each kind of number, with one item
    for each row.
    """

    __slots__ = (
        "_alive",
        "_application_ids",
        "_demands",
        "_empty",
        "_facts",
        "_frozen",
        "_keys",
        "_nothing",
        "_resources",
        "_specs",
    )

    def __init__(self) -> None:
        self._empty: list[int] = []
        self._keys: list[str] = []
        self._application_ids: list[str] = []
        self._specs: list[AskSpec | None] = []
        self._demands: list[Demand] = []
        self._alive = np.zeros(0, dtype=np.bool_)
        self._facts = np.zeros((8, 0), dtype=np.int64)
        self._resources = np.zeros((0, 0), dtype=np.int64)
        self._nothing = np.zeros((0, 0), dtype=np.int64)
        self._frozen: AllocationColumns | None = None

    def widen(self, width: int) -> None:
        """Add columns for more resource types. No running allocation holds any amount of these types yet."""
        self._resources = _widened(self._resources, width)
        self._frozen = None

    def fill(self, changed: Collection["Ask"]) -> Parts[None]:
        """Write, in parts, the rows of changed asks.

        Afterwards each of these asks has a row if it has a node, and no row otherwise. The number of a row does not depend on
        the size of a part.
        """
        is_long = len(changed) > ROWS_OF_PART
        placed: list[Ask] = []
        gone: list[Ask] = []
        fresh = 0
        for some in _pieces(list(changed)):
            here = [ask for ask in some if ask.node is not None]
            placed += here
            fresh += len([ask for ask in here if ask.row < 0])
            gone += [ask for ask in some if ask.node is None and ask.row >= 0]
            if is_long:
                yield
        if not (gone or placed):
            return
        self._frozen = None
        for some in _pieces(gone):
            self._forget(some)
            if is_long:
                yield
        self._grow(len(self._keys) + max(fresh - len(self._empty), 0))
        for some in _pieces(placed):
            if is_long:
                yield
            self._place(some)
            self._write(some)

    def _forget(self, gone: Sequence["Ask"]) -> None:
        rows = [ask.row for ask in gone]
        self._alive[rows] = False
        self._facts[:, rows] = 0
        self._empty += rows
        for ask in gone:
            self._keys[ask.row] = self._application_ids[ask.row] = ""
            self._specs[ask.row] = None
            self._demands[ask.row] = ()
            ask.row = -1

    def _place(self, placed: Sequence["Ask"]) -> None:
        """Give a row to each ask that has none. Write the keys and specs of all asks in ``placed`` again."""
        empty, keys, application_ids = self._empty, self._keys, self._application_ids
        specs, demands = self._specs, self._demands
        for ask in placed:
            if ask.row < 0:
                ask.row = empty.pop()
            row = ask.row
            keys[row] = ask.key
            application_ids[row] = ask.application.application_id
            specs[row] = ask.spec
            demands[row] = ask.ask_class.demand

    def _grow(self, rows: int) -> None:
        added = rows - len(self._keys)
        if added == 0:
            return
        self._empty += range(rows - 1, len(self._keys) - 1, -1)
        self._keys += [""] * added
        self._application_ids += [""] * added
        self._specs += [None] * added
        self._demands += [()] * added
        self._alive = _grown(self._alive, rows)
        self._facts = np.ascontiguousarray(_grown(self._facts.T, rows).T)
        self._resources = _grown(self._resources, rows)

    def _write(self, placed: Sequence["Ask"]) -> None:
        """Write the whole numbers of asks. Numbers that all asks of a spec or application have in common are computed once."""
        rows = _ints([ask.row for ask in placed])
        samples = {ask.spec: ask for ask in placed}
        kind = _numbers([ask.spec for ask in placed], samples)
        owners = [ask.application for ask in placed]
        applications = dict.fromkeys(owners)
        owner = _numbers(owners, applications)
        lines = (
            _ints([ask.node.slot if ask.node else -1 for ask in placed]),
            _ints([one.leaf.number for one in applications])[owner],
            _ints([one.number for one in applications])[owner],
            _ints([spec.priority for spec in samples])[kind],
            _flags(placed, _ints([flags_of(spec) for spec in samples])[kind]),
            _ints([ask.created_ms for ask in placed]),
            _ints([NOT_STARTED if ask.started_ms is None else ask.started_ms for ask in placed]),
            _gangs(placed, _ints([spec.min_members for spec in samples])[kind] > 1),
        )
        for fact, line in zip(self._facts, lines, strict=True):
            fact[rows] = line
        self._alive[rows] = True
        self._resources[rows] = _resources(samples.values(), self._resources.shape[1])[kind]

    def freeze(self) -> AllocationColumns:
        """Return the rows in the form in which a snapshot holds them. If nothing changed, return the previous object."""
        if self._frozen is None:
            rows = len(self._keys)
            facts = _frozen(self._facts[:, :rows])
            nodes, leaves, applications, priorities, flags, created_ms, started_ms, gangs = facts
            self._frozen = AllocationColumns(
                tuple(self._keys),
                tuple(self._application_ids),
                tuple(self._specs),
                tuple(self._demands),
                _frozen(self._alive[:rows]),
                _frozen(self._alive[:rows] & (flags & RELEASING == 0)),
                nodes,
                leaves,
                applications,
                priorities,
                flags,
                created_ms,
                started_ms,
                gangs,
                _frozen(self._resources[:rows]),
            )
        return self._frozen

    def dying(self) -> list[str]:
        """Return the keys of the allocations whose release was ordered and is not confirmed."""
        return [self._keys[row] for row in np.flatnonzero(self._facts[4] & RELEASING).tolist()]

    def releasing(self, nodes: int) -> Array:
        """Return the amounts that terminating allocations will free, one row for each node.

        If no allocation terminates, the result is one shared array of zeros.
        """
        rows = np.flatnonzero(self._facts[4] & RELEASING)
        shape = (nodes, self._resources.shape[1])
        if len(rows):
            sums = np.zeros(shape, dtype=np.int64)
            np.add.at(sums, self._facts[0].take(rows), self._resources.take(rows, axis=0))
            return _frozen(sums)
        if self._nothing.shape != shape:
            self._nothing = _frozen(np.zeros(shape, dtype=np.int64))
        return self._nothing


class Columns:
    """The rows of the nodes and allocations of one partition, with one column for each known resource type.

    ``queues`` has the facts of the queues in the previous snapshot. ``changed`` has the allocations that must be written to the
    rows. An allocation that began and ended since the last snapshot is not among them.
    """

    __slots__ = ("allocations", "changed", "nodes", "queues", "tables", "width")

    def __init__(self) -> None:
        self.width = 0
        self.nodes = NodeRows()
        self.allocations = AllocationRows()
        self.changed: dict[Ask, None] = {}
        self.queues: MappingProxyType[str, QueueFacts] = MappingProxyType({})
        self.tables = QueueTables()

    def widen(self, width: int) -> bool:
        """Add columns up to this number of resource types.

        Return whether any were added. After columns were added, the rows of all nodes must be filled again.
        """
        if width == self.width:
            return False
        self.width = width
        self.nodes.widen(width)
        self.allocations.widen(width)
        return True


def _resources(samples: Iterable["Ask"], width: int) -> Array:
    """Return one line for each sample ask: the amounts that it takes on its node, ports included.

    One sample is enough for all asks of one spec, because their lines are equal.
    """
    lines = [ask.ask_class.node_demand for ask in samples]
    table = np.zeros((len(lines), width), dtype=np.int64)
    for line, demand in enumerate(lines):
        for index, quantity in demand:
            table[line, index] = quantity
    return table


def _flags(placed: Sequence["Ask"], flags: Array) -> Array:
    """Complete ``flags`` with the flags that the allocations got after their placement.

    Before the call, ``flags`` has the flags of the specs. Return the changed array.
    """
    moved = [
        (at, ask)
        for at, ask in enumerate(placed)
        if ask.releasing or ask.vetoed or ask.released_by is not None
    ]
    flags[[at for at, ask in moved if ask.releasing]] |= RELEASING
    flags[[at for at, ask in moved if ask.vetoed]] |= VETOED
    flags[[at for at, ask in moved if ask.is_replaced]] |= REPLACED
    return flags


def _gangs(placed: Sequence["Ask"], members: Mask) -> Array:
    """Return, for each ask, the number of its gang, 0 if it has no gang. ``members`` marks the asks that are gang members."""
    found = np.zeros(len(placed), dtype=np.int64)
    for at in np.flatnonzero(members).tolist():
        ask = placed[at]
        gang = ask.application.gangs.get(ask.spec.gang_key)
        found[at] = 0 if gang is None else gang.number
    return found


def _pieces(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    """Yield the items in order, at most `ROWS_OF_PART` at a time."""
    for at in range(0, len(items), ROWS_OF_PART):
        yield items[at : at + ROWS_OF_PART]


def _numbers(items: Iterable[_Item], known: Iterable[_Item]) -> Array:
    """Return, for each item, its position among the known items."""
    places = {one: place for place, one in enumerate(known)}
    return _ints(list(map(places.__getitem__, items)))


def _ints(values: Sequence[int]) -> Array:
    return np.array(values, dtype=np.int64)


def _grown(array: Table, rows: int) -> Table:
    """Return the array with at least this many rows. If it has to grow, the number of rows is at least doubled."""
    if rows <= len(array):
        return array
    longer = np.zeros((max(rows, 2 * len(array)), *array.shape[1:]), dtype=array.dtype)
    longer[: len(array)] = array
    return longer


def _widened(array: Table, width: int) -> Table:
    wider = np.zeros((len(array), width), dtype=array.dtype)
    wider[:, : array.shape[1]] = array
    return wider


def _frozen(array: Table) -> Table:
    copy = array.copy()
    copy.flags.writeable = False
    return copy
