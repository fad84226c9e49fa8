"""Queues by their paths, for the oracles; this module shares no code with the core."""

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar


class Named(Protocol):
    """A queue that knows its path."""

    @property
    def path(self) -> str:
        """Return the path from the root."""


class Offset(Protocol):
    """A queue that changes the priorities of the pods below it (G5)."""

    @property
    def offset(self) -> int:
        """Return the number that is added to these priorities."""

    @property
    def priority_fence(self) -> bool:
        """Return whether the offset replaces these priorities."""


Q = TypeVar("Q", bound=Named)


def queue_of(queues: Iterable[Q], path: str) -> Q:
    """Return the queue of this path."""
    return next(one for one in queues if one.path == path)


def path_up(path: str) -> list[str]:
    """Return a queue and its parents, root last."""
    names = path.split(".")
    return [".".join(names[:count]) for count in range(len(names), 0, -1)]


def is_below(path: str, parent: str) -> bool:
    """Return whether a queue is the parent or is below it."""
    return parent in path_up(path)


def seen_from(meeting: str, leaf: str, priority: int, queue: Callable[[str], Offset]) -> int:
    """Return a priority with the offsets of queues strictly below the meeting; a fence shows its offset alone (G5)."""
    for path in path_up(leaf):
        if path == meeting:
            break
        known = queue(path)
        priority = known.offset if known.priority_fence else priority + known.offset
    return priority
