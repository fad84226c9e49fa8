"""Structured logs: JSON lines, or text where the output is a terminal. Notes of the core are logged here."""

import logging
from collections.abc import Callable
from typing import Any, Final, TextIO

import structlog

from server.model.decisions import Decisions, Noted
from server.model.reasons import Code

_WARNINGS: Final = frozenset(
    {
        Code.CONFIGURATION_REFUSED,
        Code.CONFIGURATION_STALE,
        Code.NODE_LOST,
        Code.NODE_OVERCOMMITTED,
        Code.SYNC_MISMATCH,
        Code.MANAGER_REPLACED,
        Code.EPOCH_OLD,
        Code.OVER_MAX,
    }
)
_OF_PODS: Final = frozenset({"ask", "allocation"})
"""The kinds of notes whose subject is the key of a pod."""
_OF_LINES: Final = frozenset({"exception", "stack"})
"""The fields of a log line whose text may have several lines."""
NOTES_LOGGED_MAX: Final = 50
"""The largest number of notes of one batch that get a line each. Further notes are only counted."""


def configure(stream: TextIO, level: int = logging.INFO) -> None:
    """Send every log line of the process to the stream."""
    shown: Any = structlog.processors.JSONRenderer()
    if stream.isatty():
        shown = _on_a_terminal(structlog.dev.ConsoleRenderer())
    facts: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    _take_over_libraries(stream, facts, shown)
    structlog.configure(
        processors=[*facts, shown],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(stream),
        cache_logger_on_first_use=False,
    )


def _on_a_terminal(render: structlog.types.Processor) -> structlog.types.Processor:
    """Return the processor that renders texts.

    Characters that act on a terminal or end a line become escape codes.

    This is necessary because names and texts come from callers. In JSON lines, these characters are escaped by JSON itself.
    """

    def shown(logger: Any, method: str, facts: structlog.types.EventDict) -> Any:  # noqa: ANN401
        safe = {
            name: "\n".join(map(_printable, fact.split("\n")))
            if name in _OF_LINES
            else _printable(fact)
            for name, fact in facts.items()
            if isinstance(fact, str)
        }
        return render(logger, method, {**facts, **safe})

    return shown


def _printable(text: str) -> str:
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def _take_over_libraries(stream: TextIO, facts: list[Any], shown: Any) -> None:  # noqa: ANN401
    """Give the log lines of libraries, which use Python's `logging`, the format of this program's lines.

    Show only warnings and errors of libraries.
    """
    handler = logging.StreamHandler(stream)
    last = [structlog.stdlib.ProcessorFormatter.remove_processors_meta, shown]
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(processors=last, foreign_pre_chain=facts)
    )
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)


class NoteLog:
    """The log of the notes of the core. The pump (see docs/glossary.md) calls this object for each batch of decisions.

    ``name`` returns the name of a pod by partition and key, or "" if the name is not known.
    """

    def __init__(self, name: Callable[[str, str], str]) -> None:
        self._log = structlog.get_logger("server.core")
        self._name = name

    def decided(self, decisions: Decisions, _now: int) -> None:
        """Log one line for each note, up to a limit."""
        notes = decisions.of(Noted)
        for note in notes[:NOTES_LOGGED_MAX]:
            say = self._log.warning if note.code in _WARNINGS else self._log.info
            pod = self._name(note.partition, note.subject) if note.kind in _OF_PODS else ""
            facts = {"pod": pod, "partition": note.partition, "manager": note.rm_id}
            said = {name: fact for name, fact in facts.items() if fact}
            say(str(note.code), kind=note.kind, subject=note.subject, message=note.message, **said)
        if len(notes) > NOTES_LOGGED_MAX:
            self._log.info("more-notes", count=len(notes) - NOTES_LOGGED_MAX)

    def sliced(self, events: int, seconds: float, now: int) -> None:
        """Ignore the end of a slice, because `decided` has logged the notes of the slice."""

    def idle(self) -> None:
        """Ignore that the pump is idle, because `decided` logs notes at once."""
