"""The methods of a fake core that does everything in one part."""

from collections.abc import Sequence

from server.model.decisions import Decision, Tick
from server.model.events import Event
from server.model.parts import Parts


class OnePart:
    """The base of a fake core with `take` and `tick`, which adds what the pump and the recorder call in parts."""

    def take(self, events: Sequence[Event], now: int) -> list[Decision]:
        """Take events."""
        raise NotImplementedError

    def tick(self, now: int, budget: int) -> Tick:
        """Decide."""
        raise NotImplementedError

    def take_in_parts(self, event: Event, now: int) -> Parts[list[Decision]]:
        """Take one event."""
        yield from ()
        return self.take([event], now)

    def tick_in_parts(self, now: int, budget: int) -> Parts[Tick]:
        """Decide."""
        yield from ()
        return self.tick(now, budget)
