"""Frames of a core for the ledger, made as the thread of the history makes them."""

from collections.abc import Sequence
from typing import Any

from server.core.core import Core
from server.history.ledger import Ledger
from server.history.rows import Frame, rows_of
from server.history.tap import InForce, Item, Queue, Tap
from server.model.events import Event
from server.rpc.pod_names import pod_name
from tests.ticks import ticked

RUN = 1
T0 = 1_800_000_000_000


def ledger(run: int = RUN) -> Ledger:
    """Return an empty ledger."""
    return Ledger(run, pod_name, 10_000)


class Told:
    """A core behind a tap, and a ledger that is given everything."""

    def __init__(self, core: Core, into: Ledger | None = None) -> None:
        self.core = core
        self.queue = Queue()
        self.ledger = into or ledger()
        state = core.state
        self.tap = Tap(core, self.queue, lambda: InForce(state.revision, state.configuration.text))
        self.now = T0
        self.kept: dict[str, list[dict[str, Any]]] = {}
        """The rows that were pending when they were written, by table."""

    def take(self, *events: Event, now: int) -> None:
        """Give the core events at an instant after `T0`, then let it decide; pass everything on."""
        self.now = T0 + now
        self.tap.take(events, self.now)
        while ticked(self.tap, self.now, 20_000).more:
            pass
        self.pass_on()

    def pass_on(self) -> None:
        """Apply what is queued."""
        for frame in self.frames():
            self.ledger.apply(frame)

    def frames(self) -> Sequence[Frame]:
        """Return what is queued, as frames."""
        found: list[Frame] = []
        while (item := self.queue.take()) is not None:
            found += rows_of(item)
        return found

    def give(self, item: Item) -> None:
        """Apply an item."""
        for frame in rows_of(item):
            self.ledger.apply(frame)

    def rows(self, table: Any) -> list[dict[str, Any]]:
        """Return the pending rows of a table, in order of their keys."""
        self.ledger.settle()
        return [row for _, row in sorted(self.ledger.pending.get(table, {}).items())]
