"""The packing of frequent events and decisions, in fewer steps than in `rows`: a run of one kind becomes columns of MessagePack.

A *run* is a list of events or decisions of one kind that follow each other. Compiled code packs a run in about half a microsecond
for each pod. The event loop can therefore pack at once, and no object is kept for the history. From a packed run, `unpacked`
returns the same fields as the rows that the module `rows` makes from the events or decisions of the run.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple

import msgspec

from server.model.asks import AskSpec
from server.model.decisions import (
    BARRIER,
    AskState,
    AskStateChanged,
    Placed,
    Released,
    Termination,
)
from server.model.events import AllocationAdded, AskAdded, ReleaseRequested

Facts = tuple[Any, ...]
"""The fields of a row, without its kind."""


class Run(NamedTuple):
    """Packed events or decisions of one kind. ``kind`` is the name of the class of these events or decisions."""

    kind: str
    size: int
    data: bytes


def packed(values: Sequence[object]) -> list[object]:
    """Return the values, in order, with a `Run` in place of each run of a frequent kind."""
    found: list[object] = []
    for kind, group in groupby(values, type):
        run = [*group]
        pack = _PACKERS.get(kind)
        data = None if pack is None else _encoded(pack, run)
        if data is None:
            found += run
        else:
            found.append(Run(kind.__name__, len(run), data))
    return found


def unpacked(run: Run) -> Iterator[Facts]:
    """Yield the fields of the rows of a run."""
    return _READERS[run.kind](run.data)


def count(values: Iterable[object]) -> int:
    """Return the number of events and decisions among values, including those in runs."""
    return sum(one.size if type(one) is Run else 1 for one in values)


def _encoded(pack: Callable[[list[Any]], object], run: list[Any]) -> bytes | None:
    """Return a run as MessagePack. Return None if MessagePack cannot hold a value, such as a number of more than 64 bits."""
    try:
        return _ENCODER.encode(pack(run))
    except (OverflowError, UnicodeEncodeError):
        return None


class _Asks(NamedTuple):
    """The asks of a run as columns, or the part of allocations that asks also have. ``specs`` has indexes in ``templates``."""

    rm_ids: Sequence[str]
    partitions: Sequence[str]
    keys: Sequence[str]
    applications: Sequence[str]
    created: Sequence[int | None]
    templates: Sequence[tuple[tuple[tuple[str, int], ...], int]]
    specs: Sequence[int]
    tags: Sequence[tuple[bytes, ...]]

    def rows(self) -> Iterator[Facts]:
        """Yield the fields of each ask's row."""
        some = map(self.templates.__getitem__, self.specs)
        names = zip(self.rm_ids, self.partitions, self.keys, self.applications, strict=True)
        others = zip(self.created, some, self.tags, strict=True)
        for facts, (created_ms, template, tags) in zip(names, others, strict=True):
            yield (*facts, created_ms, *template, tags)


class _Allocations(NamedTuple):
    """The allocations of a run as columns: the part that asks also have, and the nodes and starts."""

    asks: _Asks
    nodes: Sequence[str]
    started: Sequence[int | None]


def _asks(run: list[AskAdded]) -> _Asks:
    rm_ids, keys, applications, specs, partitions, created, tags, _ = zip(*run, strict=True)
    return _Asks(rm_ids, partitions, keys, applications, created, *_templates(specs), tags)


def _allocations(run: list[AllocationAdded]) -> _Allocations:
    rm_ids, keys, applications, nodes, specs, *others = zip(*run, strict=True)
    partitions, created, started, _, tags, _ = others
    asks = _Asks(rm_ids, partitions, keys, applications, created, *_templates(specs), tags)
    return _Allocations(asks, nodes, started)


def _templates(specs: Sequence[AskSpec]) -> tuple[list[Any], list[int]]:
    """Return the templates of a run, each once, and for each ask the number of its template."""
    numbers = {one: at for at, one in enumerate(dict.fromkeys(specs))}
    return [(one.resource, one.priority) for one in numbers], [*map(numbers.__getitem__, specs)]


def _fields(kind: Any, *names: str) -> Callable[[list[Any]], object]:  # noqa: ANN401 - a NamedTuple
    """Return a function that reads these fields from each value of a run."""
    take = itemgetter(*map(kind._fields.index, names))
    return lambda run: [*map(take, run)]


def _read_asks(data: bytes) -> Iterator[Facts]:
    return (one for one in _ASKS.decode(data).rows() if one[_APPLICATION] != BARRIER)


def _read_allocations(data: bytes) -> Iterator[Facts]:
    found = _ALLOCATIONS.decode(data)
    for facts, node, started_ms in zip(found.asks.rows(), found.nodes, found.started, strict=True):
        yield (*facts, node, started_ms)


def _read_requests(data: bytes) -> Iterator[Facts]:
    for partition, application, key, termination, message, asks_only in _REQUESTS.decode(data):
        yield partition, application, key, _TERMINATIONS[termination], message, asks_only


def _read_placed(data: bytes) -> Iterator[Facts]:
    return iter(_PLACED.decode(data))


def _read_released(data: bytes) -> Iterator[Facts]:
    for partition, key, termination, message, decision_id in _RELEASED.decode(data):
        yield partition, key, _TERMINATIONS[termination], message, decision_id


def _read_states(data: bytes) -> Iterator[Facts]:
    for rm_id, key, code, state in _STATES.decode(data):
        yield rm_id, key, code or _STATE_NAMES[state]


_ENCODER: Final = msgspec.msgpack.Encoder()
_ASKS: Final = msgspec.msgpack.Decoder(_Asks)
_ALLOCATIONS: Final = msgspec.msgpack.Decoder(_Allocations)
_REQUESTS: Final = msgspec.msgpack.Decoder(list[tuple[str, str, str, int, str, bool]])
_PLACED: Final = msgspec.msgpack.Decoder(list[tuple[str, str, str, str]])
_RELEASED: Final = msgspec.msgpack.Decoder(list[tuple[str, str, int, str, str]])
_STATES: Final = msgspec.msgpack.Decoder(list[tuple[str, str, str, int]])
_APPLICATION: Final = _Asks._fields.index("applications")
_TERMINATIONS: Final = {int(one): one.name for one in Termination}
_STATE_NAMES: Final = {int(one): one.name.lower() for one in AskState}

_REQUEST: Final = ("partition", "application_id", "key", "termination", "message", "asks_only")
_RELEASE: Final = ("partition", "key", "termination", "message", "decision_id")
_PACKERS: Final[Mapping[type, Callable[[list[Any]], object]]] = {
    AskAdded: _asks,
    AllocationAdded: _allocations,
    ReleaseRequested: _fields(ReleaseRequested, *_REQUEST),
    Placed: _fields(Placed, "partition", "key", "node_id", "queue"),
    Released: _fields(Released, *_RELEASE),
    AskStateChanged: _fields(AskStateChanged, "rm_id", "key", "code", "state"),
}
_READERS: Final[Mapping[str, Callable[[bytes], Iterator[Facts]]]] = {
    AskAdded.__name__: _read_asks,
    AllocationAdded.__name__: _read_allocations,
    ReleaseRequested.__name__: _read_requests,
    Placed.__name__: _read_placed,
    Released.__name__: _read_released,
    AskStateChanged.__name__: _read_states,
}
