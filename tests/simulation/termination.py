"""Clusters that run until no ask claims any more, with an independent account of what each queue holds.

Each victim comes back at once as a new ask of the same application, as with a ReplicaSet. The account is computed
from the core's decisions alone, and checks each claim with the rules of the brute-force oracle
(docs/rules/invariants.md).
"""

import random
from dataclasses import dataclass, field, replace
from typing import Final

from server.core.core import Core
from server.core.queries.queue_reports import share_reports
from server.model.decisions import (
    AskRejected,
    Decided,
    Decision,
    DecisionMoved,
    Placed,
    Released,
    Termination,
)
from server.model.events import Event, ReleaseRequested
from server.model.records import DecisionRecord, DecisionState
from server.model.reports import ShareReport
from tests.preemption import claim_clusters, proportion_oracle
from tests.preemption.claim_clusters import MANAGER, START, Dice, waiting
from tests.preemption.claim_oracle import (
    Amounts,
    Ask,
    Cluster,
    Node,
    Pod,
    Promise,
    covers,
    crosses_once,
    entitled,
    fits_now,
    frees_lacking_type,
    is_open,
    is_viable,
    keeps_guarantees,
    kinds,
    look,
    may_go,
    may_go_for_node,
    refused,
    total,
)
from tests.preemption.paths import is_below

QUIET_MS: Final = 60_000
"""Milliseconds, longer than a claim's delay and its back-off together: by then, no waiting ask has anything left to try."""
STEPS_MOST: Final = 3_000
CLAIMS_BY_WEIGHT_MOST: Final = 9
"""Maximum number of claims between two outside events with shares by weight.

Deserved shares change with each eviction, so the sum of deficits is no bound.
"""
Deficits = dict[tuple[str, str], int]


