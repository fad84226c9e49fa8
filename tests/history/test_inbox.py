"""The inbox of the writing process: what a busy core sends waits for a while, and nothing overtakes."""

import threading

import pytest

from server.history import inbox
from server.history.inbox import BUSY_BYTES, HELD_MAX, HOLD_MS, LEVEL_MAX, RATE, Inbox
from server.history.rows import Frame, Row
from tests.cli.processes import until

MANY = LEVEL_MAX
"""The bytes of a frame after which the core counts as busy."""


def frame(number: int, now: int, kind: Row = Row.BEAT) -> Frame:
    return Frame(number, now, [(kind.value,)])


@pytest.fixture
def empty() -> Inbox:
    """Return an inbox whose thread does not run."""
    return Inbox(lambda _size: b"")


def test_frames_of_a_core_with_little_to_send_do_not_wait(empty: Inbox) -> None:
    for number in range(100):
        empty.put(frame(number, 1_000 + 100 * number), 100 * RATE)
        assert empty.is_due()


def test_frames_of_a_busy_core_wait_until_it_sends_less(empty: Inbox) -> None:
    empty.put(frame(1, 1_000), MANY)
    assert not empty.is_due()
    idle_ms = (LEVEL_MAX - BUSY_BYTES) // RATE
    empty.put(frame(2, 1_000 + idle_ms - 1), 0)
    assert not empty.is_due()
    empty.put(frame(3, 1_000 + idle_ms), 0)
    assert empty.is_due()


def test_frames_of_a_core_that_stays_busy_wait_for_a_limited_time(empty: Inbox) -> None:
    for number in range(HOLD_MS // 1_000):
        empty.put(frame(number, 1_000 * number), MANY)
        assert not empty.is_due()
    empty.put(frame(99, HOLD_MS), MANY)
    taking = empty.frames()
    assert next(taking).number == 0
    assert not empty.is_due(), "the second frame has waited a second less"


def test_all_frames_are_taken_in_order_when_the_stream_ends(empty: Inbox) -> None:
    for number in range(10):
        empty.put(frame(number, 1_000), MANY)
    assert not empty.is_due()
    empty.end()
    assert [one.number for one in empty.frames()] == list(range(10))


def test_a_core_that_begins_to_follow_does_not_wait(empty: Inbox) -> None:
    empty.put(frame(1, 1_000), MANY)
    assert not empty.is_due()
    empty.put(frame(2, 1_000, Row.FOLLOWS), 100)
    assert empty.is_due()


def test_a_full_inbox_is_emptied_at_once_and_takes_nothing_meanwhile(empty: Inbox) -> None:
    empty.put(frame(1, 1_000), HELD_MAX)
    assert empty.is_due()
    writing = threading.Thread(target=empty.put, args=(frame(2, 1_000), MANY), daemon=True)
    writing.start()
    taking = empty.frames()
    assert next(taking).number == 1
    writing.join(60)
    empty.end()
    assert [one.number for one in taking] == [2]


def test_a_stream_that_cannot_be_read_ends_the_inbox(
    empty: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_read: object) -> None:
        raise ValueError("no frame")

    monkeypatch.setattr(inbox, "frames", broken)
    monkeypatch.setattr(threading, "excepthook", lambda _args: None)
    empty.start()
    until(empty.is_due)
    assert list(empty.frames()) == []
