"""The numbered history of decisions, and the positions of each kind in a part of it, compared with plain Python."""

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.model.asks import AskSpec
from server.model.decisions import (
    BARRIER,
    AskRejected,
    AskReleased,
    Decision,
    Decisions,
    NodeAccepted,
    Noted,
    Placed,
    Released,
    Termination,
)
from server.model.reasons import Code
from server.rpc import event_buffer
from server.rpc.event_buffer import KINDS, History, kind_of, record

NOW = 1_700_000_000_000
KEPT = 4
COUNTED: list[tuple[Decision, tuple[str, str]]] = [
    (Placed("rm", "default", "k", "app", "n1", AskSpec(())), ("placed", "default")),
    (Placed("rm", "other", "k", "app", "n1", AskSpec(())), ("placed", "other")),
    (Released("rm", "default", "k", "app", Termination.TIMEOUT), ("released", "default")),
    (AskReleased("rm", "default", "k", "app", Termination.TIMEOUT), ("released", "default")),
    (AskRejected("rm", "default", "k", "app", "no such application"), ("rejected", "default")),
]
"""Decisions, and where the totals have each."""
BARRIER_ANSWERED = AskRejected("rm", "default", "k", BARRIER, "no such application")
SOME = [*(one for one, _ in COUNTED), BARRIER_ANSWERED, NodeAccepted("rm", "n1")]

slices = st.lists(st.sampled_from(SOME), max_size=3 * KEPT)


@given(slices, st.sets(st.sampled_from([Placed, Released, AskReleased, NodeAccepted])))
def test_a_kind_is_found_in_order(found: list[Decision], kinds: set[type]) -> None:
    decisions = Decisions(found)
    assert decisions.of(*kinds) == [one for one in found if type(one) in kinds]
    assert decisions.kinds == {type(one) for one in found}
    assert len(decisions) == len(found)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the history, so that it forgets soon."""
    monkeypatch.setattr(event_buffer, "EVENTS_KEPT_MAX", KEPT)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("sizes", [[], [2], [KEPT], [1, 2, 3], [KEPT + 3], [1, 2 * KEPT, 1]])
def test_the_latest_are_kept_and_each_has_its_number(sizes: Sequence[int]) -> None:
    held, expected = History(), []
    for at, size in enumerate(sizes):
        found = [NodeAccepted("rm", f"n{at}-{one}") for one in range(size)]
        expected += [(NOW + at, one) for one in found]
        held.decided(Decisions(found), NOW + at)
    numbered = [(number, *one) for number, one in enumerate(expected, 1)]
    assert list(held.after(0)) == numbered[-KEPT:]
    assert held.last == len(expected)
    assert held.first == max(1, held.last - KEPT + 1)
    assert list(held.after(held.last - 1)) == numbered[-1:]


class _Counted(deque[Any]):
    """A deque that counts the entries that are read."""

    read = 0

    def _counting(self, found: Iterator[Any]) -> Iterator[Any]:
        for one in found:
            self.read += 1
            yield one

    def __iter__(self) -> Iterator[Any]:
        return self._counting(super().__iter__())

    def __reversed__(self) -> Iterator[Any]:
        return self._counting(super().__reversed__())


def test_later_entries_are_found_without_reading_the_earlier_ones() -> None:
    """Watch streams look many times a second, and mostly few of the kept entries are new."""
    held = History()
    held.decided(Decisions([NodeAccepted("rm", f"n{one}") for one in range(1_000)]), NOW)
    held._entries = counted = _Counted(held._entries)
    for number, later in ((997, 3), (1_000, 0), (1_001, 0)):
        counted.read = 0
        assert len(list(held.after(number))) == later
        assert counted.read <= later + 1


@given(st.lists(slices, max_size=4))
def test_totals_count_each_kind_by_partition_and_leave_barriers_out(
    told: list[Sequence[Decision]],
) -> None:
    held = History()
    for found in told:
        held.decided(Decisions(found), NOW)
    heard = [one for found in told for one in found if one is not BARRIER_ANSWERED]
    expected = Counter(where for each in heard for one, where in COUNTED if one is each)
    assert held.totals == expected
    assert [entry.decision for entry in held.after(0)] == heard


NOTES = [Noted(kind, "x", Code.NODE_LOST, "") for kind in ("node", "queue")]


@given(st.lists(st.lists(st.sampled_from([*SOME, *NOTES]), max_size=3 * KEPT), max_size=4))
def test_the_kinds_after_a_number_are_those_of_the_records(told: list[list[Decision]]) -> None:
    held = History()
    for found in told:
        held.decided(Decisions(found), NOW)
    entries = list(held.after(0))
    for number in range(held.last + 1):
        later = {record(one.decision).kind for one in entries if one.number > number}
        assert held.kinds_after(number) == sorted(later)


@given(
    st.lists(st.lists(st.sampled_from([*SOME, *NOTES]), max_size=3 * KEPT), max_size=4),
    st.frozensets(st.sampled_from(KINDS)),
    st.integers(1, 2 * KEPT),
)
def test_entries_of_kinds_are_those_whose_records_have_the_kinds(
    told: list[list[Decision]], kinds: frozenset[str], most: int
) -> None:
    held = History()
    for found in told:
        held.decided(Decisions(found), NOW)
    for number in range(held.last + 2):
        later = [one for one in held.after(number) if record(one.decision).kind in kinds]
        assert held.of_kinds_after(number, kinds, most) == later[:most]


@pytest.mark.usefixtures("short")
def test_entries_of_absent_kinds_are_found_without_reading_the_others() -> None:
    held = History()
    held.decided(Decisions([NOTES[0]]), NOW)
    held.decided(Decisions([NodeAccepted("rm", "n")] * KEPT), NOW)
    held._entries = counted = _Counted(held._entries)
    counted.read = 0
    for kinds in ({"queue", "placed"}, {"decision"}, set[str]()):
        assert held.of_kinds_after(0, kinds, KEPT) == []
    assert held.of_kinds_after(KEPT + 1, {"node"}, KEPT) == []
    assert counted.read == 0


def test_every_decision_has_a_kind_without_its_record() -> None:
    assert set(event_buffer._KINDS) | {Noted} == set(event_buffer._RECORDS)
    assert set(event_buffer._KINDS.values()) <= set(KINDS)
    for one in (*SOME, *NOTES):
        assert kind_of(one) == record(one).kind
