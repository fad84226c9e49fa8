"""The form in which the input of a core reaches its followers: the events and ticks of a slice, packed as MessagePack.

A leader packs every event that its core gets, so packing must cost little. Events of one kind that follow each other are packed
together, by compiled code, as rows of their fields. A template of asks is packed once, and asks name the template by its number.
Rare events with nested values, such as configurations, are written as in a trace (`record/trace.py`). Values that MessagePack
cannot hold are also written as in a trace: whole numbers of more than 64 bits, and text that is no Unicode.

Rows have no names of fields. `checkpoint.layout` is a digest that includes the fields of all events and `FORMAT`. If leader and
follower have the same layout, the follower can therefore read the rows.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple, get_type_hints

import msgspec

from server.model.asks import AskSpec
from server.model.events import ConfigurationApplied, Event, ManagerRegistered
from server.record import canonical
from server.record.canonical import BadLineError, Plain
from server.record.serialization import Fields, Forms, Scalar
from server.record.trace import KINDS, SPECS_MAX

FORMAT: Final = 2
"""The number of this form. Form 1 was the lines of a trace."""
_NESTED: Final = frozenset({ManagerRegistered, ConfigurationApplied})
"""The events that are always written as in a trace."""
_SPEC: Final = "spec"
_TICK: Final = "tick"
_ENCODER: Final = msgspec.msgpack.Encoder()


class BadInputError(Exception):
    """The error of bytes that are no input in this form. The text of the error says why."""


class Given(NamedTuple):
    """An event, and the instant at which the core got it."""

    now: int
    event: Event


class Ticked(NamedTuple):
    """A tick of the core: its instant, and its budget of steps."""

    now: int
    budget: int


class _Frame(NamedTuple):
    """A part of a slice: events, ticks or templates of one kind.

    ``content`` holds them as rows. With ``is_plain``, it holds them as JSON, as a trace does.
    """

    kind: str
    at: int
    is_plain: bool
    content: msgspec.Raw


class InputWriter:
    """The packer of the input of one core. One `InputReader` must read everything that the writer packs, in order."""

    def __init__(self) -> None:
        self._frames: list[_Frame] = []
        self._specs: dict[AskSpec, int] = {}
        self._made = 0

    def events(self, events: Iterable[Event], now: int) -> None:
        """Pack events that the core is given at one instant."""
        for kind, run in groupby(events, type):
            self._add(_FORMS[kind], now, [*run])

    def tick(self, now: int, budget: int) -> None:
        """Add to the packed input that the core ran a tick at ``now`` with this budget."""
        self._frames.append(_frame(_TICK, now, _packed(budget)))

    def take(self) -> bytes:
        """Return the bytes that were packed since the last call."""
        taken = _ENCODER.encode(self._frames)
        self._frames.clear()
        return taken

    def _add(self, form: "_Form", now: int, run: list[Event]) -> None:
        rows: Sequence[object] = run
        if form.spec_at is not None:
            rows = self._numbered(run, form.spec_at)
        packed = None if form.is_nested else _packed(rows)
        if packed is None:
            rows = [form.plain(one, self._specs) for one in run]
        self._frames.append(_frame(form.word, now, packed, rows))
        _trim(self._specs)

    def _numbered(self, run: Iterable[Event], at: int) -> list[list[object]]:
        """Return the fields of events, each with the number of its template in place of the template."""
        known, rows = self._specs, []
        for event in run:
            row: list[Any] = list(event)
            row[at] = known.get(row[at]) or self._number(row[at])
            rows.append(row)
        return rows

    def _number(self, spec: AskSpec) -> int:
        """Pack a template that has no number yet, and return its number."""
        self._made += 1
        self._specs[spec] = self._made
        packed = _packed(spec)
        plain = [] if packed is not None else [_SPEC_FORM.write(spec)]
        self._frames.append(_frame(_SPEC, self._made, packed, plain))
        return self._made


class InputReader:
    """The reader of the bytes that one `InputWriter` packed."""

    def __init__(self) -> None:
        self._specs: dict[int, AskSpec] = {}
        self._now = 0

    def read(self, packed: bytes) -> list[Given | Ticked]:
        """Return the steps of a slice, in order. Raise BadInputError if the bytes are not a slice in this form."""
        try:
            return [step for frame in _FRAMES.decode(packed) for step in self._steps(frame)]
        except (msgspec.DecodeError, ValueError, KeyError, RecursionError) as error:
            raise BadInputError(f"it cannot be read: {error!r}") from error

    def _steps(self, frame: _Frame) -> Iterator[Given | Ticked]:
        if frame.kind == _SPEC:
            self._keep(frame)
            return
        if frame.at < self._now:
            raise BadInputError(f"its instant {frame.at} is before {self._now}")
        self._now = frame.at
        if frame.kind == _TICK:
            yield Ticked(frame.at, _BUDGET.decode(frame.content))
        else:
            yield from (Given(frame.at, one) for one in self._events(frame))
            _trim(self._specs)

    def _keep(self, frame: _Frame) -> None:
        """Store a template under its number, for the events that name it."""
        if frame.is_plain:
            (value,) = _rows(frame)
            spec = _SPEC_FORM.read(value)
        else:
            spec = _SPECS.decode(frame.content)
        assert isinstance(spec, AskSpec)
        self._specs[frame.at] = spec

    def _events(self, frame: _Frame) -> Iterator[Event]:
        form = _BY_WORD[frame.kind]
        if frame.is_plain:
            yield from (form.read(value, self._specs) for value in _rows(frame))
        elif form.spec_at is None:
            yield from form.decoder.decode(frame.content)
        else:
            at, make = form.spec_at, form.kind._make
            for row in form.decoder.decode(frame.content):
                yield make((*row[:at], self._specs[row[at]], *row[at + 1 :]))


class _Form:
    """The two forms of one kind of event: rows of MessagePack, and the values of a trace."""

    def __init__(self, word: str, kind: type[Any]) -> None:
        self.word = word
        self.kind = kind
        self.is_nested = kind in _NESTED
        hints = [*get_type_hints(kind).values()]
        self.spec_at = hints.index(AskSpec) if AskSpec in hints else None
        """The position of the field that holds a template, or None if there is no such field."""
        row: Any = kind
        if self.spec_at is not None:
            hints[self.spec_at] = int
            row = tuple[*hints]  # type: ignore[valid-type]
        self.decoder = msgspec.msgpack.Decoder(tuple[()] if self.is_nested else list[row])
        self._fields = Fields(kind, Forms({AskSpec: _AS_GIVEN}).of)

    def plain(self, event: Any, numbers: dict[AskSpec, int]) -> Plain:  # noqa: ANN401 - any event
        """Return an event as values of JSON."""
        fields = self._fields.write(event)
        if self.spec_at is not None:
            fields[_SPEC] = numbers[event[self.spec_at]]
        return fields

    def read(self, value: Plain, specs: dict[int, AskSpec]) -> Event:
        """Return the event that values of JSON hold. Raise BadFormError, or KeyError for an unknown template."""
        event: Any = self._fields.read(value)
        if self.spec_at is not None:
            event = event._replace(spec=specs[event.spec])
        return event  # type: ignore[no-any-return]


class _AsGiven:
    """The form of a template that the caller has already replaced by its number. Only the number is written and read."""

    def write(self, value: Any) -> Any:  # noqa: ANN401 - as Form has it
        return value

    def read(self, plain: Plain) -> object:
        return _NUMBER.read(plain)


def _trim(specs: dict[Any, Any]) -> None:
    """Drop the oldest templates if there are too many.

    Writer and reader call this function after the same frames, so that both drop the same templates.
    """
    while len(specs) > SPECS_MAX:
        del specs[next(iter(specs))]


def _packed(value: object) -> msgspec.Raw | None:
    """Return a value as MessagePack, or None if MessagePack cannot hold it."""
    try:
        return msgspec.Raw(_ENCODER.encode(value))
    except (OverflowError, UnicodeEncodeError):
        return None


def _frame(kind: str, at: int, packed: msgspec.Raw | None, plain: Sequence[Any] = ()) -> _Frame:
    """Return a frame with packed rows. If there are no packed rows, return a frame with the JSON values ``plain``."""
    if packed is not None:
        return _Frame(kind, at, is_plain=False, content=packed)
    line = canonical.line({"rows": [*plain]})
    return _Frame(kind, at, is_plain=True, content=msgspec.Raw(_ENCODER.encode(line)))


def _rows(frame: _Frame) -> list[Any]:
    """Return the rows of a frame whose content is JSON, as in the lines of a trace."""
    rows = canonical.parsed(_BYTES.decode(frame.content)).get("rows")
    if not isinstance(rows, list):
        raise BadLineError("it has no rows")
    return rows


_NUMBER: Final = Scalar(int)
_AS_GIVEN: Final = _AsGiven()
_SPEC_FORM: Final = Fields(AskSpec, Forms().of)
_FRAMES: Final = msgspec.msgpack.Decoder(list[_Frame])
_BUDGET: Final = msgspec.msgpack.Decoder(int)
_BYTES: Final = msgspec.msgpack.Decoder(bytes)
_SPECS: Final = msgspec.msgpack.Decoder(AskSpec)
_BY_WORD: Final = {word: _Form(word, kind) for word, kind in KINDS.items()}
_FORMS: Final = {one.kind: one for one in _BY_WORD.values()}
