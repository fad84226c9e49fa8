"""Every event can be read back from its line unchanged; ten thousand asks from one template stay small."""

import dataclasses
import io
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from server.model.asks import AskSpec
from server.model.events import AllocationAdded, AskAdded, Event
from server.record import trace
from server.record.chain import ORIGIN
from server.record.reading import Given, Ticked, TraceReader
from server.record.trace import KINDS, Header, TraceLines
from tests.record.values import ANY_EVENT, CONFIGURATIONS, START, VCORES, events

HEADER = Header(START, "1.2.3", None, 1, ORIGIN)


def there_and_back(*given_: Event, header: Header = HEADER) -> tuple[Header, list[Event]]:
    lines = TraceLines(header)
    for one in given_:
        lines.event(one, START)
    reader = TraceReader(io.BytesIO(lines.take()))
    return reader.header, [step.event for step in reader if isinstance(step, Given)]


def bare(value: Any) -> Any:
    """Return a template as its fields, because templates compare by identity; other values stay as they are."""
    if isinstance(value, AskSpec):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return value


def parts(event: Event) -> dict[str, Any]:
    return {name: bare(value) for name, value in event._asdict().items()}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.data_too_large])
@given(data=st.data())
def test_every_kind_of_event_comes_back_as_it_was(kind: type[Any], data: st.DataObject) -> None:
    event = data.draw(events(kind))
    _, (found,) = there_and_back(event)
    assert type(found) is kind
    assert parts(found) == parts(event)


@settings(max_examples=12, deadline=None)
@given(st.lists(ANY_EVENT, max_size=8), st.lists(st.integers(0, 7), max_size=8))
def test_stories_come_back_with_the_same_templates_the_same(
    some: list[Event], again: list[int]
) -> None:
    told = [*some, *(some[place] for place in again if place < len(some))]
    _, found = there_and_back(*told)
    assert [parts(one) for one in found] == [parts(one) for one in told]
    assert identities(found) == identities(told)


def identities(told: list[Event]) -> list[int]:
    """Return for each template the position of its first occurrence, to show which events share one."""
    specs = [one.spec for one in told if isinstance(one, AskAdded | AllocationAdded)]
    return [specs.index(spec) for spec in specs]


@settings(max_examples=12, deadline=None)
@given(st.none() | CONFIGURATIONS, st.integers(1, 1 << 60))
def test_the_header_comes_back(configuration: Any, number: int) -> None:
    header = Header(START, "0.1", configuration, number, "ab" * 32)
    assert there_and_back(header=header)[0] == header


def test_ticks_come_back() -> None:
    lines = TraceLines(HEADER)
    ticks = [trace.Tick(START, 2_000, 0), trace.Tick(START + 5, 20, 17)]
    for one in ticks:
        lines.tick(one)
    found = TraceReader(io.BytesIO(lines.take()))
    assert [step.tick for step in found if isinstance(step, Ticked)] == ticks


def test_ten_thousand_asks_of_one_template_stay_small() -> None:
    lines = TraceLines(HEADER)
    spec = AskSpec(VCORES)
    lines.take()
    for number in range(10_000):
        lines.event(AskAdded("rm", f"pod-{number:05}", "app", spec), START)
    written = lines.take()
    assert written.count(b'"spec":{') == 1
    assert len(written) < 10_000 * 200


def test_a_forgotten_template_is_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.record.trace.SPECS_MAX", 2)
    monkeypatch.setattr("server.record.reading.SPECS_MAX", 2)
    specs = [AskSpec(VCORES, priority=one) for one in range(3)]
    asks = [
        AskAdded("rm", f"k{place}", "app", specs[one])
        for place, one in enumerate((0, 1, 2, 0, 2, 1))
    ]
    _, found = there_and_back(*asks)
    assert [parts(one) for one in found] == [parts(one) for one in asks]


def test_kinds_are_words() -> None:
    assert list(KINDS)[:3] == ["manager-registered", "configuration-applied", "sync-completed"]
