"""The interface through which the pump calls the core, or an object in place of the core."""

from collections.abc import Sequence
from typing import Protocol

from server.model.decisions import Decision, Tick
from server.model.events import Event
from server.model.parts import Parts


class Decider(Protocol):
    """The core, or an object that has the same methods and calls the core: the recorder, the history, or the feed of followers."""

    def take(self, events: Sequence[Event], now: int, /) -> list[Decision]:
        """Apply events and return the decisions that follow from the events at once, before the next tick."""

    def take_in_parts(self, event: Event, now: int, /) -> Parts[list[Decision]]:
        """Apply one event as `take` does, in parts if handling the event may take long."""

    def tick_in_parts(self, now: int, budget: int, /) -> Parts[Tick]:
        """Make, in parts, the decisions that are possible now, within a budget of steps."""

    def next_due(self) -> int | None:
        """Return the next instant at which the core could decide something without an event.

        Return None if the core has no decision to make without an event.
        """
