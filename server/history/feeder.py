"""The thread that sends the history to its writing process, and watches that process.

The thread empties the queue a few times a second, so that no event has to wake it. Most items of the queue are packed already. If
the pipe is full, the thread waits, and not the core. If the process ends, it is started again. Records that the process had
received but not written count as lost.
"""

import fcntl
import json
import os
import select
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, Final, NamedTuple

import structlog

from server.history.address import Address
from server.history.rows import Frame, Row, encoded, rows_of
from server.history.settings import Beginning, Settings, Status
from server.history.tap import SLOW_WHY, Lost, Queue
from server.model.phrases import agreeing, count
from server.model.reasons import Code
from server.model.reports import Finding

PAUSE_S: Final = 0.25
"""The seconds after which the thread checks the queue again."""
BEAT_MS: Final = 1_000
"""The milliseconds between two rows `BEAT`. At each such row the process writes its pending rows."""
RESTART_S: Final = 5.0
"""The seconds before a process that ended is started again."""
OPEN_S: Final = 5.0
"""The seconds that the start of a core waits at most to learn whether the history can be used."""
PIPE_BYTES: Final = 1 << 20
"""The capacity in bytes that the pipe to the process gets, if the system allows it."""
BUFFERS_MAX: Final = 64
"""The largest number of frames that are sent at once.

Several frames are sent at once, because each send releases the interpreter's lock to the event loop, and then has to wait for
this lock.
"""
END_S: Final = 5.0
"""The seconds that the end of a core waits at most for the history to be written. After that the process continues alone."""
_MODULE: Final = "server.rpc.history_process"
_READ_BYTES: Final = 1 << 16
_log = structlog.get_logger("server.history")


class Health(NamedTuple):
    """The health of the history: the number of records that were lost, and why nothing can be written now ("" if writing works).

    ``gaps`` is the number of intervals in which records were lost.
    """

    lost: int
    failing: str
    gaps: int


class _Item(NamedTuple):
    """The facts of an item of the queue: its number, its instant, the number of its values, and its size in the queue."""

    number: int
    now: int
    values: int
    size: int


class _Packed(NamedTuple):
    """The bytes of a frame. The first frame of an item also names the item."""

    data: bytes
    item: _Item | None = None


class _EndedError(Exception):
    """The error of a process that has ended."""


class _NotStartedError(Exception):
    """The error of a process that the system does not start. The text of the error says why."""


