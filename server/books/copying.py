"""An independent copy of an object graph, for what-if runs of the whole core beside the live one.

A copy is made in two steps. `capture` reads the graph while nothing changes it: the contents of each mutable object, class
by class, mostly in C, about 4 ms for each thousand allocations. `Captured.rebuild` makes new objects of that, in any thread
and however long it takes, for the contents that were read belong to the capture alone.

Values that nothing changes are shared by both graphs: strings, numbers, enumerations, frozen dataclasses, functions, and
tuples and frozen sets of those. All else is copied once, so that two references to one object are two references
to one copy, and what is compared by identity stays comparable. Objects of any class with slots or a dictionary are copied
without a word about the class here, so that a field that is added later is copied, too.
"""

import enum
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import is_dataclass
from itertools import chain, compress
from operator import attrgetter
from types import BuiltinFunctionType, FunctionType, MappingProxyType
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

import numpy as np

_SHARED: Final = (
    str,
    bytes,
    int,
    float,
    frozenset,
    enum.Enum,
    type,
    FunctionType,
    BuiltinFunctionType,
    MappingProxyType,
    property,
    type(None),
)
_Root = TypeVar("_Root")
_UNSET: Final = object()
"""In the place of a slot that has no value."""


class _Batch(NamedTuple):
    """Objects of one class, and of each the contents as they were: a tuple of slots, or a container of the same kind."""

    cls: type
    objects: Sequence[Any]
    contents: Sequence[Any]


class Captured(Generic[_Root]):
    """The contents of a graph at one instant. It keeps the objects that were read alive, and reads them no more."""

    def __init__(self, root: _Root) -> None:
        """Read everything that is reachable from ``root``; nothing may change meanwhile."""
        self._root = root
        self._batches: list[_Batch] = []
        known: dict[int, object] = {}
        found: dict[int, object] = {id(root): root}
        while found:
            known |= found
            beyond: dict[int, object] = {}
            for cls, objects in _by_class(found.values()).items():
                batch = _Batch(cls, objects, _contents(cls, objects))
                self._batches.append(batch)
                for line in _referred(batch):
                    beyond |= _copied(line)
            found = {key: beyond[key] for key in beyond.keys() - known.keys()}

    @property
    def count(self) -> int:
        """How many objects there are, tuples included."""
        return sum(len(batch.objects) for batch in self._batches)

    def rebuild(self) -> _Root:
        """Make the copy; gives the one of the root."""
        made: dict[int, Any] = {}
        batches = [one for one in self._batches if not issubclass(one.cls, tuple)]
        for batch in batches:
            copies = _blank(batch)
            made |= zip(map(id, batch.objects), copies, strict=True)
        renew = _Renewal(made)
        for batch in batches:
            _fill(batch, [made[id(one)] for one in batch.objects], renew)
        return cast("_Root", renew(self._root))


def dismantle(root: object) -> None:
    """Take a graph that is not used any more apart, so that its objects end at once and not at a collection of garbage."""
    for batch in Captured(root)._batches:
        slots = _slots(batch.cls)
        for one in batch.objects:
            if slots:
                for name in slots:
                    if hasattr(one, name):
                        delattr(one, name)
            elif issubclass(batch.cls, (dict, list, set, deque)):
                one.clear()
            elif hasattr(one, "__dict__"):
                one.__dict__.clear()


# What is read ---------------------------------------------------------------------------------------------------------


_KINDS: Final[dict[type, bool]] = {}
_SLOTS: Final[dict[type, tuple[str, ...]]] = {}


def _is_shared(cls: type) -> bool:
    """Are objects of the class the same for both graphs?"""
    known = _KINDS.get(cls)
    if known is None:
        frozen = is_dataclass(cls) and cls.__dataclass_params__.frozen  # type: ignore[attr-defined]
        container = issubclass(cls, (tuple, dict, list, set, deque, bytearray, np.ndarray))
        stateless = not (container or _slots(cls) or cls.__dictoffset__)
        known = _KINDS[cls] = frozen or issubclass(cls, _SHARED) or stateless
    return known


def _copied(line: Sequence[Any]) -> dict[int, Any]:
    """By identity what of the line is not shared."""
    mine = {cls for cls in set(map(type, line)) if not _is_shared(cls)}
    if not mine:
        return {}
    some = list(compress(line, map(mine.__contains__, map(type, line))))
    return dict(zip(map(id, some), some, strict=True))


def _slots(cls: type) -> tuple[str, ...]:
    known = _SLOTS.get(cls)
    if known is None:
        named: list[str] = []
        for base in () if issubclass(cls, tuple) else cls.__mro__:
            own = base.__dict__.get("__slots__", ())
            named += (own,) if isinstance(own, str) else own
        known = _SLOTS[cls] = tuple(
            name for name in named if name not in {"__dict__", "__weakref__"}
        )
    return known


