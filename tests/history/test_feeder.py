"""The thread of the history and its process: what the process does not take in time waits, and nothing is written twice."""

import errno
import io
import os
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from server.history import feeder as feeding
from server.history.address import address
from server.history.feeder import Feeder
from server.history.rows import Row, frames
from server.history.rows_fast import Run, unpacked
from server.history.settings import Beginning, Settings
from server.history.tap import Kind, Queue
from server.model.asks import AskSpec
from server.model.events import ApplicationAdded, AskAdded, Event
from tests.cli.processes import until
from tests.history.frames import T0

PODS = 4_000
SPEC = AskSpec((("vcore", 10),))


class Fed:
    """A feeder with its process, and what it was given."""

    def __init__(self, file: Path, *, can_start: bool = True) -> None:
        self.file = file
        self.queue = Queue(most=3 * PODS)
        self._begun = time.monotonic()
        place, about = address(str(file)), Beginning("1", "core")
        self.feeder = Feeder(self.queue, place, Settings(), self.now, lambda: about)
        self.feeder.start()
        assert self.feeder.wait_opened() == ""
        until(lambda: not can_start or self.feeder._status.ready)
        self.queue.put(Kind.EVENTS, self.now(), [ApplicationAdded("rm", "a", "root.a")])

    def now(self) -> int:
        """Return the time in milliseconds."""
        return T0 + int(1000 * (time.monotonic() - self._begun))

    @property
    def pid(self) -> int:
        """The process that writes."""
        process = self.feeder._process
        return 0 if process is None else process.pid

    def stop(self) -> None:
        """Stop the process, and wait until it stands: a read that has begun may still take what is in the pipe."""
        os.kill(self.pid, signal.SIGSTOP)
        state = Path(f"/proc/{self.pid}/stat")
        until(lambda: state.read_text().rpartition(")")[2].split()[0] == "T")

    def give(self, name: str) -> None:
        """Queue asks of pods with this name and a number."""
        asks: list[Event] = [
            AskAdded("rm", f"{name}-{n}", "a", SPEC, created_ms=T0) for n in range(PODS)
        ]
        for at in range(0, PODS, 100):
            self.queue.put(Kind.EVENTS, self.now(), asks[at : at + 100])

    def pods(self, name: str) -> int:
        """Return how many different pods of a name are in the database, and fail if one is there twice."""
        with sqlite3.connect(self.file) as connection:
            select = "SELECT COUNT(*), COUNT(DISTINCT pod_key) FROM pods WHERE pod_key LIKE ?"
            ((rows, keys),) = connection.execute(select, [f"{name}-%"])
        assert rows == keys
        return int(keys)


@pytest.fixture
def unstarted(tmp_path: Path) -> Feeder:
    """Return a feeder without thread and process."""
    place = address(str(tmp_path / "history.sqlite"))
    about = Beginning("1", "core")
    return Feeder(Queue(most=3 * PODS), place, Settings(), lambda: T0, lambda: about)


@pytest.fixture
def fed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fed]:
    """Provide a feeder that is closed at the end."""
    monkeypatch.setattr(feeding, "RESTART_S", 0.05)
    monkeypatch.setattr(feeding, "END_S", 60)
    monkeypatch.setattr(feeding, "PIPE_BYTES", 1 << 16)
    one = Fed(tmp_path / "history.sqlite")
    yield one
    one.feeder.close("the end")


def test_the_process_yields_to_all_others_once_it_is_open(fed: Fed) -> None:
    nice = min(os.getpriority(os.PRIO_PROCESS, 0) + 10, 19)
    until(lambda: os.getpriority(os.PRIO_PROCESS, fed.pid) == nice)
    session = Path(f"/proc/{fed.pid}/autogroup")
    if not session.exists():
        pytest.skip("this kernel shares nothing between sessions")
    until(lambda: session.read_text().split()[-1] == "10")


