"""Each check of the judge finds the violation that it is meant for, and finds nothing in a correct run."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from server.record.chain import Chain, Entry
from server.record.verify import Remark, Verified
from tests.faults.effects import EFFECTS, PAGE_BYTES
from tests.faults.evidence import Decided, Evidence, LogPart, Replay, Revision, Window, log_parts
from tests.faults.journal import Line
from tests.faults.judge import APART_MS, RESIDENT_MIB_MAX, RULES, STALL_MS, calm_ms, judged


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
    return line("evict", key, decision=decision, freed_for="x", freed_on="n0")


def logged(*decided: Decided, missing: int = 0, more: bool = False) -> LogPart:
    return LogPart(list(decided), missing, more)


D1 = Decided("d1", frozenset("a"), frozenset("x"))
D2 = D1._replace(decision="d2")
SYNCED: Line = {"at": 0, "kind": "synced"}
PLACED = [ask("a"), line("placed", "a", node="n0")]
EVICTED = [*PLACED, evict("a"), line("gone", "a")]


def window(kind: str, from_ms: int = 0, to_ms: int = 9, **seen: int) -> Window:
    """Return the window of a fault; the names of its counters have `_` for each space."""
    counts = Counter({name.replace("_", " "): number for name, number in seen.items()})
    return Window(kind, from_ms, to_ms, counts)


def right(**other: Any) -> Evidence:
    """Return the evidence of a run without errors, in which a pod was placed and evicted."""
    facts: dict[str, Any] = {
        "journal": EVICTED,
        "log": [logged(D1)],
        "begun_ms": [0],
        "windows": [window("net-cut", 0, 0, connections_cut=1)],
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
        journal=[*PLACED, evict("a"), evict("a", "d2")], log=[logged(D1, D2)]
    ),
    "evicted_unplaced": lambda: right(journal=[ask("a"), evict("a")]),
    "over_capacity": lambda: right(journal=[*PLACED, ask("b"), line("placed", "b", node="n0")]),
    "refused": lambda: right(journal=[*PLACED, line("refused", "a", why="no such node")]),
    "stalled": lambda: right(
        journal=[ask("p", 0, "probe", probe=1), line("placed", "p", STALL_MS + 1, node="probes")]
    ),
    "unsettled": lambda: right(settled=False),
    "second_disturbed": lambda: right(
        windows=[window("net-cut", 1, 9_000, connections_cut=1)],
        second_journal=[SYNCED, ask("p", 1, "probe", probe=1), ask("q", APART_MS + 2, "probe")],
    ),
    "over_budget": lambda: right(resident_mib=[(0, 90), (5, RESIDENT_MIB_MAX + 1)]),
    "log_unfit": lambda: right(
        verified=Verified(fits=False, remarks=[Remark("log:3", "it was changed", wrong=True)])
    ),
    "log_dishonest": lambda: right(log=[LogPart()]),
    "log_repeats": lambda: right(log=[logged(D1, D1._replace(beneficiaries=frozenset("y")))]),
    "log_untrue": lambda: right(log=[logged(D1._replace(victims=frozenset("b")))]),
    "configuration_lost": lambda: right(
        applied=[Revision(5, 2, "b", kept=True)], in_force=[Revision(9, 1, "a", kept=True)]
    ),
    "replay_differs": lambda: right(replays=[Replay("trace-1.jsonl", 1, "line 7 differs")]),
    "wrong_exit": lambda: right(exits=[("ended", 70)]),
    "doctor_complains": lambda: right(doctor=(1, "error: a node holds more than it has")),
    "without_effect": lambda: right(windows=[window("net-cut", pieces_held=1)]),
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


@pytest.mark.parametrize(
    ("fault", "is_right"),
    [
        (window("shim-killed", 1, 9, shim_killed=1), False),
        (Window("net-cut", 1, 9, Counter({"connections cut": 1, "killed -9": 1})), True),
        (window("core-stopped", 1, 9, core_stopped=1), True),
    ],
)
def test_the_second_session_outlasts_faults_of_the_first_shim(
    *, fault: Window, is_right: bool
) -> None:
    ended = {"at": 5, "kind": "ended", "code": "UNAVAILABLE", "why": "it is gone"}
    assert (judged(right(windows=[fault], second_journal=[SYNCED, ended])) == []) == is_right


@pytest.mark.parametrize(
    ("in_force", "is_right"),
    [
        (Revision(4, 1, "a", kept=True), True),
        (Revision(9, 2, "b", kept=True), True),
        (Revision(9, 2, "c", kept=True), False),
        (Revision(9, 3, "c", kept=True), True),
        (Revision(19, 2, "b", kept=True), True),
    ],
)
def test_a_configuration_whose_apply_was_answered_lasts(
    *, in_force: Revision, is_right: bool
) -> None:
    applied = [Revision(5, 2, "b", kept=True), Revision(15, 3, "d", kept=False)]
    assert (judged(right(applied=applied, in_force=[in_force])) == []) == is_right


def test_the_second_journal_is_one_of_its_own() -> None:
    second = [ask("a", 0, "probe"), line("placed", "a", node="probes")]
    assert judged(right(second_journal=second)) == []
    assert judged(right(second_journal=[*second, line("placed", "a", node="n1")])) != []
    assert judged(right(second_journal=[*second, line("refused", "b", why="unknown")])) != []


def test_a_withdrawn_eviction_may_be_followed_by_another() -> None:
    journal = [*PLACED, evict("a"), line("withdrawn", "a"), evict("a", "d2")]
    assert judged(right(journal=journal, log=[logged(D1, D2)])) == []


def test_capacity_of_what_has_ended_is_free() -> None:
    assert judged(right(journal=[*EVICTED, ask("b"), line("placed", "b", node="n0")])) == []


def test_time_in_faults_is_not_calm() -> None:
    windows = [window("core-killed", 10, 20), window("net-cut", 50, 90)]
    assert calm_ms(0, 60, windows) == 40


@pytest.mark.parametrize(
    ("durable", "part", "is_right"),
    [
        (False, logged(missing=1), True),
        (False, logged(more=True), True),
        (False, logged(), False),
        (True, logged(missing=1), False),
        (True, logged(more=True), False),
    ],
)
def test_a_decision_is_in_the_log_or_named_as_missing(
    *, durable: bool, part: LogPart, is_right: bool
) -> None:
    assert (judged(right(log=[part], durable=durable)) == []) == is_right


@pytest.mark.parametrize(("session_ms", "is_right"), [(5, True), (25, False)])
def test_the_gap_of_another_run_excuses_nothing(*, session_ms: int, is_right: bool) -> None:
    journal = [{"at": session_ms, "kind": "session"}, *EVICTED]
    evidence = right(journal=journal, begun_ms=[0, 20], log=[logged(missing=1), logged()])
    assert (judged(evidence) == []) == is_right


@pytest.mark.parametrize(("missing", "is_right"), [(1, True), (0, False)])
def test_gaps_are_counted_together_when_a_run_has_no_first_line(
    *, missing: int, is_right: bool
) -> None:
    verified = Verified(missing=missing)
    evidence = right(begun_ms=[0, 20], log=[logged(missing=missing)], verified=verified)
    assert (judged(evidence) == []) == is_right


@pytest.mark.parametrize(
    "other",
    [D1._replace(victims=frozenset("ab")), D1._replace(beneficiaries=frozenset("y"))],
)
def test_a_decision_is_not_twice_in_the_log_with_other_content(other: Decided) -> None:
    assert judged(right(log=[logged(D1, D1)])) == []
    assert judged(right(log=[logged(D1), logged(other)]))[0].startswith("log_repeats: d1 is twice")


@pytest.mark.parametrize("kind", EFFECTS)
def test_a_fault_has_to_show_its_effect(kind: str) -> None:
    effect = EFFECTS[kind]
    occasion = {effect.occasion: effect.occasion_least} if effect.occasion else {}
    shown = Counter({**occasion, effect.shown_by: effect.least})
    less = shown - Counter({effect.shown_by: 1})
    assert judged(right(windows=[Window(kind, 0, 9, shown)])) == []
    assert len(judged(right(windows=[Window(kind, 0, 9, less)]))) == 1


@pytest.mark.parametrize(
    ("fault", "is_right"),
    [
        (window("net-cut", core_away=1), True),
        (window("core-small", core_away=1), False),
        (window("disk-slow", writes=0), True),
        (window("disk-slow", writes=1), False),
        (window("disk-full", written_bytes=PAGE_BYTES - 1), True),
        (window("disk-full", written_bytes=PAGE_BYTES), False),
    ],
)
def test_a_fault_that_could_not_strike_is_excused(*, fault: Window, is_right: bool) -> None:
    assert (judged(right(windows=[fault])) == []) == is_right


def test_a_decision_is_rebuilt_from_what_is_left_of_it() -> None:
    rebuilt = D1._replace(beneficiaries=frozenset())
    assert judged(right(log=[logged(D1, rebuilt)])) == []
    assert judged(right(log=[logged(D1), logged(rebuilt)], begun_ms=[0, 20])) == []


def test_a_decision_was_carried_out_for_the_ask_in_the_log() -> None:
    evidence = right(log=[logged(D1._replace(beneficiaries=frozenset("y")))])
    assert judged(evidence) == ["log_untrue: d1 evicted a for x, in the log for {'y'}"]


def test_a_log_is_split_at_the_starts_of_runs() -> None:
    record = {"decision_id": "d1", "victims": [{"key": "a"}], "beneficiaries": [{"key": "x"}]}
    entries = [
        Entry(1, "started", {}),
        Entry(2, "decided", {"record": record, "rm_id": "rm"}),
        Entry(3, "killed", {}),
        Entry(3, "gap", {"lines": 2, "from": 2, "to": 3, "more": True}),
        Entry(3, "started", {}),
    ]
    written = [Chain().line(entry) for entry in entries]
    assert log_parts([*written, b'{"half":']) == [logged(D1, missing=2, more=True), logged()]
