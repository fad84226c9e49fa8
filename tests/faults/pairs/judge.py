"""The judge of a run with two cores and two shims: pure functions from the evidence to sentences about what was wrong."""

from collections import Counter
from collections.abc import Callable, Iterator
from statistics import median
from typing import Final

from tests.faults import judge
from tests.faults.evidence import Decided
from tests.faults.journal import Line
from tests.faults.kubernetes import judge as of_cluster
from tests.faults.kubernetes.evidence import ClusterEvidence
from tests.faults.pairs.cluster import DELAY_S
from tests.faults.pairs.evidence import PairsEvidence
from tests.faults.pairs.observer import LEADER
from tests.faults.pairs.schedule import ENDED, KILLED, STARTING

WAIT_MS: Final = 12_000
"""The longest wait, in milliseconds, of a probe, whatever is killed or cut.

A busy machine is slow: pauses of the run and the starts of three processes are added. When both cores or both shims were
killed, a placement waits for a start.
"""
STARTS: Final = 3
RECENT_MS: Final = 30_000
"""Age, in milliseconds, of the oldest decisions that a core must show without being asked for older ones."""
EXITS: Final = {KILLED: {-9}, ENDED: {0}, STARTING: {0, -15}}


def placed_twice(evidence: PairsEvidence) -> Iterator[str]:
    """Yield the pods that were placed twice, or that a shim tried to bind to another node."""
    yield from judge.placed_twice(evidence.run)
    yield from of_cluster.bound_twice(ClusterEvidence(evidence.run))


def evicted_twice(evidence: PairsEvidence) -> Iterator[str]:
    """Yield the pods that were deleted twice by shims."""
    yield from of_cluster.ended_twice(ClusterEvidence(evidence.run))


def evicted_unplaced(evidence: PairsEvidence) -> Iterator[str]:
    """Yield the evictions of pods that do not run."""
    yield from judge.evicted_unplaced(evidence.run)


def over_capacity(evidence: PairsEvidence) -> Iterator[str]:
    """Yield the nodes that held more than their capacity."""
    yield from judge.over_capacity(evidence.run)


def decided_twice(evidence: PairsEvidence) -> Iterator[str]:
    """Yield the victims on which a second decision was written although the first one was not withdrawn."""
    marks: dict[str, str] = {}
    for line in evidence.of("mark"):
        before, now = marks.get(line["key"], ""), line["mark"]
        if before and now and before.split("/")[0] != now.split("/")[0]:
            yield f"{line['key']} was marked with {before}, then with {now}"
        marks[line["key"]] = now


def two_leaders(evidence: PairsEvidence) -> Iterator[str]:
    """Yield the writes of a shim to the API server after the first write of a shim with a newer epoch."""
    highest, whose = 0, ""
    for line in evidence.of("write"):
        if line["epoch"] < highest:
            facts = f"{line['what']} {line['name']} of {line['by']} in epoch {line['epoch']}"
            yield f"{facts} came after a write of {whose} in epoch {highest}"
        elif line["epoch"] > highest:
            highest, whose = line["epoch"], line["by"]


def wrote_without_lease(evidence: PairsEvidence) -> Iterator[str]:
    """Yield the writes of a shim while another shim held the lease."""
    for line in evidence.of("write"):
        if line["holder"] not in {line["by"], ""}:
            yield f"{line['what']} {line['name']} of {line['by']} while {line['holder']} held the lease"


def two_cores(evidence: PairsEvidence) -> Iterator[str]:
    """Yield the decisions that a shim heard from a core whose session it had left, and the sessions that overlapped."""
    now: dict[int, Line] = {}
    for line in sorted(evidence.heard, key=lambda one: one["at"]):
        there = now.get(line["process"])
        match line["kind"]:
            case "joined":
                if there is not None:
                    yield f"{line['by']} joined {line['core']} while it was joined with {there['core']}"
                now[line["process"]] = line
            case "left":
                now.pop(line["process"], None)
            case "heard" if there is None or there["session"] != line["session"]:
                yield f"{line['by']} heard from {line['core']} in a session that was over"