def test_what_a_stopped_process_does_not_take_is_packed_and_counts_as_waiting(fed: Fed) -> None:
    fed.stop()
    fed.give("early")
    fed.give("late")
    until(lambda: not fed.queue._items)
    assert fed.queue.lost == 0
    fed.give("more")
    fed.give("most")
    assert fed.queue.lost >= PODS // 2
    os.kill(fed.pid, signal.SIGCONT)
    fed.feeder.close("the end")
    assert fed.pods("early") == fed.pods("late") == PODS
    assert fed.pods("more") + fed.pods("most") == 2 * PODS - fed.queue.lost


def test_what_a_killed_process_did_not_get_is_written_by_the_next(fed: Fed) -> None:
    before = fed.pid
    fed.stop()
    fed.give("early")
    fed.give("late")
    until(lambda: not fed.queue._items)
    os.kill(before, signal.SIGKILL)
    until(lambda: fed.pid not in {0, before})
    fed.feeder.close("the end")
    lost = fed.feeder.health()["history"].lost
    assert 0 < lost < PODS
    written = fed.pods("early") + fed.pods("late")
    assert 2 * PODS - lost <= written + 1 <= 2 * PODS
    with sqlite3.connect(fed.file) as connection:
        assert connection.execute("SELECT SUM(lost) FROM gaps").fetchone() == (lost,)


def test_a_process_that_cannot_be_started_is_reported_and_started_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system refuses another process. The queue keeps what it can, and the gap has the reason."""
    monkeypatch.setattr(feeding, "RESTART_S", 0.01)
    monkeypatch.setattr(feeding, "END_S", 60)
    start, may_start, refused = (
        subprocess.Popen,
        threading.Event(),
        "Resource temporarily unavailable",
    )

    def started(*arguments: Any, **more: Any) -> Any:
        if not may_start.is_set():
            raise BlockingIOError(errno.EAGAIN, refused)
        return start(*arguments, **more)

    monkeypatch.setattr(subprocess, "Popen", started)
    fed = Fed(tmp_path / "history.sqlite", can_start=False)
    assert refused in fed.feeder.health()["history"].failing
    assert [one.code for one in fed.feeder.findings()] == ["history-failing"]
    for name in ("early", "late", "more"):
        fed.give(name)
    may_start.set()
    until(lambda: fed.queue._taken == fed.queue._put)
    until(lambda: fed.feeder.health()["history"].failing == "")
    fed.queue.put(Kind.EVENTS, fed.now(), [ApplicationAdded("rm", "b", "root.a")])
    fed.feeder.close("the end")
    assert fed.pods("early") == fed.pods("late") == PODS
    with sqlite3.connect(fed.file) as connection:
        ((lost, why),) = connection.execute("SELECT lost, why FROM gaps").fetchall()
    assert lost == PODS - fed.pods("more") > 0
    assert refused in why


def test_all_of_an_item_reaches_the_next_process_if_a_process_ends_while_it_is_packed(
    unstarted: Feeder, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, feeder = unstarted._queue, unstarted
    asks = [AskAdded("rm", f"{n}", "a", SPEC, created_ms=T0) for n in range(PODS)]
    queue.put(Kind.EVENTS, T0, asks)

    def ended() -> bool:
        raise feeding._EndedError

    monkeypatch.setattr(feeder, "_flush", ended)
    with pytest.raises(feeding._EndedError):
        feeder._empty()
    read = io.BytesIO(b"".join(one.data for one in feeder._packed)).read
    rows = [row for frame, _ in frames(read) for row in frame.rows]
    runs = [Run(*facts) for kind, *facts in rows if kind == Row.RUN]
    assert [facts[2] for run in runs for facts in unpacked(run)] == [one.key for one in asks]
    assert feeder.health()["history"].lost == 0


def test_beats_do_not_pile_up_before_a_process_that_hangs(
    unstarted: Feeder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unstarted, "_flush", lambda: False)
    instants = iter(range(T0, T0 + 100 * feeding.BEAT_MS, feeding.BEAT_MS))
    monkeypatch.setattr(unstarted, "_now", lambda: next(instants))
    for _ in range(20):
        unstarted._beat()
    assert len(unstarted._packed) == 1
    unstarted._queue.put(Kind.EVENTS, T0, [AskAdded("rm", "p", "a", SPEC, created_ms=T0)])
    unstarted._empty()
    unstarted._beat()
    assert len(unstarted._packed) == 3
