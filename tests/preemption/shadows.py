"""Random runs with a shadow: the decisions of the shadow, and those of the core."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from server.core.core import Core
from server.model.decisions import Decision, ShadowDecided, Tick
from server.model.events import ConfigurationApplied, Event
from server.model.quota import Configuration, PreemptionSettings
from server.model.shadow import ShadowRecord
from tests.one_part import OnePart

BUDGET: Final = 500


def with_shadow(configuration: Configuration, shadow: dict[str, Any], **live: Any) -> Configuration:
    """Return the configuration with other settings, and this shadow in every partition."""

    def settings(known: PreemptionSettings) -> PreemptionSettings:
        return replace(known, **live, shadow=shadow)

    partitions = (
        replace(one, preemption=settings(one.preemption)) for one in configuration.partitions
    )
    return replace(configuration, partitions=tuple(partitions))


class Shadowed(OnePart):
    """A core that is called at each instant that it requests; `live` has its decisions, and `beside` those of its shadow.

    It has the interface of a core for a driver or a pump.
    """

    def __init__(self, configuration: Configuration, shadow: dict[str, Any], **live: Any) -> None:
        self._shadow, self._settings = shadow, live
        self.core = Core(with_shadow(configuration, shadow, **live))
        self.live: list[tuple[int, str]] = []
        self.beside: list[ShadowRecord] = []
        self.woken = 0

    def take(self, events: Sequence[Event], now: int) -> list[Decision]:
        """Handle some events and return their decisions."""
        return [one for event in events for one in self.handle(event, now)]

    def handle(self, event: Event, now: int) -> list[Decision]:
        """Handle one event and return the decisions."""
        if isinstance(event, ConfigurationApplied):
            known = with_shadow(event.configuration, self._shadow, **self._settings)
            event = ConfigurationApplied(known, event.source)
        found = self._catch_up(now)
        return [*found, *self._heard(self.core.handle(event, now), now)]

    def _catch_up(self, now: int) -> list[Decision]:
        """Run the ticks that the core has requested since the last one, as a server would, and return their decisions."""
        found: list[Decision] = []
        while (due := self.core.next_due()) is not None and due < now:
            self.woken += 1
            more = True
            while more:
                tick = self.core.tick(due, BUDGET)
                found += self._heard(tick.decisions, due)
                more = tick.more
        return found

    def tick(self, now: int, budget: int) -> Tick:
        """Tick, after the ticks that the core has requested since the last one."""
        found = self._catch_up(now)
        tick = self.core.tick(now, budget)
        self.core.validate()
        return Tick([*found, *self._heard(tick.decisions, now)], tick.more)

    def next_due(self) -> int | None:
        """Return the instant at which the core wants to be called."""
        return self.core.next_due()

    def _heard(self, decisions: Iterable[Decision], now: int) -> list[Decision]:
        told = list(decisions)
        self.beside += [one.record for one in told if isinstance(one, ShadowDecided)]
        live: list[Decision] = [one for one in told if not isinstance(one, ShadowDecided)]
        self.live += [(now, repr(one)) for one in live]
        return live
