"""The disturbances of a claiming cluster: users, nodes, vetoes, a restart in the middle of a decision."""

import random
from collections.abc import Callable, Iterator
from typing import Final

from server.model.asks import ReleaseMark
from server.model.decisions import Termination
from server.model.events import (
    ApplicationAdded,
    Event,
    ManagerRegistered,
    NodeAdded,
    NodeEnabled,
    NodeRemoved,
    ReleaseRequested,
    VictimVetoed,
)
from server.model.resources import resource
from tests.preemption.claim_clusters import LONG_AGO, MANAGER, running, waiting
from tests.preemption.claim_oracle import Pod
from tests.simulation.termination import STEPS_MOST, Account, Life

EVENTS_MOST: Final = 6


class Outsiders:
    """Random disturbances of a `Life`, both while it is active and once it is quiet."""

    def __init__(self, seed: int, life: Life | None = None) -> None:
        self.random = random.Random(f"outsiders {seed}")
        self.life = life or Life(seed)
        self.left = self.random.randint(1, EVENTS_MOST)
        self.happened: list[str] = []

    def run(self) -> Account:
        """Run until all disturbances have happened and the cluster is quiet; return the account."""
        life = self.life
        for _ in range(STEPS_MOST):
            life.step()
            if self.left and (life.is_quiet() or self.random.random() < 0.4):
                self._something()
            elif life.is_quiet():
                life.judge_the_end()
                return life.account
            else:
                life.move_on()
        raise AssertionError("it never ends")

    def _something(self) -> None:
        self.left -= 1
        happening = self.random.choice(self._happenings())
        self.happened.append(f"{happening.__name__} at {self.life.now}")
        self.life.excused = True
        happening()
        self.life.changed = self.life.now
        self.life.new_baseline()

    def _happenings(self) -> list[Callable[[], None]]:
        cluster, dying = self.life.cluster, self.life.account.going
        found: list[Callable[[], None]] = [self._ask_comes, self._restart]
        if cluster.asks:
            found.append(self._ask_goes)
        if any(not pod.dying for pod in cluster.pods):
            found.append(self._pod_ends)
        if dying:
            found += [self._veto, self._veto]
        if len(cluster.nodes) > 1:
            found.append(self._node_is_lost)
        return found

    # -- users -----------------------------------------------------------------------------------------------------

    def _ask_comes(self) -> None:
        ask = self.life.new_ask()
        self.life.cluster.asks.append(ask)
        self.life.say(waiting(ask))

    def _ask_goes(self) -> None:
        ask = self.random.choice(self.life.cluster.asks)
        self._end(ask.key, ask.queue)
        self.life.cluster.asks.remove(ask)
        self.life.account.drop_promise(ask.key)

    def _pod_ends(self) -> None:
        pod = self.random.choice([pod for pod in self.life.cluster.pods if not pod.dying])
        self.life.cluster.pods.remove(pod)
        self._end(pod.key, pod.queue)

    def _end(self, key: str, queue: str) -> None:
        self.life.say(ReleaseRequested(MANAGER, f"app-{queue}", key))

    # -- the cluster -----------------------------------------------------------------------------------------------

    def _veto(self) -> None:
        key, decision = self.random.choice(sorted(self.life.account.going.items()))
        del self.life.account.going[key]
        self.life.account.pod(key).dying = False
        self.life.confirmations = [one for one in self.life.confirmations if one[1] != key]
        self.life.say(VictimVetoed(MANAGER, decision, key, "eviction refused"))

    def _node_is_lost(self) -> None:
        life = self.life
        node = self.random.choice(life.cluster.nodes)
        gone = [pod.key for pod in life.cluster.pods if pod.node == node.name]
        for one in [one for one in life.cluster.promises if one.node == node.name]:
            life.account.drop_promise(one.ask.key)
        life.cluster.nodes.remove(node)
        life.cluster.pods = [pod for pod in life.cluster.pods if pod.key not in gone]
        life.confirmations = [one for one in life.confirmations if one[1] not in gone]
        life.account.going = {
            key: decision for key, decision in life.account.going.items() if key not in gone
        }
        life.say(NodeRemoved(MANAGER, node.name))

    # -- a restart -------------------------------------------------------------------------------------------------

    def _restart(self) -> None:
        """Register the shim once more; the shim reports the running pods, with the marks that it finds on victims (C8)."""
        life, account = self.life, self.life.account
        marked = {account.beneficiaries[decision] for decision in account.going.values()}
        kept = [one for one in life.cluster.promises if one.ask.key in marked]
        life.say(ManagerRegistered(MANAGER))
        life.cluster.promises = kept
        for event in self._what_stands():
            life.say(event)

    def _what_stands(self) -> Iterator[Event]:
        cluster = self.life.cluster
        for node in cluster.nodes:
            yield NodeAdded(MANAGER, node.name, resource(node.capacity), schedulable=False)
        for leaf in self.life.leaves:
            yield ApplicationAdded(MANAGER, f"app-{leaf}", leaf)
        yield from [running(pod, self._mark(pod)) for pod in cluster.pods]
        yield from [waiting(ask, LONG_AGO) for ask in cluster.asks]
        yield from [NodeEnabled(MANAGER, node.name) for node in cluster.nodes if node.schedulable]

    def _mark(self, pod: Pod) -> ReleaseMark | None:
        decision = self.life.account.going.get(pod.key)
        if decision is None:
            return None
        beneficiary = self.life.account.beneficiaries[decision]
        return ReleaseMark(Termination.PREEMPTED_BY_SCHEDULER, decision, beneficiary, pod.node)
