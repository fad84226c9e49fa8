"""The reader of an input trace. If a trace cannot be replayed, the error says what is wrong, and in which line."""

from collections.abc import Iterator
from typing import Any, BinaryIO, Final, NamedTuple

from server.model.asks import AskSpec
from server.model.events import Event
from server.record import trace
from server.record.canonical import BadLineError, Plain, parsed
from server.record.serialization import BadFormError, Fields, Forms
from server.record.trace import END, FORMAT, HEADER, KINDS, SPEC, SPECS_MAX, TICK, End, Header, Tick

LINE_BYTES_MAX: Final = 64 << 20
"""The largest number of bytes of a line. No line of a trace is longer."""

_WRITTEN_BY: Final = "a trace is what `evenhand serve --trace FILE` writes"
_CHANGED: Final = "the file was changed or cut: take it again from where it was written"


class BadTraceError(Exception):
    """The error of a trace that cannot be replayed: what is wrong, in which line, and what to do."""

    def __init__(self, line: int, what: str, advice: str) -> None:
        super().__init__(what)
        self.line = line
        self.what = what
        self.advice = advice


class Given(NamedTuple):
    """An event that was given to the core at ``now``."""

    line: int
    now: int
    event: Event


class Ticked(NamedTuple):
    """A tick of the core."""

    line: int
    tick: Tick


class Ended(NamedTuple):
    """The last line of a trace that ended normally."""

    line: int
    end: End


Step = Given | Ticked | Ended


class TraceReader:
    """The reader of one trace. ``header`` is read when the reader is made. Iterating yields the steps, and is possible only once."""

    def __init__(self, file: BinaryIO, until: int | None = None) -> None:
        """Open a trace and read its header. If ``until`` is given, later steps are left out.

        Raise BadTraceError if the trace has no header.
        """
        self._file = file
        self._until = until
        self._line = 0
        self._now = 0
        self._specs: dict[int, AskSpec] = {}
        self._spec = Fields(AskSpec, Forms().of)
        forms = Forms({AskSpec: _Named(self._specs)})
        self._events = {word: Fields(kind, forms.of) for word, kind in KINDS.items()}
        self.read = 0
        """The number of bytes read so far."""
        self.header = self._header()

    def __iter__(self) -> Iterator[Step]:
        """Yield the steps, in order. Raise BadTraceError at a line that cannot be replayed."""
        ended = False
        for value in self._lines():
            if ended:
                raise self._bad("there is a line behind the end of the trace", _CHANGED)
            if value["kind"] == SPEC:
                self._keep(value)
                continue
            step = self._step(value)
            if step is None:
                return
            ended = isinstance(step, Ended)
            yield step

    def _header(self) -> Header:
        value = self._next()
        if value is None:
            raise BadTraceError(1, "it is empty", _WRITTEN_BY)
        if value.get("kind") != HEADER:
            raise BadTraceError(1, "it is no trace: its first line is no header", _WRITTEN_BY)
        if value.get("format") != FORMAT:
            what = f"its format is {value.get('format')!r}, this version reads {FORMAT}"
            raise BadTraceError(1, what, f"replay it with Evenhand {value.get('version')}")
        header: Header = self._read(Fields(Header, Forms().of), _without(value, "format"))
        return header

    def _lines(self) -> Iterator[dict[str, Any]]:
        while (value := self._next()) is not None:
            yield value

    def _next(self) -> dict[str, Any] | None:
        """Return the object of the next line. Return None at the end."""
        written = self._file.readline(LINE_BYTES_MAX)
        self.read = self._file.tell()
        self._line += bool(written)
        if not written.endswith(b"\n"):
            self._check_torn(written)
            return None
        try:
            value = parsed(written)
        except BadLineError as error:
            raise self._bad(str(error), self._advice) from error
        if value.get("n") != self._line:
            what = f"line {self._line} says that it is line {value.get('n')}: lines are missing or out of order"
            raise self._bad(what, self._advice)
        if not isinstance(value.get("kind"), str):
            raise self._bad("it has no kind", self._advice)
        return value

    @property
    def _advice(self) -> str:
        """Return advice on a line that does not belong to a trace."""
        return _WRITTEN_BY if self._line == 1 else _CHANGED

    def _check_torn(self, written: bytes) -> None:
        """Check the end of the file. Raise BadTraceError for an incomplete last line, unless ``until`` limits the steps."""
        if written and self._line == 1:
            raise self._bad("it is no trace: its first line does not end", _WRITTEN_BY)
        if written and self._until is None:
            raise self._bad(
                "the trace is cut off in the middle of this line: the server was killed, or still writes",
                f"replay what is whole with --until {self._now}",
            )

    def _keep(self, value: dict[str, Any]) -> None:
        """Keep the template in a line for the events that name it.

        If there are too many templates, drop the oldest, as the writer of the trace did.
        """
        if len(self._specs) >= SPECS_MAX:
            del self._specs[next(iter(self._specs))]
        self._specs[self._line] = self._read(self._spec, value.get("spec"))

    def _step(self, value: dict[str, Any]) -> Step | None:
        """Return the step of a line. Return None if the step is later than `until`."""
        kind = value["kind"]
        if kind == TICK:
            tick: Tick = self._read(_TICK, _without(value))
            return Ticked(self._line, tick) if self._is_wanted(tick.now) else None
        if kind == END:
            return Ended(self._line, self._read(_END, _without(value)))
        if kind not in KINDS:
            what = f"there is no kind of event {kind!r}"
            raise self._bad(what, f"replay it with Evenhand {self.header.version}")
        now = value.get("at")
        if type(now) is not int:
            raise self._bad("it has no instant", _CHANGED)
        if not self._is_wanted(now):
            return None
        return Given(self._line, now, self._read(self._events[kind], value.get("event")))

    def _is_wanted(self, now: int) -> bool:
        """Return whether an instant is `until` or earlier, so that its step belongs to the result.

        Raise BadTraceError for an instant before that of the previous line.
        """
        if now < self._now:
            raise self._bad(
                f"its instant {now} is before that of the line before, {self._now}", _CHANGED
            )
        if self._until is not None and now > self._until:
            return False
        self._now = now
        return True

    def _read(self, form: Fields, plain: Plain) -> Any:  # noqa: ANN401
        try:
            return form.read(plain)
        except BadFormError as error:
            raise self._bad(str(error), _CHANGED) from error

    def _bad(self, what: str, advice: str) -> BadTraceError:
        return BadTraceError(self._line, what, advice)


class _Named:
    """The form that reads a template: the plain value is the number of the template's line."""

    def __init__(self, specs: dict[int, AskSpec]) -> None:
        self._specs = specs

    def write(self, value: AskSpec) -> Plain:
        raise NotImplementedError(value)

    def read(self, plain: Plain) -> AskSpec:
        if type(plain) is not int or plain not in self._specs:
            raise BadFormError(f"line {plain} holds no template")
        return self._specs[plain]


_TICK: Final = Fields(Tick, Forms().of)
_END: Final = Fields(trace.End, Forms().of)


def _without(value: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return a line's fields without `n`, `kind` and the fields with the given names."""
    return {name: one for name, one in value.items() if name not in ("n", "kind", *names)}
