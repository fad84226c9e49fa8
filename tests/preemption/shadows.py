"""Lives with a shadow: what a core decides beside, and what it decides for itself."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from server.core.core import Core
from server.model.decisions import Decision, ShadowDecided, Tick
from server.model.events import ConfigurationApplied, Event
from server.model.quota import Configuration, PreemptionSettings
from server.model.shadow import ShadowRecord

BUDGET: Final = 500


def with_shadow(configuration: Configuration, shadow: dict[str, Any], **live: Any) -> Configuration:
    """Return the configuration with other settings, and this shadow in every partition."""

    def settings(known: PreemptionSettings) -> PreemptionSettings:
        return replace(known, **live, shadow=shadow)

    partitions = (
        replace(one, preemption=settings(one.preemption)) for one in configuration.partitions
    )
    return replace(configuration, partitions=tuple(partitions))


class Shadowed:
    """A core, asked at each instant at which it wants to be asked: ``live`` is what it decides, ``beside`` what its shadow does.

    A Scheduler, as a driver or a pump has it.
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
        """One event."""
        if isinstance(event, ConfigurationApplied):
            known = with_shadow(event.configuration, self._shadow, **self._settings)
            event = ConfigurationApplied(known, event.source)
        found = self._catch_up(now)
        return [*found, *self._heard(self.core.handle(event, now), now)]

    def _catch_up(self, now: int) -> list[Decision]:
        """Return the ticks for which the core asked since the last one, as a pump would have given them."""
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
        """One tick, after those for which the core asked since the last one."""
        found = self._catch_up(now)
        tick = self.core.tick(now, budget)
        self.core.validate()
        return Tick([*found, *self._heard(tick.decisions, now)], tick.more)

    def next_due(self) -> int | None:
        """When it wants to be asked."""
        return self.core.next_due()

    def _heard(self, decisions: Iterable[Decision], now: int) -> list[Decision]:
        told = list(decisions)
        self.beside += [one.record for one in told if isinstance(one, ShadowDecided)]
        live: list[Decision] = [one for one in told if not isinstance(one, ShadowDecided)]
        self.live += [(now, repr(one)) for one in live]
        return live
