"""The copying of an object graph. A copy of the core can answer hypothetical questions while the live core continues.

A copy is made in two steps. First, `Captured` reads the contents of each mutable object, class by class. Nothing may change the
objects meanwhile. The reading is mostly done in C and takes about 2 ms for each thousand allocations. Then `Captured.rebuild`
makes new objects from these contents. The second step may run in any thread and for any time, because no other code changes the
contents that were read.

Both graphs share values that nothing changes: strings, numbers, enumerations, frozen dataclasses and functions. Tuples and
frozen sets of such values are shared as well. Every other object is copied once. Two references to one object become two
references to one copy, so that comparisons by identity still hold. This module names no class: all fields of any class with
slots or a dictionary are copied. A field that is added to a class later is copied as well.
"""

import enum
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import is_dataclass
from itertools import chain
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
"""The value that is stored in place of the content of an empty slot."""


class _Batch(NamedTuple):
    """Objects of one class, with the contents that they had when they were read (see `_contents`)."""

    cls: type
    objects: Sequence[Any]
    contents: Sequence[Any]


class Captured(Generic[_Root]):
    """The contents of an object graph at one instant. The objects that were read stay in memory, and are not read again."""

    def __init__(self, root: _Root) -> None:
        """Read everything that can be reached from ``root``. The graph must not change meanwhile."""
        self._root = root
        self._batches: list[_Batch] = []
        known: set[int] = set()
        found: dict[type, dict[int, Any]] = {type(root): {id(root): root}}
        while found:
            for objects in found.values():
                known |= objects.keys()
            beyond: dict[type, dict[int, Any]] = {}
            for cls, objects in found.items():
                every = list(objects.values())
                batch = _Batch(cls, every, _contents(cls, every))
                self._batches.append(batch)
                for line in _referred(batch):
                    _note_copied(line, known, beyond)
            found = {cls: objects for cls, objects in beyond.items() if objects}

    def rebuild(self) -> _Root:
        """Create the copy, and return its root."""
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
    """Take apart a graph that is no longer used. Its objects are freed at once, without a garbage collection."""
    for batch in Captured(root)._batches:
        slots = slots_of(batch.cls)
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
    """Return whether the copy shares the objects of this class with the original graph."""
    known = _KINDS.get(cls)
    if known is None:
        frozen = is_dataclass(cls) and cls.__dataclass_params__.frozen  # type: ignore[attr-defined]
        container = issubclass(cls, (tuple, dict, list, set, deque, bytearray, np.ndarray))
        stateless = not (container or slots_of(cls) or cls.__dictoffset__)
        known = _KINDS[cls] = frozen or issubclass(cls, _SHARED) or stateless
    return known


def _note_copied(line: Sequence[Any], known: set[int], beyond: dict[type, dict[int, Any]]) -> None:
    """Collect in ``beyond``, by class and identity, those objects of ``line`` that have to be copied and are not in ``known``.

    ``line`` has objects to which other objects refer. Objects that both graphs share are left out.
    """
    classes = set(map(type, line))
    mine = {cls for cls in classes if not _is_shared(cls)}
    if not mine or (all(issubclass(cls, tuple) for cls in mine) and _are_values(line)):
        return
    for cls in mine:
        some = line if len(classes) == 1 else [one for one in line if type(one) is cls]
        new = set(map(id, some)) - known
        noted = beyond.setdefault(cls, {})
        new -= noted.keys()
        if new:
            noted.update((id(one), one) for one in some if id(one) in new)


_DEEPEST: Final = 4
"""The largest number of levels of nested tuples that are searched."""


def _are_values(line: Sequence[Any]) -> bool:
    """Return whether all tuples of ``line`` contain only shared values, so that both graphs may share these tuples.

    Return False if tuples are nested more deeply than this function searches.
    """
    for _ in range(_DEEPEST):
        line = list(chain.from_iterable(one for one in line if isinstance(one, tuple)))
        mine = [cls for cls in set(map(type, line)) if not _is_shared(cls)]
        if not mine:
            return True
        if not all(issubclass(cls, tuple) for cls in mine):
            return False
    return False


def slots_of(cls: type) -> tuple[str, ...]:
    """Return the names of the slots of a class and of its bases. Return () for a tuple."""
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


def _contents(cls: type, objects: Sequence[Any]) -> Sequence[Any]:
    """Return the contents of objects of one class.

    For a class with slots, the result has one column for each slot: the values of the slot in all objects. For any other class,
    the result has one item for each object, such as a list of its items or a dictionary of its fields.
    """
    slots = slots_of(cls)
    if slots:
        return [_column(name, objects) for name in slots]
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


def _column(name: str, objects: Sequence[Any]) -> Sequence[Any]:
    """Return the value of one slot in all objects."""
    try:
        return list(map(attrgetter(name), objects))
    except AttributeError:
        return [getattr(one, name, _UNSET) for one in objects]


def _referred(batch: _Batch) -> Iterable[Sequence[Any]]:
    """Yield sequences with the objects to which a batch refers.

    For objects with slots, yield one sequence for each slot. For lists and sets, yield one sequence with all items. For dictionaries,
    yield one sequence with all keys and one with all values.
    """
    cls, contents = batch.cls, batch.contents
    if issubclass(cls, (np.ndarray, bytearray)):
        return ()
    if slots_of(cls):
        return contents
    if issubclass(cls, (tuple, list, set, deque)):
        return (list(chain.from_iterable(contents)),)
    keys = list(chain.from_iterable(contents))
    return keys, list(chain.from_iterable(map(dict.values, contents)))


# What is made ---------------------------------------------------------------------------------------------------------


def _blank(batch: _Batch) -> list[Any]:
    """Return new objects for the batch. The objects are empty, except arrays and bytes, which have their contents."""
    cls, contents = batch.cls, batch.contents
    if issubclass(cls, np.ndarray):
        return [one.copy() if one.flags.writeable else one for one in contents]
    if issubclass(cls, bytearray):
        return list(map(bytearray, contents))
    if issubclass(cls, deque):
        return [deque(maxlen=one.maxlen) for one in batch.objects]
    return [cls.__new__(cls) for _ in batch.objects]


class _Renewal:
    """A function that maps a value of the captured graph to the corresponding value of the copy."""

    def __init__(self, made: dict[int, Any]) -> None:
        self._made = made

    def __call__(self, value: object) -> object:
        """Return the copy of the value, or the value itself if both graphs share it."""
        found = self._made.get(id(value))
        if found is not None:
            return found
        return self._tuple(value) if isinstance(value, tuple) else value

    def _tuple(self, value: tuple[object, ...]) -> object:
        """Return a tuple with its parts copied, or the tuple itself if no part has a copy."""
        parts = list(map(self, value))
        if all(new is old for new, old in zip(parts, value, strict=True)):
            return value
        made = self._made[id(value)] = tuple.__new__(type(value), parts)
        return made

    def all(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return the copies of many values, or the given sequence if both graphs share all values."""
        if all(map(_is_shared, set(map(type, values)))):
            return values
        return list(map(self, values))


def _fill(batch: _Batch, copies: Sequence[Any], renew: _Renewal) -> None:
    """Put the contents into the copies. Arrays and bytes already have their contents."""
    cls = batch.cls
    slots = slots_of(cls)
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
    for name, column in zip(slots, batch.contents, strict=True):
        setter: Callable[[Any, Any], None] = getattr(batch.cls, name).__set__
        for one, value in zip(copies, renew.all(column), strict=True):
            if value is not _UNSET:
                setter(one, value)
