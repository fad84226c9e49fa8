"""`--durable`: no decision is sent before its lines are on the disk, whatever the disk does."""

import asyncio
import os
import stat
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.bootstrap import Exit, ServeOptions, serve
from server.model.events import NodeDrained
from server.model.revisions import Revision
from server.record import holding
from server.record.entries import entry
from server.record.holding import Holding
from server.record.log import DecisionLog
from server.record.recording import Recording
from server.record.start import begin
from server.record.writer import Scribe
from tests.effort import cases
from tests.record.killing import Run
from tests.record.test_ending import gaps, start_again, verified
from tests.record.test_log import BIG, Disk, disk, kinds
from tests.record.test_recording import BEGINNING, Scripted
from tests.record.values import START, decided
from tests.ticks import ticked

__all__ = ["disk"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "log"


class Syncs:
    """A counter of syncs, which fail while there are ``failures`` left. So many bytes of the file are ``safe``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.failures = 0
        self.safe = 0
        self._sync = os.fsync
        monkeypatch.setattr(os, "fsync", self.sync)

    def sync(self, descriptor: int) -> None:
        """Sync as `os.fsync` does."""
        if self.failures:
            self.failures -= 1
            raise OSError(5, "Input/output error")
        self.count += 1
        self._sync(descriptor)
        found = os.fstat(descriptor)
        self.safe = found.st_size if stat.S_ISREG(found.st_mode) else self.safe


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> Syncs:
    return Syncs(monkeypatch)


def recorded(file: Path, run: Callable[[Any], None] = lambda job: job()) -> Recording:
    found = Recording(Scripted(), Revision, run)
    begin(found, BEGINNING, file, None, durable=True)
    return found


def decide(recording: Recording, number: int) -> None:
    recording.take([NodeDrained("rm", str(number))], START + number)
    ticked(recording, START + number, 1)


async def here(job: Callable[[], bool]) -> bool:
    return job()


async def test_lines_are_synced_before_their_decisions_leave(file: Path, syncs: Syncs) -> None:
    recording = recorded(file)
    decide(recording, 1)
    assert kinds(file) == ["started"]
    before = syncs.count
    await Holding(recording, here).before_leaving()
    assert kinds(file) == ["started", "decided"]
    assert syncs.count > before
    recording.close()


async def test_a_sync_that_fails_takes_the_beginning_of_a_run_back_no_more(
    file: Path, syncs: Syncs
) -> None:
    """Killed while the disk fails, the run would have no `started` in the log, and its trace no run to compare with."""
    recording = recorded(file)
    syncs.failures = 1
    decide(recording, 1)
    recording.sync()
    assert kinds(file) == ["started"]
    recording.close()


async def test_a_slice_without_lines_waits_for_nothing(file: Path, syncs: Syncs) -> None:
    recording = recorded(file)
    ticked(recording, START, 1)
    before = syncs.count
    await Holding(recording, here).before_leaving()
    assert syncs.count == before
    recording.close()


async def test_a_full_disk_holds_decisions_back_until_it_has_space(
    file: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holding, "RETRY_S", 0)
    recording = recorded(file)
    told: list[bool] = []
    held = Holding(recording, here)

    def tell(is_held: bool) -> None:  # noqa: FBT001
        told.append(is_held)
        found = [(one.severity, one.code) for one in recording.findings()]
        assert found == ([("error", "decisions-held")] if is_held else [])
        disk.space = BIG

    held.tell = tell
    disk.space = 10
    decide(recording, 1)
    await held.before_leaving()
    assert told == [True, False]
    assert kinds(file) == ["started", "decided"]
    recording.close()
    assert verified(file).whole


async def test_what_a_failed_sync_may_have_lost_is_written_again(
    file: Path, syncs: Syncs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel drops pages that it could not write; the next sync succeeds without them."""
    monkeypatch.setattr(holding, "RETRY_S", 0)
    recording = recorded(file)
    held = Holding(recording, here)
    decide(recording, 1)
    await held.before_leaving()
    written: list[int] = []
    write = os.write

    def count(descriptor: int, data: memoryview) -> int:
        written.append(len(data))
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", count)
    syncs.failures = 2
    decide(recording, 2)
    await held.before_leaving()
    assert len(written) == 3
    assert len(set(written)) == 1
    recording.close()
    assert kinds(file) == ["started", "decided", "decided", "ended"]
    assert verified(file).whole


async def test_a_disk_that_does_not_answer_is_said(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holding, "SLOW_S", 0.001)
    scribe, answers = Scribe(), threading.Event()
    recording = recorded(file, scribe.run)
    held = Holding(recording, scribe.asked)
    said = asyncio.Event()
    held.tell = lambda is_held: said.set() if is_held else None
    scribe.run(lambda: assert_set(answers))
    decide(recording, 1)
    waiting = asyncio.create_task(held.before_leaving())
    await said.wait()
    assert [one.code for one in recording.findings()] == ["decisions-held"]
    assert not waiting.done()
    answers.set()
    await waiting
    assert [one.code for one in recording.findings()] == []
    recording.close()
    scribe.close()


def assert_set(event: threading.Event) -> None:
    assert event.wait(10)


async def test_a_line_that_cannot_be_made_lets_nothing_leave(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("a defect")

    recording = recorded(file)
    decide(recording, 1)
    monkeypatch.setattr("server.record.recording.entry", fail)
    with pytest.raises(AssertionError):
        await Holding(recording, here).before_leaving()


def durable_run(file: Path, *, leaving: bool) -> Run:
    """Return a durable run that has written line 1, not line 2; if ``leaving``, the decision of line 1 may be sent."""
    run = Run(file, durable=True)
    run.write_safely(1)
    if leaving:
        run.log.hand(1, START + 1)
    return run


@pytest.mark.parametrize("leaving", [True, False])
def test_nothing_that_left_is_missing_after_a_kill(file: Path, leaving: bool) -> None:  # noqa: FBT001
    durable_run(file, leaving=leaving).kill()
    assert verified(file).whole
    start_again(file)
    assert kinds(file) == ["started", "decided", "killed", "started", "ended"]
    assert verified(file).whole


def test_nothing_that_left_is_missing_after_a_loss_of_power(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.record.mark.boot_id", lambda: "an earlier boot")
    durable_run(file, leaving=True).kill()
    monkeypatch.undo()
    start_again(file)
    assert gaps(file) == []
    assert verified(file).whole


def test_lines_that_were_safe_and_are_gone_are_missed(file: Path) -> None:
    durable_run(file, leaving=True).kill()
    file.write_bytes(file.read_bytes().splitlines(keepends=True)[0])
    start_again(file)
    assert gaps(file)[0]["lines"] == 1
    assert not verified(file).whole


def test_full_files_are_put_aside_when_all_is_safe(file: Path) -> None:
    log = DecisionLog(file, START, file_max=1_000, durable=True)
    run = Run.__new__(Run)
    run.log = log
    for number in range(1, 6):
        run.write_safely(number)
        log.hand(1, START + number)
    log.close()
    found = verified(file)
    assert found.whole
    assert found.files > 2


STEPS = st.lists(st.sampled_from(("decide", "full", "space", "kill", "stop")), max_size=20)


@settings(max_examples=cases(100), deadline=None)
@given(STEPS, st.booleans())
def test_whatever_left_is_in_the_log(steps: list[str], power: bool) -> None:  # noqa: FBT001
    """Runs that are killed anywhere, or lose their power and all that was not synced, on a disk that is full now and then."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        file, left, disk, syncs = Path(folder) / "log", 0, Disk(patch), Syncs(patch)
        for boot, run in enumerate(" ".join(steps).split("kill")):
            if power:
                patch.setattr("server.record.mark.boot_id", partial(str, boot))
                patch.setattr("server.record.log.boot_id", partial(str, boot))
            left += _live(disk, file, run.split())
            if power:
                os.truncate(file, syncs.safe)
        disk.space = BIG
        start_again(file)
        found = verified(file)
        assert (found.whole, found.missing) == (True, 0)
        assert found.kinds["decided"] >= left


def _live(disk: Disk, file: Path, steps: list[str]) -> int:
    """Run once, and return how many decisions left. Those that are not safe by the end never leave."""
    run, left, waiting = Run(file, durable=True), 0, 0
    for step in steps:
        if step == "stop":
            run.end()
            return left
        if step == "decide":
            run.log.add(entry(decided(1), START))
            waiting += 1
        else:
            disk.space = 700 if step == "full" else BIG
        if run.log.sync():
            run.log.hand(waiting, START)
            left, waiting = left + waiting, 0
    run.kill()
    return left


async def test_durable_needs_a_decision_log(tmp_path: Path) -> None:
    told: list[str] = []
    options = ServeOptions("127.0.0.1:0", trace=tmp_path / "trace", durable=True)
    code = await serve(options, ready=lambda _: None, errors=told.append)
    assert code == Exit.BAD_OPTIONS
    assert "--durable" in told[0]
    assert "--decision-log" in told[0]