def two_writers(evidence: PairsEvidence) -> Iterator[str]:
    """Yield the terms of the log of NATS whose leader wrote a message after another term had begun."""
    begun: set[str] = set()
    last = ""
    for number, term in enumerate(evidence.terms):
        if term != last and term in begun:
            yield f"message {number} of the log is of term {term}, after a message of {last}"
        begun.add(term)
        last = term


def other_epoch(evidence: PairsEvidence) -> Iterator[str]:
    """Yield the placements and evictions that a core sent for an epoch which was not that of the session."""
    for line in evidence.heard:
        if line["kind"] == "heard" and line["epoch"] != line["own"]:
            yield f"{line['by']} heard epoch {line['epoch']} in a session of epoch {line['own']}"


def diverged(evidence: PairsEvidence) -> Iterator[str]:
    """Yield the differences that a follower found between its decisions, or their digests, and those of its leader."""
    for line in evidence.of("core"):
        if line["difference"]:
            yield f"{line['core']} decided otherwise: {line['difference']}"


def decision_lost(evidence: PairsEvidence) -> Iterator[str]:
    """Yield the decisions of a leader that its level follower lacks, and those that a core no longer has when it leads.

    The first check needs two cores with input of the same term: a follower that was stopped is level with a leader that has
    ended, until it learns of the next one. The second check leaves out a core that was restarted, and one whose leader
    answered later than it did.
    """
    last: dict[str, Line] = {}
    for line in evidence.of("core", "started"):
        if line["kind"] == "started":
            last.pop(line["name"], None)
            continue
        core, state = line["core"], line["state"]
        others = [one for name, one in last.items() if name != core and one["state"] == LEADER]
        if state == LEADER and core in last and not any(o["at"] > last[core]["at"] for o in others):
            yield from _lost(last[core], line)
        for other in others if line["level"] else ():
            if other["term"] == line["term"] and other["decided_at"] <= line["decided_at"]:
                yield from _lost(other, line)
        if state == LEADER or line["level"]:
            last[core] = line


def _lost(before: Line, after: Line) -> Iterator[str]:
    """Yield the recent decisions of one answer of a core that a later answer lacks."""
    recent = after["now_ms"] - RECENT_MS
    for decision, at_ms in before["decided"].items():
        if at_ms >= recent and decision not in after["decided"]:
            yield f"{after['core']} as {after['state']} lacks {decision}, which {before['core']} had as {before['state']}"


def timer_restarted(evidence: PairsEvidence) -> Iterator[str]:
    """Yield the delays of lowered quotas that began again at a core that knew the first instant while it followed."""
    known: dict[str, int] = {}
    for line in evidence.of("core", "lowered", "enforced", "started"):
        match line["kind"]:
            case "lowered" | "enforced":
                known.clear()
            case "started":
                known.pop(line["name"], None)
            case "core" if line["due_ms"] and line["level"]:
                known.setdefault(line["core"], line["due_ms"])
            case "core" if line["state"] == LEADER:
                late = line["due_ms"] - known.get(line["core"], line["due_ms"])
                if late > 0:
                    yield f"{line['core']} enforces the quota {late} ms later than it knew as follower"


def quota_late(evidence: PairsEvidence) -> Iterator[str]:
    """Yield the lowered quotas that were enforced too late, too early, or not at all.

    A core that begins again while no other runs may lead from a state of before the quota was lowered, and enforces the quota
    at the instant that this state knows.
    """
    bound = DELAY_S * 1000 + 2 * longest_wait_ms(evidence)
    lowered: dict[int, int] = {}
    for line in evidence.of("lowered", "enforced"):
        run = line["run"]
        if line["kind"] == "lowered":
            lowered[run] = line["at"]
        elif (took := line["at"] - lowered[run]) > bound:
            yield f"quota run {run} took {took} ms, at most {bound} ms are right"
        elif took < DELAY_S * 1000 - 1_000 and not _led_from_older(evidence, run):
            yield f"quota run {run} took {took} ms, less than its delay"


