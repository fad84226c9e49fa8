"""The search for cyclic garbage in a copy of this process.

The search finds how much memory a collection would free, and collects nothing.

A collection examines every object in one step, and the process does nothing else meanwhile. The search only reads the reference
counts of the copy. The search runs no finalizers and no callbacks of weak references, because only the parent may run these.
"""

import gc
import struct
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from server.rpc.reads import Question, Reads
from server.rpc.roles import LOCAL_OPERATOR

_ANSWER: Final = struct.Struct("!QQ")
_QUESTION: Final = Question("garbage", b"", LOCAL_OPERATOR)


class Unreachable(NamedTuple):
    """The number of container objects that only a collection would free, and the bytes of memory that they and their contents take."""

    objects: int
    bytes: int


async def look(reads: Reads) -> Unreachable:
    """Return how much cyclic garbage a copy of this process has. Raise CallError if no copy can answer."""
    answer = await reads.answer(_QUESTION, lambda: _ANSWER.pack(*search()))
    return Unreachable(*_ANSWER.unpack(answer))


def search() -> Unreachable:
    """Return how much cyclic garbage this process has. Collect nothing. Frozen objects are unfrozen and examined as well.

    An object is reachable if something other than a container object refers to it, or if a reachable object refers to it.
    """
    gc.unfreeze()
    objects = gc.get_objects()
    left = dict(zip(map(id, objects), _references(objects), strict=True))
    for one in objects:
        for other in gc.get_referents(one):
            if id(other) in left:
                left[id(other)] -= 1
    reached = [one for one in objects if left[id(one)] > 0]
    for one in reached:
        del left[id(one)]
    for one in reached:
        for other in gc.get_referents(one):
            if id(other) in left:
                del left[id(other)]
                reached.append(other)
    garbage = [one for one in objects if id(one) in left]
    return Unreachable(len(garbage), _size(garbage))


def _size(garbage: Sequence[object]) -> int:
    """Return the bytes of memory of garbage, and of the other objects, such as texts, to which only garbage refers."""
    times: Counter[int] = Counter()
    contents: dict[int, object] = {}
    for one in garbage:
        for other in gc.get_referents(one):
            if not gc.is_tracked(other):
                times[id(other)] += 1
                contents[id(other)] = other
    one = other = None
    held = list(contents.values())
    contents.clear()
    alone = (
        each
        for each, count in zip(held, _references(held), strict=True)
        if count == times[id(each)]
    )
    return sum(map(sys.getsizeof, garbage)) + sum(map(sys.getsizeof, alone))


def _references(objects: Sequence[object]) -> list[int]:
    """Return the number of references to each object. The references from the given sequence and from the counting itself are left out."""
    own = sys.getrefcount
    (alone,) = map(own, [_Probe()])
    return [count - alone for count in map(own, objects)]


class _Probe:
    """An object to which only one list refers. Its reference count shows how many references the counting itself adds."""
