"""The judge: pure functions from the evidence of a run to sentences about what was wrong."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from server.record.verify import Verified
from tests.faults.cluster import FIRST
from tests.faults.effects import EFFECTS, excuse, has_struck
from tests.faults.evidence import Decided, Evidence, LogPart, Window
from tests.faults.journal import Line, Truth, truth_of

STALL_MS: Final = 20_000
"""The longest allowed wait, in milliseconds, of an ask that fits while no fault is in force; pauses of the machine
are added."""
RESIDENT_MIB_MAX: Final = 400
"""Resident memory, in MiB, that a core of this cluster may have, whatever is sent to it."""
APART_MS: Final = 1_500
"""The longest wait, in milliseconds, of the second manager's probe during a fault of the first; pauses are added."""
AFTER_MS: Final = 2_000
"""Milliseconds after a fault in which the fault may still have effects."""
TRANSPORT: Final = ("RST_STREAM", "Internal error from Core")
"""Errors of the client's own library about a broken connection; they do not come from Evenhand's core."""
GAVE_UP: Final = ("ExecuteBatchError raised in core", "SendStatusFromServerOperation")
"""Words of the line that gRPC logs when a client no longer waits for the status of its call."""
EXPECTED: Final = {
    "killed": {-9},
    "ended": {0},
    "at the end": {0},
    "refused": {2},
}
"""Expected exit codes by how a run was ended; any other exit code is an error."""


def placed_twice(evidence: Evidence) -> Iterator[str]:
    """Yield the pods that were placed a second time: a pod stays where it was placed first."""
    for journal in (evidence.journal, evidence.second_journal):
        nodes: dict[str, str] = {}
        for line in journal:
            if line["kind"] == "placed":
                if line["key"] in nodes:
                    yield f"{line['key']} was placed on {nodes[line['key']]} and on {line['node']}"
                nodes[line["key"]] = line["node"]


def evicted_twice(evidence: Evidence) -> Iterator[str]:
    """Yield the pods that two decisions evicted although the first decision was not withdrawn."""
    by: dict[str, str] = {}
    for line in evidence.journal:
        if line["kind"] == "withdrawn":
            by.pop(line["key"], None)
        elif line["kind"] == "evict":
            before = by.setdefault(line["key"], line["decision"])
            if before != line["decision"]:
                yield f"{line['key']} was evicted by {before} and by {line['decision']}"


def evicted_unplaced(evidence: Evidence) -> Iterator[str]:
    """Yield the evictions of pods that do not run."""
    placed = set()
    for line in evidence.journal:
        if line["kind"] == "placed":
            placed.add(line["key"])
        elif line["kind"] == "evict" and line["key"] not in placed:
            yield f"{line['key']} was evicted and had no node"


def over_capacity(evidence: Evidence) -> Iterator[str]:
    """Yield the nodes that held more than their capacity by the true state."""
    truth = Truth()
    used: Counter[tuple[str, str]] = Counter()
    for line in evidence.journal:
        pod = truth.pods.get(line.get("key", ""))
        if line["kind"] == "gone" and pod is not None and pod.node:
            used.subtract({(pod.node, name): amount for name, amount in pod.size.items()})
        truth.carry(line)
        if line["kind"] != "placed" or pod is None:
            continue
        for name, amount in pod.size.items():
            used[pod.node, name] += amount
            most = FIRST.nodes[pod.node].get(name, 0)
            if used[pod.node, name] > most:
                yield f"{pod.node} held {used[pod.node, name]} {name} of {most} with {pod.key}"


def refused(evidence: Evidence) -> Iterator[str]:
    """Yield each refusal by the core, because it must accept everything that an honest shim sends."""
    for line in (*evidence.journal, *evidence.second_journal):
        if line["kind"] == "refused":
            yield f"{line['key']} was refused: {line['why']}"


def stalled(evidence: Evidence) -> Iterator[str]:
    """Yield the probes that waited too long outside faults, although a probe fits at any time."""
    asked: dict[str, int] = {}
    last = max((line["at"] for line in evidence.journal), default=0)
    placed = {line["key"]: line["at"] for line in evidence.journal if line["kind"] == "placed"}
    for line in evidence.journal:
        if line["kind"] == "ask" and line["queue"] == "probe":
            asked[line["key"]] = line["at"]
    bound = STALL_MS + evidence.pauses_ms
    for key, at in asked.items():
        waited = calm_ms(at, placed.get(key, last), evidence.windows)
        if waited > bound:
            yield f"{key} waited {waited} ms outside faults, at most {bound} ms are right"


def calm_ms(from_ms: int, to_ms: int, windows: list[Window]) -> int:
    """Return for how long no fault was in force between two instants; windows do not overlap."""
    hurt = (min(to_ms, one.to_ms) - max(from_ms, one.from_ms) for one in windows)
    return to_ms - from_ms - sum(each for each in hurt if each > 0)


