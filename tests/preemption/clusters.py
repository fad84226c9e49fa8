"""A small cluster with a core, which the planner's tests build in a few calls."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from server.core.core import Core
from server.model.asks import AskSpec
from server.model.decisions import Decision, Noted, Placed, Termination
from server.model.events import (
    AllocationAdded,
    ApplicationAdded,
    AskAdded,
    ConfigurationApplied,
    Event,
    ForeignAdded,
    ManagerRegistered,
    NodeAdded,
    NodeDrained,
    NodeUpdated,
    ReleaseRequested,
)
from server.model.quota import (
    Acl,
    Configuration,
    PartitionSpec,
    PlacementRule,
    PreemptionSettings,
    QueueSpec,
)
from server.model.reasons import Code
from server.model.resources import limit, resource
from server.snapshot.snapshot import Snapshot
from server.state import snapshotting
from server.state.partition import Partition

START: Final = 1_800_000_000_000
MANAGER: Final = "rm"


def leaf(name: str, **most: int) -> QueueSpec:
    """Return a leaf queue with these maxima."""
    return QueueSpec(name=name, max=limit(most) if most else None)


def _configuration(queues: tuple[QueueSpec, ...], *, quota_enabled: bool = False) -> Configuration:
    everyone = Acl(everyone=True)
    root = QueueSpec(name="root", parent=True, submit_acl=everyone, children=queues)
    settings = PreemptionSettings(quota_enabled=quota_enabled)
    rules = (PlacementRule(kind="provided"),)
    return Configuration((PartitionSpec("default", root=root, rules=rules, preemption=settings),))


class Cluster:
    """A core with one partition; only the test moves `now`. `notes` has the notes of the core."""

    def __init__(self, *queues: QueueSpec) -> None:
        self.core = Core(_configuration(queues or (leaf("a"), leaf("b"))))
        self.now = START
        self.notes: list[Noted] = []
        self.say(ManagerRegistered(MANAGER))

    @property
    def partition(self) -> Partition:
        """Return the state of the partition."""
        return self.core.state.partitions["default"]

    def configure(self, *queues: QueueSpec) -> None:
        """Apply other queues, whose maxima are enforced."""
        self.say(ConfigurationApplied(_configuration(queues, quota_enabled=True), "test"))

    def say(self, event: Event) -> None:
        """Send an event at the present instant."""
        self._keep(self.core.handle(event, self.now))

    def tick(self, wait_ms: int = 0, budget: int = 20_000) -> list[tuple[str, str]]:
        """Move the clock and tick until nothing is left to do; return which ask was placed on which node."""
        self.now += wait_ms
        placed = []
        more = True
        while more:
            tick = self.core.tick(self.now, budget)
            self._keep(tick.decisions)
            placed += [(one.key, one.node_id) for one in tick.decisions if isinstance(one, Placed)]
            more = tick.more
        self.core.validate()
        return placed

    def _keep(self, decisions: Iterable[Decision]) -> None:
        self.notes += [one for one in decisions if isinstance(one, Noted)]

    def noted(self, code: Code) -> list[str]:
        """Return the subjects of the notes with this code, in order."""
        return [one.subject for one in self.notes if one.code is code]

    # -- events ------------------------------------------------------------------------------

    def nodes(self, *names: str, **capacity: int) -> None:
        """Add nodes of one size."""
        for name in names:
            self.say(NodeAdded(MANAGER, name, resource(capacity)))

    def resize(self, name: str, **capacity: int) -> None:
        """Change a node's size."""
        self.say(NodeUpdated(MANAGER, name, resource(capacity)))

    def relabel(self, name: str, **labels: str) -> None:
        """Change a node's labels."""
        self.say(NodeUpdated(MANAGER, name, labels=tuple(labels.items())))

    def drain(self, name: str) -> None:
        """Cordon a node, so that no more pods are placed on it."""
        self.say(NodeDrained(MANAGER, name))

    def application(self, name: str, queue: str = "root.a", user: str = "") -> None:
        """Add an application to its queue."""
        self.say(ApplicationAdded(MANAGER, name, queue, user=user))

    def ask(
        self, *keys: str, application: str = "x", spec: AskSpec | None = None, **wanted: int
    ) -> None:
        """Add asks of one template."""
        shared = replace(spec or AskSpec(resource=()), resource=resource(wanted))
        for key in keys:
            self.say(AskAdded(MANAGER, key, application, shared))

    def existing(self, key: str, node: str, application: str = "x", **wanted: int) -> None:
        """Report an allocation that runs already."""
        spec = AskSpec(resource=resource(wanted))
        self.say(AllocationAdded(MANAGER, key, application, node, spec))

    def foreign(self, key: str, node: str, **wanted: int) -> None:
        """Report a pod of another scheduler."""
        self.say(ForeignAdded(MANAGER, key, node, resource(wanted)))

    def release(
        self, key: str, application: str = "x", why: Termination = Termination.STOPPED_BY_RM
    ) -> None:
        """Release an ask or allocation."""
        self.say(ReleaseRequested(MANAGER, application, key, termination=why))

    # -- queries -------------------------------------------------------------------------------

    def snapshot(self, *keys: str) -> Snapshot:
        """Return a snapshot with these waiting asks, or with all waiting asks."""
        asks = self.partition.asks.values()
        waiting = [one for one in asks if one.node is None and (not keys or one.key in keys)]
        return snapshotting.take(self.partition, self.now, waiting)

    def reserved(self) -> dict[str, str]:
        """Return the reserved node by ask."""
        return {key: one.node.node_id for key, one in self.partition.decisions.pledges.items()}

    def due_in(self) -> int | None:
        """Return the milliseconds until the core wants to be called again."""
        due = self.core.next_due()
        return None if due is None else due - self.now
