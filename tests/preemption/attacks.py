"""Random runs of everything: a seed determines the events of one core, and a second model checks each step."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Final

import yaml

from server.config import load
from server.core.core import Core
from server.core.queries import explain, inspect, known_decisions, verdicts
from server.core.queries.doctor import doctor
from server.core.queries.forecast import forecast
from server.core.queries.simulate import prepared
from server.core.queries.simulation_answers import SimulatedAsk
from server.model.asks import AskSpec, Constraints, HostPort, Protection, ReleaseMark
from server.model.decisions import Decision, Noted, PlanCheckRequested, Termination
from server.model.events import (
    AllocationAdded,
    ApplicationAdded,
    ApplicationRemoved,
    AskAdded,
    ConfigurationApplied,
    DisruptionsAllowed,
    Event,
    ForeignAdded,
    ManagerRegistered,
    NodeAdded,
    NodeDrained,
    NodeEnabled,
    NodeRemoved,
    NodeUpdated,
    PlanChecked,
    ReleaseRequested,
    SyncCompleted,
    VictimVetoed,
)
from server.model.quota import Configuration
from server.model.reasons import Code
from server.model.resources import resource
from tests.preemption.attack_account import Account, Partition, Pod

START: Final = 1_800_000_000_000
KINDS: Final = ("memory", "vcore")
QUEUES: Final = ("root.a.a1", "root.a.a2", "root.b", "root.c.c1", "root.c.c2")
GROUPS: Final = ("g/one", "g/two")
CONFIGURATIONS_MOST: Final = 300
"""Maximum number of random configurations until one is accepted."""
TICKS_MOST: Final = 400
"""Maximum number of ticks at one instant; more of them mean an endless loop."""
ROUNDS_MOST: Final = 120
"""Maximum number of instants that follow by themselves after the last event."""
REUSED: Final = 0.15
"""The probability that a new object gets the name of one that is gone."""
VALIDATED: Final = 0.3
"""The probability that the state is checked after an event; after ticks it is always checked."""
Moment = tuple[int, Event | int]
"""An instant with an event, or with the budget of a tick."""


class Attack:
    """A random run. `moments` is its trace, `said` has the core's decisions at each of them."""

    answers_plan_checks: ClassVar[bool] = True
    """Whether managers answer plan checks for some of the asks that they check."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.dice = random.Random(seed)
        self.weights = random.Random(f"weights {seed}")
        self.manager_dice = random.Random(f"manager {seed}")
        """What managers answer to plan checks. It is apart, so that the other events do not depend on it."""
        self.now = START
        self.names = 0
        self.given: list[str] = []
        self.kinds = KINDS[: self.dice.choice((1, 1, 2))]
        self.managers = {"default": "rm"}
        if self.dice.random() < 0.3:
            self.managers["other"] = self.dice.choice(("rm", "late"))
        self.budget = self.dice.choice((1, 2, 5, 20_000, 20_000))
        self.first = self.configuration = self.draw_configuration()
        self.core = Core(self.configuration)
        self.account = self.new_account()
        self.moments: list[Moment] = []
        self.said: list[list[Decision]] = []

    def new_account(self) -> Account:
        """Return the model that checks the run."""
        return Account(self.configuration, self.managers)

    def leaves(self, partition: str) -> tuple[str, ...]:
        """Return the queues of a partition in which pods can run."""
        del partition
        return QUEUES

    # -- events and ticks ------------------------------------------------------------------------------------------------

    def tell(self, event: Event, dice: random.Random | None = None) -> None:
        """Send an event to the core and record it in the account; `dice` decide whether the state is validated."""
        self.moments.append((self.now, event))
        decisions = self.core.take([event], self.now)
        self.said.append(decisions)
        self.account.happened(event, decisions)
        if (dice or self.dice).random() < VALIDATED:
            self.core.validate()

    def tick(self) -> None:
        """Tick until the core has nothing left to do at this instant."""
        for _ in range(TICKS_MOST):
            self.moments.append((self.now, self.budget))
            tick = self.core.tick(self.now, self.budget)
            self.said.append(tick.decisions)
            self.account.decided(tick.decisions)
            self.core.validate()
            if not tick.more:
                assert not self.yielding(), "an owner still yields though the tick is complete"
                break
        else:
            raise AssertionError(f"a tick with budget {self.budget} does not end")
        due = self.core.next_due()
        assert due is None or due > self.now, f"due {due}, now {self.now}"

    def yielding(self) -> list[str]:
        """Return the asks whose reservations wait with their nodes for asks of higher priority."""
        every = self.core.state.partitions.values()
        return [
            key for one in every for key, held in one.decisions.reservations.items() if held.yields
        ]

    # -- configuration ------------------------------------------------------------------------------------------------

    def draw_configuration(self) -> Configuration:
        """Return a random configuration that passes its checks."""
        for _ in range(CONFIGURATIONS_MOST):
            text = yaml.safe_dump({"partitions": [self._partition(one) for one in self.managers]})
            found, _problems = load(text, "attack")
            if found is not None:
                return found
        raise AssertionError(f"seed {self.seed}: no configuration is accepted")

    def _partition(self, name: str) -> dict[str, Any]:
        dice = self.dice
        settings: dict[str, Any] = {
            "enabled": dice.random() < 0.95,
            "quotapreemptionenabled": dice.random() < 0.9,
            "trigger": dice.choice(("before", "before", "after")),
            "equalpriority": dice.choice(("allow", "allow", "never", "ignore")),
            "disruptionbudgets": dice.choice(("prefer", "respect", "ignore")),
            "firmbreak": dice.random() < 0.3,
            "observeonly": dice.random() < 0.1,
            "backoff": dice.choice(("15s", "1s")),
            "expiry": dice.choice(("10m", "40s", "60s")),
            "delivery": dice.choice(("delete", "evict")),
            "policies": dice.choice(
                (
                    ["required-node", "guaranteed"],
                    ["required-node", "guaranteed"],
                    ["required-node", "guaranteed", "job"],
                    ["guaranteed"],
                    ["required-node"],
                )
            ),
        }
        if self.weights.random() < 0.5:
            settings |= self._by_weight()
        parents = {path: self._queue(path) for path in ("a", "b", "c")}
        for path in ("a", "c"):
            parents[path]["queues"] = [self._queue(f"{path}{number}") for number in (1, 2)]
        root: dict[str, Any] = {"name": "root", "submitacl": "*", "queues": list(parents.values())}
        rules = [{"name": "provided", "create": False}]
        return {"name": name, "placementrules": rules, "preemption": settings, "queues": [root]}

    def _by_weight(self) -> dict[str, Any]:
        dice = self.weights
        demand_cap = dice.random() < 0.6
        trigger = dice.choice(("before", "after")) if demand_cap else "after"
        overshoot = "last" if trigger == "after" and dice.random() < 0.4 else "none"
        proportion = {"demandcap": demand_cap, "overshoot": overshoot}
        return {"entitlement": "proportional", "trigger": trigger, "proportion": proportion}

    def _queue(self, name: str) -> dict[str, Any]:
        dice = self.dice
        scale = 2 if len(name) == 1 else 1
        properties = self._properties()
        resources: dict[str, Any] = {}
        if dice.random() < 0.6:
            resources["guaranteed"] = {kind: scale * dice.randint(0, 12) for kind in self.kinds}
        if dice.random() < 0.45:
            least = resources.get("guaranteed", {})
            resources["max"] = {
                kind: max(scale, least.get(kind, 0)) + scale * dice.randint(0, 8)
                for kind in self.kinds
                if dice.random() < 0.8
            }
        weight = self.weights.choice((1, 1, 2, 5))
        queue: dict[str, Any] = {"name": name, "weight": weight, "properties": properties}
        if resources:
            queue["resources"] = {key: _units(value) for key, value in resources.items() if value}
        if dice.random() < 0.1:
            most = _units({"memory": scale * dice.randint(4, 16)})
            queue["limits"] = [{"limit": "u", "users": ["ann"], "maxresources": most}]
        return queue

    def _properties(self) -> dict[str, str]:
        dice = self.dice
        drawn: list[tuple[float, dict[str, str]]] = [
            (1.0, {"preemption.delay": dice.choice(("1s", "5s"))}),
            (0.2, {"preemption.policy": dice.choice(("fence", "disabled"))}),
            (0.2, {"priority.offset": str(dice.randint(-2, 2))}),
            (0.1, {"priority.policy": "fence"}),
            (0.7, {"quota.preemption.delay": dice.choice(("1s", "3s"))}),
            (0.2, {"quota.preemption.overshoot": "none"}),
            (0.1, {"preemption.minruntime": "5s"}),
        ]
        found: dict[str, str] = {}
        for chance, properties in drawn:
            found |= properties if dice.random() < chance else {}
        return found

    # -- random choices -------------------------------------------------------------------------------------------

    def name(self, word: str) -> str:
        """Return an unused name, or sometimes that of an object that is gone (static pods, replaced nodes)."""
        known = {
            key
            for state in self.account.partitions.values()
            for key in (*state.pods, *state.nodes, *state.foreign, *state.applications)
        }
        gone = [name for name in self.given if name.startswith(word) and name not in known]
        if gone and self.dice.random() < REUSED:
            return self.dice.choice(gone)
        self.names += 1
        self.given.append(f"{word}{self.names}")
        return self.given[-1]

    def place(self) -> tuple[str, Partition, str]:
        """Return a partition with its name, state and manager."""
        name = self.dice.choice(list(self.managers))
        return name, self.account.partitions[name], self.managers[name]

    def pods(self, state: Partition, *, running: bool) -> list[Pod]:
        """Return the pods that run, or that wait."""
        return [pod for pod in state.pods.values() if bool(pod.node) is running]

    def dying(self, state: Partition) -> list[Pod]:
        """Return the pods that were ordered to end."""
        return [pod for pod in state.pods.values() if pod.dying is not None]

    def spec(self, state: Partition, *, job: str = "") -> AskSpec:
        """Return a random specification of a pod."""
        dice = self.dice
        nodes = list(state.nodes)
        constraints = Constraints(
            host_ports=(HostPort(80),) if dice.random() < 0.08 else (),
            required_node=dice.choice(nodes) if nodes and not job and dice.random() < 0.12 else "",
            excluded_nodes=(dice.choice(nodes),) if nodes and dice.random() < 0.1 else (),
        )
        sizes = {kind: dice.choice((1, 2, 2, 3, 5)) for kind in self.kinds}
        checked = self.answers_plan_checks and self.manager_dice.random() < 0.15
        protections = (*[Protection.NORMAL] * 8, Protection.FIRM, Protection.UNTOUCHABLE)
        return AskSpec(
            resource(sizes),
            priority=dice.choice((0, 0, 0, 1, 2, 5)),
            constraints=constraints,
            originator=not job and dice.random() < 0.1,
            allow_preempt_self=dice.random() < 0.85,
            allow_preempt_other=dice.random() < 0.95,
            protection=dice.choice(protections),
            gang_key=job,
            min_members=2 if job else 0,
            disruption_groups=(dice.choice(GROUPS),) if dice.random() < 0.2 else (),
            rm_check=dice.random() < 0.05 or checked,
            plan_checks=checked,
            timeout_ms=dice.choice((0,) * 15 + (20_000,)),
        )

    # -- events -------------------------------------------------------------------------------------------------

    def live(self) -> None:
        """Run the whole scenario: the first objects, the random events, and the quiet time after them."""
        self.found()
        actions = [action for action, _ in self._attacks()]
        weights = [weight for _, weight in self._attacks()]
        for action in self.dice.choices(actions, weights, k=self.dice.randint(20, 60)):
            action()
            if self.dice.random() < 0.6:
                self.tick()
            if self.answers_plan_checks:
                self._answer()
        self.settle()

    def found(self) -> None:
        """Add nodes, applications and the first asks."""
        for manager in dict.fromkeys(self.managers.values()):
            self.tell(ManagerRegistered(manager))
        for _ in range(self.dice.randint(2, 4) * len(self.managers)):
            self.add_node()
        for _ in range(6 * len(self.managers)):
            self.add_application()
        for _ in range(self.dice.randint(4, 12)):
            self.add_ask()
        self.tick()

    def _attacks(self) -> list[tuple[Callable[[], None], int]]:
        return [
            (self.add_ask, 20),
            (self.add_gang, 2),
            (self.wait, 25),
            (self.confirm, 14),
            (self.confirm_oddly, 3),
            (self.veto, 6),
            (self.veto_oddly, 2),
            (self.end_pod, 6),
            (self.resize_pod, 4),
            (self.change_ask, 4),
            (self.drop_ask, 4),
            (self.fail_to_bind, 2),
            (self.mark_again, 4),
            (self.dies_by_itself, 2),
            (self.add_node, 2),
            (self.resize_node, 4),
            (self.cordon, 4),
            (self.remove_node, 1),
            (self.add_foreign, 4),
            (self.add_existing, 3),
            (self.add_application, 2),
            (self.end_application, 1),
            (self.configure, 5),
            (self.allow_disruptions, 4),
            (self.restart, 2),
            (self.look, 6),
        ]

    def wait(self) -> None:
        """Move the clock, often to the next instant that the core names."""
        due = self.core.next_due()
        if due is not None and self.dice.random() < 0.4:
            self.now = due
        else:
            self.now += self.dice.choice((1, 500, 1_000, 2_000, 6_000, 20_000, 70_000))

    def add_node(self) -> None:
        """Add a node."""
        partition, _, manager = self.place()
        capacity = resource({kind: self.dice.choice((4, 6, 8, 10)) for kind in self.kinds})
        is_open = self.dice.random() < 0.9
        self.tell(NodeAdded(manager, self.name("n"), capacity, is_open, partition))

    def add_application(self) -> None:
        """Add an application in some leaf, of one of two users."""
        partition, state, manager = self.place()
        used = {queue for queue, _ in state.applications.values()}
        leaves = self.leaves(partition)
        free = [queue for queue in leaves if queue not in used] or list(leaves)
        user = self.dice.choice(("ann", "bob"))
        queue = self.dice.choice(free)
        self.tell(ApplicationAdded(manager, self.name("app"), queue, partition, user))

    def add_ask(self) -> None:
        """Add a few equal asks, as a ReplicaSet would."""
        partition, state, manager = self.place()
        if not state.applications:
            return
        application = self.dice.choice(list(state.applications))
        spec = self.spec(state)
        created = self.now - self.dice.choice((0, 0, 6_000))
        for _ in range(self.dice.randint(1, 4)):
            self.tell(AskAdded(manager, self.name("p"), application, spec, partition, created))

    def add_gang(self) -> None:
        """Add asks that are placed together."""
        partition, state, manager = self.place()
        if not state.applications:
            return
        application = self.dice.choice(list(state.applications))
        spec = self.spec(state, job=self.name("j"))
        for _ in range(self.dice.randint(2, 3)):
            self.tell(AskAdded(manager, self.name("p"), application, spec, partition, self.now))

    def confirm(self) -> None:
        """Confirm the end of victims; often a victim comes back at once under another name."""
        partition, state, manager = self.place()
        dying = self.dying(state)
        for pod in self.dice.sample(dying, min(len(dying), self.dice.choice((1, 1, 2, 9)))):
            self.tell(_release(manager, partition, pod, Termination.PREEMPTED_BY_SCHEDULER))
            if self.dice.random() < 0.4 and not pod.spec.min_members:
                key, application = self.name("p"), pod.application
                self.tell(AskAdded(manager, key, application, pod.spec, partition, self.now))

    def confirm_oddly(self) -> None:
        """Confirm the end of a pod that is not terminating, or does not exist."""
        partition, state, manager = self.place()
        key = self.dice.choice(["ghost", *state.pods])
        pod = state.pods.get(key)
        application = pod.application if pod else "ghosts"
        preempted = Termination.PREEMPTED_BY_SCHEDULER
        self.tell(ReleaseRequested(manager, application, key, partition, preempted))

    def veto(self) -> None:
        """Report a veto for one or two victims."""
        _, state, manager = self.place()
        dying = [pod for pod in self.dying(state) if pod.dying]
        for pod in self.dice.sample(dying, min(len(dying), self.dice.choice((1, 1, 2)))):
            self._veto(state, manager, pod, pod.dying or "")

    def veto_oddly(self) -> None:
        """Send a veto that is late, repeated, or about an unknown decision."""
        _, state, manager = self.place()
        ids = ["", "g-0-0", *state.open, *state.ended]
        keys = ["ghost", *state.pods]
        decision, key = self.dice.choice(ids), self.dice.choice(keys)
        pod = state.pods.get(key)
        if pod is not None:
            self._veto(state, manager, pod, decision)
        else:
            self.tell(VictimVetoed(manager, decision, key, "429"))

    def _answer(self) -> None:
        if self.manager_dice.random() < 0.8:
            self.answer_check()
        if self.manager_dice.random() < 0.02:
            self.answer_oddly()

    def answer_check(self) -> None:
        """Answer some of the open plan checks: mostly agree, or refuse one ask or all."""
        asked = [(name, one) for name in self.managers for one in self._asked(name)]
        for name, check in self.manager_dice.sample(
            asked, min(len(asked), self.manager_dice.choice((1, 2, 9)))
        ):
            fits = self.manager_dice.random() < 0.75
            key, _ = self.manager_dice.choice(check.placements)
            refused = (
                () if fits or self.manager_dice.random() < 0.3 else ((key, "it would not fit"),)
            )
            answer = PlanChecked(check.rm_id, name, check.check_id, fits, refused)
            self.tell(answer, self.manager_dice)

    def _asked(self, name: str) -> list[PlanCheckRequested]:
        return list(self.account.partitions[name].asked.values())

    def answer_oddly(self) -> None:
        """Answer a plan check that never was, has ended, or belongs to another manager."""
        partition = self.manager_dice.choice(list(self.managers))
        manager = self.managers[partition]
        known = [one.check_id for name in self.managers for one in self._asked(name)]
        other = self.manager_dice.choice([manager, "a stranger"])
        check = self.manager_dice.choice(["", "1", "99999", *(known if other != manager else ())])
        if other == manager and check in {one.check_id for one in self._asked(partition)}:
            return
        self.tell(PlanChecked(other, partition, check, fits=True), self.manager_dice)

    def _veto(self, state: Partition, manager: str, pod: Pod, decision: str) -> None:
        before = self._is_releasing(pod.key)
        self.tell(VictimVetoed(manager, decision, pod.key, "429"))
        if before and not self._is_releasing(pod.key):
            known = state.open.get(pod.dying or "")
            if known is not None:
                known.ordered.discard(pod.key)
            pod.dying = None

    def _is_releasing(self, key: str) -> bool:
        return any(
            one.key == key and one.releasing
            for name in self.managers
            for one in inspect.allocations(self.core, name)
        )

    def end_pod(self) -> None:
        """End a pod, terminating or not, without an order."""
        partition, state, manager = self.place()
        running = self.pods(state, running=True)
        if running:
            pod = self.dice.choice(running)
            self.tell(_release(manager, partition, pod, Termination.STOPPED_BY_RM))

    def resize_pod(self) -> None:
        """Resize a running pod in place, perhaps while it terminates."""
        partition, state, manager = self.place()
        running = self.dying(state) if self.dice.random() < 0.5 else self.pods(state, running=True)
        if running:
            pod = self.dice.choice(running)
            sizes = {kind: self.dice.choice((1, 2, 3, 5)) for kind in self.kinds}
            spec = replace(pod.spec, resource=resource(sizes))
            event = AllocationAdded(
                manager, pod.key, pod.application, pod.node, spec, partition, pod.created_ms
            )
            self.tell(event)

    def change_ask(self) -> None:
        """Change a waiting ask, whether or not pods are being evicted for it."""
        partition, state, manager = self.place()
        waiting = self.pods(state, running=False)
        if waiting:
            pod = self.dice.choice(waiting)
            changes: list[dict[str, Any]] = [
                {"priority": self.dice.choice((0, 1, 5))},
                {"resource": resource({kind: self.dice.choice((1, 2)) for kind in self.kinds})},
                {},
            ]
            spec = replace(pod.spec, **self.dice.choice(changes))
            self.tell(AskAdded(manager, pod.key, pod.application, spec, partition))

    def drop_ask(self) -> None:
        """Remove a waiting ask, whether or not pods are being evicted for it."""
        partition, state, manager = self.place()
        waiting = self.pods(state, running=False)
        if waiting:
            pod = self.dice.choice(waiting)
            self.tell(_release(manager, partition, pod, Termination.STOPPED_BY_RM))

    def fail_to_bind(self) -> None:
        """Report that the shim cannot bind a placed pod, which may be a victim."""
        partition, state, manager = self.place()
        running = self.pods(state, running=True)
        if running:
            pod = self.dice.choice(running)
            self.tell(_release(manager, partition, pod, Termination.SCHEDULING_FAILED_ON_RM))

    def mark_again(self) -> None:
        """Report a terminating pod once more, with the mark that the shim wrote on it."""
        partition, state, manager = self.place()
        dying = self.dying(state)
        if dying:
            pod = self.dice.choice(dying)
            self.tell(self._existing(manager, partition, state, pod))

    def dies_by_itself(self) -> None:
        """Report that another client deleted a pod; the pod still runs for its grace period."""
        partition, state, manager = self.place()
        running = [pod for pod in self.pods(state, running=True) if pod.dying is None]
        if running:
            pod = self.dice.choice(running)
            pod.dying = ""
            self.tell(self._existing(manager, partition, state, pod))

    def _existing(
        self, manager: str, partition: str, state: Partition, pod: Pod
    ) -> AllocationAdded:
        return AllocationAdded(
            manager,
            pod.key,
            pod.application,
            pod.node,
            pod.spec,
            partition,
            pod.created_ms,
            pod.started_ms,
            self.mark(state, pod),
        )

    def mark(self, state: Partition, pod: Pod) -> ReleaseMark | None:
        """Return the mark that the shim finds on a pod after a restart (C8)."""
        if pod.dying is None:
            return None
        return ReleaseMark(3, pod.dying, *self._beneficiary(state, pod.dying))

    def _beneficiary(self, state: Partition, decision: str) -> tuple[str, str]:
        record = known_decisions.decision(self.core, decision) if decision else None
        known = state.open.get(decision)
        record = known.record if known is not None else record
        if record is None or not record.beneficiaries:
            return "", ""
        return record.beneficiaries[0].key, record.beneficiaries[0].node_id

    def resize_node(self) -> None:
        """Change a node's capacity."""
        partition, state, manager = self.place()
        if state.nodes:
            node = self.dice.choice(list(state.nodes))
            capacity = resource({kind: self.dice.choice((3, 6, 8, 10)) for kind in self.kinds})
            self.tell(NodeUpdated(manager, node, capacity, partition))

    def cordon(self) -> None:
        """Cordon a node, or uncordon it."""
        partition, state, manager = self.place()
        if state.nodes:
            node = self.dice.choice(list(state.nodes))
            event = NodeDrained if state.nodes[node].open else NodeEnabled
            self.tell(event(manager, node, partition))

    def remove_node(self) -> None:
        """Remove a node."""
        partition, state, manager = self.place()
        if len(state.nodes) > 1:
            self.tell(NodeRemoved(manager, self.dice.choice(list(state.nodes)), partition))

    def add_foreign(self) -> None:
        """Add, resize or remove a pod of another scheduler."""
        partition, state, manager = self.place()
        if state.foreign and self.dice.random() < 0.5:
            key = self.dice.choice(list(state.foreign))
            self.tell(ReleaseRequested(manager, "", key, partition))
        elif state.nodes:
            key = self.dice.choice([self.name("f"), *list(state.foreign)[:1]])
            size = resource({kind: self.dice.randint(1, 4) for kind in self.kinds})
            node = self.dice.choice(list(state.nodes))
            self.tell(ForeignAdded(manager, key, node, size, partition))

    def add_existing(self) -> None:
        """Report a pod that runs already; the core may still have the pod as a waiting ask."""
        partition, state, manager = self.place()
        waiting = self.pods(state, running=False)
        if not state.nodes or not state.applications:
            return
        node = self.dice.choice(list(state.nodes))
        if waiting and self.dice.random() < 0.5:
            pod = self.dice.choice(waiting)
            if pod.required in {"", node}:
                self.tell(
                    AllocationAdded(
                        manager, pod.key, pod.application, node, pod.spec, partition, pod.created_ms
                    )
                )
            return
        spec = replace(self.spec(state), constraints=Constraints())
        application = self.dice.choice(list(state.applications))
        key = self.name("p")
        self.tell(AllocationAdded(manager, key, application, node, spec, partition, self.now))

    def end_application(self) -> None:
        """End an application with all its pods."""
        partition, state, manager = self.place()
        if len(state.applications) > 2:
            application = self.dice.choice(list(state.applications))
            self.tell(ApplicationRemoved(manager, application, partition))

    def configure(self) -> None:
        """Apply another configuration, often while a decision is open."""
        self.configuration = self.draw_configuration()
        self.tell(ConfigurationApplied(self.configuration, "attack"))

    def allow_disruptions(self) -> None:
        """Change what disruption budgets allow."""
        _, _, manager = self.place()
        allowed = self.dice.choice((0, 0, 1, 2, None))
        self.tell(DisruptionsAllowed(manager, self.dice.choice(GROUPS), allowed))

    def restart(self) -> None:
        """Register a manager once more; it reports everything that it knows, in the order of a sync."""
        manager = self.dice.choice(list(self.managers.values()))
        self.again(manager)

    def again(self, manager: str) -> None:
        """Register the manager once more and report everything."""
        names = [name for name, one in self.managers.items() if one == manager]
        before = {name: self.account.partitions[name] for name in names}
        told = {name: self._told(manager, name, before[name]) for name in names}
        explicit = self.dice.random() < 0.8
        self.tell(ManagerRegistered(manager, explicit_sync=explicit, forget=True))
        self.account.synced[manager] = not explicit
        for name in names:
            for event in told[name]:
                self.tell(event)
                if explicit and self.dice.random() < 0.1:
                    self.tick()
        if explicit:
            self.tell(SyncCompleted(manager))
            self.account.synced[manager] = True
        waits = {
            self._beneficiary(state, pod.dying)[0]
            for name in names
            for state in [self.account.partitions[name]]
            for pod in self.dying(state)
            if pod.dying
        }
        before_tick = len(self.said)
        self.tick()
        if explicit:
            self._nobody_more(waits, before_tick)

    def _nobody_more(self, waits: set[str], since: int) -> None:
        """Assert that after a restart no other pod is evicted for an ask that still waits for a victim (invariant 19).

        An ask whose node has meanwhile become too small is planned again (G10).
        """
        for decisions in self.said[since:]:
            for one in decisions:
                if isinstance(one, Noted) and one.code is Code.DECISION_ABORTED:
                    waits.discard(one.subject)
                beneficiary = getattr(one, "beneficiary", "")
                assert not beneficiary or beneficiary not in waits, f"{one} right after a restart"

    def _told(self, manager: str, name: str, state: Partition) -> list[Event]:
        events: list[Event] = []
        for node, known in state.nodes.items():
            capacity = tuple(known.capacity.items())
            events.append(NodeAdded(manager, node, capacity, schedulable=False, partition=name))
        for application, (queue, user) in state.applications.items():
            events.append(ApplicationAdded(manager, application, queue, name, user))
        for key, (node, size) in state.foreign.items():
            events.append(ForeignAdded(manager, key, node, tuple(size.items()), name))
        for pod in sorted(state.pods.values(), key=lambda one: (not one.node, one.created_ms)):
            if pod.node:
                events.append(self._existing(manager, name, state, pod))
            else:
                created = pod.created_ms
                ask = AskAdded(manager, pod.key, pod.application, pod.spec, name, created)
                events.append(ask)
        for node, known in state.nodes.items():
            if known.opened:
                event = NodeEnabled if known.open else NodeDrained
                events.append(event(manager, node, name))
        return events

    def look(self) -> None:
        """Assert that queries change nothing."""
        before = self.core.digest()
        name, state, _ = self.place()
        keys = list(state.pods)
        for key in self.dice.sample(keys, min(len(keys), 3)):
            explain.explain(self.core, key, self.now)
            verdicts.verdict(self.core, key, self.now)
        spec = self.spec(state)
        asks = [SimulatedAsk(self.dice.choice(self.leaves(name)), "nobody", spec)] * 2
        list(prepared(self.core, name, asks, self.now).answers())
        forecast(self.core, self.first, self.now)
        known_decisions.decisions(self.core)
        doctor(self.core, self.now)
        inspect.queue_tree(self.core, name)
        assert self.core.digest() == before, "looking changed something"

    # -- the end ------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Confirm all evictions and let time pass; assert that every decision ends and that no waiting ask fits."""
        due = None
        for _ in range(ROUNDS_MOST):
            for name, state in self.account.partitions.items():
                for pod in self.dying(state):
                    gone = Termination.PREEMPTED_BY_SCHEDULER
                    self.tell(_release(self.managers[name], name, pod, gone))
            self.tick()
            if any(self.dying(state) for state in self.account.partitions.values()):
                continue
            due = self.core.next_due()
            if due is None:
                break
            self.now = due
        is_open = [key for state in self.account.partitions.values() for key in state.open]
        assert not is_open or due is not None, f"{is_open} never end"
        self.nobody_starves()

    def nobody_starves(self) -> None:
        """Assert that no waiting ask fits on a node that is not reserved for another ask."""
        for name, state in self.account.partitions.items():
            held = {one.node_id for one in inspect.nodes(self.core, name) if one.reserved_for}
            for pod in self.pods(state, running=False) if not held else ():
                nodes = self._nodes_for(state, pod)
                assert not nodes or not self._has_headroom(name, pod), f"{pod.key}, {nodes}"

    def _nodes_for(self, state: Partition, pod: Pod) -> list[str]:
        constraints = pod.spec.constraints
        if pod.spec.min_members or constraints.host_ports:
            return []
        found = []
        for name, node in state.nodes.items():
            used = state.used(name)
            wanted = (pod.required == name and node.opened) or (
                not pod.required and node.open and name not in constraints.excluded_nodes
            )
            fits = all(
                used[kind] + size <= node.capacity.get(kind, 0) for kind, size in pod.spec.resource
            )
            if wanted and fits and name not in constraints.excluded_nodes:
                found.append(name)
        return found

    def _has_headroom(self, name: str, pod: Pod) -> bool:
        state = self.account.partitions[name]
        for path, spec in self.account.queues(name).items():
            if not state.is_below(pod, path):
                continue
            if spec.limits:
                return False
            usage = state.usage(path, dying=True)
            for kind, size in pod.spec.resource:
                if usage[kind] + size > self.account.bound(name, path, spec, kind):
                    return False
        return True

    def assert_same_again(self) -> None:
        """Assert that a second core makes equal decisions for the same trace, also when the events are sent one by one."""
        core = Core(self.first)
        for (now, what), said in zip(self.moments, self.said, strict=True):
            again = (
                core.tick(now, what).decisions if isinstance(what, int) else core.handle(what, now)
            )
            assert again == said, f"{what} at {now}: {again}, before {said}"


def _release(manager: str, partition: str, pod: Pod, termination: Termination) -> ReleaseRequested:
    return ReleaseRequested(manager, pod.application, pod.key, partition, termination)


def _units(amounts: dict[str, int]) -> dict[str, Any]:
    """Return amounts in the units of a configuration file: vcore in thousandths."""
    return {kind: f"{amount}m" if kind == "vcore" else amount for kind, amount in amounts.items()}
