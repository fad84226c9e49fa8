"""The resource managers that are away.

Only the core that decides knows them. When views read at a follower, the deciding core is seldom asked for them.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from typing import Final

from evenhand.v1 import inspect_pb2, inspect_pb2_grpc
from evenhand_cli.connect import Core, Metadata
from evenhand_cli.faults import Fault
from evenhand_cli.staleness import Pictures
from evenhand_console.at_once import begin
from evenhand_console.recent import Recent

KEEP_S: Final = 5.0
"""The seconds for which an answer is kept. A core needs equally long to report a manager as away."""
WAIT_S: Final = 0.1
"""The seconds for which a view waits for the first answer."""
KEPT_MAX: Final = 100
"""The largest number of identities for which answers are kept."""

Lines = tuple[str, ...]


@dataclass(slots=True)
class _Kept:
    lines: Lines = ()
    asked_s: float | None = None
    running: "Future[Lines] | None" = None


class Presence:
    """The kept answers, by identity."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Begin without kept answers. ``clock`` returns seconds that never decrease."""
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: Recent[Metadata, _Kept] = Recent(KEPT_MAX, _Kept)

    def begin(self, core: Core) -> Callable[[], Lines]:
        """Ask the core that decides, unless a recent answer is kept. Return a function that returns the lines about managers."""
        with self._lock:
            known = self._kept.of(core.metadata)
            is_first = known.asked_s is None
            is_old = known.asked_s is None or self._clock() - known.asked_s >= KEEP_S
            if known.running is None and is_old:
                known.asked_s = self._clock()
                known.running = begin(lambda: _asked(core))
        return lambda: self._lines(known, WAIT_S if is_first else 0.0)

    def _lines(self, known: _Kept, wait_s: float) -> Lines:
        running = known.running
        if running is not None and running in wait([running], wait_s).done:
            with self._lock:
                known.lines = running.result()
                known.running = None if known.running is running else known.running
        return known.lines


def _asked(core: Core) -> Lines:
    """Return the lines about managers that the core answers.

    If the core does not answer, return no lines, because views report such a failure.
    """
    lines: list[str] = []
    asked = replace(core, pictures=Pictures(lines.append, names_follower=False))
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    try:
        asked.ask(stub.ListPartitions, inspect_pb2.ListPartitionsRequest())
    except Fault:
        return ()
    return tuple(lines)