def _by_class(objects: Iterable[object]) -> dict[type, list[Any]]:
    found: dict[type, list[Any]] = {}
    for one in objects:
        found.setdefault(type(one), []).append(one)
    return found


def _contents(cls: type, objects: Sequence[Any]) -> Sequence[Any]:
    """Of each object what is in it, in a container of its own."""
    slots = _slots(cls)
    if slots:
        return _slotted(slots, objects)
    if issubclass(cls, tuple):
        return objects
    if issubclass(cls, np.ndarray):
        return [one.copy() if one.flags.writeable else one for one in objects]
    if issubclass(cls, bytearray):
        return [bytes(one) for one in objects]
    if issubclass(cls, dict):
        return list(map(dict, objects))
    if issubclass(cls, (list, set, deque)):
        return list(map(list, objects))
    return [dict(one.__dict__) for one in objects]


def _slotted(slots: tuple[str, ...], objects: Sequence[Any]) -> Sequence[tuple[Any, ...]]:
    get = attrgetter(*slots)
    try:
        return list(map(get, objects)) if len(slots) > 1 else [(get(one),) for one in objects]
    except AttributeError:
        return [tuple(getattr(one, name, _UNSET) for name in slots) for one in objects]


def _referred(batch: _Batch) -> Iterable[Sequence[Any]]:
    """What the objects of a batch refer to, in lines of things that are alike."""
    cls, contents = batch.cls, batch.contents
    if issubclass(cls, (np.ndarray, bytearray)):
        return ()
    if _slots(cls):
        return zip(*contents, strict=True)
    if issubclass(cls, (tuple, list, set, deque)):
        return (list(chain.from_iterable(contents)),)
    keys = list(chain.from_iterable(contents))
    return keys, list(chain.from_iterable(map(dict.values, contents)))


# What is made ---------------------------------------------------------------------------------------------------------


def _blank(batch: _Batch) -> list[Any]:
    """New objects of the batch, empty; arrays and bytes as they are."""
    cls, contents = batch.cls, batch.contents
    if issubclass(cls, np.ndarray):
        return [one.copy() if one.flags.writeable else one for one in contents]
    if issubclass(cls, bytearray):
        return list(map(bytearray, contents))
    if issubclass(cls, deque):
        return [deque(maxlen=one.maxlen) for one in batch.objects]
    return [cls.__new__(cls) for _ in contents]


class _Renewal:
    """Maps a value of the captured graph to the one of the copy."""

    def __init__(self, made: dict[int, Any]) -> None:
        self._made = made

    def __call__(self, value: object) -> object:
        """The copy of the value, or the value where it is shared."""
        found = self._made.get(id(value))
        if found is not None:
            return found
        return self._tuple(value) if isinstance(value, tuple) else value

    def _tuple(self, value: tuple[object, ...]) -> object:
        """A tuple of what its parts become; the same one where none of them changes."""
        parts = list(map(self, value))
        if all(new is old for new, old in zip(parts, value, strict=True)):
            return value
        made = self._made[id(value)] = tuple.__new__(type(value), parts)
        return made

    def all(self, values: Sequence[Any]) -> Sequence[Any]:
        """The copies of many values; without a look at each where all are shared."""
        if all(map(_is_shared, set(map(type, values)))):
            return values
        return list(map(self, values))


def _fill(batch: _Batch, copies: Sequence[Any], renew: _Renewal) -> None:
    """Put the contents into the copies; arrays and bytes have theirs."""
    cls = batch.cls
    slots = _slots(cls)
    if slots:
        _fill_slots(slots, batch, copies, renew)
        return
    if issubclass(cls, (np.ndarray, bytearray)):
        return
    for one, known in zip(copies, batch.contents, strict=True):
        if issubclass(cls, (list, deque)):
            one.extend(renew.all(known))
        elif issubclass(cls, set):
            one.update(renew.all(known))
        else:
            keys, values = renew.all(list(known)), renew.all(list(known.values()))
            kept = one if issubclass(cls, dict) else one.__dict__
            dict.update(kept, zip(keys, values, strict=True))


def _fill_slots(
    slots: tuple[str, ...], batch: _Batch, copies: Sequence[Any], renew: _Renewal
) -> None:
    for name, column in zip(slots, zip(*batch.contents, strict=True), strict=True):
        setter: Callable[[Any, Any], None] = getattr(batch.cls, name).__set__
        for one, value in zip(copies, renew.all(column), strict=True):
            if value is not _UNSET:
                setter(one, value)
