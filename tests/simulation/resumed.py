"""Two cores with one past: at one the shim registers again and reports everything, the other gets the same changes as events.

The changes happened while the shim was away. Afterwards both cores have to be equal in everything that later decisions depend on,
and to decide equally (C9). What the shim did not receive before is sent again (C10).
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from server.core.core import Core
from server.model.asks import AskSpec, Constraints, values
from server.model.decisions import AskStateChanged, Decision, Placed, Released, Termination
from server.model.events import (
    AllocationAdded,
    ApplicationAdded,
    AskAdded,
    DisruptionsAllowed,
    Event,
    ForeignAdded,
    ManagerRegistered,
    NodeAdded,
    NodeDrained,
    NodeEnabled,
    NodeRemoved,
    NodeUpdated,
    ReleaseRequested,
    SyncCompleted,
)
from server.model.resources import Resource
from server.state.applications import Ask
from server.state.copying import Captured
from server.state.digest import records
from tests.preemption.claim_clusters import tick
from tests.simulation.restarts import CORES, GONE, LEAVES, NODES, Life, Pod

DECISION: Final = re.compile(r"\b[a-z]-[0-9a-f]+-\d+\b|\br\d+\b")
WAITS_MS: Final = (0, 100, 1_500, 4_000, 5_000, 30_000, 600_000, 700_000)


class Past(Life):
    """A life that is cut off at some instant, with foreign pods and nodes of several sizes."""

    def __init__(self, seed: int) -> None:
        self.sizes = {f"n{number}": CORES for number in range(NODES)}
        self.foreign: dict[str, tuple[str, int]] = {}
        super().__init__(seed)
        self.allowed = 1

    def live(self, steps: int) -> None:
        """Run this number of instants without a restart."""
        deeds = (
            self._claim,
            self._claim,
            self._fill,
            self._daemon,
            self._end,
            self._delete,
            self._lower,
            self._cordon,
            self._stranger,
        )
        for _ in range(steps):
            self.now += self.dice.choice((1, 400, 1_000, 2_500, 7_000))
            self._answer()
            self.dice.choice(deeds)()
            self.tick()

    def restart(self) -> None:
        """Do nothing, because the test itself restarts the shim."""

    def _stranger(self) -> None:
        """Add a pod of another scheduler."""
        name = self.dice.choice(sorted(self.sizes))
        key = f"alien-{len(self.foreign)}"
        self.foreign[key] = (name, self.dice.randint(1, 2))
        self.handle(self.alien(key))

    def _placed(self, placed: Placed) -> None:
        self.pods[placed.key].node = placed.node_id

    # -- what the shim reports ---------------------------------------------------------------------------------------

    def alien(self, key: str) -> Event:
        """Return the report of a foreign pod."""
        node, cores = self.foreign[key]
        return ForeignAdded("rm", key, node, _cores(cores))

    def node(self, name: str) -> Event:
        """Return the report of a node in a sync."""
        return NodeAdded("rm", name, _cores(self.sizes[name]), schedulable=False)

    def standing(self, name: str) -> Event:
        """Return the report that a node takes placements, or does not."""
        return (NodeDrained if name in self.cordoned else NodeEnabled)("rm", name)

    def pod(self, pod: Pod) -> Event:
        """Return the report of a pod."""
        return self._running(pod) if pod.node else self._waiting(pod)

    def _running(self, pod: Pod) -> Event:
        return AllocationAdded(
            "rm",
            pod.key,
            pod.leaf,
            pod.node,
            _alike(pod.spec),
            created_ms=pod.created,
            releasing=pod.mark,
        )

    def _waiting(self, pod: Pod) -> Event:
        return AskAdded("rm", pod.key, pod.leaf, _alike(pod.spec), created_ms=pod.created)


def _alike(spec: AskSpec) -> AskSpec:
    """Return an equal spec that is another object, as the codec of a new process makes it."""
    return replace(spec)


def _with_known_spec(
    event: AskAdded | AllocationAdded, known: Mapping[str, Ask]
) -> AskAdded | AllocationAdded:
    """Return a report with the spec that its pod has, if the values are equal, as the codec of one process makes it."""
    ask = known.get(event.key)
    same = ask is not None and values(ask.spec) == values(event.spec)
    return event._replace(spec=ask.spec) if ask is not None and same else event


def _cores(cores: int) -> Resource:
    return (("vcore", cores * 1_000),)


class Absence:
    """The changes while the shim was away, as the state of the cluster and as ordinary events."""

    def __init__(self, past: Past) -> None:
        self.past = past
        self.dice = past.dice
        self.ended: set[str] = set()
        self.aliens_gone: list[str] = []
        self.nodes_gone: list[str] = []
        self.nodes: list[Event] = []
        self.shrunk: list[str] = []
        self.changed: set[str] = set()
        self.grown: set[str] = set()
        self.aliens: list[str] = []
        self.standings: list[str] = []
        self.allowed: int | None = past.allowed
        self.seen: Counter[str] = Counter()

    def happen(self, many: int) -> None:
        """Change the cluster this number of times."""
        deeds = (
            self._end,
            self._end,
            self._arrive,
            self._run,
            self._resize,
            self._delete,
            self._cordon,
            self._lose_node,
            self._new_node,
            self._other_size,
            self._alien,
            self._no_alien,
            self._budget,
        )
        for _ in range(many):
            deed = self.dice.choice(deeds)
            deed()
            self.seen[deed.__name__] += 1

    def _end(self) -> None:
        past = self.past
        pod = self.dice.choice(sorted(past.pods.values(), key=lambda one: one.key))
        if sum(one.leaf == pod.leaf for one in past.pods.values()) > 1 and not self._is_new(pod):
            self.ended.add(pod.key)
            del past.pods[pod.key]

    def _is_new(self, pod: Pod) -> bool:
        return pod.key in self.changed

    def _pod(self, node: str = "") -> None:
        past = self.past
        past.numbers += 1
        spec = AskSpec(_cores(self.dice.randint(1, 3)), self.dice.choice((0, 0, 5)), Constraints())
        leaf = self.dice.choice(sorted(LEAVES))
        pod = Pod(
            f"pod-{past.numbers}", leaf, spec, past.now - self.dice.choice((0, 3_000)), node=node
        )
        past.pods[pod.key] = pod
        self.changed.add(pod.key)

    def _arrive(self) -> None:
        self._pod()

    def _run(self) -> None:
        self._pod(self.dice.choice(sorted(self.past.sizes)))

    def _resize(self) -> None:
        pod = self.dice.choice(sorted(self.past.pods.values(), key=lambda one: one.key))
        if pod.key in self.changed:
            return
        cores = self.dice.randint(1, 3)
        self.grown |= {pod.key} if cores > pod.cores else set()
        pod.spec = replace(pod.spec, resource=_cores(cores))
        self.changed.add(pod.key)

    def _delete(self) -> None:
        running = [one for one in self.past.pods.values() if one.node and one.mark is None]
        if running:
            pod = self.dice.choice(running)
            pod.dying = True
            self.changed.add(pod.key)

    def _cordon(self) -> None:
        name = self.dice.choice(sorted(self.past.sizes))
        if name not in self.standings:
            self.past.cordoned ^= {name}
            self.standings.append(name)

    def _lose_node(self) -> None:
        past = self.past
        known = [name for name in sorted(past.sizes) if name not in self.standings]
        if len(past.sizes) < 3 or self.nodes or not known:
            return
        name = self.dice.choice(known)
        there = [one for one in past.pods.values() if one.node == name]
        left = Counter(one.leaf for one in past.pods.values() if one.node != name)
        if self.changed & {one.key for one in there} or any(not left[leaf] for leaf in LEAVES):
            return
        if any(one.spec.constraints.required_node == name for one in past.pods.values()):
            return
        del past.sizes[name]
        past.cordoned.discard(name)
        self.nodes_gone.append(name)
        for pod in there:
            del past.pods[pod.key]
        for key in [key for key, (node, _) in past.foreign.items() if node == name]:
            del past.foreign[key]

    def _new_node(self) -> None:
        past = self.past
        name = f"m{len(past.sizes)}-{len(self.nodes)}"
        past.sizes[name] = self.dice.randint(5, 12)
        self.nodes += [past.node(name), NodeEnabled("rm", name)]

    def _other_size(self) -> None:
        name = self.dice.choice(sorted(self.past.sizes))
        self.past.sizes[name] = cores = self.dice.randint(6, 12)
        self.nodes.append(NodeUpdated("rm", name, _cores(cores), labels=(), taints=()))

    def _alien(self) -> None:
        past = self.past
        key = f"late-{len(self.aliens)}"
        past.foreign[key] = (self.dice.choice(sorted(past.sizes)), self.dice.randint(1, 3))
        self.aliens.append(key)

    def _no_alien(self) -> None:
        known = sorted(set(self.past.foreign) - set(self.aliens))
        if known:
            key = self.dice.choice(known)
            del self.past.foreign[key]
            self.aliens_gone.append(key)

    def _budget(self) -> None:
        self.allowed = self.dice.choice((None, 0, 5))

    # -- the two ways in which a core learns it --------------------------------------------------------------------------

    def reports(self) -> list[Event]:
        """Return everything that exists in the order of a sync: nodes and applications, then pods in any order, then standings."""
        past = self.past
        nodes = [past.node(name) for name in past.sizes]
        pods = [past.pod(one) for one in past.pods.values()] + list(map(past.alien, past.foreign))
        applications = [ApplicationAdded("rm", leaf, path) for leaf, path in LEAVES.items()]
        standings = list(map(past.standing, past.sizes))
        self.dice.shuffle(pods)
        self.dice.shuffle(applications)
        self.dice.shuffle(standings)
        budget = (
            [] if self.allowed is None else [DisruptionsAllowed("rm", "ns/budget", self.allowed)]
        )
        return [*budget, *nodes, *applications, *pods, *standings]

    def sync(self, reports: list[Event]) -> Iterator[Event]:
        """Yield a registration, the reports and the end of the sync."""
        past = self.past
        running = sum(bool(one.node) for one in past.pods.values()) + len(past.foreign)
        waiting = sum(not one.node for one in past.pods.values())
        yield ManagerRegistered("rm", explicit_sync=True)
        yield from reports
        yield SyncCompleted("rm", len(past.sizes), len(LEAVES), running, waiting)

    def as_it_was(self, core: Core, reports: list[Event]) -> Iterator[Event]:
        """Yield the changes as ordinary events: first what ended, then what shrank, then the rest in the order of the reports."""
        known = core.state.partitions["default"].asks
        for key, ask in known.items():
            if key in self.ended:
                why = GONE if ask.releasing else Termination.STOPPED_BY_RM
                yield ReleaseRequested("rm", ask.application.application_id, key, termination=why)
        for key in self.aliens_gone:
            yield ReleaseRequested("rm", "", key)
        for name in self.nodes_gone:
            yield NodeRemoved("rm", name)
        yield DisruptionsAllowed("rm", "ns/budget", self.allowed)
        yield from self.nodes
        pods = [
            _with_known_spec(one, known)
            for one in reports
            if isinstance(one, AskAdded | AllocationAdded)
        ]
        told = [one for one in pods if one.key in self.changed]
        yield from [one for one in told if one.key not in self.grown and one.key in known]
        yield from [one for one in told if one.key in self.grown or one.key not in known]
        yield from map(self.past.alien, [one for one in self.aliens if one in self.past.foreign])
        for name in self.standings:
            yield self.past.standing(name)


class Pair:
    """A core at which the shim registered again, and its twin, at which it did not."""

    def __init__(self, seed: int) -> None:
        self.past = Past(seed)
        dice = self.past.dice
        self.past.live(dice.randint(4, 25))
        self.unheard: list[Placed | Released] = []
        if dice.random() < 0.5:
            self._lose()
        self.core = self.past.core
        self.twin = Captured(self.core).rebuild()
        self.absence = Absence(self.past)
        self.seen = self.absence.seen

    def _lose(self) -> None:
        """Let the decisions of one tick get lost."""
        past = self.past
        past.now += 2_000
        past._claim()
        found = tick(past.core, past.now, 400)
        self.unheard = [one for one in found if isinstance(one, Placed | Released)]

    def both(self) -> None:
        """Register again at one core, tell the other what happened, and compare them, now and later."""
        past, absence = self.past, self.absence
        absence.happen(past.dice.choice((0, 1, 3, 8)))
        reports = absence.reports()
        past.now += past.dice.choice((0, 1, 900))
        for event in list(absence.as_it_was(self.twin, reports)):
            self.twin.take([event], past.now)
        said: list[Decision] = []
        for event in absence.sync(reports):
            if isinstance(event, SyncCompleted):
                self._check_waits(said)
                said.clear()
            said += self.core.take([event], past.now)
            if past.dice.random() < 0.1 and not isinstance(event, SyncCompleted):
                said += self.core.tick(past.now, 400).decisions
        self._check_sent_again(said)
        self._go_on()

    def _check_waits(self, said: list[Decision]) -> None:
        wrong = [one for one in said if isinstance(one, Placed) or _is_order(one)]
        assert not wrong, f"decided in a sync: {wrong}"

    def _check_sent_again(self, said: list[Decision]) -> None:
        """Assert that exactly the lost placements and orders are sent again, as far as their pods exist still."""
        there = self.past.pods
        lost = {
            one.key: type(one)
            for one in self.unheard
            if one.key in there and not there[one.key].dying and self._has_node(one)
        }
        sent = [one for one in said if isinstance(one, Placed | Released)]
        again = {one.key: type(one) for one in sent if isinstance(one, Placed) or _is_order(one)}
        assert again == lost, f"sent again: {again}, lost: {lost}"
        self.seen["sent again"] += len(again)

    def _has_node(self, one: Placed | Released) -> bool:
        """Return whether the node of a placement is still there; a pod on another node has ended."""
        return not isinstance(one, Placed) or one.node_id in self.past.sizes

    def _go_on(self) -> None:
        """Let both decide at the same instants, with the same answers, and compare decisions and states."""
        now, leaving = self.past.now, dict[str, Released]()
        compare(self.core, self.twin)
        for wait in WAITS_MS:
            now += wait
            for one in leaving.values():
                gone = ReleaseRequested("rm", one.application_id, one.key, termination=GONE)
                for core in (self.core, self.twin):
                    core.take([gone], now)
            leaving.clear()
            mine, theirs = (tick(one, now, 400) for one in (self.core, self.twin))
            assert normal(mine) == normal(theirs), f"after {wait} ms"
            compare(self.core, self.twin)
            orders = [one for one in mine if isinstance(one, Released)]
            leaving = {one.key: one for one in orders if _is_order(one)}
            self.seen["decided"] += len(normal(mine))


def _is_order(one: Decision) -> bool:
    return isinstance(one, Released) and one.termination is GONE


def normal(decisions: list[Decision]) -> list[str]:
    """Return decisions without the reasons for waiting, and with the ids of decisions numbered as they occur."""
    names: dict[str, str] = {}

    def named(found: re.Match[str]) -> str:
        return names.setdefault(found[0], f"decision {len(names)}")

    told = [one for one in decisions if not isinstance(one, AskStateChanged)]
    return [DECISION.sub(named, repr(one._replace(rm_id=""))) for one in told]


def compare(core: Core, twin: Core) -> None:
    """Assert that two cores are equal in everything that later decisions depend on; the reasons last sent do not count."""
    mine, theirs = map(_parts, (core, twin))
    assert mine == theirs, [pair for pair in zip(mine, theirs, strict=False) if pair[0] != pair[1]][
        :4
    ]


def _parts(core: Core) -> list[str]:
    copy = Captured(core).rebuild()
    copy.validate()
    partition = copy.state.partitions["default"]
    for ask in partition.asks.values():
        ask.code = ""
    names: dict[str, str] = {}

    def named(found: re.Match[str]) -> str:
        return names.setdefault(found[0], f"decision {len(names)}")

    parts = [DECISION.sub(named, repr(one)) for one in records(partition)]
    lost = [one for one in parts if one.startswith("('lost work")]
    return [*(one for one in parts if one not in lost), *sorted(lost)]
