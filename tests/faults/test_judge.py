"""Each rule of the judge finds what it is there for, and finds nothing in a run that was right."""

from collections.abc import Callable
from typing import Any

import pytest

from server.record.verify import Remark, Verified
from tests.faults.evidence import Evidence, Replay, Window
from tests.faults.journal import Line
from tests.faults.judge import RESIDENT_MIB_MAX, RULES, STALL_MS, calm_ms, judged


def ask(key: str, at: int = 0, queue: str = "low", **size: int) -> Line:
    return {
        "at": at,
        "kind": "ask",
        "key": key,
        "queue": queue,
        "size": size or {"vcore": 9_000},
        "impossible": False,
    }


def line(kind: str, key: str, at: int = 0, **facts: Any) -> Line:
    return {"at": at, "kind": kind, "key": key, **facts}


def evict(key: str, decision: str = "d1") -> Line:
    return line("evict", key, decision=decision, room_for="x", room_on="n0")


PLACED = [ask("a"), line("placed", "a", node="n0")]
EVICTED = [*PLACED, evict("a"), line("gone", "a")]


def right(**other: Any) -> Evidence:
    """A run in which a pod was placed and evicted, and everything was right."""
    facts: dict[str, Any] = {
        "journal": EVICTED,
        "decided": {"d1"},
        "replays": [Replay("trace-1.jsonl", 0, "")],
        "exits": [("killed", -9), ("ended", 0), ("refused", 2), ("at the end", 0)],
        "resident_mib": [(0, 90)],
        "codes": [
            "UNAUTHENTICATED no token",
            "UNKNOWN Received RST_STREAM with error code 2",
            "INTERNAL Internal error from Core",
        ],
    }
    return Evidence(**{**facts, **other})


FALSIFIED: dict[str, Callable[[], Evidence]] = {
    "placed_twice": lambda: right(journal=[*PLACED, line("placed", "a", node="n1")]),
    "evicted_twice": lambda: right(
        journal=[*PLACED, evict("a"), evict("a", "d2")], decided={"d1", "d2"}
    ),
    "evicted_unplaced": lambda: right(journal=[ask("a"), evict("a")]),
    "over_capacity": lambda: right(journal=[*PLACED, ask("b"), line("placed", "b", node="n0")]),
    "refused": lambda: right(journal=[*PLACED, line("refused", "a", why="no such node")]),
    "stalled": lambda: right(
        journal=[ask("p", 0, "probe", probe=1), line("placed", "p", STALL_MS + 1, node="probes")]
    ),
    "unsettled": lambda: right(settled=False),
    "over_budget": lambda: right(resident_mib=[(0, 90), (5, RESIDENT_MIB_MAX + 1)]),
    "log_unfit": lambda: right(
        verified=Verified(fits=False, remarks=[Remark("log:3", "it was changed", wrong=True)])
    ),
    "log_dishonest": lambda: right(decided=set()),
    "replay_differs": lambda: right(replays=[Replay("trace-1.jsonl", 1, "line 7 differs")]),
    "wrong_exit": lambda: right(exits=[("ended", 70)]),
    "doctor_complains": lambda: right(doctor=(1, "error: a node holds more than it has")),
    "crashed": lambda: right(core_said="Traceback (most recent call last):"),
    "internal": lambda: right(codes=["INTERNAL the server failed"]),
}


def test_a_run_that_was_right_is_judged_so() -> None:
    assert judged(right()) == []


@pytest.mark.parametrize("rule", [rule.__name__ for rule in RULES])
def test_each_rule_finds_its_fault_and_no_other_rule_does(rule: str) -> None:
    wrong = judged(FALSIFIED[rule]())
    assert wrong
    assert {one.partition(":")[0] for one in wrong} == {rule}


def test_a_probe_that_was_never_placed_has_stalled() -> None:
    evidence = right(journal=[ask("p", 0, "probe", probe=1), ask("q", STALL_MS + 1)])
    assert "p waited" in judged(evidence)[0]


def test_a_withdrawn_eviction_may_be_followed_by_another() -> None:
    journal = [*PLACED, evict("a"), line("withdrawn", "a"), evict("a", "d2")]
    assert judged(right(journal=journal, decided={"d1", "d2"})) == []


def test_room_of_what_has_ended_is_free() -> None:
    assert judged(right(journal=[*EVICTED, ask("b"), line("placed", "b", node="n0")])) == []


def test_time_in_faults_is_not_calm() -> None:
    windows = [Window("core-killed", 10, 20), Window("net-cut", 50, 90)]
    assert calm_ms(0, 60, windows) == 40


@pytest.mark.parametrize(
    ("durable", "verified", "is_right"),
    [
        (False, Verified(missing=1), True),
        (False, Verified(more=True), True),
        (False, Verified(), False),
        (True, Verified(missing=1), False),
        (True, Verified(more=True), False),
    ],
)
def test_a_decision_is_in_the_log_or_named_as_missing(
    *, durable: bool, verified: Verified, is_right: bool
) -> None:
    evidence = right(decided=set(), durable=durable, verified=verified)
    assert (judged(evidence) == []) == is_right
