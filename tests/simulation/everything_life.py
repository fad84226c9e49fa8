"""A random scenario of one core with every policy and setting at once, determined by a seed; see `test_everything`.

The scenario is an `Attack` with the situations of `everything_pressure`. It adds deep queue trees, every key of
`preemption`, gangs of both classes, placeholders, settings that change at run time, and two kinds of restarts: a
manager registers once more, or the core itself is lost.
"""

import copy
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import yaml

from server.config import load
from server.core.core import Core
from server.core.queries import inspect
from server.model.asks import AskSpec, ReleaseMark, values
from server.model.decisions import (
    AskRejected,
    Decision,
    Placed,
    Released,
    ShadowDecided,
    Termination,
)
from server.model.events import (
    ApplicationAdded,
    AskAdded,
    ConfigurationApplied,
    DisruptionsAllowed,
    Event,
    ReleaseRequested,
    VictimVetoed,
)
from server.model.quota import Configuration, PreemptionPolicy
from server.model.resources import resource
from server.model.shadow import Difference
from tests.preemption.attack_account import Partition, Pod
from tests.preemption.attacks import CONFIGURATIONS_MOST, TICKS_MOST
from tests.simulation import everything
from tests.simulation.everything import Section, Shape
from tests.simulation.everything_invariants import SWAPPED, Judge, is_firm
from tests.simulation.everything_jobs import JobJudge
from tests.simulation.everything_pressure import Pressed
from tests.simulation.everything_ticks import (
    Budgets,
    check_gangs,
    check_shares,
    is_talk,
    standing,
)

REST_MOST: Final = 150
"""Maximum number of instants after the last outside event; victims still come back during these."""
QUIET: Final = 8
"""Number of instants without a victim after which the cluster counts as quiet."""
WAITS: Final = 3
LONG_MS: Final = 660_000
"""Milliseconds, longer than the expiry of a decision and than every back-off."""


