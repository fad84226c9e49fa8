"""The lines of an input trace: all input of a core, in order, so that another core can be given the same input.

Each line is one JSON object, in which ``n`` is the line's number. The first line is the header. The other lines are ticks,
events with the instant at which the core got them, and templates. Each template comes before the first event that uses it. An
event names its template by the number of the template's line. Ten thousand asks of one template thus take little space, and
share one object again in a replay.
"""

from typing import Any, Final, NamedTuple, get_args

from server.model.asks import AskSpec
from server.model.events import Event
from server.model.quota import Configuration
from server.model.revisions import Beginning
from server.record import canonical
from server.record.canonical import Plain
from server.record.chain import FIRST_FORMAT
from server.record.serialization import Fields, Forms

FORMAT: Final = 1
SPECS_MAX: Final = 1 << 18
"""The largest number of templates that events can name. The oldest template is dropped first.

A dropped template that is used again is written again.
"""

HEADER: Final = "trace"
SPEC: Final = "spec"
TICK: Final = "tick"
END: Final = "end"


class Header(NamedTuple):
    """The first line of a trace: the start of a core.

    If the header has no ``beginning``, the core started with the configuration of the configuration file.

    ``number`` and ``previous`` are the values of the first line of this run in the decision log. ``log_format`` is the format
    of the log's lines, so that a replay makes equal lines.
    """

    started_ms: int
    version: str
    configuration: Configuration | None
    number: int
    previous: str
    beginning: Beginning | None = None
    log_format: int = FIRST_FORMAT


class Tick(NamedTuple):
    """A tick of the core, as a line of the trace.

    ``decided`` is the number of decisions, replies included, that the core had made before the tick.
    """

    now: int
    budget: int
    decided: int


class End(NamedTuple):
    """The normal end of a trace, and its reason.

    ``decided`` is the number of decisions, replies included, that the core had made. ``decided`` is None if lines before the end
    are missing.
    """

    at_ms: int
    why: str
    decided: int | None = None


def kind_of(event: type[Any]) -> str:
    """Return the word of an event type: `NodeAdded` is `node-added`."""
    parts = "".join(f"-{one.lower()}" if one.isupper() else one for one in event.__name__)
    return parts.removeprefix("-")


KINDS: Final[dict[str, type[Any]]] = {kind_of(one): one for one in get_args(Event)}


def end_line(end: End, number: int) -> bytes:
    """Return the last line of a trace."""
    return canonical.line({"kind": END, "n": number, **end._asdict()})


class TraceLines:
    """The maker of the lines of one trace. The lines must be written in the order in which they are made."""

    def __init__(self, header: Header) -> None:
        self._line = 0
        self._made: list[bytes] = []
        self._specs: dict[AskSpec, int] = {}
        self._spec = Fields(AskSpec, Forms().of)
        forms = Forms({AskSpec: _Named(self)})
        self._events = {kind: (word, Fields(kind, forms.of)) for word, kind in KINDS.items()}
        plain = Fields(Header, Forms().of).write(header)
        self._add({"kind": HEADER, "format": FORMAT, **plain})

    def event(self, event: Event, now: int) -> None:
        """Make the line of an event that is given to the core."""
        kind, form = self._events[type(event)]
        self._add({"kind": kind, "at": now, "event": form.write(event)})

    def tick(self, tick: Tick) -> None:
        """Make the line of a tick of the core."""
        self._add({"kind": TICK, **tick._asdict()})

    def take(self) -> bytes:
        """Return the lines made since the last call."""
        taken = b"".join(self._made)
        self._made.clear()
        return taken

    def number(self, spec: AskSpec) -> int:
        """Return the number of the line that holds the template. Make the line if there is no such line yet."""
        known = self._specs.get(spec)
        if known is None:
            if len(self._specs) >= SPECS_MAX:
                del self._specs[next(iter(self._specs))]
            self._add({"kind": SPEC, "spec": self._spec.write(spec)})
            known = self._specs[spec] = self._line
        return known

    def _add(self, value: dict[str, Plain]) -> None:
        self._line += 1
        value["n"] = self._line
        self._made.append(canonical.line(value))


class _Named:
    """The form that writes a template as the number of its line."""

    def __init__(self, lines: TraceLines) -> None:
        self._lines = lines

    def write(self, value: AskSpec) -> Plain:
        return self._lines.number(value)

    def read(self, plain: Plain) -> object:
        raise NotImplementedError(plain)
