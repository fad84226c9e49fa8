"""The writing process of the history: the process that writes to the database.

The process takes the core's frames from its inbox, updates the ledger, and writes to the database about once a second.

The process reads no clock: each frame has its instant. When a write fails, its rows stay pending until the next try. While too
many rows are pending, the process takes no frames out of its inbox. If this lasts, the inbox (`inbox.HELD_MAX`) and then the
queue of the history in the core (`tap.Queue`) become full. A full queue drops new records and counts them. If the stream ends
without the row of a normal end, the core was killed. The process still writes everything that it received from a killed core.
"""

import json
import time
from collections.abc import Callable, Iterator
from typing import BinaryIO, Final, NamedTuple, TextIO

from sqlalchemy.exc import SQLAlchemyError

from server.history import runs
from server.history.address import Address, HistoryError, LockedError
from server.history.database import reason_of
from server.history.inbox import Inbox
from server.history.ledger import Ledger, Pending, Tags
from server.history.rows import Frame, Row
from server.history.settings import MINUTE_MS, Beginning, Settings, Status
from server.history.shrinking import latest_cut, shrink
from server.history.store import Store
from server.history.tap import Lost
from server.history.upkeep import keep_up

PENDING_MAX: Final = 100_000
"""The number of pending rows at which the process reads no frame until a write succeeds."""
RETRY_S: Final = 1.0
"""The seconds between two attempts to write, while no frame is read."""
LAST_TRIES: Final = 5
"""The number of times that the process tries to write when the core has ended."""

WHY_MAX: Final = 300
"""The largest number of characters of a reason in a report."""

KILLED_WHY: Final = "the process was killed"
FOLLOWS_WHY: Final = "the core follows another one"


class Writer:
    """The writer of the history: the ledger, and the database to which the ledger's rows are written."""

    def __init__(self, place: Address, settings: Settings, name_of: Callable[[Tags], str]) -> None:
        self._store = Store(place)
        self._settings = settings
        self._name_of = name_of
        self._run = 0
        self._ledger: Ledger | None = None
        self._is_idle = False
        self._cut = ""
        self._kept_up_ms = self._written_ms = 0
        self._owed: list[Pending] = []
        """The gaps in place of the rows that were lost when this core began to follow. These gaps are not written yet."""
        self._item = 0
        self.written = 0
        self.failing = ""

    @property
    def status(self) -> Status:
        """The state to report."""
        return Status(self.written, self.failing, "", self.is_open, self._is_idle, self._cut)

    @property
    def is_open(self) -> bool:
        """Whether the database is open, so that frames can be applied."""
        return self._ledger is not None

    @property
    def is_full(self) -> bool:
        """Whether no more frames may be read now, because too many rows are pending."""
        if self._ledger is None:
            return False
        return self._ledger.size >= PENDING_MAX

    def open(self, now: int, about: Beginning, *, is_start: bool) -> None:
        """Open the database and begin a run. ``is_start`` says that the core itself has just started.

        If it is false, only this process was started again.

        Raise HistoryError if the history can never be used. The reason of any other failure is in ``failing``. If this core
        shares its history, a possible reason is that another core writes.
        """
        try:
            self._store.open()
            with self._store.engine.begin() as connection:
                before = runs.latest(connection)
                run = runs.begin(connection, now, about.version)
                ledger = Ledger(run, self._name_of, self._settings.sample_ms)
                runs.load(connection, ledger)
        except SQLAlchemyError as error:
            self.failing = _why(error)
            return
        except LockedError as error:
            if not about.shares:
                raise
            self.failing = str(error)
            return
        self._run, self._ledger, self.failing, self._is_idle = run, ledger, "", False
        self._written_ms = now
        starts = ledger.starts
        starts.core = about.core
        if is_start or (about.shares and starts.leader != about.core):
            starts.after(before)
        if is_start:
            starts.started(now, about.version, before)
        if about.leads and not starts.leader:
            starts.leads(now, None if is_start else before)

    def rest(self, now: int, why: str) -> None:
        """Let another core write: write the pending rows, end the run, and close the database.

        If the database is closed already, only record that this core does not write.
        """
        if self._ledger is not None:
            self._write_end(now, why)
            self._give_up(self._ledger, now)
            self._store.close()
        self._ledger, self._is_idle = None, True

    def _give_up(self, ledger: Ledger, now: int) -> None:
        """Drop the rows that could not be written, and keep a gap in their place.

        Another core writes now, and may change the same rows.
        """
        count = sum(map(len, ledger.pending.values()))
        if not count:
            return
        lost = Lost(self._written_ms, now, count, self.failing)
        ledger.pending.clear()
        ledger.apply(Frame(0, now, [(Row.GAP.value, lost)]))
        self._owed.append(ledger.pending)
        ledger.pending = {}

    def pay(self) -> None:
        """Write the gaps that this core kept, even while another core writes.

        If a write fails, keep the remaining gaps for the next attempt.
        """
        try:
            while self._owed:
                self._store.write(self._owed[0])
                self._owed.pop(0)
                self.failing = ""
        except SQLAlchemyError as error:
            self.failing = _why(error)

    def skip(self, frame: Frame) -> None:
        """Drop a frame, because another core writes the history."""
        self.written = self._item = max(self._item, frame.number)

    def apply(self, frame: Frame) -> None:
        """Apply the rows of a frame to the ledger."""
        assert self._ledger is not None
        self._ledger.apply(frame)
        self._item = max(self._item, frame.number)

    def write(self, now: int) -> None:
        """Write the pending rows. If the write fails, the rows stay pending."""
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
        self._written_ms = now
        self.pay()
        if now - self._kept_up_ms >= MINUTE_MS:
            self._keep_up(now)

    def end(self, now: int, why: str, *, in_order: bool) -> None:
        """Write the pending rows and the end of the run, in at most `LAST_TRIES` attempts. Without an open run, write the gaps only."""
        if self._ledger is not None:
            self._ledger.starts.ended(now, why, in_order=in_order)
            self._write_end(now, why)
        else:
            self.pay()

    def _write_end(self, now: int, why: str) -> None:
        assert self._ledger is not None
        self._ledger.series.close(now)
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
                shrink(connection, now, self._settings, ledger.next_number)
                self._cut = latest_cut(connection)
        except SQLAlchemyError as error:
            self.failing = _why(error)
            return
        self._kept_up_ms = now