def _led_from_older(evidence: PairsEvidence, run: int) -> bool:
    """Return whether a core led from an older state than the leader before it, after a quota was lowered and before the next was enforced."""
    known, now = 0, 0
    for line in evidence.of("core", "lowered", "enforced"):
        if line["kind"] == "lowered":
            now = line["run"]
        elif line["kind"] == "enforced":
            if line["run"] > run:
                return False
        elif line["state"] == LEADER:
            if now >= run and line["decided_at"] < known:
                return True
            known = line["decided_at"]
    return False


def waited(evidence: PairsEvidence) -> Iterator[str]:
    """Yield the probes that waited too long, although a probe fits at any time."""
    asked = {line["key"]: line for line in evidence.of("ask") if line["queue"] == "probe"}
    placed = {line["key"]: line["at"] for line in evidence.of("placed")}
    last = max((line["at"] for line in evidence.journal), default=0)
    bound = longest_wait_ms(evidence)
    for key, line in asked.items():
        took = placed.get(key, last) - line["at"]
        if took > bound:
            yield f"{line['name']} ({key}) waited {took} ms, at most {bound} ms are right"


def longest_wait_ms(evidence: PairsEvidence) -> int:
    """Return the longest allowed wait of a probe, in milliseconds."""
    return WAIT_MS + STARTS * slowest_start_ms(evidence) + evidence.pauses_ms


def slowest_start_ms(evidence: PairsEvidence) -> int:
    """Return the longest time in milliseconds from the start of a core to its first answer."""
    began: dict[str, int] = {}
    took = [0]
    for line in evidence.of("started", "core"):
        if line["kind"] == "started":
            began[line["name"]] = line["at"]
        elif line["state"] and line["core"] in began:
            took.append(line["at"] - began.pop(line["core"]))
    return max(took)


def not_recovered(evidence: PairsEvidence) -> Iterator[str]:
    """Yield the faults after which not everything ran again, or the follower was not level in time."""
    for line in evidence.of("recovered"):
        if not line["whole"]:
            yield f"not everything had recovered after {line['took_ms']} ms"


def without_effect(evidence: PairsEvidence) -> Iterator[str]:
    """Yield the cuts of links to the API server that stopped no data, although both ends must have sent some."""
    for line in evidence.of("healed"):
        if not line["pieces"] and line["link"].endswith("api"):
            yield f"the cut between {line['link']} had no effect"


def unsettled(evidence: PairsEvidence) -> Iterator[str]:
    """Yield a message if some pods had not been placed or had not ended at the end, although capacity suffices."""
    if not evidence.settled:
        yield f"after {evidence.settling_ms} ms not every pod had been placed and had ended"


def disagreement(evidence: PairsEvidence) -> Iterator[str]:
    """Yield the pods for which a core and the API server name different nodes at the end."""
    for core, says in evidence.cores_say.items():
        both = ClusterEvidence(evidence.run, core_says=says, api_says=evidence.api_says)
        yield from (f"{core}: {wrong}" for wrong in of_cluster.disagreement(both))
    yield from evidence.complaints


def log_unfit(evidence: PairsEvidence) -> Iterator[str]:
    """Yield the lines of a decision log that do not match the line before."""
    for core, verified in evidence.verified.items():
        yield from judge.unfit(f"the decision log of {core}", verified)