class Everything(Pressed):
    """A random scenario, its checks and the counts of what occurred."""

    account: Judge

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(f"everything {seed}")
        self.trees: dict[str, Shape] = {}
        self.written: dict[str, Section] = {}
        self.declared: dict[tuple[str, str], ApplicationAdded] = {}
        self.allowed: dict[tuple[str, str], int | None] = {}
        self.budgets: dict[str, Budgets] = {}
        self.lost: dict[int, Configuration] = {}
        """The configurations with which a new core begins, by the number of the moment before which it begins."""
        super().__init__(seed)
        self.account.now = self.now

    @property
    def seen(self) -> Counter[str]:
        """The number of occurrences of each kind of event and check."""
        return self.account.seen

    def new_account(self) -> Judge:
        """Return the account that judges the scenario."""
        return JobJudge(self.configuration, self.managers)

    def leaves(self, partition: str) -> tuple[str, ...]:
        """Return the leaves of the partition's tree."""
        return tuple(self.trees[partition].leaves())

    # -- configuration ------------------------------------------------------------------------------------------------

    def draw_configuration(self) -> Configuration:
        """Return a random configuration that passes its checks, with the same queues as before."""
        for _ in range(CONFIGURATIONS_MOST):
            written = {name: self._partition(name) for name in self.managers}
            found = _read(written)
            if found is not None:
                self.written = written
                return found
        raise AssertionError(f"seed {self.seed}: no configuration is accepted")

    def _partition(self, name: str) -> Section:
        dice = self.chance
        tree = self.trees.setdefault(name, everything.shape(dice))
        return {
            "name": name,
            "placementrules": [{"name": "provided", "create": False}],
            "nodesortpolicy": {"type": dice.choice(("fair", "binpacking"))},
            "preemption": everything.preemption(dice),
            "queues": [everything.queues(dice, tree, self.kinds)],
        }

    def configure(self) -> None:
        """Apply another configuration, or the present one with a small change, often while a decision is open."""
        before = copy.deepcopy(self.written)
        name = self.chance.choice(list(self.written))
        change = self.chance.choice(
            (self._lower, self._lower, self._set_one, self._set_one, self._other_shadow, None)
        )
        if change is None:
            found: Configuration | None = self.draw_configuration()
        else:
            change(self.written[name])
            found = _read(self.written)
        if found is None:
            self.written = before
            return
        self.configuration = found
        self.tell(ConfigurationApplied(found, "everything"))

    def _lower(self, partition: Section) -> None:
        """Lower what a queue may use, most often below what it uses, so that quota enforcement is armed (Q3)."""
        (root,) = partition["queues"]
        state, below = self.account.partitions[partition["name"]], _below(root)
        leaves = {queue.rpartition(".")[2] for queue, _ in state.applications.values()}
        queue = self.chance.choice([one for one in below if one["name"] in leaves] or below)
        if self.chance.random() < 0.7:
            queue["properties"].setdefault("quota.preemption.delay", "1s")
        least = everything.amounts(queue["resources"].get("guaranteed", {}))
        most = {
            kind: least.get(kind, 0) + self.chance.randint(1, 4)
            for kind in self.kinds
            if self.chance.random() < 0.8
        }
        queue["resources"]["max"] = everything.units(most)
        for one in _below(queue):
            known = everything.amounts(one["resources"].get("max", {}))
            lower = {kind: min(amount, most.get(kind, amount)) for kind, amount in known.items()}
            one["resources"]["max"] = everything.units(lower)

    def _set_one(self, partition: Section) -> None:
        other = everything.settings(self.chance)
        key = self.chance.choice(sorted(other))
        partition["preemption"][key] = other[key]

    def _other_shadow(self, partition: Section) -> None:
        live = partition["preemption"]
        if live.pop("shadow", None) is None or self.chance.random() < 0.7:
            live["shadow"] = everything.shadow(self.chance, live)

    # -- arrivals ---------------------------------------------------------------------------------------------------

    def spec(self, state: Partition, *, job: str = "") -> AskSpec:
        """Return a specification as `Attack` does, with the additional fields of gangs."""
        found = super().spec(state, job=job)
        return replace(
            found,
            lendable=self.chance.choice((None, None, None, True, True, False)),
            may_trigger=self.chance.choice((None, None, None, True, False)),
        )

    def add_application(self) -> None:
        """Add an application, sometimes one that begins with placeholders."""
        if self.chance.random() > 0.2:
            super().add_application()
            return
        partition, state, manager = self.place()
        name, count = self.name("app"), self.chance.randint(1, 3)
        spec = replace(
            self.spec(state), placeholder=True, task_group="g", originator=False, timeout_ms=0
        )
        spec = replace(spec, constraints=replace(spec.constraints, required_node=""))
        asked = resource({kind: count * amount for kind, amount in spec.resource})
        added = ApplicationAdded(
            manager,
            name,
            self.chance.choice(self.leaves(partition)),
            partition,
            "ann",
            execution_timeout_ms=self.chance.choice((30_000, 120_000)),
            gang_style=self.chance.choice(("Soft", "Hard")),
            placeholder_ask=asked,
        )
        self.declared[partition, name] = added
        self.tell(added)
        keys = [self.name("p") for _ in range(count)]
        for key in keys:
            self.tell(AskAdded(manager, key, name, spec, partition, self.now))
        if self.chance.random() < 0.7:
            real = replace(spec, placeholder=False)
            self.tell(AskAdded(manager, self.name("p"), name, real, partition, self.now))

    def add_real(self) -> None:
        """Add a pod of a task group, often of the size of its placeholders."""
        partition, state, manager = self.place()
        known = [app for where, app in self.declared if where == partition]
        known = [app for app in known if app in state.applications]
        if not known:
            return
        application = self.chance.choice(known)
        asked = self.declared[partition, application].placeholder_ask
        mine = [pod.spec for pod in state.pods.values() if pod.application == application]
        sizes = [spec.resource for spec in mine if spec.placeholder] or [asked]
        size = sizes[0] if self.chance.random() < 0.8 else resource({self.kinds[0]: 9})
        spec = replace(self.spec(state), resource=size, task_group="g", timeout_ms=0)
        spec = replace(spec, constraints=replace(spec.constraints, required_node=""))
        self.tell(AskAdded(manager, self.name("p"), application, spec, partition, self.now))

    def add_gang(self) -> None:
        """Add a gang with as many members as it needs, fewer (the rest follows), or more (it is elastic)."""
        partition, state, manager = self.place()
        if not state.applications:
            return
        application = self.chance.choice(list(state.applications))
        least = self.chance.randint(2, 4)
        spec = replace(
            self.spec(state, job=self.name("j")),
            min_members=least,
            rm_check=False,
            timeout_ms=0,
            resource=resource({kind: self.chance.choice((1, 1, 2, 3)) for kind in self.kinds}),
        )
        for _ in range(max(1, least + self.chance.choice((-1, 0, 0, 0, 1)))):
            key = self.name("p")
            self.tell(AskAdded(manager, key, application, spec, partition, self.now))

    def join_gang(self) -> None:
        """Add one more member to an existing gang."""
        partition, state, manager = self.place()
        known = [pod for pod in state.pods.values() if pod.spec.gang_key]
        if known:
            one = self.chance.choice(known)
            key, spec = self.name("p"), one.spec
            self.tell(AskAdded(manager, key, one.application, spec, partition, self.now))

    def start_pod(self) -> None:
        """Report, as a kubelet would, that pods run (V2, V4)."""
        partition, state, manager = self.place()
        ready = [pod for pod in self.pods(state, running=True) if pod.started_ms is None]
        for pod in self.chance.sample(ready, min(len(ready), 4)):
            pod.started_ms = self.now
            self.tell(self._existing(manager, partition, state, pod))

    # -- evictions -----------------------------------------------------------------------------------------------------

    def going(self, state: Partition) -> list[Pod]:
        """Return the pods that were ordered to end, including placeholders that are being replaced."""
        return [pod for pod in state.pods.values() if pod.dying is not None or _is_swapped(pod)]

    def dying(self, state: Partition) -> list[Pod]:
        """Return the pods that were ordered to end, without placeholders that are being replaced: these get no vetoes or marks."""
        return [pod for pod in super().dying(state) if not _is_swapped(pod)]

    def confirm(self) -> None:
        """Confirm that some terminating pods are gone, in any order; often they come back at once under other names."""
        partition, state, manager = self.place()
        going = self.going(state)
        for pod in self.chance.sample(going, min(len(going), self.chance.choice((1, 1, 2, 9)))):
            self._gone(partition, manager, pod, again=self.chance.random() < 0.5)

    def _gone(self, partition: str, manager: str, pod: Pod, *, again: bool) -> None:
        why = Termination.PREEMPTED_BY_SCHEDULER if pod.dying else Termination.STOPPED_BY_RM
        if _is_swapped(pod) and pod.order is not None:
            why = pod.order.termination
        self.tell(ReleaseRequested(manager, pod.application, pod.key, partition, why))
        if again and not pod.spec.placeholder:
            key = self.name("p")
            self.tell(AskAdded(manager, key, pod.application, pod.spec, partition, self.now))

    def _veto(self, state: Partition, manager: str, pod: Pod, decision: str) -> None:
        self.account.shaky |= set(self.managers)
        super()._veto(state, manager, pod, decision)

    def veto_placeholder(self) -> None:
        """Report that a placeholder that is being replaced could not be deleted."""
        _, state, manager = self.place()
        for pod in [pod for pod in state.pods.values() if _is_swapped(pod)][:1]:
            assert pod.order is not None
            before = self._is_releasing(pod.key)
            self.account.shaky |= set(self.managers)
            self.tell(VictimVetoed(manager, pod.order.decision_id, pod.key, "429"))
            if before and not self._is_releasing(pod.key):
                pod.order = pod.dying = None

    def mark(self, state: Partition, pod: Pod) -> ReleaseMark | None:
        """Return the mark that the shim wrote on a pod when it received the order (C8)."""
        order = pod.order
        if order is None or not (pod.dying or _is_swapped(pod)):
            return super().mark(state, pod)
        node = order.nodes[0] if order.nodes else ""
        return ReleaseMark(order.termination, order.decision_id, order.beneficiary, node)

    # -- the cluster --------------------------------------------------------------------------------------------------

    def allow_disruptions(self) -> None:
        """Change what budgets allow; a shim that registers once more reports it again."""
        _, _, manager = self.place()
        group, allowed = self.chance.choice(("g/one", "g/two")), self.chance.choice((0, 1, 2, None))
        self.allowed[manager, group] = allowed
        self.tell(DisruptionsAllowed(manager, group, allowed))

    def _told(self, manager: str, name: str, state: Partition) -> list[Event]:
        told: list[Event] = [
            DisruptionsAllowed(manager, group, allowed)
            for (who, group), allowed in self.allowed.items()
            if who == manager
        ]
        for event in super()._told(manager, name, state):
            if isinstance(event, ApplicationAdded):
                told.append(self.declared.get((name, event.application_id), event))
            else:
                told.append(event)
        return told

    def restart(self) -> None:
        """Register a manager once more, or lose the core with all that it knows."""
        waiting = sum(len(state.open) for state in self.account.partitions.values())
        self.seen["restarts"] += 1
        self.seen["restarts with open decisions"] += waiting > 0
        self.account.shaky |= set(self.managers)
        self.budgets.clear()
        if self.chance.random() < 0.5:
            super().restart()
        else:
            self._lose(waiting > 0)
        before = self.seen["shares"]
        check_shares(self.core, self.account)
        self.seen["shares after a restart"] += self.seen["shares"] - before

    def _lose(self, waiting: bool) -> None:  # noqa: FBT001
        self.seen["lost cores"] += 1
        self.seen["lost cores with open decisions"] += waiting
        self.now += 1  # no two cores decide at one instant
        self.core = Core(self.configuration)
        self.lost[len(self.moments)] = self.configuration
        self.account.lost()
        for manager in dict.fromkeys(self.managers.values()):
            self.again(manager)

    # -- events and ticks ------------------------------------------------------------------------------------------------

    def tell(self, event: Event, dice: random.Random | None = None) -> None:
        """Send an event to the core and record it in the account."""
        self.account.now = self.now
        super().tell(event, dice)
        self._count_shadows(self.said[-1])

    def tick(self) -> None:
        """Tick until nothing is left to do; check each tick as a whole, and sometimes that one more tick changes nothing."""
        self.account.now = self.now
        for _ in range(TICKS_MOST):
            before = standing(self.core)
            rebuilding = any(state.decisions.marks for state in self.core.state.partitions.values())
            more = self._one_tick()
            if is_talk(self.said[-1]) and not rebuilding:
                assert standing(self.core) == before, f"words alone, but: {self.said[-1]}"
                self.seen["ticks of words alone"] += 1
            if not more:
                break
        else:
            raise AssertionError(f"a tick with budget {self.budget} does not end")
        self.account.shaky.clear()
        self._nothing_twice()
        due = self.core.next_due()
        assert due is None or due > self.now, f"due {due}, now {self.now}"

    def _one_tick(self) -> bool:
        self.moments.append((self.now, self.budget))
        tick = self.core.tick(self.now, self.budget)
        self.said.append(tick.decisions)
        for one in tick.decisions:
            if isinstance(one, AskRejected):
                self.account.refuse(one.partition, one.key)
        self.account.decided(tick.decisions)
        self.core.validate()
        check_gangs(self.account, tick.decisions)
        for name, state in self.core.state.partitions.items():
            paced = self.budgets.setdefault(name, Budgets())
            paced.ticked(state, self.account, tick.decisions, self.now)
            self.seen["budgets that bound"] += paced.bound
            self.seen["parts of over-use that bound"] += paced.parts
            paced.bound = paced.parts = 0
        if self.chance.random() < 0.3:
            check_shares(self.core, self.account)
        self._count_shadows(tick.decisions)
        return tick.more

    def _nothing_twice(self) -> None:
        """Assert, in some runs, that one more tick at the same instant decides nothing and leaves the state and its digest unchanged.

        Pods that were ordered to end leave capacity for the plans of the next round, and each tick has only one
        round (P1). So nothing is left to do only after a tick without an eviction. Decisions and the digest of a
        shadow may change, because a shadow sees the live decisions and forgets what has ended.
        """
        if self.chance.random() < 0.7:
            return
        for _ in range(TICKS_MOST):
            if not any(isinstance(one, Released) for one in self.said[-1]):
                break
            while self._one_tick():
                pass
        before = self.core.digest()
        self.moments.append((self.now, self.budget))
        tick = self.core.tick(self.now, self.budget)
        self.said.append(tick.decisions)
        new = [one for one in tick.decisions if type(one) is not ShadowDecided]
        assert not new, f"a tick more decides {new}"
        shadows = any(one.shadow for one in self.core.state.partitions.values())
        same = shadows or self.core.digest() == before
        assert same, "a tick without a word changed something"

    def _count_shadows(self, decisions: list[Decision]) -> None:
        for one in decisions:
            if isinstance(one, ShadowDecided):
                same = one.record.difference is Difference.SAME
                self.seen["shadow same" if same else "shadow differs"] += 1

    # -- the scenario -----------------------------------------------------------------------------------------------------

    def _attacks(self) -> list[tuple[Callable[[], None], int]]:
        return [
            *super()._attacks(),
            *self.pressure(),
            (self.add_ask, 4),
            (self.wait, 10),
            (self.add_gang, 12),
            (self.resize_node, 4),
            (self.join_gang, 2),
            (self.add_real, 8),
            (self.start_pod, 8),
            (self.veto_placeholder, 1),
            (self.configure, 7),
            (self.restart, 2),
        ]

    def live(self) -> None:
        """Run the scenario, and count whether a queue had a fence at the end."""
        super().live()
        self.seen["lives with a fence"] += any(
            one.properties.preemption_policy is PreemptionPolicy.FENCE
            for name in self.managers
            for one in self.account.queues(name).values()
        )

    def settle(self) -> None:
        """Recreate evicted pods until nothing more happens, then assert that every decision ends and no ask starves.

        No pods may evict each other without end (invariants 17 and 18).
        """
        self.rest()
        for _ in range(WAITS):
            before = [key for state in self.account.partitions.values() for key in state.open]
            self.now += LONG_MS
            self.tick()
            for name, state in self.account.partitions.items():
                for pod in self.going(state):
                    self._gone(name, self.managers[name], pod, again=False)
            self.tick()
            after = {key for state in self.account.partitions.values() for key in state.open}
            assert after.isdisjoint(before), f"{after & set(before)} never end (17)"
        self.nobody_starves()

    def rest(self) -> None:
        """Confirm all victims at each instant and ask for them again, until no pod was evicted for a while."""
        frozen = [state.thrashing.total for state in self.core.state.partitions.values()]
        quiet, due = 0, None
        for _ in range(REST_MOST):
            for name, state in self.account.partitions.items():
                for pod in self.going(state):
                    self._gone(name, self.managers[name], pod, again=True)
            self.tick()
            quiet = 0 if any(map(self.going, self.account.partitions.values())) else quiet + 1
            due = self.core.next_due()
            if quiet >= QUIET or (quiet and due is None):
                break
            self.now = self.now if due is None or not quiet else due
        assert quiet >= QUIET or due is None, "it does not come to rest"
        after = [state.thrashing.total for state in self.core.state.partitions.values()]
        assert after == frozen, "pairs were frozen although nothing happened outside (invariant 18)"

    def nobody_starves(self) -> None:
        """Assert that no ask waits although there is free capacity for it under J4."""
        for name, state in self.account.partitions.items():
            held = {one.node_id for one in inspect.nodes(self.core, name) if one.reserved_for}
            for pod in self.pods(state, running=False) if not held else ():
                apart = pod.spec.task_group or pod.application in {a for _, a in self.declared}
                nodes = [] if apart else self._nodes_for(state, pod)
                assert not nodes or not self._has_headroom(name, pod), f"{pod.key}, {nodes}"

    def _has_headroom(self, name: str, pod: Pod) -> bool:
        state, settings = self.account.partitions[name], self.account.specs[name].preemption
        if not super()._has_headroom(name, pod):
            return False
        if "job" not in settings.policies:
            return True
        if not is_firm(pod, settings):
            head = self.account.headroom(state, name, pod)
            return all(
                left[kind] >= size for left in head.values() for kind, size in pod.spec.resource
            )
        for path, spec in self.account.path_up(name, self.account.path_of(name, pod)):
            for kind, size in pod.spec.resource:
                owed = dict(spec.guaranteed).get(kind, 0)
                if owed and self.account.firm(state, name, path, kind)[0] + size > owed:
                    return False
        return True

    def assert_same_again(self) -> None:
        """Assert that the same trace, including the losses of the core, gives the same decisions."""
        core = Core(self.first)
        for at, ((now, what), said) in enumerate(zip(self.moments, self.said, strict=True)):
            if at in self.lost:
                core = Core(self.lost[at])
            again = (
                core.tick(now, what).decisions if isinstance(what, int) else core.handle(what, now)
            )
            assert _by_value(again) == _by_value(said), f"{what} at {now}: {again}, before {said}"


_NO_SPEC: Final = AskSpec(resource=())


def _by_value(decisions: Sequence[Decision]) -> list[object]:
    """Return decisions that can be compared by value: each core creates the spec objects of gangs itself, so identities differ."""
    return [
        (one._replace(spec=_NO_SPEC), values(one.spec)) if isinstance(one, Placed) else one
        for one in decisions
    ]


def _read(written: dict[str, Section]) -> Configuration | None:
    text = yaml.safe_dump({"partitions": list(written.values())})
    return load(text, "everything")[0]


def _below(queue: dict[str, Any]) -> list[dict[str, Any]]:
    """Return all queues below a queue, as they are written."""
    found = []
    for child in queue.get("queues", ()):
        found += [child, *_below(child)]
    return found


def _is_swapped(pod: Pod) -> bool:
    """Return whether the pod is a placeholder that was ordered to end, for a real pod or as no longer needed."""
    return pod.order is not None and pod.order.termination in SWAPPED
