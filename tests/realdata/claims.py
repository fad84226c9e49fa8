"""A real cluster full of best-effort pods; then its latency-sensitive pods arrive, with a guarantee, and evict pods.

`python -m tests.realdata.claims` prints the report. Best-effort pods are repeated in an order that the seed
determines, until one no longer fits; one in ten of their shapes has opted out. Both queues have a guarantee: the
latency-sensitive queue the sum of its requests, the best-effort queue a quarter of its use at that time.
"""

import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from rich.console import Console
from rich.table import Table

from server.config import load
from server.core.core import Core
from server.core.queries import inspect
from server.model.asks import AskSpec
from server.model.decisions import Decided, Decision, DecisionMoved, Noted, Placed, Released
from server.model.events import (
    ApplicationAdded,
    AskAdded,
    ConfigurationApplied,
    ManagerRegistered,
    ReleaseRequested,
)
from server.model.quota import Configuration
from server.model.reasons import Code
from server.model.records import DecisionRecord
from server.model.reports import NodeReport
from server.rpc.limits import TICK_BUDGET
from tests.realdata import openb

START: Final = 1_800_000_000_000
SEED: Final = 20_260_701
OPTED_OUT: Final = 0.1
FLOOR: Final = 4
"""The best-effort queue's guarantee is this fraction of what it uses."""
QUIET_INSTANTS: Final = 6
"""Number of consecutive instants without a decision after which the run ends."""
KINDS: Final = ("gpu", "memory", "vcore")
Amounts = dict[str, int]


@dataclass
class Report:
    """The results of a run: amounts by resource type, milliseconds of this process's CPU."""

    nodes: int = 0
    filled: int = 0
    asked: int = 0
    placed: int = 0
    claimed: set[str] = field(default_factory=set)
    """Keys of the asks for which pods were evicted, or that wait for pods whose eviction is ordered."""
    victims: dict[str, str] = field(default_factory=dict)
    """The shape of each victim, by its key."""
    opted_out: int = 0
    claims: Counter[int] = field(default_factory=Counter)
    """The number of decisions, by their number of victims."""
    ends: Counter[str] = field(default_factory=Counter)
    wanted: Amounts = field(default_factory=dict)
    freed: Amounts = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    waiting: Counter[str] = field(default_factory=Counter)
    ticks: int = 0
    cpu_ms: float = 0.0
    longest_ms: float = 0.0


