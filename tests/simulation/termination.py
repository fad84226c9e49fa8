"""Clusters that claim until nobody claims any more, with a second account of what everybody holds.

Each victim comes back at once as a new ask of the same application, as a replica set would have it. The account is
kept from the core's decisions alone, and judges each claim by the laws of brute force (specification 7.7 and 8).
"""

import random
from dataclasses import dataclass, field
from typing import Final

from server.core.core import Core
from server.model.decisions import Decided, Decision, DecisionMoved, Placed, Released, Termination
from server.model.events import Event, ReleaseRequested
from server.model.records import DecisionRecord, DecisionState
from tests.preemption import claim_clusters
from tests.preemption.claim_clusters import MANAGER, START, Dice, waiting
from tests.preemption.claim_oracle import (
    Amounts,
    Ask,
    Cluster,
    Pod,
    Promise,
    covers,
    is_below,
    keeps_guarantees,
    may_go,
    refused,
)

QUIET_MS: Final = 60_000
"""Longer than the delay of a claim and its back-off together: nobody who waits has anything left to try."""
STEPS_MOST: Final = 3_000
Deficits = dict[tuple[str, str], int]


@dataclass
class Account:
    """What everybody holds, kept from decisions. ``going`` says which decision each dying pod dies for."""

    cluster: Cluster
    going: dict[str, str] = field(default_factory=dict)
    beneficiaries: dict[str, str] = field(default_factory=dict)
    """Of open decisions, who gets the room."""
    claims: int = 0
    victims: int = 0

    def deficits(self) -> Deficits:
        """How far each queue is below its guarantee, by type, with what is promised to it (7.7)."""
        found = {}
        for queue in self.cluster.queues:
            held = self._held(queue.path)
            for kind, guaranteed in queue.guaranteed.items():
                found[queue.path, kind] = max(0, guaranteed - held.get(kind, 0))
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
        """A waiting ask."""
        return next(ask for ask in self.cluster.asks if ask.key == key)

    def pod(self, key: str) -> Pod:
        """Something that runs."""
        return next(pod for pod in self.cluster.pods if pod.key == key)

    # -- what the core decided -------------------------------------------------------------------------------------

    def place(self, placed: Placed, now: int) -> None:
        """An ask got its place: no node takes more than it holds."""
        ask = self.ask(placed.key)
        self.cluster.asks.remove(ask)
        self.drop_promise(ask.key)
        self.cluster.pods.append(ask.placed(placed.node_id, now))
        node = next(each for each in self.cluster.nodes if each.name == placed.node_id)
        here = [pod for pod in self.cluster.pods if pod.node == node.name]
        for kind in ask.size:
            used = sum(pod.size.get(kind, 0) for pod in here)
            assert used <= node.capacity.get(kind, 0), f"{node.name} holds {used} {kind}"

    def claim(self, record: DecisionRecord) -> None:
        """A claim: it keeps the laws, raises no deficit and lowers one."""
        (beneficiary,) = record.beneficiaries
        ask, victims = self.ask(beneficiary.key), [self.pod(one.key) for one in record.victims]
        self._check(ask, beneficiary.node_id, tuple(victims))
        before = self.deficits()
        for pod in victims:
            pod.dying = True
            self.going[pod.key] = record.decision_id
        self.beneficiaries[record.decision_id] = ask.key
        self.cluster.promises.append(Promise(ask, beneficiary.node_id))
        after = self.deficits()
        raised = {
            where: (before[where], after[where]) for where in after if after[where] > before[where]
        }
        assert not raised, f"{record.summary} raises {raised}"
        assert sum(after.values()) < sum(before.values()), f"{record.summary} lowers no deficit"
        self.claims += 1
        self.victims += len(victims)

    def substitute(self, key: str, decision: str) -> None:
        """Somebody goes for an open decision in place of one that could not be taken."""
        promise = self.promise(self.beneficiaries[decision])
        pod = self.pod(key)
        assert pod.node == promise.node, f"{key} stands on {pod.node} (invariant 8)"
        assert may_go(self.cluster, promise.ask, pod), f"{key} may not go in place of another"
        pod.dying = True
        self.going[key] = decision
        self.victims += 1

    def promise(self, key: str) -> Promise:
        """The room that is held for an ask."""
        return next(one for one in self.cluster.promises if one.ask.key == key)

    def drop_promise(self, key: str) -> None:
        """No room is held for this ask any more."""
        self.cluster.promises = [one for one in self.cluster.promises if one.ask.key != key]

    def _check(self, ask: Ask, name: str, victims: tuple[Pod, ...]) -> None:
        cluster, keys = self.cluster, [pod.key for pod in victims]
        node = next(each for each in cluster.nodes if each.name == name)
        assert ask.key not in [one.ask.key for one in cluster.promises], f"{ask.key} claims twice"
        assert not refused(cluster, ask), f"{ask.key} claims against {refused(cluster, ask)}"
        for pod in victims:
            assert pod.node == name, f"{pod.key} stands on {pod.node} (invariant 8)"
            assert may_go(cluster, ask, pod), f"{pod.key} may not go (invariants 5, 6, 7, 10)"
        assert keeps_guarantees(cluster, ask, victims), f"{keys} break a guarantee (invariant 3)"
        assert covers(cluster, ask, node, victims), f"{keys} do not suffice"
        for pod in victims:
            rest = tuple(each for each in victims if each is not pod)
            assert not covers(cluster, ask, node, rest), f"{pod.key} is not needed (invariant 11)"
        idle = [each for each in cluster.nodes if each.schedulable]
        assert not victims or not any(covers(cluster, ask, each, ()) for each in idle), (
            "invariant 12"
        )


