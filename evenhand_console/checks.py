"""The answers of the core's consistency checks for the overview.

The checks take much time in the core. For this reason an answer is kept for some time.
"""

import threading
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Final

from evenhand.v1 import inspect_pb2, inspect_pb2_grpc
from evenhand_cli.connect import Core
from evenhand_console.at_once import begin
from evenhand_console.reading import unless_absent
from evenhand_console.recent import Recent

Answer = inspect_pb2.CheckConsistencyResponse | None
"""The core's answer to a request for checks.

For a role that may not request checks, the value is None. If there is no answer yet, the value is a message without an
instant.
"""
KEEP_MS: Final = 1000
"""Milliseconds for which an answer of the checks counts as new in a cluster without pods. After this time, new checks begin."""
PODS_PER_MS: Final = 5
"""The time for which an answer counts as new grows by one millisecond for every PODS_PER_MS pods of the cluster.

With this rule, the checks take at most a fortieth of a processor.
"""
SHOWN_MS: Final = 30_000
"""Milliseconds for which a page still shows an answer that no longer counts as new, while new checks run."""
WAIT_S: Final = 0.1
"""Seconds for which a page waits for the answer of the checks.

A page that is shown without the answer gets it at the next read.
"""
KEPT_MAX: Final = 100
"""Largest number of answers that are kept: one for each identity and partition."""

_Key = tuple[object, ...]


@dataclass(slots=True)
class _Kept:
    """The latest answer, the checks that run now, and the channel over which these checks were requested."""

    answer: Answer = None
    running: "Future[Answer] | None" = None
    channel: object = None

    def begin(self, core: Core, partition: str) -> None:
        """Request the checks of a partition from a core in another thread."""
        self.running = begin(lambda: _asked(core, partition))
        self.channel = core.channel

    def take(self, core: Core, partition: str) -> None:
        """Store the answer of the checks if the checks have ended.

        If the checks failed, the answer of earlier checks stays. Raises the Fault of failed checks if there is no
        answer of earlier checks. If the checks failed over a connection that was replaced meanwhile, new checks begin,
        because this failure says nothing about the core.
        """
        if self.running is None or not self.running.done():
            return
        done, self.running = self.running, None
        if done.exception() is not None and self.channel is not core.channel:
            self.begin(core, partition)
        elif done.exception() is None or self.answer is None:
            self.answer = done.result()

    def is_older(self, now_ms: int, milliseconds: int) -> bool:
        """Return whether there is an answer, and its instant differs from `now_ms` by more than `milliseconds`.

        The instant may also be later, after the clock was set back.
        """
        return self.answer is not None and abs(now_ms - self.answer.checked_at_ms) > milliseconds


class Checks:
    """The kept answers of checks, by core, identity and partition."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: Recent[_Key, _Kept] = Recent(KEPT_MAX, _Kept)

    def begin(self, core: Core, partition: str) -> None:
        """Request the checks of a partition from a core, if there is no answer yet and no checks run."""
        with self._lock:
            known = self._of(core, partition)
            if known.answer is None and known.running is None:
                known.begin(core, partition)

    def answer(self, core: Core, partition: str, now_ms: int, pods: int) -> Answer:
        """Return the latest answer. Begin new checks if the answer is too old for a cluster with this number of pods.

        Raises Fault if the core refuses, or does not answer.
        """
        keep_ms = KEEP_MS + pods // PODS_PER_MS
        with self._lock:
            known = self._of(core, partition)
            if known.is_older(now_ms, keep_ms + SHOWN_MS):
                known.answer = None
        self.begin(core, partition)
        first = known.running if known.answer is None else None
        if first is not None and first not in wait([first], WAIT_S).done:
            return inspect_pb2.CheckConsistencyResponse()
        with self._lock:
            known.take(core, partition)
            if known.running is None and known.is_older(now_ms, keep_ms):
                known.begin(core, partition)
            if known.answer is None and known.running is not None:
                return inspect_pb2.CheckConsistencyResponse()
            return known.answer

    def _of(self, core: Core, partition: str) -> _Kept:
        return self._kept.of((core.address, core.metadata, partition))


def _asked(core: Core, partition: str) -> Answer:
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    request = inspect_pb2.CheckConsistencyRequest(partition=partition)
    return unless_absent(lambda: core.ask(stub.CheckConsistency, request))