class Feeder:
    """The thread that sends the history, and the process that writes it.

    ``now`` returns the time in Unix milliseconds. ``about`` returns the version and name of the core, and whether it leads.
    """

    def __init__(
        self,
        queue: Queue,
        place: Address,
        settings: Settings,
        now: Callable[[], int],
        about: Callable[[], Beginning],
    ) -> None:
        self._queue = queue
        self._place = place
        self._settings = settings
        self._now = now
        self._about = about
        self._process: subprocess.Popen[bytes] | None = None
        self._answers = b""
        self._status = Status()
        self._stopped = ""
        self._ended = ""
        self._beat_ms = 0
        self._last_beat: _Packed | None = None
        self._is_start = True
        self._packed: deque[_Packed] = deque()
        self._left = memoryview(b"")
        self._unwritten: deque[_Item] = deque()
        self._lost: list[Lost] = []
        self._told = 0
        self._opened = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._work, name="history", daemon=True)

    def start(self) -> None:
        """Start the thread, which starts the writing process."""
        self._thread.start()

    def wait_opened(self) -> str:
        """Wait at most `OPEN_S` until the history is open. Return why the history can never be used, or "" if it can be used."""
        self._opened.wait(OPEN_S)
        return self._status.fatal

    def close(self, why: str) -> None:
        """Send the queued items and the end of the run, and wait at most `END_S` until everything is written."""
        self._stopped = why
        self._wake.set()
        self._thread.join(END_S)
        if self._thread.is_alive() or self._ended:
            _log.warning("history-not-written", why=self._failing or "it takes too long")

    def health(self) -> dict[str, Health]:
        """Return the health of the history, for metrics."""
        return {"history": Health(self._lost_count, self._failing, self._gaps)}

    def findings(self) -> Iterator[Finding]:
        """Yield the doctor's findings about the history."""
        if self._failing:
            what = f"{self._place} is not written: {self._failing}"
            advice = (
                "Free space on its disk, or see who may write there; scheduling goes on meanwhile."
            )
            yield Finding("warning", "history", "history-failing", what, advice)
        elif self._lost_count:
            what = f"{count(self._lost_count, 'record')} of the history {agreeing('were', self._lost_count)} lost"
            advice = (
                "The history has the times and the reason: `evenhand history failovers` shows them."
            )
            yield Finding("warning", "history", "history-lost", what, advice)
        if self._status.cut:
            what = (
                f"the history has reached its size limit, and has deleted {self._status.cut} early"
            )
            advice = "Raise `--history-size-max`, or keep less with `--history-retention`."
            yield Finding("note", "history", "history-shortened", what, advice)

    @property
    def _lost_count(self) -> int:
        return self._queue.lost + sum(one.records for one in self._lost)

    @property
    def _gaps(self) -> int:
        return self._queue.gaps + len(self._lost)

    @property
    def _failing(self) -> str:
        return self._status.fatal or self._status.failing or self._ended

    def _work(self) -> None:
        while not self._status.fatal:
            try:
                self._begin()
                self._feed()
            except _EndedError:
                self._reap()
            except _NotStartedError as error:
                self._note_refusal(str(error))
            else:
                return
            if self._stopped:
                return
            self._wake.wait(RESTART_S)

    def _note_refusal(self, why: str) -> None:
        """Record that the process could not be started. The start is tried again later.

        Until the next start, the queue keeps as many items as fit.
        """
        self._ended = self._queue.why = f"the process that writes it cannot be started: {why}"
        self._opened.set()
        _log.warning("history-process-not-started", why=why)

    def _begin(self) -> None:
        """Start the process, and send it the place of the history. Raise _NotStartedError if the system refuses to start the process."""
        command = [sys.executable, "-m", _MODULE]
        try:
            self._process = subprocess.Popen(  # noqa: S603 - this program
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                start_new_session=True,
            )
        except OSError as error:
            raise _NotStartedError(error.strerror or str(error)) from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        os.set_blocking(self._process.stdout.fileno(), False)
        _enlarge(self._process.stdin.fileno())
        self._answers = b""
        given = {"place": self._place.text, "settings": list(self._settings)}
        waiting, self._packed = self._packed, deque()
        self._packed.append(_Packed(json.dumps(given).encode() + b"\n"))
        self._pack((Row.STARTED.value, self._about(), self._is_start))
        self._is_start = False
        for one in self._lost[self._told :]:
            self._pack((Row.GAP.value, one))
        self._told = len(self._lost)
        self._packed += waiting

    def _feed(self) -> None:
        """Send queued items until `close` is called. Then send the end of the run. Raise _EndedError if the process ends."""
        while True:
            stopping = self._stopped
            self._empty()
            self._beat()
            if stopping:
                self._pack((Row.STOPPED.value, stopping))
                while not self._flush():
                    self._await_pipe()
                self._finish()
                return
            self._pause()
            self._listen()

    def _empty(self) -> None:
        """Pack all items of the queue, and send as many bytes as the pipe takes.

        A packed item takes much less memory than the events and decisions of which it consists. An item is packed as a whole
        before anything is sent. If the process ends, the next process can therefore get the whole item.
        """
        while (taken := self._queue.take()) is not None:
            item: _Item | None = _Item(taken.number, taken.now, taken.records, taken.size)
            for frame in rows_of(taken):
                self._look(frame)
                self._packed.append(_Packed(encoded(frame), item))
                item = None
            if item is not None:
                self._queue.sent(item.size)
            if len(self._packed) >= BUFFERS_MAX:
                self._flush()
            self._beat()
        self._flush()

    def _pause(self) -> None:
        """Wait until the queue is to be checked again. Meanwhile send the frames that wait for the pipe."""
        until = self._now() + 1000 * PAUSE_S
        while not self._flush() and not self._stopped and self._now() < until:
            self._await_pipe()
        if self._flush():
            self._wake.wait(PAUSE_S)

    def _look(self, frame: Frame) -> None:
        """Request a picture (a list of all pods) if a manager's sync ends in the frame, to learn which pods ended since the previous run."""
        for row in frame.rows:
            if row[0] == Row.MANAGER and row[2] == Code.SYNC_COMPLETE:
                self._queue.picture_wanted = True

    def _beat(self) -> None:
        """Pack a row `BEAT` once in `BEAT_MS`.

        If the last packed frame has only a row `BEAT`, pack no further `BEAT`, so that beats do not pile up.
        """
        now = self._now()
        if now - self._beat_ms >= BEAT_MS:
            self._beat_ms = now
            if not (self._packed and self._packed[-1] is self._last_beat):
                self._pack((Row.BEAT.value,))
                self._last_beat = self._packed[-1]
            self._flush()

    def _pack(self, row: tuple[Any, ...]) -> None:
        """Pack a row that comes from no item."""
        self._packed.append(_Packed(encoded(Frame(0, self._now(), [row]))))

    def _flush(self) -> bool:
        """Send as many packed frames as the pipe takes. Return whether all are sent. Raise _EndedError if the process ends."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        out = process.stdin.fileno()
        while self._left or self._packed:
            some: list[bytes | memoryview] = [self._left]
            some += (one.data for one in islice(self._packed, BUFFERS_MAX))
            try:
                self._wrote(os.writev(out, some))
            except BlockingIOError:
                return False
            except OSError as error:
                self._listen()
                raise _EndedError from error
        return True

    def _wrote(self, size: int) -> None:
        """Drop bytes that were sent. An item of which a part was sent no longer counts as waiting."""
        while size >= len(self._left):
            size -= len(self._left)
            self._left = memoryview(b"")
            if not size:
                return
            data, item = self._packed.popleft()
            self._left = memoryview(data)
            if item is not None:
                self._unwritten.append(item)
                self._queue.sent(item.size)
        self._left = self._left[size:]

    def _await_pipe(self) -> None:
        """Wait until the pipe takes more bytes, and read the reports of the process."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        select.select([process.stdout], [process.stdin], [], PAUSE_S)
        self._listen()

    def _listen(self) -> None:
        """Read the reports that the writing process has sent, without waiting for more."""
        assert self._process is not None
        assert self._process.stdout is not None
        with suppress(BlockingIOError):
            while part := os.read(self._process.stdout.fileno(), _READ_BYTES):
                self._answers += part
        *lines, self._answers = self._answers.split(b"\n")
        for line in lines:
            told: dict[str, Any] = json.loads(line)
            self._status = Status(**told)
            self._ended = ""
            self._queue.why = self._status.failing or SLOW_WHY
            while self._unwritten and self._unwritten[0].number <= self._status.written:
                self._unwritten.popleft()
            status = self._status
            if status.ready or status.idle or status.fatal or status.failing:
                self._opened.set()

    def _finish(self) -> None:
        """Close the pipe and wait until the process has ended. The caller of `close` waits at most `END_S` for this."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        os.set_blocking(process.stdout.fileno(), True)
        process.stdout.read()
        process.wait()
        process.stdout.close()

    def _reap(self) -> None:
        """Record that the process ended without being asked to."""
        process, self._process = self._process, None
        assert process is not None
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            with suppress(OSError):
                pipe.close()
        code = process.wait()
        self._left = memoryview(b"")
        while self._packed and self._packed[0].item is None:
            self._packed.popleft()  # The rest of an item that was sent in part.
        self._opened.set()
        if self._status.fatal:
            self._queue.close()
            _log.error("history-unusable", why=self._status.fatal)
            return
        self._ended = f"the process that writes it ended with code {code}"
        if self._unwritten:
            count = sum(each.values for each in self._unwritten)
            begin, end = self._unwritten[0].now, self._unwritten[-1].now
            self._lost.append(Lost(begin, end, count, self._ended))
            self._unwritten.clear()
        self._queue.reset()
        _log.warning("history-process-ended", code=code)


def _enlarge(pipe: int) -> None:
    """Raise the capacity of a pipe to `PIPE_BYTES`, so that the thread seldom has to wait.

    Only Linux can do that, within a limit for each user.
    """
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with suppress(OSError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
