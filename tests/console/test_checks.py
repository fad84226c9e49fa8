"""The core's checks on the overview: kept for a time that grows with the cluster, and not waited for."""

import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from evenhand.v1 import inspect_pb2
from evenhand_cli.connect import Core
from evenhand_cli.faults import Fault
from evenhand_console import checks
from evenhand_console.checks import KEEP_MS, PODS_PER_MS, SHOWN_MS, Checks
from tests.cli.processes import until

NOW = 1_000_000
STEP = KEEP_MS + 1
"""Milliseconds between the instants of two answers."""


class _Channel:
    def unary_unary(self, *_: object, **__: object) -> None:
        """Do nothing: the core below answers without a call."""


class _Core:
    """A core whose checks take until the test lets them end."""

    def __init__(self, answer: Callable[[int], Any], address: str = "here") -> None:
        self.asked = 0
        self.may_end = threading.Event()
        self.may_end.set()
        self.address, self.metadata = address, ()
        self.channel = _Channel()
        self._answer = answer

    def ask(self, _method: object, _request: object) -> Any:
        self.asked += 1
        number = self.asked
        assert self.may_end.wait(30)
        return self._answer(number)


def _answered(number: int) -> inspect_pb2.CheckConsistencyResponse:
    return inspect_pb2.CheckConsistencyResponse(checked_at_ms=NOW + (number - 1) * STEP)


def _at(known: Checks, core: _Core, now: int, pods: int = 0) -> int:
    """Return the instant of the answer that a page shows."""
    found = known.answer(cast("Core", core), "", now, pods)
    return found.checked_at_ms if found is not None else -1


def test_an_answer_is_kept_longer_in_a_large_cluster() -> None:
    known, core = Checks(), _Core(_answered)
    assert _at(known, core, NOW) == NOW
    assert _at(known, core, NOW + KEEP_MS) == NOW
    pods = 50_000
    assert _at(known, core, NOW + KEEP_MS + pods // PODS_PER_MS, pods) == NOW
    assert core.asked == 1
    assert _at(known, core, NOW + STEP) == NOW
    until(lambda: _at(known, core, NOW + STEP) == NOW + STEP)
    assert core.asked == 2


def test_an_answer_from_long_ago_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    known, core = Checks(), _Core(_answered)
    assert _at(known, core, NOW) == NOW
    core.may_end.clear()
    assert _at(known, core, NOW + KEEP_MS + SHOWN_MS) == NOW
    with monkeypatch.context() as patched:
        patched.setattr(checks, "WAIT_S", 0.0)
        assert _at(known, core, NOW + KEEP_MS + SHOWN_MS + 1) == 0
    core.may_end.set()
    assert _at(known, core, NOW + STEP) == NOW + STEP
    assert core.asked == 2


def test_an_answer_that_is_younger_than_the_page_is_kept() -> None:
    known, core = Checks(), _Core(_answered)
    assert _at(known, core, NOW - 5) == NOW
    assert [one.running for one in known._kept._values.values()] == [None]


def test_a_page_does_not_wait_long_for_the_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    known, core = Checks(), _Core(_answered)
    core.may_end.clear()
    with monkeypatch.context() as patched:
        patched.setattr(checks, "WAIT_S", 0.0)
        assert [_at(known, core, NOW) for _ in range(3)] == [0, 0, 0]
    core.may_end.set()
    until(lambda: _at(known, core, NOW) == NOW)
    assert core.asked == 1


def test_another_identity_has_checks_of_its_own() -> None:
    known, core = Checks(), _Core(_answered)
    assert _at(known, core, NOW) == NOW
    core.metadata = cast("Any", (("authorization", "Bearer ada"),))
    assert _at(known, core, NOW + STEP) == NOW + STEP


def test_a_failure_is_reported_and_asked_again() -> None:
    def answer(number: int) -> inspect_pb2.CheckConsistencyResponse:
        if number == 1:
            raise Fault("the core is away")
        return _answered(number)

    known, core = Checks(), _Core(answer)
    with pytest.raises(Fault):
        _at(known, core, NOW)
    assert _at(known, core, NOW + STEP) == NOW + STEP


def test_checks_of_a_closed_connection_are_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(number: int) -> inspect_pb2.CheckConsistencyResponse:
        if number == 1:
            raise ValueError("Cannot invoke RPC on closed channel!")
        return _answered(number)

    known, core = Checks(), _Core(answer)
    core.may_end.clear()
    with monkeypatch.context() as patched:
        patched.setattr(checks, "WAIT_S", 0.0)
        assert _at(known, core, NOW) == 0
    core.may_end.set()
    core.channel = _Channel()
    until(lambda: _at(known, core, NOW + STEP) == NOW + STEP)


def test_after_an_answer_a_failure_leaves_it_and_is_asked_again() -> None:
    def answer(number: int) -> inspect_pb2.CheckConsistencyResponse:
        if number == 2:
            raise Fault("the connection was renewed")
        return _answered(number)

    known, core = Checks(), _Core(answer)
    assert _at(known, core, NOW) == NOW
    shown: list[int] = []

    def latest() -> bool:
        shown.append(_at(known, core, NOW + 2 * STEP))
        return shown[-1] == NOW + 2 * STEP

    until(latest)
    assert set(shown) == {NOW, NOW + 2 * STEP}


def test_there_is_a_limit_of_kept_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "KEPT_MAX", 1)
    known, one, other = Checks(), _Core(_answered), _Core(_answered, "there")
    for core in (one, other, one):
        _at(known, core, NOW)
    assert (one.asked, other.asked) == (2, 1)
