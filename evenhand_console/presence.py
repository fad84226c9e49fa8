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
from evenhand_console.followers import Newest
from evenhand_console.recent import Recent

KEEP_S: Final = 5.0
"""The seconds for which an answer is kept. A core needs equally long to report a manager as away."""
WAIT_S: Final = 0.1
"""The seconds for which a view waits for the first answer."""
ANSWER_S: Final = KEEP_S
"""The longest time in seconds to wait for an answer. Each question that waits takes one of the console's few threads for calls."""
SHOWN_S: Final = KEEP_S + ANSWER_S
"""The seconds, counted from the question, for which an answer is shown while a newer answer is on its way."""
KEPT_MAX: Final = 100
"""The largest number of identities for which answers are kept."""

Lines = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Answer:
    """The lines about managers, and the term of the core that gave them."""

    lines: Lines = ()
    term: str = ""


@dataclass(slots=True)
class _Kept:
    answer: _Answer = _Answer()
    answer_s: float | None = None
    """The instant of the question to which `answer` is the answer."""
    asked_s: float | None = None
    running: "Future[_Answer] | None" = None


class Presence:
    """The kept answers, by identity."""

    def __init__(self, clock: Callable[[], float], newest: Newest) -> None:
        """Begin without kept answers. ``clock`` returns seconds that never decrease. ``newest`` knows the terms that have ended."""
        self._clock = clock
        self._newest = newest
        self._lock = threading.Lock()
        self._kept: Recent[Metadata, _Kept] = Recent(KEPT_MAX, _Kept)

    def begin(self, core: Core) -> Callable[[], Lines]:
        """Ask the core that decides, unless a recent answer is kept. Return a function that returns the lines about managers."""
        with self._lock:
            known = self._kept.of(core.metadata)
            self._take(known)
            begins = known.running is None and not self._is_within(known.asked_s, KEEP_S)
            if begins:
                known.asked_s = self._clock()
                known.running = begin(lambda: _asked(core))
            waits = begins and not self._is_within(known.answer_s, SHOWN_S)
        return lambda: self._lines(known, WAIT_S if waits else 0.0)

    def _lines(self, known: _Kept, wait_s: float) -> Lines:
        running = known.running
        if running is not None:
            wait([running], wait_s)
        with self._lock:
            self._take(known)
            answer, is_recent = known.answer, self._is_within(known.answer_s, SHOWN_S)
        return answer.lines if is_recent and not self._newest.is_past(answer.term) else ()

    def _take(self, known: _Kept) -> None:
        """Keep the answer to the question that was asked last, if the answer has come."""
        running = known.running
        if running is not None and running.done():
            known.answer = _Answer() if running.exception() else running.result()
            known.answer_s, known.running = known.asked_s, None

    def _is_within(self, instant_s: float | None, seconds: float) -> bool:
        """Return whether less than this time has passed since an instant. Return False if the instant is None."""
        return instant_s is not None and self._clock() - instant_s < seconds


def _asked(core: Core) -> _Answer:
    """Return the lines about managers from the answer of the core.

    Return no lines if the core does not answer, because views report such a failure. Return no lines for a core that does not
    decide, because the managers are then connected to another core.
    """
    lines: list[str] = []
    pictures = Pictures(lines.append, names_follower=False)
    asked = replace(core, pictures=pictures, timeout_s=min(core.timeout_s, ANSWER_S))
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    try:
        asked.ask(stub.ListPartitions, inspect_pb2.ListPartitionsRequest())
    except Fault:
        return _Answer()
    latest = pictures.latest
    if latest is None or latest.follows:
        return _Answer()
    return _Answer(tuple(lines), latest.term)
