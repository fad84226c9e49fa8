"""The checks of a run on Kubernetes: those of every run, and those on the API server's own records."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from tests.faults import judge
from tests.faults.evidence import Window
from tests.faults.journal import Line
from tests.faults.judge import calm_ms
from tests.faults.kubernetes.evidence import ClusterEvidence
from tests.faults.kubernetes.load import CHANGES
from tests.faults.kubernetes.queues import CORES, queues

LATE_MS: Final = 3_000
"""The longest time, outside faults, for which shim and core may act on an outdated state."""
SHIM_EXITS: Final = {"killed": -9, "at the end": 0}


def bound_twice(evidence: ClusterEvidence) -> Iterator[str]:
    """Yield the pods that were bound a second time, or that the shim tried to bind to another node."""
    nodes: dict[str, str] = {}
    for line in evidence.run.journal:
        if line["kind"] != "bind":
            continue
        before = nodes.get(line["key"])
        if before is not None and (before != line["node"] or line["accepted"]):
            yield f"{line['name']} was bound to {before}, then to {line['node']}"
        if line["accepted"]:
            nodes.setdefault(line["key"], line["node"])


def ended_twice(evidence: ClusterEvidence) -> Iterator[str]:
    """Yield the pods that the shim deleted or evicted more than once."""
    ended = Counter(
        (line["name"], line["key"])
        for line in evidence.run.journal
        if line["kind"] == "end" and line["accepted"]
    )
    for (name, key), times in ended.items():
        if times > 1:
            yield f"{name} ({key}) was ended {times} times"


def ended_too_late(evidence: ClusterEvidence) -> Iterator[str]:
    """Yield the pods that the shim deleted or evicted although they had ended, or had been ending for a while."""
    since: dict[str, int] = {}
    for line in evidence.run.journal:
        key = line.get("key", "")
        if line["kind"] in {"gone", "leaving"}:
            since.setdefault(key, line["at"])
        elif line["kind"] == "end" and key in since:
            late = _late_ms(evidence, since[key], line["at"])
            if late > 0:
                yield f"{line['name']} was ended {late} ms too late: it was leaving or gone"


def bound_to_closed(evidence: ClusterEvidence) -> Iterator[str]:
    """Yield the pods that were bound to a node that had been gone or cordoned for a while."""
    since: dict[str, int] = {}
    for line in evidence.run.journal:
        match line["kind"]:
            case "node-closed":
                since[line["node"]] = line["at"]
            case "node-open":
                since.pop(line["node"], None)
            case "placed" if line["node"] in since:
                late = _late_ms(evidence, since[line["node"]], line["at"])
                if late > 0:
                    yield f"{line['key']} was bound to {line['node']}, which was closed, {late} ms too late"


def over_quota(evidence: ClusterEvidence) -> Iterator[str]:
    """Yield the bindings that brought `low` above its quota, including bindings after a core was killed."""
    sizes: dict[str, int] = {}
    held: dict[str, int] = {}
    quotas = _Quotas(evidence)
    for line in evidence.run.journal:
        key = line.get("key", "")
        quotas.hear(line)
        if line["kind"] == "ask" and line["queue"] == "low":
            sizes[key] = line["size"]["vcore"]
        elif line["kind"] == "gone":
            held.pop(key, None)
        elif line["kind"] == "placed" and key in sizes:
            held[key] = sizes[key]
            most = quotas.most(line["at"])
            if sum(held.values()) > most:
                yield f"low held {sum(held.values())} of {most} with {key}"


class _Quotas:
    """The quotas that may be in force: the last applied quota and, until that apply is answered, also earlier and attempted quotas."""

    def __init__(self, evidence: ClusterEvidence) -> None:
        self._evidence = evidence
        self._possible: list[tuple[int, int | None]] = [(CORES * 1000, None)]
        """Quotas, each with the instant at which another one replaced it."""

    def hear(self, line: Line) -> None:
        if line["kind"] == "quota":
            self._possible.append((line["cores"], None))
        elif line["kind"] == "quota-answered" and line["code"] == 0:
            *before, _ = self._possible
            replaced = [(cores, since or line["at"]) for cores, since in before]
            self._possible = [*replaced, (line["cores"], None)]

    def most(self, now: int) -> int:
        """Return the largest quota that may still be in force at an instant."""
        return max(
            cores
            for cores, since in self._possible
            if since is None or _late_ms(self._evidence, since, now) <= 0
        )


def _late_ms(evidence: ClusterEvidence, since: int, now: int) -> int:
    """Return by how much longer than allowed a known fact was ignored."""
    after = [one._replace(to_ms=one.to_ms + judge.AFTER_MS) for one in evidence.run.windows]
    return calm_ms(since, now, _apart(after)) - LATE_MS - evidence.run.pauses_ms


def _apart(windows: list[Window]) -> list[Window]:
    """Return the windows, cut so that none overlaps the next."""
    ends = [one.from_ms for one in windows[1:]]
    cut = [one._replace(to_ms=min(one.to_ms, end)) for one, end in zip(windows, ends, strict=False)]
    return [*cut, *windows[-1:]]


def disagreement(evidence: ClusterEvidence) -> Iterator[str]:
    """Yield the pods for which core and API server name different nodes at the end."""
    for key in sorted(evidence.core_says.keys() | evidence.api_says.keys()):
        core, api = evidence.core_says.get(key, "no node"), evidence.api_says.get(key, "no node")
        if core != api:
            yield f"{key} is on {core} for the core and on {api} for the API server"


def unexplained(evidence: ClusterEvidence) -> Iterator[str]:
    """Yield the pods that wait at the end without a true cause in their condition or in the core's explanation."""
    for pod in evidence.waiting:
        for what, said in (("condition", pod.told), ("explanation", pod.explained)):
            if not TRUE_CAUSES[pod.lacks](said):
                yield f"{pod.name} lacks a {pod.lacks}, its {what} says {said!r}"