def unsettled(evidence: Evidence) -> Iterator[str]:
    """Yield the asks that still wait and the pods that have not ended when the run is over, although capacity suffices."""
    if not evidence.settled:
        left = [truth_of(lines) for lines in (evidence.journal, evidence.second_journal)]
        pods = [pod for truth in left for pod in truth.pods.values()]
        some = [f"{pod.key} on {pod.node or 'no node'}" for pod in pods][:5]
        yield f"after {evidence.settling_ms} ms without faults there were still {', '.join(some)}"


def second_disturbed(evidence: Evidence) -> Iterator[str]:
    """Yield the effects of faults of the first shim or its network on the second manager: delays, ended sessions."""
    placed = {
        line["key"]: line["at"] for line in evidence.second_journal if line["kind"] == "placed"
    }
    last = max((line["at"] for line in evidence.second_journal), default=0)
    bound = APART_MS + evidence.pauses_ms
    is_synced = False
    for line in evidence.second_journal:
        amid = [one for one in evidence.windows if one.from_ms <= line["at"] <= one.to_ms]
        fault = next((one for one in amid if concerns_first_alone(one)), None)
        if line["kind"] == "ended" and fault and is_synced:
            yield f"the session of the second manager ended amid {fault.kind}: {line['code']} {line['why']}"
        if line["kind"] in {"session", "synced", "ended"}:
            is_synced = line["kind"] == "synced"
        if line["kind"] != "ask" or fault is None or not is_synced:
            continue
        waited = min(placed.get(line["key"], last), fault.to_ms) - line["at"]
        if waited > bound:
            yield f"{line['key']} of the second manager waited {waited} ms amid {fault.kind}, at most {bound} ms are right"


def concerns_first_alone(fault: Window) -> bool:
    """Return whether a fault concerns only the first shim or its network, and did not end the core."""
    return fault.kind.startswith(("net-", "shim-")) and "killed -9" not in fault.seen


def over_budget(evidence: Evidence) -> Iterator[str]:
    """Yield the samples above the memory limit."""
    most, at = max(((mib, at) for at, mib in evidence.resident_mib), default=(0, 0))
    if most > RESIDENT_MIB_MAX:
        amid = [one.kind for one in evidence.windows if one.from_ms <= at <= one.to_ms + AFTER_MS]
        yield f"the core had {most} MiB resident (amid {amid}), at most {RESIDENT_MIB_MAX} are right"


def log_unfit(evidence: Evidence) -> Iterator[str]:
    """Yield the lines of the decision log that do not match the line before."""
    yield from unfit("the decision log", evidence.verified)


def unfit(log: str, verified: Verified) -> Iterator[str]:
    """Yield the first lines of a log that do not match the line before."""
    if not verified.fits:
        wrong = [remark for remark in verified.remarks if remark.wrong]
        yield f"{log} does not fit together: {wrong[:3]}"


def log_dishonest(evidence: Evidence) -> Iterator[str]:
    """Yield the runs whose decisions were carried out but are missing in the log without a gap; a durable log has none."""
    absent: dict[int, set[str]] = {}
    parts = _parts(evidence)
    for line, run in _evictions(evidence, len(parts)):
        if line["decision"] not in _by_id(parts[run]):
            absent.setdefault(run, set()).add(line["decision"])
    for run, decisions in absent.items():
        part = parts[run]
        named = 0 if evidence.durable else part.missing
        if len(decisions) > named and (evidence.durable or not part.more):
            kind = "durable decision log" if evidence.durable else "decision log"
            yield (
                f"{len(decisions)} decisions of run {run + 1} were carried out and are not in the {kind}, "
                f"{named} lines are named as missing there: {sorted(decisions)[:5]}"
            )


def log_repeats(evidence: Evidence) -> Iterator[str]:
    """Yield the decisions that occur twice in the decision log, with different content.

    For a shim that registers again, the core rebuilds a decision from the marks on the remaining victims. After a
    veto a decision is planned again under its id, but the shims of these runs send no vetoes.
    """
    first: dict[str, Decided] = {}
    for part in evidence.log:
        for one in part.decided:
            before = first.setdefault(one.decision, one)
            if not one.is_part_of(before):
                yield f"{one.decision} is twice in the decision log, as {before} and as {one}"


def log_untrue(evidence: Evidence) -> Iterator[str]:
    """Yield the evictions whose victim or ask differs from that of the decision in the run's log."""
    parts = evidence.log if _is_split(evidence) else []
    decided = [{one.decision: one for one in reversed(part.decided)} for part in parts]
    for line, run in _evictions(evidence, len(parts)):
        found = decided[run].get(line["decision"]) if parts else None
        if found is not None and line["key"] not in found.victims:
            yield f"{line['key']} was evicted by {found.decision}, whose victims are {set(found.victims)}"
        elif found is not None and line["freed_for"] not in {*found.beneficiaries, ""}:
            yield f"{found.decision} evicted {line['key']} for {line['freed_for']}, in the log for {set(found.beneficiaries)}"