@dataclass
class Account:
    """The account of what each queue holds, kept from decisions. ``going`` has the decision of each terminating pod."""

    cluster: Cluster
    going: dict[str, str] = field(default_factory=dict)
    beneficiaries: dict[str, str] = field(default_factory=dict)
    """The ask that gets the capacity, by open decision."""
    claims: int = 0
    victims: int = 0
    most_at_once: int = 0
    """The largest number of claims between two outside events."""

    def deficits(self) -> Deficits:
        """Return how far each queue is below its entitlement, by type; promised capacity counts as held (invariant 18).

        With shares by weight the root has no deficit, because it has no siblings.
        """
        found = {}
        by_weight = self.cluster.by_weight
        for queue in self.cluster.queues[by_weight:]:
            held = self._held(queue.path)
            for kind in kinds(self.cluster) if by_weight else queue.guaranteed:
                missing = entitled(self.cluster, queue.path, kind) - held.get(kind, 0)
                found[queue.path, kind] = max(0, missing)
        return found

    def _held(self, path: str) -> Amounts:
        sizes = [
            pod.size for pod in self.cluster.pods if is_below(pod.queue, path) and not pod.dying
        ]
        sizes += [one.ask.size for one in self.cluster.promises if is_below(one.ask.queue, path)]
        total: Amounts = {}
        for size in sizes:
            for kind, amount in size.items():
                total[kind] = total.get(kind, 0) + amount
        return total

    def ask(self, key: str) -> Ask:
        """Return the waiting ask of this key."""
        return next(ask for ask in self.cluster.asks if ask.key == key)

    def pod(self, key: str) -> Pod:
        """Return the running pod of this key."""
        return next(pod for pod in self.cluster.pods if pod.key == key)

    # -- what the core decided -------------------------------------------------------------------------------------

    def place(self, placed: Placed, now: int) -> None:
        """Place an ask; assert that no node exceeds its capacity, and no queue its plain share (W2)."""
        ask = self.ask(placed.key)
        promised = ask.key in [one.ask.key for one in self.cluster.promises]
        owners = [
            one.ask.key
            for one in self.cluster.promises
            if one.is_exclusive and one.node == placed.node_id
        ]
        assert promised or not owners, f"{placed.node_id} is held for {owners} alone (G11)"
        assert ask.required_node in {"", placed.node_id}, f"{ask.key} is not on its node"
        self.cluster.asks.remove(ask)
        self.drop_promise(ask.key)
        self.cluster.pods.append(ask.placed(placed.node_id, now))
        node = next(each for each in self.cluster.nodes if each.name == placed.node_id)
        here = [pod for pod in self.cluster.pods if pod.node == node.name]
        own = [pod for pod in self.cluster.pods if pod.queue == ask.queue]
        for kind in ask.size if self.cluster.is_plain else ():
            most = self.cluster.shares[kind][ask.queue].deserved
            has = sum(pod.size.get(kind, 0) for pod in own)
            assert has <= most, f"{ask.queue} uses {has} of its {most} {kind}"
        for kind in ask.size:
            used = sum(pod.size.get(kind, 0) for pod in here)
            assert used <= node.capacity.get(kind, 0), f"{node.name} holds {used} {kind}"

    def decide(self, record: DecisionRecord) -> None:
        """Assert that a decision keeps the rules: a claim lowers a deficit and raises none; evictions for required nodes may raise some.

        A decision that is reported a second time was replanned after a veto.
        """
        (beneficiary,) = record.beneficiaries
        ask, victims = self.ask(beneficiary.key), self._new_victims(record)
        if record.decision_id in self.beneficiaries:
            self.drop_promise(ask.key)
        if record.decision_id in self.beneficiaries and not victims:
            self.cluster.promises.append(Promise(ask, beneficiary.node_id))
            return
        self._check(ask, beneficiary.node_id, tuple(victims))
        before = self.deficits()
        for pod in victims:
            pod.dying = True
            self.going[pod.key] = record.decision_id
        self.beneficiaries[record.decision_id] = ask.key
        self.cluster.promises.append(Promise(ask, beneficiary.node_id))
        if not ask.required_node:
            _check_deficits(before, self.deficits(), record.summary, self._may_raise(victims))
        self.claims += 1
        self.victims += len(victims)

    def _may_raise(self, victims: list[Pod]) -> bool:
        """Return whether a decision may cross an entitlement, so that a deficit may rise (W2, W8)."""
        return self.cluster.is_plain or (self.cluster.overshoot == "last" and bool(victims))

    def _new_victims(self, record: DecisionRecord) -> list[Pod]:
        old = {pod.key for pod in self.cluster.pods if pod.dying} | {
            *record.confirmed,
            *record.vetoed,
        }
        return [self.pod(one.key) for one in record.victims if one.key not in old]

    def drop_promise(self, key: str) -> None:
        """Record that no capacity is promised to this ask any more."""
        self.cluster.promises = [one for one in self.cluster.promises if one.ask.key != key]

    def _check(self, ask: Ask, name: str, victims: tuple[Pod, ...]) -> None:
        cluster, keys = self.cluster, [pod.key for pod in victims]
        node = next(each for each in cluster.nodes if each.name == name)
        assert ask.key not in [one.ask.key for one in cluster.promises], f"{ask.key} claims twice"
        if ask.required_node:
            assert name == ask.required_node, f"{ask.key} does not belong to {name} (G11)"
            idle = [node]
        else:
            self._check_claim(ask, node, victims)
            idle = [each for each in cluster.nodes if is_open(cluster, each)]
        for pod in victims:
            assert pod.node == name, f"{pod.key} stands on {pod.node} (invariant 8)"
            assert self._may_go(ask, pod), f"{pod.key} may not go (invariants 5, 6, 7, 10)"
            rest = tuple(each for each in victims if each is not pod)
            assert not covers(cluster, ask, node, rest), f"{pod.key} is not needed (invariant 11)"
        assert covers(cluster, ask, node, victims), f"{keys} do not suffice"
        assert not victims or not any(covers(cluster, ask, each, ()) for each in idle), (
            "invariant 12"
        )

    def _check_claim(self, ask: Ask, node: Node, victims: tuple[Pod, ...]) -> None:
        rule = refused(self.cluster, ask)
        assert not rule, f"{ask.key} claims against {rule}"
        assert is_open(self.cluster, node), f"{ask.key} claims {node.name}, which is closed (G8)"
        assert is_viable(self.cluster, ask, node), f"{ask.key} lacks a closed type (G2)"
        keys = [pod.key for pod in victims]
        keeps = keeps_guarantees(self.cluster, ask, victims)
        assert keeps or crosses_once(self.cluster, ask, node, victims), (
            f"{keys} break a guarantee (invariant 3)"
        )
        for pod in victims:
            useful = frees_lacking_type(self.cluster, ask, node, pod)
            assert useful, f"{pod.key} is taken for no lacking type (G2, rule 5, W9)"

    def _may_go(self, ask: Ask, pod: Pod) -> bool:
        return may_go_for_node(pod, ask) if ask.required_node else may_go(self.cluster, ask, pod)


