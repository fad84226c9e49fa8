"""The file of an input trace. A trace that can no longer be written completely is ended, and its last line says why.

The trace is ended because a trace with missing lines cannot be replayed.
"""

import os
from pathlib import Path
from typing import Final

import structlog

from server.record.canonical import BadLineError, parsed
from server.record.record_file import PENDING_BYTES_MAX, Appender, RecordError, opened
from server.record.trace import HEADER, End, end_line

TRACE_BYTES_MAX: Final = 4 << 30
"""The size in bytes at which a trace is ended."""
FIRST_BYTES_MAX: Final = 64 << 20
"""The largest number of bytes of the first line, which holds a configuration."""

_log = structlog.get_logger("server.record")


class TraceFile:
    """The writer of a trace. ``ended`` says why the trace ended. ``ended`` is empty while the trace is written."""

    def __init__(
        self, path: Path, bytes_max: int = TRACE_BYTES_MAX, pending_max: int = PENDING_BYTES_MAX
    ) -> None:
        """Create the file, and rename an earlier trace to FILE.previous. Raise RecordError if the file cannot be used."""
        self._path = path
        self._bytes_max = bytes_max
        self._file = Appender(_fresh(path), pending_max)
        self._lines = 0
        self._taken = 0
        self.ended = ""

    @property
    def failing(self) -> str:
        """The reason why nothing can be written, for good or at the moment. The reason is empty while writing works."""
        return self.ended or self._file.failing

    def write(self, lines: bytes, now: int) -> None:
        """Write whole lines. End the trace instead if too many lines wait already, or if the file would exceed its largest size."""
        if self.ended:
            return
        self._taken += len(lines)
        if self._taken > self._bytes_max:
            self.end(End(now, f"it has grown to {self._bytes_max} bytes, which is the limit"))
        elif not self._file.append(lines):
            self.end(End(now, f"the disk took no more: {self._file.failing}"))
        else:
            self._lines += lines.count(b"\n")
            self._file.flush()

    def end(self, end: End) -> None:
        """End the trace early. Further lines are ignored."""
        if not self.ended:
            _log.error("trace-ended", file=str(self._path), problem=end.why)
            self._end(end)

    def sync(self) -> None:
        """Retry failed writes, and sync the file, so that everything survives a loss of power."""
        self._file.flush()
        self._file.sync()

    def close(self, end: End) -> None:
        """End the trace and close the file, after one more attempt to write."""
        if not self.ended:
            self._end(end)
        self._file.close()

    def _end(self, end: End) -> None:
        self.ended = end.why
        self._file.append(end_line(end, self._lines + 1), last=True)
        self._file.flush()


def _fresh(path: Path) -> int:
    """Return a descriptor of an empty file, after renaming an earlier trace. Raise RecordError if the file cannot be used."""
    descriptor = opened(path)
    try:
        if os.fstat(descriptor).st_size == 0:
            return descriptor
        _check(descriptor, path)
        path.rename(path.with_name(f"{path.name}.previous"))
    except OSError as error:
        os.close(descriptor)
        raise RecordError(f"{path}: {error.strerror}") from error
    except RecordError:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return opened(path)


def _check(descriptor: int, path: Path) -> None:
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(0)
        line = file.readline(FIRST_BYTES_MAX)
    try:
        kind = parsed(line).get("kind")
    except BadLineError:
        kind = None
    if kind != HEADER:
        raise RecordError(f"{path}: is no trace; name another file, nothing was written to it")