def log_dishonest(evidence: PairsEvidence) -> Iterator[str]:
    """Yield the executed decisions that are in no decision log, if they outnumber the lines that the logs report as missing."""
    parts = [part for log in evidence.log.values() for part in log]
    written = {one.decision for part in parts for one in part.decided}
    absent = {line["decision"] for line in evidence.of("evict")} - written
    named = 0 if evidence.durable else sum(part.missing for part in parts)
    has_more = any(part.more for part in parts) and not evidence.durable
    if len(absent) > named and not has_more:
        kind = "durable logs" if evidence.durable else "logs"
        yield f"{len(absent)} decisions are not in the {kind}, which name {named} missing: {sorted(absent)[:5]}"


def log_untrue(evidence: PairsEvidence) -> Iterator[str]:
    """Yield the evictions whose victim or preemptor is not that of the decision in a log."""
    decided: dict[str, list[Decided]] = {}
    for log in evidence.log.values():
        for part in log:
            for one in part.decided:
                decided.setdefault(one.decision, []).append(one)
    for line in evidence.of("evict"):
        found = decided.get(line["decision"], [])
        if found and not any(line["key"] in one.victims for one in found):
            yield f"{line['key']} was evicted by {line['decision']}, which has other victims"


def wrong_exit(evidence: PairsEvidence) -> Iterator[str]:
    """Yield the processes whose exit code does not match the way in which they were ended; none ends by itself."""
    for name, how, code in evidence.exits:
        if code not in EXITS.get(how, ()):
            yield f"{name}, which was to end as `{how}`, ended with {code}"


def crashed(evidence: PairsEvidence) -> Iterator[str]:
    """Yield the tracebacks in the output of processes."""
    yield from judge.tracebacks(evidence.said)


RULES: Final[tuple[Callable[[PairsEvidence], Iterator[str]], ...]] = (
    placed_twice,
    evicted_twice,
    evicted_unplaced,
    over_capacity,
    decided_twice,
    two_leaders,
    wrote_without_lease,
    two_cores,
    two_writers,
    other_epoch,
    diverged,
    decision_lost,
    timer_restarted,
    quota_late,
    waited,
    not_recovered,
    without_effect,
    unsettled,
    disagreement,
    log_unfit,
    log_dishonest,
    log_untrue,
    wrong_exit,
    crashed,
)


def judged(evidence: PairsEvidence) -> list[str]:
    """Return what was wrong, each with the name of the check that found it."""
    return [f"{rule.__name__}: {wrong}" for rule in RULES for wrong in rule(evidence)]


def report(seed: int, evidence: PairsEvidence) -> list[str]:
    """Return a few lines that describe the run."""
    lines = Counter(line["kind"] for line in evidence.journal)
    kills = Counter((line["role"], line["how"]) for line in evidence.of("kill"))
    return [
        f"seed {seed}, durable: {'yes' if evidence.durable else 'no'}",
        f"kills    {lines['kill']}, {lines['missed']} of a process that was away: "
        + ", ".join(f"{times} {role} {how}" for (role, how), times in sorted(kills.items())),
        f"cuts     {lines['cut']}",
        f"pods     {lines['ask']} asked, {lines['placed']} placed, {lines['evict']} evicted",
        f"quotas   {lines['enforced']} lowered and enforced",
        *_times(evidence),
        f"log      {sum(one.lines for one in evidence.verified.values())} lines, "
        f"{sum(one.missing for one in evidence.verified.values())} missing",
        f"machine  slowest start of a core {slowest_start_ms(evidence)} ms, pauses {evidence.pauses_ms} ms",
        f"settled  after {evidence.settling_ms} ms",
    ]


def _times(evidence: PairsEvidence) -> Iterator[str]:
    """Yield how long it took until a placement after a fault, by the kind of the fault."""
    took: dict[str, list[int]] = {}
    for line in evidence.of("progress"):
        took.setdefault(f"{line['role']} {line['how']}", []).append(line["took_ms"])
    for what, times in sorted(took.items()):
        yield f"placed   after {what}: median {median(times):.0f} ms, worst {max(times)} ms of {len(times)}"
