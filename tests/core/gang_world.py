"""A random cluster with gangs and the pods that run on it: a plain model of usage to compare with the core's state.

Pods run from their placement until their end is confirmed. Whatever the core orders, no node exceeds its capacity,
no queue exceeds its max, and the usage that the core reports is the sum of the running pods (design 5).
"""

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from server.config import load
from server.core.core import Core
from server.core.queries import inspect
from server.model.asks import AskSpec, Constraints, ReleaseMark
from server.model.decisions import AskRejected, AskReleased, Decision, Placed, Released, Termination
from server.model.events import (
    AllocationAdded,
    ApplicationAdded,
    AskAdded,
    Event,
    ManagerRegistered,
    NodeAdded,
    NodeDrained,
    NodeEnabled,
    NodeRemoved,
    ReleaseRequested,
    SyncCompleted,
    VictimVetoed,
)

START = 1_800_000_000_000
MOST = 60
QUEUES = f"""
partitions:
  - name: default
    preemption: {{expiry: 60s, backoff: 1s}}
    queues:
      - name: root
        submitacl: "*"
        queues:
          - {{name: a, resources: {{max: {{memory: {MOST}}}}}}}
          - {{name: b, resources: {{guaranteed: {{memory: 20}}}}, properties: {{preemption.delay: 1s}}}}
"""
TIMEOUT_MS = 30_000
HELD = {"placeholder-awaited", "placeholders-gathering", "placeholder-going"}


@dataclass
class Pod:
    """A pod in the state that its cluster knows."""

    key: str
    application: str
    spec: AskSpec
    created_ms: int
    node: str = ""
    mark: Released | None = None
    """The order by which the pod is evicted."""

    @property
    def size(self) -> int:
        return dict(self.spec.resource)["memory"]


