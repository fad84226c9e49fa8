"""The invariants of docs/rules/invariants.md for all policies, checked from answers, events and the configuration alone.

This is plain Python, written from the rules; it shares no code with what decides. In some cases the model cannot know
what the core counts: a victim was vetoed and its decision is being replanned, or a placeholder is being replaced.
Then it checks victims, but not amounts. Every check that was reached is counted by policy in `seen`. Amounts of jobs
are checked in `everything_jobs`.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from server.model.asks import Protection
from server.model.decisions import Decision, Released, Termination
from server.model.events import AllocationAdded
from server.model.quota import (
    Configuration,
    PreemptionPolicy,
    PreemptionSettings,
    PriorityPolicy,
    QueueSpec,
)
from server.model.records import DecisionRecord, DecisionState
from tests.preemption.attack_account import Account, Amounts, Partition, Pod

CLAIMS: Final = ("guaranteed", "job", "in-queue")
"""Policies that obey fences, priorities and budgets."""
SINGLE: Final = ("guaranteed", "in-queue", "required-node")
"""Policies that plan for one ask at a time."""
SWAPPED: Final = (Termination.TIMEOUT, Termination.PLACEHOLDER_REPLACED)
NO_LIMIT: Final = 1 << 60
OverUse = dict[str, dict[str, int]]
"""How much each queue has above its entitlement, by queue and type."""


def is_firm(pod: Pod, settings: PreemptionSettings) -> bool:
    """Return whether a pod is firm (J2, level 2 of V3); no pod is firm when the policy `job` is not listed (J4)."""
    spec = pod.spec
    if "job" not in settings.policies:
        return False
    if spec.protection is Protection.FIRM:
        return True
    return not (settings.job_default_preemptible if spec.lendable is None else spec.lendable)


def is_below(path: str, ancestor: str) -> bool:
    """Return whether the queue is the ancestor, or below it."""
    return f"{path}.".startswith(f"{ancestor}.")


def _is_on(policy: str, settings: PreemptionSettings) -> bool:
    """Return whether a policy is switched on (docs/configuration.md)."""
    if policy == "quota":
        return settings.quota_enabled
    if policy == "trim":
        return settings.enabled and settings.entitlement == "proportional"
    return settings.enabled and policy in settings.policies


@dataclass
class Place:
    """A node for an ask, with the capacity that is planned to be free on the node and in the ask's queues."""

    state: Partition
    ask: Pod
    node: str
    free: Amounts
    headroom: dict[str, Amounts] = field(default_factory=dict)

    def fits(self, going: Iterable[Pod]) -> bool:
        """Return whether the ask fits once these pods are gone."""
        left, limits = self.free.copy(), {path: one.copy() for path, one in self.headroom.items()}
        for pod in going:
            left.update(dict(pod.spec.resource) if pod.node == self.node else {})
            for path, one in limits.items():
                one.update(dict(pod.spec.resource) if self.state.is_below(pod, path) else {})
        wanted = self.ask.spec.resource
        return all(one[kind] >= size for one in (left, *limits.values()) for kind, size in wanted)


