"""Killed runs of a server: nothing is closed in order, unwritten lines are lost, and only the files remain.

The test process itself cannot be forked for this, because gRPC, which other tests use, does not survive it.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from server.record.chain import FORMAT
from server.record.entries import ended, entry, started
from server.record.log import DecisionLog
from tests.record.test_log import Disk
from tests.record.values import START, decided


class Run:
    """One run of a server: `decide` passes lines on as a core does, `write` does what the writing thread does."""

    def __init__(self, file: Path, **limits: Any) -> None:
        self.log = DecisionLog(file, START, **limits)
        self.log.note(started(START, "1.2.3", "", FORMAT))
        self.log.flush()
        self._waiting: list[int] = []

    def decide(self, *numbers: int) -> None:
        """Allow decisions to be sent although their lines are not written yet."""
        self.log.hand(len(numbers), START + max(numbers))
        self._waiting += numbers

    def write(self) -> None:
        """Write the lines of the decisions that may be sent."""
        for number in self._waiting:
            self.log.add(entry(decided(number), START + number))
        self._waiting.clear()
        self.log.flush()

    def write_safely(self, number: int) -> None:
        """Write a line and sync it to disk, as a durable log does before its decision is sent."""
        self.log.add(entry(decided(number), START + number))
        assert self.log.sync()

    def end(self) -> None:
        """Write all lines and the end of the run, and close the log."""
        self.write()
        self.log.note(ended(START, "the server ended"))
        self.log.close()

    def kill(self) -> None:
        """Leave the files in the state in which a killed process leaves them."""
        os.close(self.log._file._descriptor)
        if self.log._mark is not None:
            self.log._mark._page.close()


def killed_with_lines_unwritten(file: Path) -> None:
    """Kill a run that wrote two of its five lines."""

    def live(_disk: Disk) -> Run:
        run = Run(file)
        run.decide(1, 2)
        run.write()
        run.decide(3, 4, 5)
        return run

    killed(live)


def killed(live: Callable[[Disk], Run]) -> None:
    """Make a run on a separate disk and kill it."""
    with pytest.MonkeyPatch.context() as patch:
        live(Disk(patch)).kill()
