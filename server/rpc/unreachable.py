"""The search for cyclic garbage in a copy of this process, which finds how much a collection would free without collecting.

A collection examines every object in one step, and the process does nothing else meanwhile. The search reads the reference counts
of the copy in Python, so that it runs no finalizers and no callbacks of weak references, which only the parent may run.
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
    """The container objects that only a collection would free, and the bytes of memory that these and their contents take."""

    objects: int
    bytes: int


async def look(reads: Reads) -> Unreachable:
    """Return how much cyclic garbage a copy of this process has. Raises CallError if no copy can answer."""
    answer = await reads.answer(_QUESTION, lambda: _ANSWER.pack(*search()))
    return Unreachable(*_ANSWER.unpack(answer))


def search() -> Unreachable:
    """Return how much cyclic garbage this process has. Collect nothing; frozen objects are examined, too, and are not frozen afterwards.

    An object is reachable if it has a reference from anything but container objects, or from a reachable object.
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
    """Return the bytes of garbage, and of other objects, such as texts, that only garbage refers to."""
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
    """Return the number of references to each object, without those of this sequence and of the count itself."""
    own = sys.getrefcount
    (alone,) = map(own, [_Probe()])
    return [count - alone for count in map(own, objects)]


class _Probe:
    """An object to which only one list refers."""