class Pipes(NamedTuple):
    """The streams between the core and this process: frames to this process, and lines of `Status` to the core."""

    stream: BinaryIO
    answers: TextIO


def serve(
    pipes: Pipes,
    place: Address,
    settings: Settings,
    name_of: Callable[[Tags], str],
    opened: Callable[[], None],
) -> int:
    """Write the history of a core until its stream ends. Return the exit code.

    ``opened`` is called as soon as the core need not wait for this process any more: the database is open, or another core
    writes.
    """
    stream, answers = pipes
    writer = Writer(place, settings, name_of)

    def report(status: Status) -> None:
        answers.write(json.dumps(status._asdict()) + "\n")
        answers.flush()

    try:
        inbox = Inbox(_reader(stream))
        inbox.start()
        _serve(inbox.frames(), writer, report, opened)
    except HistoryError as error:
        report(Status(fatal=str(error)))
        return 1
    except BrokenPipeError:
        return 0  # The core has ended, and everything is written.
    finally:
        writer.close()
    return 0


def _serve(
    found: Iterator[Frame],
    writer: Writer,
    report: Callable[[Status], None],
    opened: Callable[[], None],
) -> None:
    first = next(found, None)
    if first is None:
        return
    now = first.now
    about: Beginning = first.rows[0][1]
    if about.shares and not about.leads:
        writer.rest(now, "")
        report(writer.status)
    else:
        _open(writer, now, about, report, is_start=first.rows[0][2])
    opened()
    why = KILLED_WHY
    for frame in found:
        now = frame.now
        if frame.rows[0][0] == Row.STOPPED:
            why = frame.rows[0][1]
            break
        _take(writer, frame, about, report)
        _make_room(writer, now, report)
    writer.end(now, why, in_order=why != KILLED_WHY)
    report(writer.status)


def _take(writer: Writer, frame: Frame, about: Beginning, report: Callable[[Status], None]) -> None:
    """Take a frame. A core that shares its history opens the database when the core begins to lead, and closes it when the core follows."""
    kind, now = frame.rows[0][0], frame.now
    if kind == Row.BEAT:
        if writer.is_open:
            writer.write(now)
        else:
            writer.pay()
        report(writer.status)
    elif writer.is_open:
        writer.apply(frame)
    else:
        writer.skip(frame)
    if kind == Row.LEADS and not writer.is_open:
        _open(writer, now, about._replace(leads=True), report, is_start=False)
    if kind == Row.FOLLOWS and about.shares:
        writer.rest(now, FOLLOWS_WHY)


def _open(
    writer: Writer, now: int, about: Beginning, report: Callable[[Status], None], *, is_start: bool
) -> None:
    """Open the database. Try again until the database is open."""
    writer.open(now, about, is_start=is_start)
    report(writer.status)
    while not writer.is_open:
        time.sleep(RETRY_S)
        writer.open(now, about, is_start=is_start)
        report(writer.status)


def _make_room(writer: Writer, now: int, report: Callable[[Status], None]) -> None:
    """Write pending rows until few enough rows are pending for the next frame."""
    while writer.is_full:
        writer.write(now)
        report(writer.status)
        if writer.failing:
            time.sleep(RETRY_S)


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
