"""Each check on the API server's records finds the violation that it is meant for, and nothing in a correct run."""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.faults.evidence import Decided, Evidence, LogPart, Replay, Window
from tests.faults.journal import Line
from tests.faults.judge import AFTER_MS
from tests.faults.kubernetes.audit import merged, requests, with_sessions
from tests.faults.kubernetes.evidence import ClusterEvidence, Waiting
from tests.faults.kubernetes.judge import LATE_MS, RULES, judged
from tests.faults.kubernetes.load import CHANGES
from tests.faults.kubernetes.queues import CORES, queues

LATE = LATE_MS + AFTER_MS + 1
HUGE = Waiting("huge", "node", "fits on none of 5 nodes", "no node has enough vcore")
BEYOND = Waiting("beyond", "quota", "queue root.tiny has no headroom", "over the max of root.tiny")


def line(kind: str, at: int, key: str = "a", **facts: Any) -> Line:
    return {"at": at, "kind": kind, "key": key, **facts}


def ask(at: int = 0, key: str = "a", cores: int = 1) -> Line:
    size = {"vcore": cores * 1000}
    return line("ask", at, key, name=key, queue="low", size=size, impossible=False)


def request(kind: str, at: int, node: str = "", *, accepted: bool = True) -> Line:
    return line(kind, at, name="a", node=node, accepted=accepted)


def placed(at: int, key: str = "a", node: str = "n0") -> Line:
    return line("placed", at, key, node=node)


BOUND = [ask(), request("bind", 1, "n0"), placed(2)]
EVICTED = [
    *BOUND,
    request("end", 3),
    line("evict", 3, decision="d1", freed_for="", freed_on=""),
    line("leaving", 4),
    line("gone", 5),
]


CHANGED = [{"at": 0, "kind": "change", "what": what} for what in CHANGES]
AT_ONCE = Window("net-cut", 0, 0, Counter({"connections cut": 1}))


def right(*journal: Line, windows: tuple[Window, ...] = (), **other: Any) -> ClusterEvidence:
    """Return the evidence of a run without errors, in which a pod was bound and evicted and two wait."""
    run = Evidence(
        journal=[*CHANGED, *(journal or EVICTED)],
        windows=list(windows or [AT_ONCE]),
        log=[LogPart([Decided("d1", frozenset("a"), frozenset())])],
        begun_ms=[0],
        replays=[Replay("trace-1.jsonl", 0, "")],
        exits=[("at the end", 0)],
    )
    facts: dict[str, Any] = {
        "shim_exits": [("killed", -9), ("at the end", 0)],
        "core_says": {"b": "n1"},
        "api_says": {"b": "n1"},
        "waiting": [HUGE, BEYOND],
        "configuration": f"# revision 7\n{queues(CORES)}",
    }
    return ClusterEvidence(run, **{**facts, **other})


def quota(at: int, cores: int, code: int = 0) -> list[Line]:
    return [
        {"at": at, "kind": "quota", "cores": cores * 1000},
        {"at": at + 1, "kind": "quota-answered", "cores": cores * 1000, "code": code},
    ]


FALSIFIED: dict[str, Callable[[], ClusterEvidence]] = {
    "bound_twice": lambda: right(*BOUND, request("bind", 4, "n1", accepted=False)),
    "ended_twice": lambda: right(*EVICTED, request("end", 6)),
    "ended_too_late": lambda: right(*BOUND, line("gone", 3), request("end", 3 + LATE)),
    "bound_to_closed": lambda: right(
        line("node-closed", 0, node="n0"), ask(), placed(LATE), request("bind", LATE, "n0")
    ),
    "over_quota": lambda: right(*quota(0, 3), ask(1, cores=4), placed(1 + LATE)),
    "disagreement": lambda: right(core_says={"b": "n1", "a": "n0"}),
    "unexplained": lambda: right(waiting=[HUGE, BEYOND._replace(told="fits on none of 5 nodes")]),
    "other_configuration": lambda: right(configuration=queues(CORES - 1)),
    "wrong_shim_exit": lambda: right(shim_exits=[("killed", 1), ("at the end", 0)]),
    "unchanged": lambda: right(windows=(AT_ONCE._replace(from_ms=1, to_ms=1),)),
    "blind": lambda: right(*EVICTED, line("blind", 6, why="the watch ended")),
}


