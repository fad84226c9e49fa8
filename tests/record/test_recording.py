"""A core with a record makes the same decisions as one without; the record is complete when its files are closed."""

import io
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from server.core.core import Core
from server.model.asks import AskSpec
from server.model.decisions import Decision, Noted, Tick
from server.model.events import (
    ApplicationAdded,
    AskAdded,
    ConfigurationApplied,
    Event,
    ManagerRegistered,
    NodeAdded,
    NodeDrained,
)
from server.model.quota import DEFAULT_CONFIGURATION
from server.model.reasons import Code
from server.model.revisions import Revision
from server.record.reading import Ended, Given, Step, Ticked, TraceReader
from server.record.record_file import RecordError
from server.record.recording import Recording
from server.record.start import Start, begin
from server.record.trace import End
from server.record.tracefile import TraceFile
from server.record.writer import Scribe
from tests.one_part import OnePart
from tests.record.test_log import BIG, Disk, kinds, lines
from tests.record.values import START, decided, moved
from tests.ticks import ticked

BEGINNING = Start(START, "1.2.3", None)


class Scripted(OnePart):
    """Drained nodes decide; everything else is silence."""

    def __init__(self) -> None:
        self.ticks: list[list[Decision]] = []

    def take(self, events: Sequence[Event], now: int) -> list[Decision]:
        del now
        return [one for event in events for one in self._answer(event)]

    def _answer(self, event: Event) -> list[Decision]:
        if isinstance(event, NodeDrained):
            return [decided(int(event.node_id))]
        if isinstance(event, ConfigurationApplied):
            return [Noted("configuration", event.source, Code.CONFIGURATION_APPLIED, "applied")]
        return []

    def tick(self, now: int, budget: int) -> Tick:
        del now, budget
        return Tick(self.ticks.pop(0) if self.ticks else [])

    def next_due(self) -> int | None:
        return 17


def recording(core: Scripted | Core, folder: Path) -> Recording:
    recorded = Recording(core, lambda: Revision(7, "d1", "me", "ada", START + 2))
    begin(recorded, BEGINNING, folder / "log", folder / "trace")
    return recorded


def steps(file: Path) -> list[Step]:
    return list(TraceReader(io.BytesIO(file.read_bytes())))


def test_decisions_of_events_and_ticks_are_in_the_log_in_their_order(tmp_path: Path) -> None:
    core = Scripted()
    core.ticks = [[moved(1), moved(2)], []]
    recorded = recording(core, tmp_path)
    replies = recorded.take([NodeDrained("rm", "3")], START + 1)
    recorded.take([ConfigurationApplied(DEFAULT_CONFIGURATION, "me")], START + 2)
    assert replies == [decided(3)]
    assert ticked(recorded, START + 3, 10).decisions == [moved(1), moved(2)]
    assert recorded.next_due() == 17
    recorded.close()
    told = lines(tmp_path / "log")
    assert [one["kind"] for one in told] == [
        "started",
        "decided",
        "configuration",
        "moved",
        "moved",
        "ended",
    ]
    assert [one["at"] - START for one in told] == [0, 1, 2, 3, 3, 3]
    assert told[-1]["facts"] == {"why": "the server ended"}
    assert told[2]["facts"] == {"digest": "d1", "source": "me", "revision": 7, "by": "ada"}


def test_a_slice_is_in_the_log_when_its_tick_is_over(tmp_path: Path) -> None:
    recorded = recording(Scripted(), tmp_path)
    recorded.take([NodeDrained("rm", "3")], START)
    assert kinds(tmp_path / "log") == ["started"]
    ticked(recorded, START, 10)
    assert kinds(tmp_path / "log") == ["started", "decided"]
    recorded.close()


def test_the_trace_holds_what_the_core_was_given(tmp_path: Path) -> None:
    recorded = recording(Core(), tmp_path)
    told: list[Event] = [
        ManagerRegistered("rm"),
        NodeAdded("rm", "n", (("vcore", 9),)),
        ApplicationAdded("rm", "app", "root.a"),
        AskAdded("rm", "k", "app", AskSpec((("vcore", 1),))),
    ]
    count = len(recorded.take(told, START))
    count += len(ticked(recorded, START + 5, 2_000).decisions)
    ticked(recorded, START + 6, 2_000)
    recorded.close()
    found = steps(tmp_path / "trace")
    assert [type(one) for one in found] == [*[Given] * 4, Ticked, Ticked, Ended]
    assert isinstance(found[5], Ticked)
    assert found[5].tick == (START + 6, 2_000, count)
    assert isinstance(found[6], Ended)
    assert found[6].end == (START + 6, "the server ended", count)


