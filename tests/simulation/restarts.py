"""A shim that lives through claims, lowered quotas and daemons while its core is lost, or the shim, again and again.

After the loss of a core, only the shim's knowledge is left: pods, nodes, and the marks on victims whose orders it received. The
shim registers once more, reports everything, and continues (design 1.10). An account checks that after a restart no
further pod is evicted for an ask while one of its victims still terminates (invariant 19). A core that stays compares
what it is told with what it knows, and sends again what the shim did not receive (C9, C10).
"""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from server.config import load
from server.core.core import Core
from server.core.queries.known_decisions import decisions as known_decisions
from server.model.asks import AskSpec, Constraints, ReleaseMark
from server.model.decisions import (
    AskRejected,
    Decided,
    Decision,
    DecisionMoved,
    NodeRejected,
    Noted,
    Placed,
    Released,
    Termination,
)
from server.model.events import (
    AllocationAdded,
    ApplicationAdded,
    AskAdded,
    ConfigurationApplied,
    DisruptionsAllowed,
    Event,
    ManagerRegistered,
    NodeAdded,
    NodeDrained,
    NodeEnabled,
    ReleaseRequested,
    SyncCompleted,
    VictimVetoed,
)
from server.model.quota import Configuration, QueueProperties
from server.model.reasons import Code
from server.model.records import DecisionRecord, DecisionState
from tests.preemption.claim_clusters import tick

START: Final = 1_800_000_000_000
GONE: Final = Termination.PREEMPTED_BY_SCHEDULER
DELAY_MS: Final = 5_000
CLAIM_MS: Final = 1_000
EXPIRY_MS: Final = 40_000
QUIET_MS: Final = 4 * EXPIRY_MS
NODES: Final = 6
CORES: Final = 10
QUEUES: Final = """\
partitions:
  - name: default
    preemption: {quotapreemptionenabled: true, backoff: 2s, expiry: 40s}
    queues:
      - name: root
        submitacl: '*'
        properties: {quota.preemption.delay: 5s}
        queues:
          - {name: high, properties: {preemption.delay: 1s}, resources: {guaranteed: {vcore: 36}}}
          - name: p
            resources: {max: {vcore: PARENT}}
            queues:
              - name: mid
                properties: {preemption.delay: 1s}
                resources: {guaranteed: {vcore: 6}, max: {vcore: MID}}
              - {name: low}
"""
"""The queues; `preemption.delay` is set on leaves, because it is not inherited (G1)."""
LEAVES: Final = {"high": "root.high", "mid": "root.p.mid", "low": "root.p.low"}
PARENTS: Final = {"root.p": ("mid", "low"), "root.p.mid": ("mid",)}


def configuration(parent: int, mid: int) -> Configuration:
    """Return the configuration with these maxima in cores."""
    found, problems = load(QUEUES.replace("PARENT", str(parent)).replace("MID", str(mid)))
    assert found is not None, problems
    return found


@dataclass
class Pod:
    """A pod as the cluster has it. ``order`` is the core's order to evict it; ``dying`` means that another client deleted it.

    A ``slow`` one takes longer to end than any decision lasts.
    """

    key: str
    leaf: str
    spec: AskSpec
    created: int
    slow: bool = False
    node: str = ""
    order: Released | None = None
    dying: bool = False

    @property
    def cores(self) -> int:
        """The number of cores that the pod requests."""
        return self.spec.resource[0][1] // 1_000

    @property
    def mark(self) -> ReleaseMark | None:
        """Return the mark with which the pod is reported after a restart (C8)."""
        if self.order is not None:
            node = self.order.nodes[0] if self.order.nodes else ""
            return ReleaseMark(GONE, self.order.decision_id, self.order.beneficiary, node)
        if self.dying:
            return ReleaseMark(Termination.STOPPED_BY_RM, "", "", "")
        return None


