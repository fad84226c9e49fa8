"""The names of asks in sentences. Asks are named by their keys, unless the caller passes a function that returns another name.

Clients send the names of pods in tags, which the core does not read. The caller of a query therefore passes a function that
reads the tags.
"""

from collections.abc import Callable, Sequence

from server.model.phrases import some
from server.state.applications import Ask

Namer = Callable[[Ask], str]


def by_key(ask: Ask) -> str:
    """Return the key of the ask, for callers that have no names."""
    return ask.key


def some_of(asks: Sequence[Ask], most: int, name: Namer) -> str:
    """Return the names of the first ``most`` asks, and the number of the remaining asks, in words."""
    rest = (ask.key for ask in asks[most:])
    return some([*map(name, asks[:most]), *rest], most)
