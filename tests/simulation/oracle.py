"""A scheduler core that is simple on purpose: it considers every ask and node before each single step.

The fast core must take exactly the same steps. The following rules hold for both; where the design leaves a choice,
they decide it.

*Step.* Of all asks that fit now (headroom on every level of the queue path, user and group limits, at least one
node) the first is placed on its node. The order is by queue key on each level of the tree, then application key,
then ask key. This repeats until nothing fits.

*Shares by weight* (W2, W5). `proportion_oracle` computes them once at the beginning of a tick. A queue's share is
then the greatest (usage << 32) // E over types with an entitlement E; with ``demandcap`` off, a leaf may use at
most its deserved share.

*Queue key* (-priority, share, path); where the parent sets ``application.sort.priority: disabled``, (share,
-priority, path). Priority is the highest among the placeable asks inside, each as the queue's parent sees it: from
the leaf up, every queue replaces it by its offset (priority fence) or adds the offset, clamped to int32. Share is
the greatest of (usage << 32) // g over used types, where g is the guarantee if above zero, else the nearest max
from the queue upwards that names the type, else all registered capacity; with g zero the value is 2^62. Promised
capacity does not count as used here.

*Application key* fifo (-priority, submit number), fair (-priority, share, submit number) with the share measured by
the leaf's g; with priority sorting disabled on the leaf (submit number, -priority) and (share, -priority, submit
number). *Ask key* (-priority, pending since, arrival number). Pending since is the creation given by the client
unless that lies in the future. An ask that comes back after SCHEDULING_FAILED_ON_RM keeps pending since and gets a
new arrival number; an update of a waiting ask keeps both.

*Node.* The least weighted fullness (binpacking: the greatest), then the earliest arrival. The free amount is the
capacity minus usage, foreign pods and pledges.

*Gangs.* Members of a job wait until pending and placed ones together reach the job's size; then all pending ones
are placed in one step, in the order of their ask keys, at the rank of the first, or none of them is placed. Once
the job's size is placed, later members are ordinary asks.

*Reservations* are made when no more asks can be placed: see `reserving`. Before that, an ask that outranks the
owner of a reservation is tried as if the reservation did not exist. A reservation ends after
`reservations.timeout`. A pledge is the whole request; it lowers what is free on the node (below zero if need be)
and counts as promised on the queue path for all others.

*Time limits.* An ask that waits as long as its time limit, counted from when it began to wait here (restarted when
it comes back), ends at the next tick, synced or not.

*Completion.* An application that had asks or allocations and has had none for 30 s is complete, and is removed.

*Sync.* Nothing is placed in a partition until every manager with explicit sync that has a node or application there
is synced.
"""

from collections.abc import Callable
from typing import Any, Final