def test_a_run_that_was_right_is_judged_so() -> None:
    assert judged(right()) == []


@pytest.mark.parametrize("rule", [rule.__name__ for rule in RULES])
def test_each_rule_finds_its_fault_and_no_other_rule_does(rule: str) -> None:
    wrong = judged(FALSIFIED[rule]())
    assert wrong
    assert {one.partition(":")[0] for one in wrong} == {rule}


def test_a_binding_that_was_done_before_the_shim_was_killed_is_no_second_one() -> None:
    assert judged(right(*BOUND, request("bind", 9, "n0", accepted=False))) == []


@pytest.mark.parametrize("code", [0, 3])
def test_a_lower_quota_counts_once_it_was_answered(code: int) -> None:
    wrong = judged(right(*quota(0, 3, code), ask(1, cores=4), placed(1 + LATE)))
    assert bool(wrong) == (code == 0)


def test_a_quota_that_was_perhaps_raised_counts_as_raised() -> None:
    journal = [*quota(0, 3), *quota(2, 8, 3), ask(4, cores=4), placed(4 + LATE)]
    assert judged(right(*journal)) == []


def test_what_a_fault_delays_is_not_late() -> None:
    journal = [line("node-closed", 0, node="n0"), ask(), placed(LATE)]
    assert (
        judged(
            right(*journal, windows=(Window("net-stalled", 0, LATE, Counter({"pieces held": 1})),))
        )
        == []
    )


def test_a_change_that_never_happened_is_named() -> None:
    evidence = right()
    evidence.run.journal = evidence.run.journal[1:]
    assert judged(evidence) == [f"unchanged: no change was {CHANGES[0]}"]


def test_a_pod_that_waits_without_an_explanation_is_found() -> None:
    wrong = judged(right(waiting=[HUGE._replace(explained="")]))
    assert wrong == ["unexplained: huge lacks a node, its explanation says ''"]


def test_the_audit_log_tells_who_was_bound_and_who_was_ended() -> None:
    binding = event("binding", 201, {"metadata": {"uid": "a"}, "target": {"name": "n0"}})
    refused = event("binding", 409, {"metadata": {"uid": "a"}, "target": {"name": "n1"}})
    deletion = event("", 200, {"preconditions": {"uid": "a"}})
    eviction = event("eviction", 201, {"deleteOptions": {"preconditions": {"uid": "a"}}})
    text = "\n".join(map(json.dumps, (binding, refused, deletion, eviction)))
    found = [
        (one["kind"], one["at"], one["key"], one["node"], one["accepted"])
        for one in requests(text, 500)
    ]
    assert found == [
        ("bind", 1_500, "a", "n0", True),
        ("bind", 1_500, "a", "n1", False),
        ("end", 1_500, "a", "", True),
        ("end", 1_500, "a", "", True),
    ]


def event(subresource: str, code: int, given: dict[str, Any]) -> dict[str, Any]:
    return {
        "requestReceivedTimestamp": "1970-01-01T00:00:02.000000Z",
        "objectRef": {"name": "pod", "subresource": subresource},
        "responseStatus": {"code": code},
        "requestObject": given,
    }


def test_only_what_lives_is_evicted() -> None:
    journal = [ask(0), placed(2), line("gone", 5)]
    asked = [request("end", 3), request("end", 4, accepted=False), request("end", 6)]
    evicted = [one for one in merged(journal, asked, {"a": "d1/b/n0"}) if one["kind"] == "evict"]
    assert [(one["at"], one["decision"], one["freed_for"]) for one in evicted] == [(3, "d1", "b")]


def test_an_eviction_belongs_to_the_run_of_the_core_that_decided_it() -> None:
    parts = [LogPart([Decided("d1", frozenset("a"), frozenset())]), LogPart()]
    evict = line("evict", 9, decision="d1", freed_for="", freed_on="")
    journal = with_sessions([evict], Evidence(log=parts, begun_ms=[0, 5]))
    assert list(journal) == [{"at": 0, "kind": "session"}, evict]