class Judge(Account):
    """A model that checks decisions in order, each against the state after the ones before."""

    def __init__(self, configuration: Configuration, managers: Mapping[str, str]) -> None:
        super().__init__(configuration, managers)
        self.now = 0
        self.shaky: set[str] = set()
        """Partitions in which decisions are being planned again after a veto."""
        self.over_uses: dict[str, OverUse] = {}
        """By partition, how much queues had above their entitlement in the last tick, after placement and before
        evictions."""

    # -- what this account records beyond its base class ---------------------------------------------------------------

    def lost(self) -> None:
        """Record that the core is lost, and with it all that was not stored."""
        for state in self.partitions.values():
            state.open.clear()
        self.unbuilt.clear()

    def refuse(self, partition: str, key: str) -> None:
        """Record that the core refused a waiting ask, because its application failed."""
        pod = self.partitions[partition].pods.get(key)
        if pod is not None and not pod.node:
            del self.partitions[partition].pods[key]

    def _allocation(self, event: AllocationAdded) -> None:
        """Record an allocation; after a restart the mark is the only trace of an order (C8)."""
        super()._allocation(event)
        pod, mark = self.partitions[event.partition].pods[event.key], event.releasing
        if mark is None:
            return
        why = Termination(mark.termination)
        if pod.order is None and (mark.decision_id or why in SWAPPED):
            names = (event.rm_id, event.partition, event.key, event.application_id)
            nodes = (mark.node_id,) if mark.node_id else ()
            pod.order = Released(*names, why, "", mark.decision_id, mark.released_for, nodes)
        if why is Termination.PLACEHOLDER_REPLACED:
            pod.dying = None  # The real pod replaces the placeholder.
            self.partitions[event.partition].heirs.add(mark.released_for)

    def _released(self, released: Released) -> None:
        pod = self.partitions[released.partition].pods.get(released.key)
        goes = pod is not None and bool(pod.node) and pod.spec.placeholder
        if pod is None or not goes or released.termination not in SWAPPED:
            super()._released(released)
            return
        self.seen[f"placeholder {released.termination.name}"] += 1
        assert pod.dying is None, f"{pod.key} is dying and shall make place"
        pod.order = released
        if released.termination is Termination.TIMEOUT:
            pod.dying = ""
        else:
            self.partitions[released.partition].heirs.add(released.beneficiary)

    def judged(self, record: DecisionRecord, what: str) -> None:
        """Count a check that was reached; raise AssertionError when it fails."""
        self.seen[f"{record.policy}: {what}"] += 1

    def is_unclear(self, partition: str) -> bool:
        """Return whether the model does not know exactly what the core counts."""
        pods = self.partitions[partition].pods.values()
        replaced = any(
            pod.order is not None and pod.order.termination is Termination.PLACEHOLDER_REPLACED
            for pod in pods
        )
        return partition in self.shaky or replaced

    # -- a tick -----------------------------------------------------------------------------------------------------

    def decided(self, decisions: Iterable[Decision]) -> None:
        """Process the decisions of a tick; without evictions, queues use at its end what they used when the round began."""
        self.over_uses.clear()
        super().decided(decisions)
        for name in self.partitions.keys() - self.over_uses.keys():
            if self.specs[name].preemption.natural_permyriad:
                self._share_out(name)
                self._look_over(name)

    def _look_over(self, partition: str) -> None:
        """Record what each queue uses beyond its entitlement, of which a round takes a part (P9)."""
        state, found = self.partitions[partition], OverUse()
        if not self.specs[partition].preemption.natural_permyriad or self.is_unclear(partition):
            return
        for path, spec in self.queues(partition).items():
            owed = dict(spec.guaranteed)
            if state.shares:
                owed = {kind: shares[path].entitled for kind, shares in state.shares.items()}
            used = state.usage(path, dying=False)
            found[path] = {kind: amount - owed.get(kind, 0) for kind, amount in used.items()}
        self.over_uses[partition] = found

    # -- a decision -------------------------------------------------------------------------------------------------

    def _decided(self, record: DecisionRecord) -> None:
        if record.partition not in self.over_uses:
            self._look_over(record.partition)
        state = self.partitions[record.partition]
        settings = self.specs[record.partition].preemption
        if record.state.is_open and "rebuilt" not in record.summary:
            assert not settings.observe_only, f"{record.decision_id} only observes (20)"
            known = state.open.pop(record.decision_id, None)
            runs_on = (
                known is not None and record.policy == "quota"
            )  # The configuration does not matter (Q5).
            assert runs_on or _is_on(record.policy, settings), f"{record.policy} is off"
            self._judge(state, record, settings, known.ordered if known is not None else ())
            if known is not None:
                state.open[record.decision_id] = known
        if record.state is DecisionState.OBSERVED:
            assert _is_on(record.policy, settings), f"{record.policy} is off"
            self._judge(state, record, settings)
        super()._decided(record)

    def _judge(
        self,
        state: Partition,
        record: DecisionRecord,
        settings: PreemptionSettings,
        ordered: Collection[str] = (),
    ) -> None:
        going = self._fresh(state, record, ordered)
        for pod in going:
            self._assert_unprotected(pod, record, settings)
        for one in record.beneficiaries if record.policy in CLAIMS else ():
            self._assert_may_claim(record, state.pods[one.key], settings)
            for pod in going:
                self._assert_may_go_for(state, record, one.key, pod)
        if record.shrink is not None:
            self._judge_shrink(state, record, going)
        if record.policy == "required-node":
            self._judge_required(state, record, going)
        if record.state.is_open and not self.is_unclear(record.partition):
            self._judge_amounts(state, record, going)

    @staticmethod
    def _fresh(state: Partition, record: DecisionRecord, ordered: Collection[str]) -> list[Pod]:
        """Return the victims that the decision chose now; a replanned decision also names earlier victims, which terminate or are gone.

        Victims that the decision ordered before are not chosen again, even if another pod has the same key by then.
        Vetoed or withdrawn victims stay in the record of the decision, and another decision may choose them (J11).
        """
        stay = {*record.vetoed, *record.withdrawn}
        going = [one for one in record.victims if one.key not in stay]
        pods = [(one, state.pods[one.key]) for one in going if one.key in state.pods]
        found = [pod for one, pod in pods if pod.application == one.application_id]
        assert len({pod.key for pod in found}) == len(found), f"{record.decision_id}: twice (10)"
        found = [pod for pod in found if pod.node or pod.key not in record.confirmed]
        fresh = [pod for pod in found if pod.dying is None and pod.key not in ordered]
        others = [pod for pod in found if pod.dying not in {None, record.decision_id}]
        assert not others, f"{others} go for others already (10)"
        return fresh

    # -- which pods may be evicted ---------------------------------------------------------------------------------------------------

    def _assert_unprotected(
        self, pod: Pod, record: DecisionRecord, settings: PreemptionSettings
    ) -> None:
        """Assert that the protection ladder (V3) and G6 allow the victim."""
        assert pod.node, f"{pod.key} waits and shall go"
        assert not pod.required, f"{pod.key} belongs to its node"
        assert pod.spec.protection is not Protection.UNTOUCHABLE, f"{pod.key} is untouchable"
        breaks = record.policy == "required-node" and settings.firm_break
        assert breaks or not is_firm(pod, settings), f"{pod.key} is firm and goes ({record.policy})"
        swapped = pod.order is not None and pod.order.termination in SWAPPED
        assert not swapped, f"{pod.key} is being replaced (G6)"
        if record.policy in (*CLAIMS, "trim"):
            spec = self.leaf_of(record.partition, pod)
            least = spec.properties.preemption_minruntime_ms
            ran = None if pod.started_ms is None else self.now - pod.started_ms
            assert ran is None or ran >= least, f"{pod.key} ran for {ran} ms (V3)"
            disabled = spec.properties.preemption_policy is PreemptionPolicy.DISABLED
            own = record.policy == "in-queue"
            assert own or not disabled, f"{pod.key} goes, preemption is disabled there (G3)"

    def _assert_may_claim(
        self, record: DecisionRecord, ask: Pod, settings: PreemptionSettings
    ) -> None:
        """Assert that the ask, its partition and its queue permit claims (G1, G3, J3)."""
        assert not ask.required, f"{ask.key} requires a node and claims ({record.policy})"
        assert ask.spec.allow_preempt_other, f"{ask.key} never preempts and claims (G1)"
        policy = self.leaf_of(record.partition, ask).properties.preemption_policy
        assert policy is not PreemptionPolicy.DISABLED, f"{ask.key}: preemption is disabled (G3)"
        if "job" in settings.policies:
            may = ask.spec.may_trigger
            may = settings.job_default_trigger if may is None else may
            assert may, f"{ask.key} may not trigger ({record.policy}, J3)"
        self.judged(record, "beneficiary")

    def leaf_of(self, partition: str, pod: Pod) -> QueueSpec:
        """Return the queue in which a pod runs."""
        return self.queues(partition)[self.path_of(partition, pod)]

    def path_of(self, partition: str, pod: Pod) -> str:
        """Return the path of the pod's queue."""
        return self.partitions[partition].applications[pod.application][0]

    def path_up(self, partition: str, leaf: str) -> list[tuple[str, QueueSpec]]:
        """Return the queues from the leaf up to the root."""
        queues = self.queues(partition)
        parts = leaf.split(".")
        paths = [".".join(parts[:depth]) for depth in range(len(parts), 0, -1)]
        return [(path, queues[path]) for path in paths]

    def scope(self, partition: str, leaf: str) -> list[tuple[str, QueueSpec]]:
        """Return the queues from the leaf up to the nearest fence, else to the root (G3)."""
        found = []
        for path, spec in self.path_up(partition, leaf):
            found.append((path, spec))
            if path != "root" and spec.properties.preemption_policy is PreemptionPolicy.FENCE:
                break
        return found

    def _assert_may_go_for(
        self, state: Partition, record: DecisionRecord, key: str, pod: Pod
    ) -> None:
        """Assert that fences, own application, own queue and priorities permit the victim (invariants 5 to 7)."""
        ask = state.pods[key]
        leaf, other = (self.path_of(record.partition, one) for one in (ask, pod))
        what = f"{pod.key} in {other} goes for {key} in {leaf} ({record.policy})"
        if record.policy != "job":
            assert ask.application != pod.application, f"{what}: its own application (6)"
        else:
            same = ask.application == pod.application and ask.spec.gang_key == pod.spec.gang_key
            assert not (same and ask.spec.gang_key), f"{what}: its own job (6)"
        if record.policy == "in-queue" or (record.policy == "job" and leaf == other):
            assert leaf == other, f"{what}: another queue (I2)"
            assert pod.spec.priority < ask.spec.priority, f"{what}: no lower priority (7)"
            self.judged(record, "pair of its own queue")
            return
        assert leaf != other, f"{what}: its own queue (G3)"
        top = self.scope(record.partition, leaf)[-1][0]
        assert is_below(other, top), f"{what}: outside the fence {top} (5)"
        self._assert_priority(record.partition, ask, pod, what)
        self.judged(record, "pair of other queues")
        if top != "root":
            self.judged(record, "pair within a fence")

    def _assert_priority(self, partition: str, ask: Pod, pod: Pod, what: str) -> None:
        rule = self.specs[partition].preemption.equal_priority
        leaf, other = self.path_of(partition, ask), self.path_of(partition, pod)
        mine, theirs = (self._seen_from(partition, one, [leaf, other]) for one in (ask, pod))
        allowed = theirs < mine or (theirs == mine and rule == "allow")
        assert rule == "ignore" or allowed, f"{what}: {theirs} against {mine} (7)"

    def _seen_from(self, partition: str, pod: Pod, leaves: Sequence[str]) -> int:
        """Return a pod's priority with the offsets up to the lowest queue above all these leaves (G5)."""
        priority = pod.spec.priority
        for path, spec in self.path_up(partition, self.path_of(partition, pod)):
            if all(is_below(one, path) for one in leaves):
                break
            offset = spec.properties.priority_offset
            fenced = spec.properties.priority_policy is PriorityPolicy.FENCE
            priority = offset if fenced else priority + offset
        return priority

    def _judge_required(self, state: Partition, record: DecisionRecord, going: list[Pod]) -> None:
        """Assert that only pods of the required node, none of higher priority, are evicted (G11)."""
        (one,) = record.beneficiaries
        ask = state.pods[one.key]
        assert ask.required == one.node_id, f"{ask.key} gets capacity on {one.node_id}"
        for pod in going:
            assert pod.node == one.node_id, f"{pod.key} runs elsewhere (G11)"
            assert pod.spec.priority <= ask.spec.priority, f"{pod.key} is more important (G11)"
            self.judged(record, "pair")

    # -- shrinking ----------------------------------------------------------------------------------------------------

    def _judge_shrink(self, state: Partition, record: DecisionRecord, going: list[Pod]) -> None:
        """Check a quota run or a surplus reclaim: its target, and that every victim helps and is needed (Q9, Q10, W9)."""
        shrink = record.shrink
        assert shrink is not None
        assert not record.beneficiaries, "a queue shrinks for somebody"
        target = {kind: amount for kind, amount in shrink.target.items() if amount > 0}
        if record.policy == "quota":
            most = dict(self.queues(record.partition)[shrink.queue].max or ())
            assert target.keys() <= most.keys(), f"{shrink} names types without a maximum (15)"
        freed: Amounts = Counter()
        for pod in going:
            assert state.is_below(pod, shrink.queue), f"{pod.key} is not below {shrink.queue}"
            size = dict(pod.spec.resource)
            assert any(size.get(kind) for kind in target), f"{pod.key} helps nobody (Q10, W9)"
            freed.update(size)
            self.judged(record, "victim")
        if len(going) != len(record.victims):
            return
        for pod in going:
            size = dict(pod.spec.resource)
            needed = any(
                min(target[kind], freed[kind] - size.get(kind, 0)) < min(target[kind], freed[kind])
                for kind in target
            )
            assert needed, f"{pod.key} could be given back, {shrink} (11)"
            self.judged(record, "given back")

    # -- amounts --------------------------------------------------------------------------------------------------------

    def promised(self, state: Partition, path: str) -> Amounts:
        """Return what open decisions keep for asks below a queue."""
        total: Amounts = Counter()
        gainers = state.gainers()
        for pod in state.pods.values():
            if not pod.node and pod.key in gainers and state.is_below(pod, path):
                total.update(dict(pod.spec.resource))
        return total

    def held(self, state: Partition, path: str) -> Amounts:
        """Return what a queue will have when all open decisions are finished."""
        return state.usage(path, dying=False) + self.promised(state, path)

    def _judge_amounts(self, state: Partition, record: DecisionRecord, going: list[Pod]) -> None:
        if record.policy == "guaranteed":
            self._assert_owed(state, record, going)
        if record.policy in SINGLE:
            self._assert_capacity(state, record, going)

    def deciding(
        self, state: Partition, partition: str, leaf: str, kinds: Iterable[str]
    ) -> Iterator[tuple[str, str, int]]:
        """Yield, by type, the queue that decides for it and the entitlement of that queue (G2, W6)."""
        path = self.scope(partition, leaf)
        for kind in kinds:
            for queue, spec in path:
                owed = dict(spec.guaranteed).get(kind, 0)
                decides = owed > 0
                if state.shares:
                    share = state.shares[kind][queue]
                    owed = share.entitled
                    decides = share.contended or self.held(state, queue)[kind] < share.floor
                if decides:
                    yield kind, queue, owed
                    break

    def _assert_owed(self, state: Partition, record: DecisionRecord, going: list[Pod]) -> None:
        """Assert invariant 4: a type is open, no closed type is missing, each victim frees a type it may be evicted for.

        This type must be missing, and the victim must run outside the queue that decides for it; for a type without a
        deciding queue, outside the lowest queue that is open (G2, W6).
        """
        (one,) = record.beneficiaries
        ask = state.pods[one.key]
        leaf, kinds = self.path_of(record.partition, ask), dict(ask.spec.resource)
        found = list(self.deciding(state, record.partition, leaf, kinds))
        assert found, f"nobody decides for {ask.key} (G2)"
        after = self.specs[record.partition].preemption.trigger == "after"
        opened: dict[str, str] = {}
        closed: dict[str, str] = {}
        for kind, path, owed in found:
            more = dict(ask.spec.resource)[kind] if after else 1
            side = opened if self.held(state, path)[kind] + more <= owed else closed
            side[kind] = path
        assert opened, f"{ask.key} claims: {closed} have what they are entitled to (4)"
        lowest = max(opened.values(), key=len)
        here = self._lacking_on_node(state, ask, one.node_id)
        above = self._lacking_in_queues(state, record.partition, ask)
        for kind in closed:
            assert kind not in here, f"{ask.key} lacks {kind} on {one.node_id}, which is closed (4)"
            assert kind not in above, f"{ask.key} lacks {kind} at a maximum, which is closed (4)"
        for pod in going:
            leaf = self.path_of(record.partition, pod)
            lacking = set(here) if pod.node == one.node_id else set()
            lacking |= {
                kind for kind, tops in above.items() if any(is_below(leaf, top) for top in tops)
            }
            assert any(
                kind in dict(pod.spec.resource) and not is_below(leaf, opened.get(kind, lowest))
                for kind in lacking
            ), f"{pod.key} frees nothing for which it may be taken, of {sorted(lacking)} (G2)"
        self.judged(record, "owed")

    def _lacking_on_node(self, state: Partition, ask: Pod, node: str) -> set[str]:
        """Return the types of which the node has too little after all ordered evictions."""
        free = self.planned_free(state, node)
        return {kind for kind, much in ask.spec.resource if free[kind] < much}

    def _lacking_in_queues(
        self, state: Partition, partition: str, ask: Pod
    ) -> dict[str, list[str]]:
        """Return, by type, the queues on the ask's path whose max leaves too little."""
        found: dict[str, list[str]] = {}
        for path, left in self.headroom(state, partition, ask).items():
            for kind, much in ask.spec.resource:
                if left[kind] < much:
                    found.setdefault(kind, []).append(path)
        return found

    # -- free capacity and headroom -------------------------------------------------------------------------------------------------------------

    def planned_free(self, state: Partition, name: str) -> Amounts:
        """Return the free capacity of a node after all ordered evictions and all promised placements."""
        free: Amounts = Counter(state.nodes[name].capacity)
        for node, size in state.foreign.values():
            free.subtract(size if node == name else {})
        for pod in state.on(name):
            free.subtract(dict(pod.spec.resource) if pod.dying is None else {})
        places = [one for known in state.open.values() for one in known.record.beneficiaries]
        for key in [one.key for one in places if one.node_id == name and one.key in state.pods]:
            waits = not state.pods[key].node
            free.subtract(dict(state.pods[key].spec.resource) if waits else {})
        return free

    def headroom(self, state: Partition, partition: str, ask: Pod) -> dict[str, Amounts]:
        """Return, by queue on its path, how much an ask may still use there, as planned (J4, W2)."""
        settings = self.specs[partition].preemption
        found = {}
        for path, spec in self.path_up(partition, self.path_of(partition, ask)):
            held = self.held(state, path)
            left: Amounts = Counter()
            for kind, _ in ask.spec.resource:
                most = dict(spec.max or ()).get(kind, NO_LIMIT)
                if state.shares and not settings.demand_cap and not spec.children:
                    most = min(most, state.shares[kind][path].deserved)
                if "job" in settings.policies and not is_firm(ask, settings):
                    most -= self.kept(state, partition, path, spec, kind)
                left[kind] = most - held[kind]
            found[path] = left
        return found

    def kept(self, state: Partition, partition: str, path: str, spec: QueueSpec, kind: str) -> int:
        """Return what is kept in a queue for firm asks that wait (J4)."""
        held, waits = self.firm(state, partition, path, kind)
        owed = dict(spec.guaranteed).get(kind, 0)
        return max(held, min(owed, held + waits)) - held

    def firm(self, state: Partition, partition: str, path: str, kind: str) -> tuple[int, int]:
        """Return what firm pods of a queue use, and what firm asks without promised capacity want (J4)."""
        settings, gainers = self.specs[partition].preemption, state.gainers()
        held = waits = 0
        for pod in state.pods.values():
            if not state.is_below(pod, path) or not is_firm(pod, settings):
                continue
            size = dict(pod.spec.resource).get(kind, 0)
            if pod.node or pod.key in gainers:
                held += size if pod.dying is None else 0
            else:
                waits += size
        return held, waits

    def _assert_capacity(self, state: Partition, record: DecisionRecord, going: list[Pod]) -> None:
        """Assert that the ask fits after the releases, and not without any of them (invariants 8, 11, 12)."""
        (one,) = record.beneficiaries
        ask = state.pods[one.key]
        if ask.spec.constraints.host_ports or ask.spec.min_members:
            return
        settings = self.specs[record.partition].preemption
        gone = [pod for pod in state.pods.values() if pod.dying is not None or pod in going]
        if any(is_firm(pod, settings) for pod in gone):
            return  # The amount that is kept for firm asks changes when one of them is evicted.
        place = Place(state, ask, one.node_id, self.planned_free(state, one.node_id))
        place.headroom = self.headroom(state, record.partition, ask)
        assert place.fits(going), f"no capacity for {ask.key} (12)"
        self.judged(record, "capacity")
        shares = bool(state.shares) and record.policy == "guaranteed"
        for pod in (
            () if shares else going
        ):  # With weights, a victim may count for some of its types only (W6).
            rest = [other for other in going if other is not pod]
            assert not place.fits(rest), f"{pod.key} could be given back for {ask.key} (11)"
            self.judged(record, "given back")

    # -- a release ----------------------------------------------------------------------------------------------------

    def assert_may_go(self, pod: Pod, record: DecisionRecord) -> None:
        """Assert that a decision lists the eviction, and that victims for one ask are on one node (invariant 8)."""
        assert pod.key in {one.key for one in record.victims}, f"{pod.key} is not listed"
        across = self.specs[record.partition].preemption.cross_node == "quota"
        if record.policy in {"required-node", "in-queue"} or (
            record.policy == "guaranteed" and not across
        ):
            super().assert_may_go(pod, record)