@dataclass
class Account:
    """The check of restarts. ``waiting_for`` has the marked victims of each waiting ask until one of these victims is gone."""

    waiting_for: dict[str, set[str]] = field(default_factory=dict)
    seen: Counter[str] = field(default_factory=Counter)

    def begin(self, pods: dict[str, Pod]) -> None:
        """Record, at a restart, the pods that terminate for a waiting ask."""
        self.waiting_for.clear()
        for pod in pods.values():
            ask = pods.get(pod.order.beneficiary) if pod.order is not None else None
            if ask is not None and not ask.node:
                self.waiting_for.setdefault(ask.key, set()).add(pod.key)
        self.seen["restarts"] += 1
        self.seen["restarts in mid-decision"] += bool(self.waiting_for)

    def released(self, release: Released) -> None:
        """Assert that no further pod is evicted for an ask of which a victim still terminates."""
        first = self.waiting_for.get(release.beneficiary)
        assert first is None or release.key in first, (
            f"{release.key} goes for {release.beneficiary} while {sorted(first)} are dying (19)"
        )

    def gone(self, key: str) -> None:
        """Record that a pod is gone or was vetoed, so that another plan may be made for its preemptor."""
        for beneficiary, first in list(self.waiting_for.items()):
            if key == beneficiary or key in first:
                del self.waiting_for[beneficiary]


