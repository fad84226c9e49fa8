"""The judge of runs with two cores and two shims finds each violation in a small journal, and nothing in a correct one."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from server.record.verify import Verified
from tests.faults.evidence import Decided, LogPart
from tests.faults.journal import Journal, Line
from tests.faults.pairs.evidence import PairsEvidence
from tests.faults.pairs.judge import WAIT_MS, judged, report
from tests.faults.pairs.observer import FOLLOWER, LEADER
from tests.faults.pairs.processes import Child
from tests.faults.pairs.schedule import ENDED, KILLED, STARTING

NEVER = 10 * WAIT_MS


def line(at: int, kind: str, **facts: Any) -> Line:
    return {"at": at, "kind": kind, **facts}


def ask(at: int, key: str, queue: str = "low") -> Line:
    size = {"vcore": 4_000} if queue == "low" else {"probe": 1}
    return line(at, "ask", key=key, name=key, queue=queue, size=size, impossible=False)


def placed(at: int, key: str, node: str = "n0") -> list[Line]:
    bind = line(at, "bind", key=key, name=key, node=node, accepted=True, by="shim-1")
    return [bind, line(at, "placed", key=key, node=node)]


def evicted(at: int, key: str, decision: str = "d1") -> list[Line]:
    facts = {"decision": decision, "freed_for": "c", "freed_on": "n0", "by": "shim-1"}
    mark = line(at, "mark", key=key, mark=f"{decision}/c/n0")
    end = line(at, "end", key=key, name=key, accepted=True, by="shim-1")
    return [mark, end, line(at, "evict", key=key, **facts)]


def write(at: int, by: str, epoch: int, holder: str = "") -> Line:
    return line(at, "write", by=by, epoch=epoch, holder=holder or by, what="POST pods", name="a")


def core(at: int, name: str, state: str, decided: tuple[str, ...] = (), **facts: Any) -> Line:
    level = state == FOLLOWER
    more = {"due_ms": 0, "difference": "", "decided_at": at, "level": level, "term": "t1", **facts}
    return line(at, "core", core=name, state=state, decided=dict.fromkeys(decided, at), **more) | {
        "now_ms": at
    }


def heard(at: int, kind: str, session: int, core: str, **facts: Any) -> Line:
    return line(at, kind, by="shim-1", process=7, core=core, session=session, **facts)


def decision(at: int, session: int, core: str, epoch: int = 1) -> Line:
    return heard(at, "heard", session, core, epoch=epoch, own=1, new=["a"], released=[])


RIGHT = [
    core(1, "core-1", LEADER),
    core(1, "core-2", FOLLOWER),
    ask(2, "a"),
    ask(2, "p", "probe"),
    *placed(3, "p", "probes"),
    write(3, "shim-1", 1),
    *placed(3, "a"),
    core(4, "core-1", LEADER, ("d1",), due_ms=900),
    core(5, "core-2", FOLLOWER, ("d1",), due_ms=900),
    line(5, "lowered", run=1),
    core(5, "core-2", FOLLOWER, ("d1",), due_ms=900),
    *evicted(6, "a"),
    line(7, "gone", key="a"),
    core(8, "core-2", LEADER, ("d1",), due_ms=900),
    write(9, "shim-2", 2),
    line(6_005, "enforced", run=1),
    line(6_006, "recovered", whole=True, took_ms=1),
    line(6_007, "healed", link="shim-1 api", pieces=3),
]
HEARD = [
    heard(1, "joined", 1, "core-1"),
    decision(2, 1, "core-1"),
    heard(3, "left", 1, "core-1"),
    heard(4, "joined", 2, "core-2"),
    decision(5, 2, "core-2"),
]


def evidence(*more: Line, **facts: Any) -> PairsEvidence:
    found = PairsEvidence(journal=[*RIGHT, *more], heard=HEARD)
    part = LogPart([Decided("d1", frozenset({"a"}), frozenset({"c"}))])
    found.log = {"core-1": [part], "core-2": []}
    found.terms = ["a.1", "a.1", "b.1", "a.2"]
    found.exits = [("core-1", KILLED, -9), ("shim-1", ENDED, 0), ("shim-1", STARTING, -15)]
    for name, value in facts.items():
        setattr(found, name, value)
    return found


def test_nothing_is_wrong_with_a_right_run() -> None:
    assert judged(evidence()) == []
    assert report(7, evidence())[0] == "seed 7, durable: no"


def test_a_follower_that_knows_an_ended_leader_may_lack_what_the_next_one_decides() -> None:
    assert judged(evidence(core(LATE, "core-1", FOLLOWER, term="t0"))) == []


def test_a_core_that_leads_from_an_older_state_enforces_a_quota_early() -> None:
    early = [line(LATE, "lowered", run=2), line(LATE + 9, "enforced", run=2)]
    older = core(LATE + 10, "core-1", LEADER, ("d1",), decided_at=3)
    assert judged(evidence(*early, older)) == []
    newer = core(LATE + 10, "core-1", LEADER, ("d1",))
    assert judged(evidence(*early, newer)) == [
        "quota_late: quota run 2 took 9 ms, less than its delay"
    ]


LATE = 6_100
WRONG: list[tuple[str, PairsEvidence]] = [
    ("placed_twice", evidence(*placed(LATE, "p", "probes"))),
    (
        "placed_twice",
        evidence(line(LATE, "bind", key="p", name="p", node="n3", accepted=False, by="shim-2")),
    ),
    ("evicted_twice", evidence(*evicted(LATE, "a")[1:2])),
    ("evicted_unplaced", evidence(ask(LATE, "b"), *evicted(LATE, "b"))),
    (
        "over_capacity",
        evidence(*(one for key in "bcdef" for one in (ask(LATE, key), *placed(LATE, key)))),
    ),
    ("decided_twice", evidence(line(LATE, "mark", key="a", mark="d2/c/n0"))),
    ("two_leaders", evidence(write(LATE, "shim-1", 1))),
    ("wrote_without_lease", evidence(write(LATE, "shim-1", 3, "shim-2"))),
    ("two_cores", evidence(heard=[*HEARD, decision(6, 1, "core-1")])),
    ("two_cores", evidence(heard=[*HEARD, heard(6, "joined", 3, "core-1")])),
    ("two_writers", evidence(terms=["a", "a", "b", "a"])),
    ("other_epoch", evidence(heard=[*HEARD, decision(6, 2, "core-2", epoch=2)])),
    ("diverged", evidence(core(LATE, "core-1", FOLLOWER, ("d1",), difference="at event 7"))),
    ("decision_lost", evidence(core(LATE, "core-2", LEADER))),
    ("decision_lost", evidence(core(LATE, "core-1", FOLLOWER))),
    (
        "timer_restarted",
        evidence(
            core(LATE, "core-1", FOLLOWER, ("d1",), due_ms=900),
            core(LATE + 1, "core-1", LEADER, ("d1",), due_ms=1_900),
        ),
    ),
    ("quota_late", evidence(line(LATE, "lowered", run=2), line(NEVER, "enforced", run=2))),
    ("quota_late", evidence(line(LATE, "lowered", run=2), line(LATE + 9, "enforced", run=2))),
    ("waited", evidence(ask(LATE, "q", "probe"), line(NEVER, "lease", holder="", epoch=1))),
    ("not_recovered", evidence(line(LATE, "recovered", whole=False, took_ms=9))),
    ("without_effect", evidence(line(LATE, "healed", link="shim-1 api", pieces=0))),
    ("unsettled", evidence(settled=False)),
    ("disagreement", evidence(cores_say={"core-1": {"p": "n3"}}, api_says={"p": "probes"})),
    ("disagreement", evidence(complaints=["core-1 doctor: not consistent"])),
    ("log_unfit", evidence(verified={"core-1": Verified(fits=False)})),
    ("log_dishonest", evidence(log={"core-1": []})),
    ("log_dishonest", evidence(log={"core-1": [LogPart([], 1)]}, durable=True)),
    (
        "log_untrue",
        evidence(log={"core-1": [LogPart([Decided("d1", frozenset("b"), frozenset("c"))])]}),
    ),
    ("wrong_exit", evidence(exits=[("core-1", "by itself", 1)])),
    ("wrong_exit", evidence(exits=[("engine", ENDED, -15)])),
    ("crashed", evidence(said={"core-1": "Traceback (most recent call last)"})),
]


@pytest.mark.parametrize(
    ("rule", "wrong"), WRONG, ids=[f"{number}-{rule}" for number, (rule, _) in enumerate(WRONG)]
)
def test_each_wrong_thing_is_found(rule: str, wrong: PairsEvidence) -> None:
    assert {found.partition(":")[0] for found in judged(wrong)} >= {rule}


def test_a_log_that_names_its_gap_is_honest() -> None:
    assert judged(evidence(log={"core-1": [LogPart([], 1)]})) == []


def test_a_call_whose_client_has_given_up_is_no_crash() -> None:
    said = (
        'x\n{"event": "ExecuteBatchError raised in core by servicer method [/a]", '
        '"exception": "Traceback: Failed (<SendStatusFromServerOperation>,)"}\n'
    )
    assert judged(evidence(said={"core-1": said})) == []
    for other in ("grpc_call_start_batch: GRPC_CALL_ERROR", "SendMessageOperation"):
        wrong = said.replace("SendStatusFromServerOperation", other)
        assert judged(evidence(said={"core-1": wrong})) != []
    assert judged(evidence(said={"core-1": f"{said}Traceback (most recent call last)"})) != []


def test_a_core_that_was_started_again_may_know_less() -> None:
    started = line(LATE, "started", name="core-2"), line(LATE, "started", name="core-1")
    assert judged(evidence(*started, core(LATE + 1, "core-2", LEADER))) == []


def test_a_probe_may_wait_longer_where_processes_start_slowly() -> None:
    wait = [
        ask(LATE, "q", "probe"),
        line(LATE, "started", name="core-1"),
        core(LATE + WAIT_MS, "core-1", FOLLOWER, ("d1",)),
        line(LATE + 3 * WAIT_MS, "lease", holder="", epoch=1),
    ]
    assert judged(evidence(*wait)) == []
    assert judged(evidence(wait[0], wait[3])) != []


LOSES_ITS_HANDLER = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print(flush=True)
sys.stdin.readline()
signal.signal(signal.SIGTERM, signal.SIG_DFL)
print(flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize(("is_seen", "how"), [(True, ENDED), (False, STARTING)])
async def test_a_process_that_loses_its_handler_is_not_one_that_starts(
    tmp_path: Path,
    is_seen: bool,  # noqa: FBT001
    how: str,
) -> None:
    def start() -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-c", LOSES_ITS_HANDLER]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    child = Child("core-1", start, Journal(tmp_path / "journal"))
    child.start()
    process = child.process
    assert process is not None
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.readline()
    if is_seen:
        child.look()
    process.stdin.write(b"\n")
    process.stdin.flush()
    process.stdout.readline()
    await child.end(ENDED)
    process.stdin.close()
    process.stdout.close()
    assert child.exits == [("core-1", how, -15)]
    found = evidence()
    found.exits = child.exits
    assert bool(judged(found)) == is_seen
