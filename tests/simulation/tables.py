"""The state of the oracle: plain objects in dictionaries, and sums recomputed whenever they are needed.

No total is stored from one step to the next, so that none can be out of date or counted twice.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from server.model.asks import AskSpec, HostPort, Taint
from server.model.quota import WILDCARD, PartitionSpec, QueueSpec, UserLimit
from tests.preemption import proportion_oracle
from tests.preemption.proportion_oracle import Outcome
from tests.simulation.rules import Amounts, clash, permits


@dataclass
class Queue:
    """One queue; ``draining`` when the configuration does not name it any more."""

    path: str
    spec: QueueSpec
    parent: "Queue | None" = None
    draining: bool = False

    def line(self) -> "list[Queue]":
        """Return the queue itself, its parent and so on up to root."""
        return [self, *(self.parent.line() if self.parent else [])]


@dataclass
class Node:
    """One node. ``changed`` is set by events after which the ask that reserved the node may fit."""

    node_id: str
    rm_id: str
    arrival: int
    capacity: Amounts
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    schedulable: bool
    foreign: dict[str, Amounts] = field(default_factory=dict)
    changed: bool = True
    opened: bool = False

    def takes(self, item: "Item") -> bool:
        """Return whether the item's constraints, apart from host ports, permit this node."""
        return permits(item.spec.constraints, self.node_id, self.labels, self.taints)


@dataclass
class Application:
    """An accepted application with the one group whose limits apply to it."""

    application_id: str
    rm_id: str
    queue: Queue
    number: int
    user: str
    group: str
    began: bool = False
    reserves_from: int = 0
    idle_since: int | None = None


@dataclass
class Item:
    """An ask or, with a node, an allocation. ``avoided`` maps nodes to the instant until which the ask avoids them.

    With ``yields``, the ask takes its reserved node only after all other asks were tried. ``heard`` is the instant
    at which the ask began to wait, for the first time or again; its time limit counts from then.
    """

    key: str
    application: Application
    spec: AskSpec
    since: int
    arrival: int
    heard: int
    node_id: str = ""
    avoided: dict[str, int] = field(default_factory=dict)
    reserved: str = ""
    reserved_number: int = 0
    reserved_at: int = 0
    reserved_until: int = 0
    yields: bool = False

    @property
    def request(self) -> Amounts:
        """The wanted resource as a dictionary."""
        return dict(self.spec.resource)

    @property
    def rank(self) -> tuple[int, int, int]:
        """The key by which asks are ordered (design 6.3)."""
        return (-self.spec.priority, self.since, self.arrival)

    @property
    def job(self) -> tuple[str, str] | None:
        """The job of a gang member."""
        if self.spec.gang_key and self.spec.min_members > 1:
            return (self.application.application_id, self.spec.gang_key)
        return None


Shares = Mapping[str, Mapping[str, Outcome]]
"""Deserved shares of queues, by type and path."""


