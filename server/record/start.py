"""The beginning of a recorded run: both files and their first lines."""

from pathlib import Path
from typing import NamedTuple

from server.model.quota import Configuration
from server.model.revisions import Beginning
from server.record.chain import FORMAT, ORIGIN
from server.record.entries import started
from server.record.log import DecisionLog
from server.record.recording import Recording
from server.record.trace import Header
from server.record.tracefile import TraceFile


class Start(NamedTuple):
    """The facts at the start of a core. ``configuration`` comes from the configuration file, or was kept from an earlier run."""

    now: int
    version: str
    configuration: Configuration | None
    beginning: Beginning | None = None


def begin(
    recording: Recording,
    start: Start,
    log_file: Path | None,
    trace_file: Path | None,
    *,
    durable: bool = False,
) -> None:
    """Open the requested files and write their first lines. Raise RecordError if a file cannot be used.

    With ``durable``, decisions are sent only when their lines are safe in the log.
    """
    number, previous = 1, ORIGIN
    if log_file is not None:
        log = DecisionLog(log_file, start.now, durable=durable)
        number, previous = log.chain.number, log.chain.previous
        log.note(started(start.now, start.version, digest_of(start.configuration), FORMAT))
        log.flush()
        if durable:
            log.sync()  # Otherwise a failed sync later could undo the beginning of the run.
        recording.write_log(log, start.now)
    if trace_file is not None:
        header = Header(
            start.now,
            start.version,
            start.configuration,
            number,
            previous,
            start.beginning,
            FORMAT,
        )
        recording.write_trace(TraceFile(trace_file), header)


def digest_of(configuration: Configuration | None) -> str:
    """Return the digest of the configuration at a start. Return "" if there is no configuration."""
    return "" if configuration is None else configuration.digest