def _check_deficits(
    before: Deficits,
    after: Deficits,
    claim: str,
    may_raise: bool,  # noqa: FBT001
) -> None:
    raised = {
        where: (before[where], after[where]) for where in after if after[where] > before[where]
    }
    assert may_raise or not raised, f"{claim} raises {raised} (invariant 18)"
    lowered = [where for where in after if after[where] < before[where]]
    assert lowered, f"{claim} lowers no deficit (invariant 18)"


class Life:
    """One cluster from its first tick until it is quiet."""

    asks_more = 4
    """Maximum number of asks in addition to those of the cluster."""

    def __init__(self, seed: int, by: type[Dice] = Dice) -> None:
        self.random = random.Random(f"life {seed}")
        self.dice = by(seed, pods_most=6)
        self.account = Account(self.dice.cluster())
        self.cluster = self.account.cluster
        self.leaves = [queue.path for queue in self.cluster.queues if queue.leaf]
        self.cluster.asks += [self.new_ask() for _ in range(self.random.randint(0, self.asks_more))]
        self.at_once = self.random.random() < 0.5
        self.early = by is not Dice and random.Random(f"early {seed}").random() < 0.5
        """Whether victims come back before they are gone."""
        self.coming: list[Pod] = []
        self.core = self.new_core()
        self.now = self.changed = START
        self.names = self.since_outside = self.claims_most = 0
        self.excused = False
        """Whether an outside event occurred since the last tick, so that decisions may be given up."""
        self.confirmations: list[tuple[int, str]] = []
        for event in claim_clusters.events(self.cluster):
            self.say(event)
        for pod in self.cluster.pods:
            if pod.dying:
                self._will_be_gone(pod.key)
        self.new_baseline()

    def new_core(self) -> Core:
        """Return a new core that has received only the configuration."""
        return Core(claim_clusters.configuration(self.cluster))

    def run(self) -> Account:
        """Run until the cluster is quiet, and return the account."""
        for _ in range(STEPS_MOST):
            self.step()
            if self.is_quiet():
                self.judge_the_end()
                return self.account
            self.move_on()
        raise AssertionError("it never ends")

    def step(self) -> None:
        """Run a tick, and the confirmations that are due after it."""
        for decisions in claim_clusters.slices(self.core, self.now):
            self._take_over(decisions)
        for pod in self.coming:
            self._come_back(pod)
        self.coming.clear()
        if self.cluster.by_weight:
            self._check_shares()
        self.after_ticks()

    def after_ticks(self) -> None:
        """Check that the thrashing monitor has no strikes, and confirm the evictions that are due."""
        check_calm(self.core)
        self.excused = False
        self._confirm()

    def judge_the_end(self) -> None:
        """Assert that every decision has ended, and that no ask waits although there is unreserved free capacity for it."""
        assert not self.cluster.promises, "a decision never ended (invariant 17)"
        look(self.cluster)
        held = {
            key: one.node.node_id
            for key, one in self.core.state.partitions["default"].decisions.pledges.items()
        }
        free = replace(
            self.cluster,
            nodes=[each for each in self.cluster.nodes if each.name not in held.values()],
            # Capacity promised to a reservation is not available to other asks below the same max.
            promises=[Promise(one, held[one.key]) for one in self.cluster.asks if one.key in held],
        )
        for ask in self.cluster.asks:
            if not ask.required_node:
                assert not fits_now(free, ask), f"{ask.key} waits beside free capacity"

    def _check_shares(self) -> None:
        """Assert that the reported shares equal those of the plain model and add up (W1, W4, W5, W7, invariant 14)."""
        cluster, told = self.cluster, share_reports(self.core.state.partitions["default"])
        look(cluster)
        for kind, shares in cluster.shares.items():
            for path, share in shares.items():
                found = told[path].deserved.get(kind, 0), told[path].entitled.get(kind, 0)
                assert found == share[3:5], f"{path} {kind}: {found}, not {share}"
            for parent in cluster.queues:
                self._check_family(parent.path, kind, told)

    def _check_family(self, parent: str, kind: str, told: dict[str, ShareReport]) -> None:
        cluster, paths = self.cluster, [each.path for each in self.cluster.queues]
        children = [path for path in paths if path.rpartition(".")[0] == parent]
        deserved = {path: told[path].deserved.get(kind, 0) for path in children}
        assert sum(deserved.values()) <= told[parent].deserved.get(kind, 0), (parent, kind)
        used = {path: self._used(path, kind) for path in children}
        coming = proportion_oracle.preempting(deserved, used)
        root = sum(pod.size.get(kind, 0) for pod in cluster.pods if not pod.dying)
        if root > total(cluster, kind):
            coming = dict.fromkeys(children, 0)  # W3
        for path in children:
            found = told[path].allocated.get(kind, 0), told[path].preempting.get(kind, 0)
            assert found == (deserved[path] - coming[path], coming[path]), f"{path} {kind}: {found}"

    def _used(self, path: str, kind: str) -> int:
        return sum(pod.size.get(kind, 0) for pod in self.cluster.pods if is_below(pod.queue, path))

    def say(self, event: Event) -> None:
        """Send an event to the core, and process the decisions."""
        self._take_over(self.core.handle(event, self.now))

    def new_ask(self) -> Ask:
        """Return a new ask, sometimes one that requires a node."""
        number, nodes = self.dice.random.randint(100, 10**9), self.cluster.nodes
        belongs = bool(nodes) and self.random.random() < 0.1
        return self.dice.ask(number, self.leaves, self.random.choice(nodes).name if belongs else "")

    def new_baseline(self) -> None:
        """Reset the limit on claims after an outside event: the present deficits bound the claims that may follow (invariant 18)."""
        self.since_outside = 0
        self.claims_most = sum(self.account.deficits().values())

    # -- time ------------------------------------------------------------------------------------------------------

    def move_on(self) -> None:
        """Move the clock to the next instant at which anything can happen."""
        instants = [at for at, _ in self.confirmations]
        due = self.core.next_due()
        instants += [due] if due is not None else []
        self.now = max(self.now + 1, min([*instants, self.now + QUIET_MS]))

    def is_quiet(self) -> bool:
        """Return whether nothing more can happen, because no confirmation is due and nothing has changed for long enough."""
        return not self.confirmations and self.now - self.changed > QUIET_MS

    # -- decisions -------------------------------------------------------------------------------------------------

    def _take_over(self, decisions: list[Decision]) -> None:
        seen = False
        look(self.cluster)
        for one in sorted(decisions, key=lambda one: not _is_end(one)):
            match one:
                case Placed():
                    self.account.place(one, self.now)
                    self.changed = self.now
                case Decided():
                    if not seen:
                        look(self.cluster)
                        seen = True
                    self._decided(one.record)
                case Released(termination=Termination.PREEMPTED_BY_SCHEDULER):
                    self._released(one)
                case DecisionMoved():
                    self._moved(one)
                case AskRejected():
                    self._rejected(one)
                case _:
                    pass

    def _decided(self, record: DecisionRecord) -> None:
        self.changed = self.now
        again = record.decision_id in self.account.beneficiaries
        self.account.decide(record)
        if again or record.policy == "required-node":
            self.new_baseline()
            return
        self.since_outside += 1
        self.account.most_at_once = max(self.account.most_at_once, self.since_outside)
        most = CLAIMS_BY_WEIGHT_MOST if self.cluster.by_weight else self.claims_most
        assert self.since_outside <= most, f"more than {most} claims"

    def _released(self, release: Released) -> None:
        key = release.key
        assert key not in [each for _, each in self.confirmations], f"{key} is told twice"
        assert self.account.pod(key).dying, f"{key} goes without a decision"
        self._will_be_gone(key)
        if self.early:
            self.coming.append(self.account.pod(key))

    def _rejected(self, rejected: AskRejected) -> None:
        """Assert that an ask is rejected only because the core has removed its idle application (design 6.9)."""
        ask = self.account.ask(rejected.key)
        self.cluster.asks.remove(ask)
        everybody: list[Pod | Ask] = [*self.cluster.pods, *self.cluster.asks]
        others = [one.key for one in everybody if one.queue == ask.queue]
        assert "is not known" in rejected.reason, f"{ask.key} is rejected: {rejected.reason}"
        assert not others, f"{ask.key} is rejected as if {others} were not there"

    def _will_be_gone(self, key: str) -> None:
        delay = 0 if self.at_once else self.random.choice((0, 1, 500, 20_000, 90_000))
        self.confirmations.append((self.now + delay, key))

    def _moved(self, moved: DecisionMoved) -> None:
        if _is_end(moved):
            self._ended(moved)
        elif (
            moved.key
        ):  # a veto: until the core replans the decision, other asks may claim its capacity
            self.account.drop_promise(self.account.beneficiaries[moved.decision_id])

    def _ended(self, moved: DecisionMoved) -> None:
        assert self.excused, f"{moved} though nothing happened outside"
        self.changed = self.now
        self.account.drop_promise(self.account.beneficiaries[moved.decision_id])
        self.new_baseline()

    # -- victims come back ---------------------------------------------------------------------------------------

    def _confirm(self) -> None:
        due = [key for at, key in self.confirmations if at <= self.now]
        self.confirmations = [one for one in self.confirmations if one[1] not in due]
        for key in due:
            pod = self.account.pod(key)
            self.cluster.pods.remove(pod)
            ours = self.account.going.pop(key, None) is not None
            why = Termination.PREEMPTED_BY_SCHEDULER if ours else Termination.STOPPED_BY_RM
            self.say(ReleaseRequested(MANAGER, f"app-{pod.queue}", key, termination=why))
            self.changed = self.now
            if not (ours and self.early):
                self._come_back(pod)

    def _come_back(self, pod: Pod) -> None:
        self.names += 1
        stem = pod.key.partition("'")[0]
        ask = Ask(
            f"{stem}'{self.names}",
            pod.queue,
            pod.size,
            pod.priority,
            opted_out=pod.opted_out,
            originator=pod.originator,
            protection=pod.protection,
            group=pod.group,
        )
        self.cluster.asks.append(ask)
        self.say(waiting(ask, self.now))
        self.changed = self.now


def check_calm(core: Core) -> None:
    """Assert that the thrashing monitor has recorded no strikes, because correct rules never cause one (invariant 18)."""
    for partition in core.state.partitions.values():
        monitor = partition.thrashing
        assert not monitor.strikes, f"strikes against {list(monitor.strikes)}"
        assert not monitor.total, f"{list(monitor.frozen)} froze"


def _is_end(decision: Decision) -> bool:
    """Return whether a decision was given up; its capacity is then free for later decisions of the same slice."""
    given_up = (DecisionState.ABORTED, DecisionState.EXPIRED)
    return isinstance(decision, DecisionMoved) and decision.state in given_up and not decision.key