@dataclass
class Partition:
    """The state of one partition. ``shares`` are those of the present tick; empty without shares by weight."""

    spec: PartitionSpec
    queues: dict[str, Queue] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    applications: dict[str, Application] = field(default_factory=dict)
    items: dict[str, Item] = field(default_factory=dict)
    shares: Shares = field(default_factory=dict)

    def waiting(self) -> list[Item]:
        """Return all asks."""
        return [item for item in self.items.values() if not item.node_id]

    def placed(self) -> list[Item]:
        """Return all allocations."""
        return [item for item in self.items.values() if item.node_id]

    def is_firm(self, item: Item) -> bool | None:
        """Return whether the item is firm, by its own class or by default; None when the partition has no classes (J2)."""
        settings, said = self.spec.preemption, item.spec.lendable
        if "job" not in settings.policies:
            return None
        return not (settings.job_default_preemptible if said is None else said)

    def reservations(self) -> list[Item]:
        """Return the asks that hold a node, in the order in which they took it."""
        holders = [item for item in self.items.values() if item.reserved]
        return sorted(holders, key=lambda item: item.reserved_number)

    def measure(self, queue: Queue, kind: str) -> int:
        """Return the amount to which a queue's usage of a type is compared: the guarantee, else the nearest max, else all capacity."""
        guaranteed = dict(queue.spec.guaranteed).get(kind, 0)
        if guaranteed > 0:
            return guaranteed
        for level in queue.line():
            if kind in dict(level.spec.max or ()):
                return dict(level.spec.max or ())[kind]
        return sum(node.capacity.get(kind, 0) for node in self.nodes.values())

    # -- shares by weight --------------------------------------------------------------------------

    def share_out(self) -> None:
        """Recompute what each queue deserves (W1, W2)."""
        self.shares = {}
        settings = self.spec.preemption
        if settings.entitlement == "proportional":
            self.shares = {
                kind: proportion_oracle.shares(
                    self._tree(self.queues["root"], kind),
                    self._there_is(kind),
                    demand_cap=settings.demand_cap,
                )
                for kind in self._kinds()
            }

    def _kinds(self) -> set[str]:
        amounts: list[Iterable[str]] = [node.capacity for node in self.nodes.values()]
        amounts += [item.request for item in self.items.values()]
        for queue in self.queues.values():
            amounts += [dict(queue.spec.guaranteed), dict(queue.spec.max or ())]
        return {kind for each in amounts for kind in each}

    def _there_is(self, kind: str) -> int:
        """Return the capacity of nodes that take pods, minus what foreign pods occupy there."""
        return sum(
            node.capacity.get(kind, 0) - sum(each.get(kind, 0) for each in node.foreign.values())
            for node in self.nodes.values()
            if node.schedulable
        )

    def _tree(self, queue: Queue, kind: str) -> proportion_oracle.Node:
        own = [item for item in self.items.values() if item.application.queue is queue]
        children = [
            each for each in self.queues.values() if each.parent is queue and self._lives(each)
        ]
        return proportion_oracle.Node(
            queue.path,
            queue.spec.weight,
            dict(queue.spec.guaranteed).get(kind, 0),
            None if queue.parent is None else dict(queue.spec.max or ()).get(kind),
            sum(item.request.get(kind, 0) for item in own if item.node_id),
            sum(item.request.get(kind, 0) for item in own if not item.node_id),
            [self._tree(child, kind) for child in children],
        )

    def _lives(self, queue: Queue) -> bool:
        """Return whether the queue still exists: one that is no longer configured is gone with its last application."""
        inside = any(queue in one.queue.line() for one in self.applications.values())
        return (
            not queue.draining
            or inside
            or any(child.parent is queue and self._lives(child) for child in self.queues.values())
        )

    def basis(self, queue: Queue, kind: str) -> int | None:
        """Return the amount to which a queue's usage is compared when queues are ordered (W5); None when the type does not count."""
        if not self.shares or queue.parent is None:
            return self.measure(queue, kind)
        share = self.shares.get(kind, {}).get(queue.path)
        return share.entitled or None if share else None

    def bound(self, queue: Queue) -> dict[str, int]:
        """Return the most that a queue may use: its maximum, and in a leaf its plain share (W2)."""
        most = dict(queue.spec.max or ())
        leaf = not any(each.parent is queue for each in self.queues.values())
        if self.shares and leaf and not self.spec.preemption.demand_cap:
            for kind, shares in self.shares.items():
                if queue.path in shares:
                    deserved = shares[queue.path].deserved
                    most[kind] = min(most.get(kind, deserved), deserved)
        return most


def configure(partition: Partition, spec: PartitionSpec) -> set[str]:
    """Add or update the queues of the configuration in the partition, and return their paths."""
    named: set[str] = set()

    def visit(queue: QueueSpec, path: str, parent: Queue | None) -> None:
        known = partition.queues.setdefault(path, Queue(path, queue, parent))
        known.spec, known.parent = queue, parent
        named.add(path)
        for child in queue.children:
            visit(child, f"{path}.{child.name}", known)

    visit(spec.root, "root", None)
    return named


Table = dict[str, dict[str, int]]


def _table() -> Table:
    return defaultdict(lambda: defaultdict(int))


def _add(row: dict[str, int], amounts: Amounts) -> None:
    for kind, quantity in amounts.items():
        row[kind] += quantity