class Claims:
    """The cluster during the run; `now` moves to the instants at which the core wants to be called."""

    POLICIES = "[required-node, guaranteed]"

    def __init__(self, seed: int = SEED) -> None:
        self.dice = random.Random(seed)
        self.now = START
        self.report = Report()
        self.low = [one for one in openb.asks(models=False) if one.application_id == "app-BE"]
        self.high = self.claimants(seed)
        self.specs: dict[str, AskSpec] = {}
        nodes = openb.nodes()
        self.capacity = _sum(getattr(one, "capacity", ()) for one in nodes)
        self.guaranteed: dict[str, Amounts] = {
            "root.ls": _sum(one.spec.resource for one in self.high),
            "root.be": {},
        }
        self.core = Core(self._configuration())
        opening = (
            ManagerRegistered(openb.RM),
            *nodes,
            ApplicationAdded(openb.RM, "app-BE", "root.be"),
            ApplicationAdded(openb.RM, "app-LS", "root.ls"),
        )
        for event in opening:
            self.core.handle(event, self.now)
        self.report.nodes = len(nodes)

    def claimants(self, seed: int) -> list[AskAdded]:
        """Return the asks that arrive when the cluster is full."""
        del seed
        return [one for one in openb.asks() if one.application_id == "app-LS"]

    def _configuration(self) -> Configuration:
        queues = [
            f"    - {{name: {path.rpartition('.')[2]}, resources: {{guaranteed: {_yaml(most)}}},"
            " properties: {preemption.delay: 1ms}}"
            for path, most in self.guaranteed.items()
        ]
        head = (
            "partitions:\n- name: default\n  nodesortpolicy: {type: binpacking}\n"
            f"  preemption: {{policies: {self.POLICIES}}}\n"
            "  queues:\n  - name: root\n    submitacl: '*'\n    queues:\n"
        )
        found, problems = load(head + "\n".join(queues), "openb")
        assert found is not None, problems
        return found

    # What happens -------------------------------------------------------------------------------------

    def fill(self) -> None:
        """Add best-effort pods until one has no node; that pod is removed again."""
        shapes: dict[AskSpec, AskSpec] = {}
        for number in range(1_000_000):
            drawn = self.dice.choice(self.low)
            if drawn.spec not in shapes:
                opted = self.dice.random() < OPTED_OUT
                shapes[drawn.spec] = replace(drawn.spec, allow_preempt_self=not opted)
            key, spec = f"be-{number:06}", shapes[drawn.spec]
            self.now += 1
            self.core.handle(AskAdded(openb.RM, key, "app-BE", spec, created_ms=self.now), self.now)
            placed = [one for one in self.core.tick(self.now).decisions if type(one) is Placed]
            if not placed:
                self.core.handle(
                    ReleaseRequested(openb.RM, "app-BE", key, asks_only=True), self.now
                )
                return
            self.specs[key] = spec
            self.report.filled += 1

    def claim(self) -> None:
        """Submit all latency-sensitive pods at once, and confirm each release as soon as it is ordered."""
        self.report.asked = len(self.high)
        self.now += 1_000
        used = self.usage("root.be")
        self.guaranteed["root.be"] = {kind: used[kind] // FLOOR for kind in KINDS}
        self.core.handle(ConfigurationApplied(self._configuration(), "guaranteed"), self.now)
        begun = time.process_time()
        for one in self.high:
            self.specs[one.key] = one.spec
            self.core.handle(one._replace(created_ms=self.now), self.now)
        quiet = 0
        while quiet < QUIET_INSTANTS:
            quiet = quiet + 1 if self._settle() else 0
            due = self.core.next_due()
            if due is None:
                break
            self.now = max(due, self.now + 1)
        self.report.cpu_ms = 1_000 * (time.process_time() - begun)
        self._take_stock()

    def _settle(self) -> bool:
        """Tick until nothing more is decided; return whether a single tick was enough."""
        quiet = True
        while True:
            before = time.process_time()
            tick = self.core.tick(self.now, TICK_BUDGET)
            self.report.ticks += 1
            spent = 1_000 * (time.process_time() - before)
            self.report.longest_ms = max(self.report.longest_ms, spent)
            replies = self._confirm(tick.decisions)
            self._hear([*tick.decisions, *replies])
            self._check()
            if not (tick.more or replies):
                return quiet
            quiet = False
            self.now += 1

    def _confirm(self, decisions: Iterable[Decision]) -> list[Decision]:
        heard: list[Decision] = []
        for one in decisions:
            if type(one) is Released and one.decision_id:
                event = ReleaseRequested(
                    openb.RM, one.application_id, one.key, termination=one.termination
                )
                heard += self.core.handle(event, self.now)
        return heard

    def _hear(self, decisions: Iterable[Decision]) -> None:
        report = self.report
        for one in decisions:
            if type(one) is Placed:
                report.placed += 1
                report.wanted = _sum([tuple(report.wanted.items()), one.spec.resource])
            elif type(one) is Decided:
                self._made(one.record)
            elif type(one) is DecisionMoved and not one.state.is_open:
                report.ends[one.state.value] += 1
            elif type(one) is Noted and one.code is Code.LAW_BROKEN:
                report.broken.append(one.message)

    def _made(self, record: DecisionRecord) -> None:
        report = self.report
        report.claims[len(record.victims)] += 1
        report.claimed |= {one.key for one in record.beneficiaries}
        for one in record.victims:
            if one.key in report.victims:
                report.broken.append(f"{one.key} goes twice")
            if one.queue != "root.be":
                report.broken.append(f"{one.key} of {one.queue} goes")
            report.victims[one.key] = _shape(dict(one.resource))
            report.opted_out += one.opted_out
        report.freed = _sum(
            [tuple(report.freed.items()), *(one.resource for one in record.victims)]
        )

    # What must hold -----------------------------------------------------------------------------------

    def _check(self) -> None:
        """Report when root.be is below its guarantee, because only claims evict pods here (rule 2, invariant 3)."""
        usage = self.usage("root.be")
        for kind, least in self.guaranteed["root.be"].items():
            if usage.get(kind, 0) < least:
                self.report.broken.append(f"root.be has {usage.get(kind, 0)} {kind} of {least}")

    def usage(self, path: str) -> Mapping[str, int]:
        """Return the usage of a top queue, in whole units."""
        tree = inspect.queue_tree(self.core, "default")
        return next(one.usage for one in tree.children if one.path == path)

    def _take_stock(self) -> None:
        self.core.validate()
        waiting = [
            one for one in inspect.allocations(self.core, "default", asks=True) if not one.node_id
        ]
        self.report.waiting = Counter(_shape(dict(self.specs[one.key].resource)) for one in waiting)

    def missed(self) -> Iterator[str]:
        """Yield the waiting asks for which a simple search of each node finds a permitted claim.

        Their queue is below its guarantee in all types that the ask requests. Evicting best-effort pods of one node
        suffices, and leaves the best-effort queue at its guarantee.
        """
        used = self.usage("root.ls")
        spare = _less(dict(self.usage("root.be")), self.guaranteed["root.be"])
        nodes = inspect.nodes(self.core, "default")
        running: dict[str, list[Amounts]] = defaultdict(list)
        waiting: dict[AskSpec, str] = {}
        for one in inspect.allocations(self.core, "default", asks=True):
            spec = self.specs[one.key]
            if not one.node_id:
                waiting.setdefault(spec, one.key)
            elif one.queue == "root.be":
                running[one.node_id].append(dict(spec.resource))
        for spec, key in waiting.items():
            wanted = dict(spec.resource)
            entitled = self.guaranteed["root.ls"]
            below = all(used.get(kind, 0) < entitled[kind] for kind in wanted if entitled.get(kind))
            if below:
                for node in nodes:
                    if _allows(node, spec) and _suffices(
                        wanted, node.free, running[node.node_id], spare
                    ):
                        yield f"{key} could have node {node.node_id}"
                        break


def _allows(node: NodeReport, spec: AskSpec) -> bool:
    return all(node.labels.get(key) == value for key, value in spec.constraints.node_selector)


def _suffices(
    wanted: Amounts, free: Mapping[str, int], running: list[Amounts], spare: Amounts
) -> bool:
    """Return whether evicting a node's pods, the largest first, frees enough without exceeding the spare amounts."""
    lacks = {kind: much - free.get(kind, 0) for kind, much in wanted.items()}
    lacks = {kind: lack for kind, lack in lacks.items() if lack > 0}
    left = dict(spare)
    for pod in sorted(running, key=lambda one: -sum(one.get(kind, 0) for kind in lacks)):
        if not lacks:
            break
        helps = any(pod.get(kind, 0) and left.get(kind, 0) > 0 for kind in lacks if kind in KINDS)
        if (helps or "pods" in lacks) and all(left[kind] >= pod.get(kind, 0) for kind in KINDS):
            left = {kind: left[kind] - pod.get(kind, 0) for kind in KINDS}
            lacks = {kind: lack - pod.get(kind, 0) for kind, lack in lacks.items()}
            lacks = {kind: lack for kind, lack in lacks.items() if lack > 0}
    return not lacks


def _sum(lines: Iterable[Iterable[tuple[str, int]]]) -> Amounts:
    total: Counter[str] = Counter()
    for line in lines:
        for kind, much in line:
            total[kind] += much
    return dict(total)


def _less(one: Amounts, other: Amounts) -> Amounts:
    return {kind: one.get(kind, 0) - much for kind, much in other.items()}


def _yaml(amounts: Amounts) -> str:
    parts = [f"{kind}: {amounts.get(kind, 0)}{'m' if kind == 'vcore' else ''}" for kind in KINDS]
    return "{" + ", ".join(parts) + "}"


def _shape(amounts: Amounts) -> str:
    """Return a pod's size in words: its GPUs or, without GPUs, its cores."""
    gpus, cores = amounts.get("gpu", 0), amounts.get("vcore", 0) / 1_000
    if gpus:
        return f"{gpus} GPU"
    return next((f"no GPU, up to {most} cores" for most in (4, 16, 64) if cores <= most), "larger")


def told(report: Report, capacity: Amounts) -> Table:
    """Return the report as a table."""
    table = Table(title="openb: latency-sensitive pods claim their share", show_header=False)
    table.add_column()
    table.add_column()

    def line(name: str, text: object) -> None:
        table.add_row(name, str(text))

    line("nodes", f"{report.nodes:,}: {_say(capacity)}")
    line("best-effort pods at the start", f"{report.filled:,}")
    line("latency-sensitive pods", f"{report.asked:,}, of which got a node: {report.placed:,}")
    line("of these by a claim", f"{len(report.claimed):,}")
    line("decisions by number of victims", _counts(report.claims))
    line("how decisions ended", _counts(report.ends))
    line("victims", f"{len(report.victims):,}, of which opted out: {report.opted_out:,}")
    line("victims by size", _counts(Counter(report.victims.values())))
    line("freed", _say(report.freed))
    line("placed", _say(report.wanted))
    line("still waiting, by size", _counts(report.waiting) or "nobody")
    line("rules broken", "; ".join(report.broken[:5]) or "none")
    line("CPU", f"{report.cpu_ms:,.0f} ms, {report.ticks} ticks, longest {report.longest_ms:,.0f}")
    return table


def _say(amounts: Amounts) -> str:
    cores, gib = amounts.get("vcore", 0) // 1_000, amounts.get("memory", 0) >> 30
    return f"{cores:,} cores, {gib:,} GiB, {amounts.get('gpu', 0):,} GPUs"


def _counts(counts: Mapping[int, int] | Mapping[str, int]) -> str:
    return ", ".join(f"{name}: {count:,}" for name, count in sorted(counts.items()))


def main() -> None:
    """Run the claims and print the report."""
    claims = Claims()
    claims.fill()
    claims.claim()
    console = Console()
    console.print(told(claims.report, claims.capacity))
    missed = list(claims.missed())
    console.print(f"missed by a plain look: {len(missed)} {missed[:3]}")


if __name__ == "__main__":
    main()