TRUE_CAUSES: Final[dict[str, Callable[[str], bool]]] = {
    "node": lambda said: "node" in said,
    "quota": lambda said: "root.tiny" in said,
}


def other_configuration(evidence: ClusterEvidence) -> Iterator[str]:
    """Yield the configuration in force at the end if it is not the last one that was applied."""
    if evidence.run.settled and not evidence.configuration.endswith(queues(CORES)):
        yield f"in force is {evidence.configuration!r}"


def wrong_shim_exit(evidence: ClusterEvidence) -> Iterator[str]:
    """Yield the shims whose exit code does not match the way in which they were ended; none ends by itself."""
    for how, code in evidence.shim_exits:
        if code != SHIM_EXITS[how]:
            yield f"a shim that was to end as `{how}` ended with {code}"


def blind(evidence: ClusterEvidence) -> Iterator[str]:
    """Yield the failures of the run's own actions and observations, which concern neither core nor shim."""
    for line in evidence.run.journal:
        if line["kind"] == "blind":
            yield line["why"]


def unchanged(evidence: ClusterEvidence) -> Iterator[str]:
    """Yield the kinds of changes that the run lacked: lost and drained nodes, changed quotas, and any change during a fault."""
    changes = [line for line in evidence.run.journal if line["kind"] == "change"]
    for absent in sorted(set(CHANGES) - {line["what"] for line in changes}):
        yield f"no change was {absent}"
    windows = evidence.run.windows
    if not any(one.from_ms <= line["at"] <= one.to_ms for one in windows for line in changes):
        yield "no change fell into a fault"


RULES: Final[tuple[Callable[[ClusterEvidence], Iterator[str]], ...]] = (
    bound_twice,
    ended_twice,
    ended_too_late,
    bound_to_closed,
    over_quota,
    disagreement,
    unexplained,
    other_configuration,
    wrong_shim_exit,
    blind,
    unchanged,
)


def judged(evidence: ClusterEvidence) -> list[str]:
    """Return what was wrong, each with the name of the check that found it."""
    own = [f"{rule.__name__}: {wrong}" for rule in RULES for wrong in rule(evidence)]
    return [*judge.judged(evidence.run), *own]