class Sums:
    """All totals of a partition at one instant, computed from its items."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.usage = _table()
        self.promised = _table()
        self.by_user = _table()
        self.by_group = _table()
        self.by_application = _table()
        self.firm = _table()
        self.firm_waiting = _table()
        self.taken = _table()
        self.ports: dict[str, list[HostPort]] = defaultdict(list)
        self.pledged_ports: dict[str, Item] = {}
        for node in partition.nodes.values():
            for amounts in node.foreign.values():
                _add(self.taken[node.node_id], amounts)
        for item in partition.items.values():
            if item.node_id:
                self._count(item)
            elif item.reserved:
                self._promise(item)
            if partition.is_firm(item):
                self._count_firm(item)
        for application in partition.applications.values():
            self._count_upwards(application)

    def _count_firm(self, item: Item) -> None:
        has = bool(item.node_id or item.reserved)
        for level in item.application.queue.line():
            _add((self.firm if has else self.firm_waiting)[level.path], item.request)

    def _count(self, item: Item) -> None:
        _add(self.by_application[item.application.application_id], item.request)
        _add(self.taken[item.node_id], item.request)
        self.ports[item.node_id] += item.spec.constraints.host_ports

    def _count_upwards(self, application: Application) -> None:
        used = self.by_application[application.application_id]
        for level in application.queue.line():
            _add(self.usage[level.path], used)
            if level.spec.limits:
                _add(self.by_user[f"{level.path} {application.user}"], used)
                _add(self.by_group[f"{level.path} {application.group}"], used)

    def _promise(self, item: Item) -> None:
        for level in item.application.queue.line():
            _add(self.promised[level.path], item.request)
        _add(self.taken[item.reserved], item.request)
        if item.spec.constraints.host_ports:
            self.pledged_ports[item.reserved] = item

    def free(self, node: Node, item: Item) -> dict[str, int]:
        """Return what is free on a node for one item; the item's own pledge on the node counts as free."""
        taken = self.taken[node.node_id]
        back = item.request if item.reserved == node.node_id and not item.yields else {}
        free = dict(node.capacity)
        for kind, quantity in taken.items():
            free[kind] = free.get(kind, 0) - quantity + back.get(kind, 0)
        return free

    def ports_free(self, node: Node, item: Item) -> bool:
        """Return whether all host ports of the item are free on the node, and reserved there for no other item."""
        taken, owner = self.ports[node.node_id], self.pledged_ports.get(node.node_id)
        if owner is not None and owner is not item:
            taken = [*taken, *owner.spec.constraints.host_ports]
        return not any(clash(a, b) for a in item.spec.constraints.host_ports for b in taken)

    def queues_allow(self, item: Item) -> bool:
        """Return whether every level has headroom: usage, promises to others and the request together are within the max."""
        return all(self._queue_allows(level, item) for level in item.application.queue.line())

    def _queue_allows(self, level: Queue, item: Item) -> bool:
        most = self.partition.bound(level)
        own = item.request if item.reserved else {}
        return all(
            self.usage[level.path][kind]
            + self.promised[level.path][kind]
            - own.get(kind, 0)
            + wanted
            <= most[kind] - self._kept(level, item, kind)
            for kind, wanted in item.request.items()
            if kind in most
        )

    def _kept(self, level: Queue, item: Item, kind: str) -> int:
        """Return the amount that a lendable ask must leave for waiting firm asks (J4); 0 when the ask has promised capacity."""
        if self.partition.is_firm(item) is not False or item.reserved:
            return 0
        held, least = self.firm[level.path][kind], dict(level.spec.guaranteed).get(kind, 0)
        return max(held, min(least, held + self.firm_waiting[level.path][kind])) - held

    def classes_allow(self, item: Item) -> bool:
        """Return whether firm use with the ask is within each level's guarantee of a type (J4); true for an ask that is not firm."""
        if not self.partition.is_firm(item):
            return True
        own = item.request if item.reserved else {}
        return all(
            self.firm[level.path][kind] - own.get(kind, 0) + wanted <= least
            for level in item.application.queue.line()
            for kind, wanted in item.request.items()
            for least in [dict(level.spec.guaranteed).get(kind, 0)]
            if least
        )

    def limits_allow(self, item: Item) -> bool:
        """Return whether the limits of the item's user and of its application's group allow it on every level."""
        application = item.application
        for level in application.queue.line():
            user = user_limit(level.spec, application.user)
            if user and not _within(user, self.by_user[f"{level.path} {application.user}"], item):
                return False
            group = group_limit(level.spec, application.group)
            if group and not _within(
                group, self.by_group[f"{level.path} {application.group}"], item
            ):
                return False
        return True


def _within(entry: UserLimit, used: Mapping[str, int], item: Item) -> bool:
    most = dict(entry.max_resources)
    return all(
        used.get(kind, 0) + wanted <= most[kind]
        for kind, wanted in item.request.items()
        if kind in most
    )


def user_limit(spec: QueueSpec, user: str) -> UserLimit | None:
    """Return the entry that applies to a user: the entry that names the user, else the wildcard entry."""
    return _entry(((entry.users, entry) for entry in spec.limits), user, WILDCARD)


def group_limit(spec: QueueSpec, group: str) -> UserLimit | None:
    """Return the entry that names a group; for an application whose group is the wildcard, the wildcard entry."""
    return _entry(((entry.groups, entry) for entry in spec.limits), group)


def _entry(entries: Iterator[tuple[tuple[str, ...], UserLimit]], *wanted: str) -> UserLimit | None:
    known = list(entries)
    for name in wanted:
        for names, entry in known:
            if name and name in names:
                return entry
    return None


def matched_group(queue: Queue, groups: tuple[str, ...]) -> str:
    """Return the first of these groups with a limit, from the leaf up and in file order; else the wildcard if it has a limit."""
    for wanted in (groups, (WILDCARD,)):
        for level in queue.line():
            limited = [group for entry in level.spec.limits for group in entry.groups]
            for group in limited:
                if group in wanted:
                    return group
    return ""


def application_fits(partition: Partition, level: Queue, new: Application) -> bool:
    """Return whether ``maxapplications`` and the limits of a level allow one more application."""
    here = [each for each in partition.applications.values() if level in each.queue.line()]
    user, group = user_limit(level.spec, new.user), group_limit(level.spec, new.group)
    counts = [
        (level.spec.max_applications, len(here)),
        (user.max_applications if user else 0, sum(each.user == new.user for each in here)),
        (group.max_applications if group else 0, sum(each.group == new.group for each in here)),
    ]
    return all(most == 0 or count < most for most, count in counts)