@dataclass
class World:
    """A core, and a cluster that carries out its orders sooner or later."""

    chance: random.Random
    core: Core = field(default_factory=lambda: Core(_configuration()))
    now: int = START
    pods: dict[str, Pod] = field(default_factory=dict)
    nodes: dict[str, int] = field(default_factory=dict)
    cordoned: set[str] = field(default_factory=set)
    applications: dict[str, ApplicationAdded] = field(default_factory=dict)
    serial: int = 0
    replaced: Counter[str] = field(default_factory=Counter)
    """For each real pod, how often it replaced a placeholder."""

    # What happens -----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Add nodes, and a manager for them."""
        self.say(ManagerRegistered("rm"))
        for number in range(self.chance.randint(1, 4)):
            self.add_node(f"n{number}")

    def add_node(self, name: str) -> None:
        self.nodes[name] = self.chance.choice((10, 20, 30))
        self.say(NodeAdded("rm", name, (("memory", self.nodes[name]),), labels=_zone(name)))

    def step(self) -> None:
        """Do one random step, often followed by a tick of the core."""
        deeds = (
            (self.gang, 4),
            (self.real, 8),
            (self.change, 2),
            (self.confirm, 12),
            (self.end, 3),
            (self.veto, 1),
            (self.cordon, 1),
            (self.lose_node, 1),
            (self.wait, 6),
            (self.restart, 1),
        )
        self.chance.choices([deed for deed, _ in deeds], [weight for _, weight in deeds])[0]()
        if self.chance.random() < 0.8:
            self.tick()
        self.check()

    def gang(self) -> None:
        """Add an application with placeholders of one or two task groups, together or one by one."""
        self.serial += 1
        name = f"app{self.serial}"
        groups = [
            (group, self.chance.choice((4, 6, 10)), self.chance.randint(1, 3))
            for group in ("g", "h")[: self.chance.randint(1, 2)]
        ]
        total = sum(size * count for _, size, count in groups)
        declared = (("memory", total),) if self.chance.random() < 0.8 else ()
        style = self.chance.choice(("Soft", "Hard", ""))
        queue = self.chance.choice(("root.a", "root.b"))
        event = ApplicationAdded("rm", name, queue, execution_timeout_ms=TIMEOUT_MS)
        self.applications[name] = event._replace(gang_style=style, placeholder_ask=declared)
        self.say(self.applications[name])
        together = self.chance.random() < 0.5
        members = sum(count for _, _, count in groups)
        for group, size, count in groups:
            for _ in range(count):
                job: Any = {"gang_key": "j", "min_members": members} if together else {}
                self.ask(name, size, group, placeholder=True, **job)

    def real(self) -> None:
        """Add a real pod: mostly of a task group, and mostly as large as its placeholders."""
        if not self.applications:
            return
        name = self.chance.choice(list(self.applications))
        group = self.chance.choice(("g", "g", "h", "", "x"))
        zone = self.chance.choice((None, None, None, "even", "odd"))
        limits = Constraints(node_selector=(("zone", zone),)) if zone else Constraints()
        size = self.chance.choice((4, 4, 6, 6, 10, 12))
        self.ask(name, size, group, constraints=limits, priority=self.chance.choice((0, 0, 5)))

    def ask(self, application: str, size: int, group: str, **more: Any) -> None:
        self.serial += 1
        key = f"{'p' if more.get('placeholder') else 'r'}{self.serial}"
        spec = AskSpec((("memory", size),), task_group=group, **more)
        self.pods[key] = Pod(key, application, spec, self.now)
        self.say(AskAdded("rm", key, application, spec, created_ms=self.now))

    def change(self) -> None:
        """Change which nodes suit a waiting pod, or change the pod's size."""
        waiting = [pod for pod in self.pods.values() if not pod.node and not pod.spec.placeholder]
        if not waiting:
            return
        pod = self.chance.choice(waiting)
        name = self.chance.choice(list(self.nodes))
        limits = Constraints(excluded_nodes=(name,))
        size = pod.size if self.chance.random() < 0.7 else self.chance.choice((4, 6))
        pod.spec = replace(pod.spec, constraints=limits, resource=(("memory", size),))
        self.say(AskAdded("rm", pod.key, pod.application, pod.spec, created_ms=pod.created_ms))

    def confirm(self) -> None:
        """Report that a pod that was ordered to end is gone."""
        going = [pod for pod in self.pods.values() if pod.mark is not None]
        if going:
            pod = self.chance.choice(going)
            assert pod.mark is not None
            self.gone(pod, pod.mark.termination)

    def end(self) -> None:
        """End a pod in any state, without an order."""
        if self.pods:
            self.gone(self.chance.choice(list(self.pods.values())), Termination.STOPPED_BY_RM)

    def gone(self, pod: Pod, why: Termination) -> None:
        del self.pods[pod.key]
        self.say(ReleaseRequested("rm", pod.application, pod.key, termination=why))

    def veto(self) -> None:
        """Report that a pod that was ordered to end could not be deleted."""
        going = [pod for pod in self.pods.values() if pod.mark is not None and pod.mark.decision_id]
        if going:
            pod = self.chance.choice(going)
            assert pod.mark is not None
            decision_id, pod.mark = pod.mark.decision_id, None
            self.say(VictimVetoed("rm", decision_id, pod.key, "no"))

    def cordon(self) -> None:
        name = self.chance.choice(list(self.nodes))
        if name in self.cordoned:
            self.cordoned.discard(name)
            self.say(NodeEnabled("rm", name))
        else:
            self.cordoned.add(name)
            self.say(NodeDrained("rm", name))

    def lose_node(self) -> None:
        """Remove a node with its pods, and add another one."""
        name = self.chance.choice(list(self.nodes))
        del self.nodes[name]
        self.cordoned.discard(name)
        for pod in [pod for pod in self.pods.values() if pod.node == name]:
            del self.pods[pod.key]
        self.say(NodeRemoved("rm", name))
        self.serial += 1
        self.add_node(f"n{100 + self.serial}")

    def wait(self) -> None:
        self.now += self.chance.choice((1, 100, 2_000, 20_000))

    def restart(self) -> None:
        """Restart the core; the shim then reports everything that exists."""
        self.core = Core(_configuration())
        self.replaced.clear()
        self.say(ManagerRegistered("rm", explicit_sync=True))
        for name, size in self.nodes.items():
            self.say(
                NodeAdded("rm", name, (("memory", size),), schedulable=False, labels=_zone(name))
            )
        for name, event in self.applications.items():
            self.say(self._again(name, event))
        pods = sorted(self.pods.values(), key=lambda pod: (pod.created_ms, pod.key))
        for pod in [pod for pod in pods if pod.node]:
            self.say(self._existing(pod))
        for pod in [pod for pod in pods if not pod.node]:
            self.say(AskAdded("rm", pod.key, pod.application, pod.spec, created_ms=pod.created_ms))
        for name in self.nodes.keys() - self.cordoned:
            self.say(NodeEnabled("rm", name))
        self.say(SyncCompleted("rm"))

    def _again(self, name: str, event: ApplicationAdded) -> ApplicationAdded:
        """Return the event as a shim repeats it: with the remaining placeholders, without any when a real pod runs."""
        own = [pod for pod in self.pods.values() if pod.application == name]
        begun = any(pod.node and not pod.spec.placeholder for pod in own)
        left = sum(pod.size for pod in own if pod.spec.placeholder and pod.mark is None)
        declared = (("memory", left),) if left and event.placeholder_ask and not begun else ()
        return event._replace(placeholder_ask=declared, tags={"application.create.force": "true"})

    def _existing(self, pod: Pod) -> AllocationAdded:
        mark = None
        if pod.mark is not None:
            node = pod.mark.nodes[0] if pod.mark.nodes else ""
            order = pod.mark
            mark = ReleaseMark(order.termination, order.decision_id, order.beneficiary, node)
        facts = (pod.key, pod.application, pod.node, pod.spec)
        return AllocationAdded("rm", *facts, created_ms=pod.created_ms, releasing=mark)

    # What the core says -----------------------------------------------------------------------------------------------

    def say(self, event: Event) -> None:
        self._hear(self.core.handle(event, self.now))

    def tick(self) -> None:
        more = True
        while more:
            tick = self.core.tick(self.now)
            self._hear(tick.decisions)
            more = tick.more

    def _hear(self, decisions: list[Decision]) -> None:
        for one in decisions:
            match one:
                case Placed():
                    self._placed(one)
                case Released():
                    self._released(one)
                case AskReleased() | AskRejected():
                    self.pods.pop(one.key, None)

    def _placed(self, one: Placed) -> None:
        pod = self.pods[one.key]
        assert not pod.node, f"{pod.key} is placed twice"
        assert one.node_id not in self.cordoned, f"{pod.key} is placed on a cordoned node"
        pod.node = one.node_id

    def _released(self, one: Released) -> None:
        pod = self.pods.get(one.key)
        if pod is None:
            return
        if one.termination is Termination.STOPPED_BY_RM:
            del self.pods[one.key]
            return
        if one.termination is Termination.PLACEHOLDER_REPLACED:
            self._gives_way(pod, one)
        pod.mark = one

    def _gives_way(self, pod: Pod, one: Released) -> None:
        real = self.pods[one.beneficiary]
        assert pod.spec.placeholder
        assert not real.spec.placeholder
        assert pod.mark is None or pod.mark.decision_id == one.decision_id, "two want its place"
        assert (pod.application, pod.spec.task_group) == (real.application, real.spec.task_group)
        assert not real.node, "it has a place"
        assert real.size <= pod.size, "it is larger than its placeholder"
        self.replaced[real.key] += 1

    # What must hold ---------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Assert that the state is consistent and agrees with what runs."""
        self.core.validate()
        on_node: Counter[str] = Counter()
        in_queue: Counter[str] = Counter()
        for pod in self.pods.values():
            if pod.node:
                on_node[pod.node] += pod.size
                in_queue[self.applications[pod.application].queue] += pod.size
        for name, size in self.nodes.items():
            assert on_node[name] <= size, f"node {name} holds {on_node[name]} of {size}"
        assert in_queue["root.a"] <= MOST
        for queue in inspect.queue_tree(self.core, "default").children:
            used = queue.usage.get("memory", 0)
            assert used == in_queue[queue.path], f"{queue.path}: {used}, not {in_queue[queue.path]}"

    def settle(self) -> None:
        """Let all pods end that were ordered to end, and let all time-outs pass; then assert that no pod waits for a placeholder."""
        for _ in range(4):
            self.now += 2 * TIMEOUT_MS
            for _ in range(len(self.pods) + 1):
                self.tick()
                self.confirm()
            self.check()
        waiting = inspect.allocations(self.core, "default", asks=True)
        held = {one.key: one.code for one in waiting if not one.node_id and one.code in HELD}
        assert held == {}, "they wait for ever (YUNIKORN-1395)"


def _configuration() -> Any:
    configuration, problems = load(QUEUES, "test")
    assert configuration is not None, problems
    return configuration


def _zone(name: str) -> tuple[tuple[str, str], ...]:
    return (("zone", "odd" if int(name[1:]) % 2 else "even"),)
