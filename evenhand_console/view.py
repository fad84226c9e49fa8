"""A view of the console: the function that reads from the core, the function that makes the values to show, and the template."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from evenhand_cli.connect import Core
from evenhand_console.query import Query

Read = TypeVar("Read")


@dataclass(frozen=True, slots=True)
class View(Generic[Read]):
    """A page of the console. `docs/development/add-a-console-view.md` shows how to add a page."""

    name: str
    """The name of the template `views/NAME.html`."""
    title: str
    path: str
    read: Callable[[Core, Query], Read]
    """The function that makes all requests to the core for the page, and does nothing else.

    The function raises Fault if a read fails.
    """
    shape: Callable[[Read, Query], object]
    """The function that returns the values for the template.

    The result depends only on the values that were read, and on the address.
    """
    parameters: Mapping[str, str] = field(default_factory=dict)
    """The parameters of the address with their defaults."""
    pause_s: float = 1.0
    """Shortest time in seconds between two reads for the open pages of this view."""
    in_menu: bool = True
    kinds: frozenset[str] = frozenset()
    """The kinds of events after which the page is read at once. An empty set means all kinds."""