class Life:
    """One cluster and a series of cores, each lost and replaced. Equal seeds give equal scenarios."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(f"restarts {seed}")
        self.maxima = (60, 30)
        self.now = START
        self.core = Core(configuration(*self.maxima))
        self.pods: dict[str, Pod] = {}
        self.cordoned: set[str] = set()
        self.account = Account()
        self.synced = True
        self.numbers = 0
        self.changed = START
        self._tell_all(explicit=False)
        self._asks("low", 14)
        self._asks("mid", 10)
        self.tick()

    # -- the scenario ----------------------------------------------------------------------------------------------------

    def run(self, steps: int) -> Counter[str]:
        """Run this number of instants with random restarts, then run until nothing more happens; return the counts."""
        for _ in range(steps):
            self.now += self.dice.choice((1, 400, 1_000, 2_500, 7_000))
            self._answer()
            self.dice.choice(
                (
                    self._claim,
                    self._claim,
                    self._fill,
                    self._daemon,
                    self._end,
                    self._delete,
                    self._budget,
                    self._lower,
                    self._cordon,
                )
            )()
            self.tick()
            if self.dice.random() < 0.2:
                self.restart()
        self._settle()
        return self.account.seen

    def restart(self) -> None:
        """Lose the core; the shim may have received only a part of its last decisions."""
        if self.dice.random() < 0.5:
            self._claim()
            self.tick(heard=self.dice.choice((0, 1, 2, 3)))
        self.now += self.dice.choice((1, 1_000, 30_000))
        way = self.dice.choice(("lost", "lost", "forgotten", "compared", "compared"))
        if way == "compared":
            self._compare()
            return
        if way == "lost":
            self.core = Core(configuration(*self.maxima))
        self.account.begin(self.pods)
        self._tell_all(explicit=True, forget=way == "forgotten")
        self._check_timers()
        self.tick()

    def _compare(self) -> None:
        """Register again at a core that compares: timers go on, and no decision is made or lost by it (C9)."""
        self.account.seen["compared"] += 1
        timers = dict(self.core.state.partitions["default"].quota_due)
        before = {one.decision_id for one in known_decisions(self.core, open_only=True)}
        self._tell_all(explicit=True)
        assert dict(self.core.state.partitions["default"].quota_due) == timers
        after = {one.decision_id for one in known_decisions(self.core, open_only=True)}
        assert after <= before, f"made in a sync: {after - before}"
        self.account.seen["kept decisions"] += len(after)
        self.tick()

    def _settle(self) -> None:
        """Run until the cluster is quiet; the only outside events are ends of terminating pods, of slow pods after all decisions."""
        patience = self.now + 2 * EXPIRY_MS
        while self.now - self.changed < QUIET_MS:
            self._answer(certain=True, slow=self.now > patience)
            self.tick()
            due = self.core.next_due()
            self.now = max(self.now + 1, min(due or self.now + 10_000, self.now + 10_000))
        left = known_decisions(self.core, open_only=True)
        assert not left, f"decisions that never ended (invariant 17): {left}"
        assert not self.core.state.partitions["default"].decisions.marks

    # -- the core --------------------------------------------------------------------------------------------------

    def handle(self, event: Event) -> None:
        """Send an event to the core, and carry out the decisions."""
        self._hear(self.core.take([event], self.now))

    def tick(self, heard: int | None = None) -> None:
        """Tick, and let the shim receive all decisions or, with `heard`, only this number of the first orders."""
        found = tick(self.core, self.now, 400)
        if heard is not None:
            orders = [one for one in found if isinstance(one, Placed | Released)]
            found = list(orders[:heard])
        self._hear(found)

    def _hear(self, found: list[Decision]) -> None:
        for one in found:
            assert not isinstance(one, AskRejected | NodeRejected), one
            if isinstance(one, Placed):
                self._placed(one)
            elif isinstance(one, Released) and one.termination is GONE:
                self._ordered(one)
            elif isinstance(one, Decided):
                self._decided(one.record)
            elif isinstance(one, DecisionMoved) and not one.key:
                self._moved(one)
            elif isinstance(one, Noted):
                assert one.code not in {Code.LAW_BROKEN, Code.SYNC_MISMATCH}, one

    def _decided(self, record: DecisionRecord) -> None:
        """Record a new or rebuilt decision; assert that a new claim waited for its leaf's delay, which differs from the default (G1)."""
        self.changed = self.now
        self.account.seen[record.policy] += 1
        if record.policy != "guaranteed" or "rebuilt" in record.summary:
            return
        waited = min(self.now - self.pods[one.key].created for one in record.beneficiaries)
        assert waited >= CLAIM_MS, f"{record.summary} after {waited} ms (G1)"
        self.account.seen["claims"] += 1
        self.account.seen["claims soon"] += waited < QueueProperties().preemption_delay_ms

    def _placed(self, placed: Placed) -> None:
        assert self.synced, f"{placed.key} was placed before the sync was complete"
        pod = self.pods[placed.key]
        assert not pod.node, f"{pod.key} is placed twice"
        pod.node, self.changed = placed.node_id, self.now
        self.account.gone(pod.key)
        used = sum(each.cores for each in self.pods.values() if each.node == pod.node)
        assert used <= CORES, f"{pod.node} holds {used} cores"

    def _ordered(self, release: Released) -> None:
        assert self.synced, f"{release.key} has to go before the sync was complete"
        pod = self.pods[release.key]
        assert pod.node, f"{pod.key} has to go and does not run"
        known = pod.order
        again = known is not None and known.decision_id == release.decision_id
        assert known is None or again, f"{pod.key} goes for {known} and for {release}"
        assert not pod.dying, f"{pod.key} is dying and has to go"
        if not again:
            self.account.released(release)
            pod.order = release
            self.account.seen["victims"] += 1
        self.changed = self.now

    def _moved(self, moved: DecisionMoved) -> None:
        """Record that a decision was given up, so that the core may plan again for its preemptor, with other victims (C6)."""
        self.changed = self.now
        if moved.state in {DecisionState.ABORTED, DecisionState.EXPIRED}:
            record = next(
                one for one in known_decisions(self.core) if one.decision_id == moved.decision_id
            )
            for one in record.beneficiaries:
                self.account.waiting_for.pop(one.key, None)
            self.account.seen[moved.state.value] += 1

    # -- the knowledge of a shim -------------------------------------------------------------------------------------

    def _tell_all(self, *, explicit: bool, forget: bool = False) -> None:
        self.synced = not explicit
        for event in self._everything(explicit=explicit, forget=forget):
            self.handle(event)
            if self.dice.random() < 0.2:
                self.tick()
        if not explicit:
            return
        self.synced = True
        running = sum(bool(pod.node) for pod in self.pods.values())
        self.handle(SyncCompleted("rm", NODES, len(LEAVES), running, len(self.pods) - running))

    def _everything(self, *, explicit: bool, forget: bool) -> Iterator[Event]:
        yield ManagerRegistered("rm", explicit_sync=explicit, forget=forget)
        yield DisruptionsAllowed("rm", "ns/budget", self.dice.choice((0, 1, 5)))
        names = [f"n{number}" for number in range(NODES)]
        for name in names:
            yield NodeAdded("rm", name, (("vcore", CORES * 1_000),), schedulable=False)
        for leaf, path in LEAVES.items():
            yield ApplicationAdded("rm", leaf, path)
        pods = sorted(self.pods.values(), key=lambda pod: (pod.created, pod.key))
        yield from (self._running(pod) for pod in pods if pod.node)
        yield from (self._waiting(pod) for pod in pods if not pod.node)
        for name in names:
            yield (NodeDrained if name in self.cordoned else NodeEnabled)("rm", name)

    def _running(self, pod: Pod) -> Event:
        return AllocationAdded(
            "rm",
            pod.key,
            pod.leaf,
            pod.node,
            pod.spec,
            created_ms=pod.created,
            started_ms=pod.created,
            releasing=pod.mark,
        )

    def _waiting(self, pod: Pod) -> Event:
        return AskAdded("rm", pod.key, pod.leaf, pod.spec, created_ms=pod.created)

    def _check_timers(self) -> None:
        """Assert that each queue over its max, and no other, waits its full delay from the end of the sync (Q7)."""
        expected = {}
        for (path, leaves), most in zip(PARENTS.items(), self.maxima, strict=True):
            stays = [pod for pod in self.pods.values() if pod.node and pod.mark is None]
            if sum(pod.cores for pod in stays if pod.leaf in leaves) > most:
                expected[path] = self.now + DELAY_MS
        assert dict(self.core.state.partitions["default"].quota_due) == expected
        self.account.seen["armed"] += len(expected)

    # -- events from outside --------------------------------------------------------------------------------------

    def _asks(self, leaf: str, count: int, node: str = "") -> None:
        self.changed = self.now
        spec = AskSpec(
            (("vcore", self.dice.randint(1, 3) * 1_000),),
            priority=self.dice.choice((0, 0, 5)) + (5 if leaf == "high" else 0),
            constraints=Constraints(required_node=node),
            allow_preempt_self=self.dice.random() < 0.8,
            disruption_groups=("ns/budget",) if self.dice.random() < 0.3 else (),
        )
        for _ in range(count):
            self.numbers += 1
            pod = Pod(f"pod-{self.numbers}", leaf, spec, self.now, self.dice.random() < 0.1)
            self.pods[pod.key] = pod
            self.handle(self._waiting(pod))

    def _claim(self) -> None:
        self._asks("high", self.dice.randint(1, 4))

    def _fill(self) -> None:
        self._asks(self.dice.choice(("low", "mid")), self.dice.randint(1, 4))

    def _daemon(self) -> None:
        self._asks("mid", 1, f"n{self.dice.randrange(NODES)}")

    def _budget(self) -> None:
        self.handle(DisruptionsAllowed("rm", "ns/budget", self.dice.choice((None, 0, 1, 5))))

    def _end(self) -> None:
        """End two pods, waiting or running, without an order; each queue keeps at least one."""
        for pod in self.dice.sample(sorted(self.pods.values(), key=lambda pod: pod.key), 2):
            if sum(each.leaf == pod.leaf for each in self.pods.values()) > 1:
                self._gone(pod, Termination.STOPPED_BY_RM)

    def _delete(self) -> None:
        """Let another client delete a running pod, and report to the core that the pod is terminating."""
        running = [pod for pod in self.pods.values() if pod.node and pod.mark is None]
        if running:
            pod = self.dice.choice(running)
            pod.dying = True
            self.handle(self._running(pod))

    def _lower(self) -> None:
        self.maxima = self.dice.choice(((60, 30), (40, 12), (30, 8), (24, 20), (50, 6)))
        self.handle(ConfigurationApplied(configuration(*self.maxima), "changed"))

    def _cordon(self) -> None:
        name = f"n{self.dice.randrange(NODES)}"
        self.cordoned ^= {name}
        self.handle((NodeDrained if name in self.cordoned else NodeEnabled)("rm", name))

    def _answer(self, *, certain: bool = False, slow: bool = False) -> None:
        """Report that some terminating pods are gone, and that some could not be evicted."""
        for pod in list(self.pods.values()):
            chance = self.dice.random()
            if pod.mark is None:
                continue
            if (certain or chance < 0.4) and (slow or not pod.slow):
                self._gone(pod, GONE if pod.order is not None else Termination.STOPPED_BY_RM)
            elif chance < 0.45 and pod.order is not None and not certain:
                self._veto(pod, pod.order.decision_id)

    def _veto(self, pod: Pod, decision_id: str) -> None:
        """Veto a victim; because the victim stays, the last ask with promised capacity on this node may lose the promise (G10)."""
        pod.order = None
        for other in [one for one in self.pods.values() if one.node == pod.node]:
            self.account.gone(other.key)
        self.handle(VictimVetoed("rm", decision_id, pod.key, "a budget forbids it"))

    def _gone(self, pod: Pod, why: Termination) -> None:
        del self.pods[pod.key]
        self.changed = self.now
        self.account.gone(pod.key)
        self.handle(ReleaseRequested("rm", pod.leaf, pod.key, termination=why))