def test_a_core_that_fails_leaves_what_it_failed_of_in_the_trace(tmp_path: Path) -> None:
    class Broken(Scripted):
        def take(self, events: Sequence[Event], now: int) -> list[Decision]:
            raise AssertionError(events, now)

    recorded = recording(Broken(), tmp_path)
    with pytest.raises(AssertionError):
        recorded.take([NodeDrained("rm", "3")], START)
    recorded.close()
    given = steps(tmp_path / "trace")[0]
    assert isinstance(given, Given)
    assert given.event == NodeDrained("rm", "3")


def test_the_trace_knows_the_place_in_the_log(tmp_path: Path) -> None:
    for _ in range(2):
        recorded = recording(Scripted(), tmp_path)
        recorded.take([NodeDrained("rm", "3")], START)
        ticked(recorded, START, 1)
        recorded.close()
    header = TraceReader(io.BytesIO((tmp_path / "trace").read_bytes())).header
    beginning = lines(tmp_path / "log")[3]
    assert beginning["kind"] == "started"
    assert (header.number, header.previous) == (beginning["number"], beginning["previous"])
    assert (tmp_path / "trace.previous").exists()


def test_a_trace_that_is_full_says_so_and_ends(tmp_path: Path) -> None:
    trace = TraceFile(tmp_path / "trace", bytes_max=100)
    trace.write(b"x" * 90 + b"\n", START)
    trace.write(b"x" * 90 + b"\n", START + 1)
    trace.write(b"x" * 9 + b"\n", START + 2)
    trace.close(End(START + 3, "the server ended", 5))
    _, end = (tmp_path / "trace").read_text().splitlines()
    assert '"n":2' in end
    assert '"decided":null' in end
    assert "100 bytes" in end


def test_a_trace_on_a_full_disk_ends_where_lines_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    trace = TraceFile(tmp_path / "trace", pending_max=30)
    disk.space = 5
    for _ in range(4):
        trace.write(b"x" * 19 + b"\n", START)
    disk.space = BIG
    trace.sync()
    trace.close(End(START + 3, "the server ended", 5))
    written = (tmp_path / "trace").read_text().splitlines()
    assert written[:-1] == ["x" * 19]
    assert '"n":2' in written[-1]
    assert "no space left" in written[-1]


def test_the_doctor_hears_of_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    recorded = recording(Scripted(), tmp_path)
    assert list(recorded.findings()) == []
    disk.space = 0
    recorded.take([NodeDrained("rm", "3")], START)
    ticked(recorded, START, 1)
    assert {one.subject: one.code for one in recorded.findings()} == {
        "decision-log": "record-failing",
        "trace": "record-failing",
    }
    disk.space = BIG
    recorded.sync()
    assert list(recorded.findings()) == []
    recorded.close()


def test_another_file_is_no_place_for_a_trace(tmp_path: Path) -> None:
    file = tmp_path / "queues.yaml"
    file.write_text("partitions:\n")
    with pytest.raises(RecordError):
        TraceFile(file)
    assert file.read_text() == "partitions:\n"


def test_a_disk_that_hangs_delays_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.record.recording.HANDED_BYTES_MAX", 5_000)
    jobs: list[Callable[[], None]] = []
    core = Scripted()
    recorded = Recording(core, Revision, jobs.append)
    begin(recorded, BEGINNING, tmp_path / "log", tmp_path / "trace")
    for number in range(30):
        recorded.take([NodeDrained("rm", str(number))], START + number)
        ticked(recorded, START + number, 1)
    recorded.sync()
    recorded.sync()
    recorded.close()
    for job in jobs:
        job()
    assert kinds(tmp_path / "log")[-2:] == ["gap", "ended"]
    assert lines(tmp_path / "log")[-2]["facts"]["lines"] > 20
    last = steps(tmp_path / "trace")[-1]
    assert isinstance(last, Ended)
    assert last.end.why == "the disk is too slow for it"


def test_a_thread_writes_and_a_defect_ends_neither() -> None:
    scribe = Scribe()
    seen: list[str] = []

    def fail() -> None:
        raise ValueError("a defect")

    scribe.run(fail)
    scribe.run(lambda: seen.append(threading.current_thread().name))
    scribe.close()
    assert seen[0].startswith("record")


def test_writing_is_done_by_one_thread_in_order(tmp_path: Path) -> None:
    scribe = Scribe()
    recorded = Recording(Scripted(), Revision, scribe.run)
    begin(recorded, BEGINNING, tmp_path / "log", None)
    for number in range(200):
        recorded.take([NodeDrained("rm", str(number))], START + number)
        ticked(recorded, START + number, 1)
    recorded.close()
    scribe.close()
    assert [one["at"] - START for one in lines(tmp_path / "log")[1:-1]] == list(range(200))
    assert os.stat(tmp_path / "log").st_mode & 0o007 == 0