from server.model.asks import AskSpec
from server.model.decisions import Termination
from server.model.events import (
    AllocationAdded,
    ApplicationAdded,
    ApplicationRemoved,
    AskAdded,
    ConfigurationApplied,
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
from server.model.quota import Configuration
from tests.simulation.choice import first_step, fits_node, may_place
from tests.simulation.node_changes import NodeChange, change_node
from tests.simulation.reserving import below, left_out, note_who_yields, offered, reserved
from tests.simulation.tables import (
    Application,
    Item,
    Node,
    Partition,
    Sums,
    application_fits,
    configure,
    matched_group,
)

COMPLETING_MS: Final = 30_000
AVOID_MS: Final = 60_000
AVOID_MOST: Final = 32


class NaiveCore:
    """The oracle. `handle` returns the names of what it rejects, `tick` the placed (key, node) pairs."""

    def __init__(self, configuration: Configuration) -> None:
        self.partitions: dict[str, Partition] = {}
        self.unsynced: set[str] = set()
        self.numbers = 0
        self._configure(configuration)

    def handle(self, event: Event, now: int) -> list[str]:
        """Take one event; the list names the object when it is rejected."""
        steps: dict[type, Callable[[Any, int], bool]] = {
            ManagerRegistered: self._register,
            SyncCompleted: self._synced,
            ConfigurationApplied: self._reconfigure,
            NodeAdded: self._add_node,
            NodeUpdated: self._change_node,
            NodeDrained: self._change_node,
            NodeEnabled: self._change_node,
            NodeRemoved: self._change_node,
            ApplicationAdded: self._add_application,
            ApplicationRemoved: self._remove_application,
            AskAdded: self._add_ask,
            AllocationAdded: self._add_allocation,
            ForeignAdded: self._add_foreign,
            ReleaseRequested: self._release,
        }
        taken = steps[type(event)](event, now)
        self._look_for_idle(now)
        return [] if taken else [_name(event)]

    def tick(self, now: int) -> list[tuple[str, str]]:
        """Place all asks that fit, then reserve nodes for asks that have waited long enough."""
        placed: list[tuple[str, str]] = []
        self._complete(now)
        for partition in self.partitions.values():
            self._ring(partition, now)
        self._look_for_idle(now)
        for partition in self.partitions.values():
            if not self._rests(partition):
                partition.share_out()
                placed += self._place_and_reserve(partition, now)
        return placed

    def _place_and_reserve(self, partition: Partition, now: int) -> list[tuple[str, str]]:
        """Place all asks that fit, then reserve nodes; repeat after each reservation that an ask takes over from another ask."""
        placed: list[tuple[str, str]] = []
        while True:
            note_who_yields(partition, now)
            placed += self._try_reserved(partition, now)
            placed += self._place(partition, now)
            taken = False
            for item, node, owner in reserved(partition, now):
                if owner is not None:
                    owner.reserved, taken = "", True
                self._reserve(partition, item, node, now)
            if not taken:
                return placed

    def _reserve(self, partition: Partition, item: Item, node: Node, now: int) -> None:
        item.reserved, item.reserved_number = node.node_id, self._next()
        timeout = partition.spec.reservations.timeout_ms
        item.reserved_at, item.reserved_until = now, now + timeout if timeout else 0

    def reservations(self) -> dict[str, list[str]]:
        """Return the asks that hold each reserved node."""
        found: dict[str, list[str]] = {}
        for partition in self.partitions.values():
            for item in partition.reservations():
                found.setdefault(item.reserved, []).append(item.key)
        return found

    def _next(self) -> int:
        self.numbers += 1
        return self.numbers

    # -- the tick ----------------------------------------------------------------------------------

    def _look_for_idle(self, now: int) -> None:
        """Record for each application since when it has had no asks and no allocations."""
        for partition in self.partitions.values():
            busy = {item.application.application_id for item in partition.items.values()}
            for application in partition.applications.values():
                if application.application_id in busy:
                    application.began, application.idle_since = True, None
                elif application.began and application.idle_since is None:
                    application.idle_since = now

    def _complete(self, now: int) -> None:
        for partition in self.partitions.values():
            for application in list(partition.applications.values()):
                idle = application.idle_since
                if idle is not None and now - idle >= COMPLETING_MS:
                    del partition.applications[application.application_id]

    def _rests(self, partition: Partition) -> bool:
        owners = {node.rm_id for node in partition.nodes.values()}
        owners |= {application.rm_id for application in partition.applications.values()}
        return not owners.isdisjoint(self.unsynced)

    def _ring(self, partition: Partition, now: int) -> None:
        """End the asks and reservations whose time limit has passed, in the order of these limits."""
        asks = [one for one in partition.waiting() if one.spec.timeout_ms]
        due = [(one.heard + one.spec.timeout_ms, 0, one) for one in asks]
        due += [(one.reserved_until, 1, one) for one in partition.reservations()]
        for until, held, item in sorted(due, key=lambda each: each[:2]):
            if not 0 < until <= now or item.key not in partition.items:
                continue
            if held:
                item.reserved = ""
                item.application.reserves_from = now + until - item.reserved_at
            else:
                del partition.items[item.key]

    def _try_reserved(self, partition: Partition, now: int) -> list[tuple[str, str]]:
        """Place the asks whose reserved node changed on that node, in the order of the reservations, before other asks."""
        placed = []
        for item in partition.reservations():
            node, sums = partition.nodes[item.reserved], Sums(partition)
            if item.yields or not node.changed:
                continue
            if may_place(sums, item) and fits_node(sums, node, item, now):
                placed.append(self._put(item, node))
        for node in partition.nodes.values():
            node.changed = False
        return placed

    def _place(self, partition: Partition, now: int) -> list[tuple[str, str]]:
        placed = []
        while step := first_step(partition, now) or offered(partition, now):
            placed += [self._put(item, node) for item, node in step.members]
        return placed

    def _put(self, item: Item, node: Node) -> tuple[str, str]:
        item.node_id, item.reserved = node.node_id, ""
        return item.key, node.node_id

    # -- managers and configuration ----------------------------------------------------------------

    def _register(self, event: ManagerRegistered, now: int) -> bool:
        del now
        if event.explicit_sync:
            self.unsynced.add(event.rm_id)
        return True

    def _synced(self, event: SyncCompleted, now: int) -> bool:
        del now
        self.unsynced.discard(event.rm_id)
        return True

    def _reconfigure(self, event: ConfigurationApplied, now: int) -> bool:
        del now
        self._configure(event.configuration)
        return True

    def _configure(self, configuration: Configuration) -> None:
        for spec in configuration.partitions:
            partition = self.partitions.setdefault(spec.name, Partition(spec))
            before, partition.spec = partition.spec, spec
            if before.reservations != spec.reservations:
                self._rebind(partition)
            named = configure(partition, spec)
            for path, queue in list(partition.queues.items()):
                queue.draining = path not in named
            self._drop_unfit(partition)

    def _drop_unfit(self, partition: Partition) -> None:
        """Drop the reservations for which the limits in force leave no headroom, the newest first (G10)."""
        for item in reversed(partition.reservations()):
            with left_out(below(partition, item)):
                fits = may_place(Sums(partition), item)
            if not fits:
                node_id, item.reserved = item.reserved, ""
                self._touch(partition, node_id)

    def _rebind(self, partition: Partition) -> None:
        for item in partition.reservations():
            if not partition.spec.reservations.enabled:
                item.reserved = ""
                self._touch(partition, item.reserved)
            timeout = partition.spec.reservations.timeout_ms
            item.reserved_until = item.reserved_at + timeout if timeout else 0

    # -- nodes -------------------------------------------------------------------------------------

    def _add_node(self, event: NodeAdded, now: int) -> bool:
        del now
        partition = self.partitions.get(event.partition)
        if partition is None or event.node_id in partition.nodes:
            return False
        partition.nodes[event.node_id] = Node(
            event.node_id,
            event.rm_id,
            self._next(),
            dict(event.capacity),
            dict(event.labels),
            event.taints,
            event.schedulable,
            opened=event.schedulable,
        )
        return True

    def _node(self, partition: str, node_id: str) -> Node | None:
        known = self.partitions.get(partition)
        return known.nodes.get(node_id) if known else None

    def _change_node(self, event: NodeChange, now: int) -> bool:
        del now
        node = self._node(event.partition, event.node_id)
        if node is not None:
            change_node(self.partitions[event.partition], node, event)
        return node is not None

    def _add_foreign(self, event: ForeignAdded, now: int) -> bool:
        del now
        node = self._node(event.partition, event.node_id)
        if node is None:
            return False
        self._remove_foreign(event.partition, event.key)
        node.foreign[event.key] = dict(event.resource)
        node.changed = True
        return True

    def _remove_foreign(self, partition: str, key: str) -> None:
        for node in self.partitions[partition].nodes.values():
            if node.foreign.pop(key, None) is not None:
                node.changed = True

    # -- applications ------------------------------------------------------------------------------

    def _add_application(self, event: ApplicationAdded, now: int) -> bool:
        del now
        partition = self.partitions.get(event.partition)
        if partition is None or event.application_id in partition.applications:
            return False
        queue = partition.queues.get(event.queue)
        if queue is None or queue.draining or queue.spec.parent or queue.spec.children:
            return False
        group = matched_group(queue, event.groups)
        application = Application(
            event.application_id, event.rm_id, queue, self._next(), event.user, group
        )
        if not all(application_fits(partition, level, application) for level in queue.line()):
            return False
        partition.applications[event.application_id] = application
        return True

    def _remove_application(self, event: ApplicationRemoved, now: int) -> bool:
        del now
        partition = self.partitions[event.partition]
        application = partition.applications.pop(event.application_id, None)
        for item in list(partition.items.values()):
            if item.application is application:
                self._forget(partition, item)
        return True

    # -- asks and allocations ----------------------------------------------------------------------

    def _add_ask(self, event: AskAdded, now: int) -> bool:
        partition = self.partitions.get(event.partition)
        application = partition.applications.get(event.application_id) if partition else None
        if partition is None or application is None or not _possible(event.spec):
            return False
        known = partition.items.get(event.key)
        if known is None:
            since = now if event.created_ms is None else min(event.created_ms, now)
            item = Item(event.key, application, event.spec, since, self._next(), now)
            partition.items[event.key] = item
            return True
        if known.application is not application:
            return False
        if known.spec.constraints != event.spec.constraints:
            known.avoided.clear()
        known.spec, known.reserved = event.spec, ""
        self._touch(partition, known.node_id)
        return True

    def _add_allocation(self, event: AllocationAdded, now: int) -> bool:
        partition = self.partitions.get(event.partition)
        application = partition.applications.get(event.application_id) if partition else None
        if partition is None or application is None or event.node_id not in partition.nodes:
            return False
        known = partition.items.get(event.key)
        if known is not None and known.application is not application:
            return False
        since = now if event.created_ms is None else min(event.created_ms, now)
        item = Item(event.key, application, event.spec, since, self._next(), now, event.node_id)
        partition.items[event.key] = item
        return True

    def _release(self, event: ReleaseRequested, now: int) -> bool:
        partition = self.partitions[event.partition]
        if not event.application_id:
            self._remove_foreign(event.partition, event.key)
            return True
        for item in list(partition.items.values()):
            if item.application.application_id != event.application_id:
                continue
            if event.key in ("", item.key):
                if event.termination is Termination.SCHEDULING_FAILED_ON_RM and item.node_id:
                    self._put_back(partition, item, now)
                elif not (event.asks_only and item.node_id):
                    self._forget(partition, item)
        return True

    def _put_back(self, partition: Partition, item: Item, now: int) -> None:
        self._touch(partition, item.node_id)
        item.avoided.pop(item.node_id, None)
        item.avoided[item.node_id] = now + AVOID_MS
        while len(item.avoided) > AVOID_MOST:
            del item.avoided[next(iter(item.avoided))]
        item.node_id, item.arrival, item.heard = "", self._next(), now

    def _forget(self, partition: Partition, item: Item) -> None:
        self._touch(partition, item.node_id)
        del partition.items[item.key]

    def _touch(self, partition: Partition, node_id: str) -> None:
        if node_id:
            partition.nodes[node_id].changed = True


def _possible(spec: AskSpec) -> bool:
    return bool(spec.resource) and all(quantity > 0 for _, quantity in spec.resource)


def _name(event: Event) -> str:
    for word in ("key", "node_id", "application_id", "rm_id"):
        name = getattr(event, word, "")
        if name:
            return str(name)
    return ""