class Life:
    """One cluster from its first tick until it is quiet."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(f"life {seed}")
        self.dice = Dice(seed, pods_most=6)
        self.account = Account(self.dice.cluster())
        self.cluster = self.account.cluster
        self.leaves = [queue.path for queue in self.cluster.queues if queue.leaf]
        self.cluster.asks += [self.new_ask() for _ in range(self.random.randint(0, 4))]
        self.at_once = self.random.random() < 0.5
        self.core = Core(claim_clusters.configuration(self.cluster))
        self.now = self.changed = START
        self.names = self.since_outside = self.claims_most = 0
        self.excused = False
        """Something happened outside since the last tick: decisions may be given up."""
        self.confirmations: list[tuple[int, str]] = []
        for event in claim_clusters.events(self.cluster):
            self.say(event)
        for pod in self.cluster.pods:
            if pod.dying:
                self._will_be_gone(pod.key)
        self.new_baseline()

    def run(self) -> Account:
        """Until nobody acts any more; the account of it."""
        for _ in range(STEPS_MOST):
            self.step()
            if self.is_quiet():
                assert not self.cluster.promises, "a decision never ended (invariant 17)"
                return self.account
            self.move_on()
        raise AssertionError("it never ends")

    def step(self) -> None:
        """A tick, and the confirmations that are due after it."""
        self._take_over(claim_clusters.tick(self.core, self.now))
        self.excused = False
        self._confirm()

    def say(self, event: Event) -> None:
        """Something happens."""
        self._take_over(self.core.handle(event, self.now))

    def new_ask(self) -> Ask:
        """An ask that nobody has made yet."""
        return self.dice.ask(self.dice.random.randint(100, 10**9), self.leaves)

    def new_baseline(self) -> None:
        """After something from outside: what may follow is bounded by the deficits of now (7.7)."""
        self.since_outside = 0
        self.claims_most = sum(self.account.deficits().values())

    # -- time ------------------------------------------------------------------------------------------------------

    def move_on(self) -> None:
        """To the next instant at which anything can happen."""
        instants = [at for at, _ in self.confirmations]
        due = self.core.next_due()
        instants += [due] if due is not None else []
        self.now = max(self.now + 1, min([*instants, self.now + QUIET_MS]))

    def is_quiet(self) -> bool:
        """Does nobody act any more, however long one waits?"""
        return not self.confirmations and self.now - self.changed > QUIET_MS

    # -- decisions -------------------------------------------------------------------------------------------------

    def _take_over(self, decisions: list[Decision]) -> None:
        for one in decisions:
            match one:
                case Placed():
                    self.account.place(one, self.now)
                    self.changed = self.now
                case Decided():
                    self._decided(one.record)
                case Released(termination=Termination.PREEMPTED_BY_SCHEDULER):
                    self._released(one)
                case DecisionMoved(state=DecisionState.ABORTED | DecisionState.EXPIRED, key=""):
                    self._ended(one)
                case _:
                    pass

    def _decided(self, record: DecisionRecord) -> None:
        self.changed = self.now
        self.account.claim(record)
        self.since_outside += 1
        assert self.since_outside <= self.claims_most, f"more than {self.claims_most} claims"

    def _released(self, release: Released) -> None:
        key = release.key
        assert key not in [each for _, each in self.confirmations], f"{key} is told twice"
        if not self.account.pod(key).dying:
            self.account.substitute(key, release.decision_id)
        self._will_be_gone(key)

    def _will_be_gone(self, key: str) -> None:
        delay = 0 if self.at_once else self.random.choice((0, 1, 500, 20_000, 90_000))
        self.confirmations.append((self.now + delay, key))

    def _ended(self, moved: DecisionMoved) -> None:
        assert self.excused, f"{moved} though nothing happened outside"
        self.changed = self.now
        self.account.drop_promise(self.account.beneficiaries[moved.decision_id])

    # -- who goes comes back ---------------------------------------------------------------------------------------

    def _confirm(self) -> None:
        due = [key for at, key in self.confirmations if at <= self.now]
        self.confirmations = [one for one in self.confirmations if one[1] not in due]
        for key in due:
            pod = self.account.pod(key)
            self.cluster.pods.remove(pod)
            ours = self.account.going.pop(key, None) is not None
            why = Termination.PREEMPTED_BY_SCHEDULER if ours else Termination.STOPPED_BY_RM
            self.say(ReleaseRequested(MANAGER, f"app-{pod.queue}", key, termination=why))
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