def _is_split(evidence: Evidence) -> bool:
    """Return whether each part of the log belongs to a known run, which fails when a run's first line was lost."""
    return len(evidence.log) == len(evidence.begun_ms)


def _parts(evidence: Evidence) -> list[LogPart]:
    """Return each run's part of the log; one part for all runs when it is unknown which line belongs to which run."""
    if _is_split(evidence):
        return evidence.log
    decided = [one for part in evidence.log for one in part.decided]
    return [LogPart(decided, evidence.verified.missing, evidence.verified.more)]


def _by_id(part: LogPart) -> set[str]:
    return {one.decision for one in part.decided}


def _evictions(evidence: Evidence, runs: int) -> Iterator[tuple[Line, int]]:
    """Return each eviction with the index of the core run that ordered it, which is the run of the session."""
    run = 0
    for line in evidence.journal:
        if line["kind"] == "session":
            run = max(0, bisect_right(evidence.begun_ms, line["at"]) - 1)
        elif line["kind"] == "evict":
            yield line, min(run, runs - 1)


def configuration_lost(evidence: Evidence) -> Iterator[str]:
    """Yield the configurations in force after a restart that are older than the last answered apply."""
    for one in evidence.in_force:
        kept = [each for each in evidence.applied if each.kept and each.at_ms <= one.at_ms]
        last = max(kept, default=None)
        if last and (
            one.number < last.number or (one.number == last.number and one.digest != last.digest)
        ):
            yield f"revision {one.number} ({one.digest[:12]}) is in force after {last.number} ({last.digest[:12]}) was applied"


def replay_differs(evidence: Evidence) -> Iterator[str]:
    """Yield the runs whose replayed trace does not give the recorded decisions, byte for byte."""
    for one in evidence.replays:
        if one.code:
            yield f"the replay of {one.trace} ended with {one.code}: {one.said}"


def wrong_exit(evidence: Evidence) -> Iterator[str]:
    """Yield the runs whose exit code does not match the way in which they were ended; none ends by itself."""
    for how, code in evidence.exits:
        if code not in EXPECTED.get(how, set()):
            yield f"a core that was to end as `{how}` ended with {code}"


def doctor_complains(evidence: Evidence) -> Iterator[str]:
    """Yield the errors that the doctor finds in the end."""
    code, said = evidence.doctor
    if code:
        yield f"the doctor ended with {code}: {said}"


def without_effect(evidence: Evidence) -> Iterator[str]:
    """Yield the faults that had no effect without an acceptable reason."""
    for one in evidence.windows:
        if not has_struck(one.kind, one.seen) and not excuse(one.kind, one.seen):
            effect = EFFECTS[one.kind]
            yield f"{one.kind} at {one.from_ms} had no effect: `{effect.shown_by}` below {effect.least} in {dict(one.seen)}"


def crashed(evidence: Evidence) -> Iterator[str]:
    """Yield the tracebacks in the output of processes; no process may end with an uncaught exception."""
    yield from tracebacks({"core": evidence.core_said, "others": evidence.others_said})


def _is_given_up(line: str) -> bool:
    return all(words in line for words in GAVE_UP)


def tracebacks(outputs: Mapping[str, str]) -> Iterator[str]:
    """Yield the first traceback in each output of processes, which are given by name.

    gRPC logs one itself if it cannot send a status, because the client has given up.
    """
    for whose, text in outputs.items():
        said = "\n".join(line for line in text.split("\n") if not _is_given_up(line))
        at = said.find("Traceback")
        if at >= 0:
            yield f"{whose}: {said[max(0, at - 300) : at + 3_000]}"


def internal(evidence: Evidence) -> Iterator[str]:
    """Yield the answers whose status code means an error in the core."""
    ended = [
        f"{line['code']} {line['why']}" for line in evidence.journal if line["kind"] == "ended"
    ]
    for code, times in Counter([*evidence.codes, *ended]).items():
        is_transport = any(text in code for text in TRANSPORT)
        if code.startswith(("INTERNAL", "UNKNOWN")) and not is_transport:
            yield f"{times} times the answer {code}"


RULES: Final[tuple[Callable[[Evidence], Iterator[str]], ...]] = (
    placed_twice,
    evicted_twice,
    evicted_unplaced,
    over_capacity,
    refused,
    stalled,
    unsettled,
    second_disturbed,
    over_budget,
    log_unfit,
    log_dishonest,
    log_repeats,
    log_untrue,
    configuration_lost,
    replay_differs,
    wrong_exit,
    doctor_complains,
    without_effect,
    crashed,
    internal,
)


def judged(evidence: Evidence) -> list[str]:
    """Return what was wrong, each with the name of the check that found it."""
    return [f"{rule.__name__}: {wrong}" for rule in RULES for wrong in rule(evidence)]
