"""The writing process. It reads frames from the core, updates the ledger, and writes to the database about once a second.

The process reads no clock: each frame has its instant. When a write fails, its rows stay pending until the next try. While too many
rows are pending, the process reads no frames. The core's queue then fills up, and drops and counts records. If the stream ends
without the row of an orderly end, the core was killed. The process then still writes all that it was given.
"""

import json
import time
from collections.abc import Callable, Iterator
from typing import BinaryIO, Final, TextIO

from sqlalchemy.exc import SQLAlchemyError

from server.history import runs
from server.history.address import Address, HistoryError
from server.history.database import reason_of
from server.history.ledger import Ledger, Tags
from server.history.rows import Frame, Row, frames
from server.history.settings import MINUTE_MS, Settings, Status
from server.history.store import Store
from server.history.upkeep import keep_up

PENDING_MAX: Final = 100_000
"""The number of pending rows at which the process reads no frame until a write succeeds."""
RETRY_S: Final = 1.0
"""The seconds between two attempts to write, while no frame is read."""
LAST_TRIES: Final = 5
"""How many times the process tries to write when the core has ended."""

WHY_MAX: Final = 300
"""The largest number of characters of a reason in a report."""

KILLED_WHY: Final = "the process was killed"


class Writer:
    """The ledger and its database."""

    def __init__(self, place: Address, settings: Settings, name_of: Callable[[Tags], str]) -> None:
        self._store = Store(place)
        self._settings = settings
        self._name_of = name_of
        self._run = 0
        self._ledger: Ledger | None = None
        self._kept_up_ms = 0
        self._item = 0
        self.written = 0
        self.failing = ""

    @property
    def status(self) -> Status:
        """The state to report."""
        return Status(self.written, self.failing, ready=self._ledger is not None)

    @property
    def is_full(self) -> bool:
        """Whether no more frames may be read now."""
        if self._ledger is None:
            return True
        return sum(map(len, self._ledger.pending.values())) >= PENDING_MAX

    def open(self, now: int, version: str, *, is_start: bool) -> None:
        """Open the database and begin a run. ``is_start`` says that the core started, and not only this process again.

        Raises HistoryError if the history can never be used. The reason of any other failure is in ``failing``.
        """
        try:
            self._store.open()
            with self._store.engine.begin() as connection:
                before = runs.latest(connection)
                run = runs.begin(connection, now, version)
                ledger = Ledger(run, self._name_of, self._settings.sample_ms)
                runs.load(connection, ledger)
        except SQLAlchemyError as error:
            self.failing = _why(error)
            return
        self._run, self._ledger, self.failing = run, ledger, ""
        if is_start:
            ledger.starts.started(now, version, before)

    def apply(self, frame: Frame) -> None:
        """Apply a frame."""
        assert self._ledger is not None
        self._ledger.apply(frame)
        self._item = max(self._item, frame.number)

    def write(self, now: int) -> None:
        """Write the pending rows. If that fails, they stay pending."""
        ledger = self._ledger
        assert ledger is not None
        ledger.settle()
        try:
            self._store.write(ledger.pending)
            with self._store.engine.begin() as connection:
                runs.seen(connection, self._run, now)
        except SQLAlchemyError as error:
            self.failing = _why(error)
            return
        ledger.pending.clear()
        self.written, self.failing = self._item, ""
        if now - self._kept_up_ms >= MINUTE_MS:
            self._keep_up(now)

    def end(self, now: int, why: str, *, in_order: bool) -> None:
        """Write the pending rows and the end of the run, in at most `LAST_TRIES` attempts."""
        ledger = self._ledger
        assert ledger is not None
        ledger.series.close(now)
        ledger.starts.ended(now, why, in_order=in_order)
        for _ in range(LAST_TRIES):
            self.write(now)
            if not self.failing:
                break
            time.sleep(RETRY_S)
        try:
            with self._store.engine.begin() as connection:
                runs.ended(connection, self._run, now, why)
        except SQLAlchemyError as error:
            self.failing = _why(error)

    def close(self) -> None:
        """Close the database."""
        self._store.close()

    def _keep_up(self, now: int) -> None:
        ledger = self._ledger
        assert ledger is not None
        try:
            with self._store.engine.begin() as connection:
                keep_up(connection, now, self._settings, ledger.next_number)
        except SQLAlchemyError as error:
            self.failing = _why(error)
            return
        self._kept_up_ms = now


def serve(
    stream: BinaryIO,
    answers: TextIO,
    place: Address,
    settings: Settings,
    name_of: Callable[[Tags], str],
) -> int:
    """Write the history of the core that writes to ``stream``, until the stream ends. Return the exit code."""
    writer = Writer(place, settings, name_of)

    def report(status: Status) -> None:
        answers.write(json.dumps(status._asdict()) + "\n")
        answers.flush()

    try:
        _serve(frames(_reader(stream)), writer, report)
    except HistoryError as error:
        report(Status(fatal=str(error)))
        return 1
    except BrokenPipeError:
        return 0  # The core has ended, and everything is written.
    finally:
        writer.close()
    return 0


def _serve(found: Iterator[Frame], writer: Writer, report: Callable[[Status], None]) -> None:
    first = next(found, None)
    if first is None:
        return
    (_, version, is_start), now = first.rows[0], first.now
    writer.open(now, version, is_start=is_start)
    report(writer.status)
    while not writer.status.ready:
        time.sleep(RETRY_S)
        writer.open(now, version, is_start=is_start)
        report(writer.status)
    why = KILLED_WHY
    for frame in found:
        now = frame.now
        kind = frame.rows[0][0]
        if kind == Row.STOPPED:
            why = frame.rows[0][1]
            break
        if kind == Row.BEAT:
            writer.write(now)
            report(writer.status)
        else:
            writer.apply(frame)
        while writer.is_full:
            writer.write(now)
            report(writer.status)
            if writer.failing:
                time.sleep(RETRY_S)
    writer.end(now, why, in_order=why != KILLED_WHY)
    report(writer.status)


def _reader(stream: BinaryIO) -> Callable[[int], bytes]:
    def read(size: int) -> bytes:
        parts: list[bytes] = []
        while size:
            part = stream.read(size)
            if not part:
                break
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    return read


def _why(error: SQLAlchemyError) -> str:
    return reason_of(error)[:WHY_MAX]
