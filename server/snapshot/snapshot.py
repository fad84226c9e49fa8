"""The snapshot: one partition at one instant, immutable. Policies call its methods and never see an array.

Any thread may read a snapshot. Two successive snapshots share the data that did not change between them (design 6.1).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from server.kernels import cover
from server.kernels.fit import Mask
from server.model.asks import AskSpec
from server.model.policies import JOB
from server.model.quota import PreemptionSettings
from server.model.reasons import Code
from server.model.thrashing import Pair, TemplateInQueue
from server.snapshot.columns import FIRM, UNSAID, AllocationColumns, NodeColumns
from server.snapshot.node_search import NodeRanking
from server.snapshot.pace import AT_REST, Pace
from server.snapshot.queue_tables import QueueTable, QueueTables
from server.snapshot.queues import FrozenAmounts, QueueFacts
from server.snapshot.waiting import FirmUse, OpenCommitment, WaitingAsk, WaitingGang


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """A snapshot of one partition.

    ``pending``, ``total`` and ``whole`` are set only if the partition is shared in proportion to weights.
    """

    partition: str
    now: int
    types: tuple[str, ...]
    """The names of the resource types, by index."""
    ports: tuple[bool, ...]
    """Whether each type is a host port, which is counted on nodes and not in queues."""
    nodes: NodeColumns
    allocations: AllocationColumns
    queues: Mapping[str, QueueFacts]
    leaf_paths: Mapping[int, str]
    """The path of each leaf, by its number in the columns."""
    waiting: tuple[WaitingAsk, ...]
    """The asks for which the caller requested the snapshot."""
    claims: tuple[WaitingAsk, ...]
    """The asks that may claim."""
    daemons: tuple[WaitingAsk, ...]
    """The asks that require a node and for which pods may be evicted there."""
    settings: PreemptionSettings
    disruptions: Mapping[str, int]
    """For each disruption group, how many more pods may be evicted now. The victims of open decisions are already subtracted."""
    commitments: tuple[OpenCommitment, ...]
    sort: NodeRanking
    node_count: int
    """The number of all registered nodes, including nodes that take no placements."""
    capacity: FrozenAmounts
    """The sum of the capacity of all registered nodes."""
    runs: Mapping[str, int] = field(default_factory=dict)
    """The queues of open quota runs, each with the instant at which the run began."""
    pace: Pace = AT_REST
    """The instant at which the last round of claims began, and the amounts that rounds have released (P5)."""
    gangs: tuple[WaitingGang, ...] = ()
    """The gangs that wait for capacity for all their members together."""
    replacing: tuple[WaitingAsk, ...] = ()
    """The asks that may replace pods of their own queue."""
    firm: Mapping[str, FirmUse] = field(default_factory=dict)
    """The amounts that firm asks hold and request, by queue path, if the partition has classes (J4)."""
    pending: Mapping[str, FrozenAmounts] = field(default_factory=dict)
    """For each leaf, the amounts that its waiting asks request in addition to its usage."""
    total: FrozenAmounts = ()
    """The amount that is divided among the queues (W1, W2)."""
    whole: FrozenAmounts = ()
    """The amount that would be divided if drained nodes were included (W3)."""
    frozen: frozenset[Pair] = frozenset()
    tables: QueueTables = field(default_factory=QueueTables, repr=False)
    """A cache of the queues as arrays.

    Snapshots of one partition share it. Its method `of` compares the queues with those of the last call, and writes only the rows
    of changed queues.
    """
    paths: dict[str, tuple[QueueFacts, ...]] = field(init=False, default_factory=dict, repr=False)
    """A cache of the results of `path_up`, which the rules call for each ask and each victim."""

    @property
    def is_shared_out(self) -> bool:
        """Return whether queues are entitled to shares in proportion to weights, and not only to their guarantees (design 1.6)."""
        return self.settings.entitlement == "proportional"

    @property
    def knows_firm(self) -> bool:
        """Return whether the rules protect firm pods.

        Firm pods are protected only if the partition lists policy `job` (J4).
        """
        return self.settings.lists(JOB)

    @property
    def firm_flags(self) -> int:
        """Return the flags that make an allocation firm, or 0 if the partition treats no allocation as firm.

        For pods that declare no class, the partition's setting decides (J2).
        """
        unsaid = 0 if self.settings.job_default_preemptible else UNSAID
        return FIRM | unsaid if self.knows_firm else 0

    @property
    def weights(self) -> tuple[int, ...]:
        """Return the factors that make amounts of types comparable as shares of the partition. Ports have factor 0."""
        pairs = zip(self.ports, self.capacity, strict=True)
        return cover.measures([0 if port else whole for port, whole in pairs])

    # Waiting asks ---------------------------------------------------------------------------------

    def waiting_without_node(self) -> Iterator[WaitingAsk]:
        """Yield the asks that have headroom under all limits but fit on no node, in the order of the snapshot."""
        return (ask for ask in self.waiting if ask.code is Code.NO_NODE)

    # Queues ---------------------------------------------------------------------------------------

    def path_up(self, path: str) -> tuple[QueueFacts, ...]:
        """Return a queue and its ancestors, from the queue up to the root."""
        known = self.paths.get(path)
        if known is None:
            queue = self.queues[path] if path else None
            known = () if queue is None else (queue, *self.path_up(queue.parent))
            self.paths[path] = known
        return known

    def may_place(self, path: str) -> bool:
        """Return whether no queue on the path is stopped."""
        return not any(queue.stopped for queue in self.path_up(path))

    def is_frozen(self, ask: WaitingAsk, leaf: str) -> bool:
        """Return whether the thrashing monitor stopped claims on this leaf's pods for asks like this ask.

        Asks are alike if they have the same leaf, request and priority.
        """
        if not self.frozen:
            return False
        side = TemplateInQueue(ask.leaf, ask.spec.resource, ask.spec.priority)
        return Pair(side, TemplateInQueue(leaf)) in self.frozen

    @property
    def frozen_leaves(self) -> list[str]:
        """Return the leaves whose allocations are protected from some preemptor by the thrashing monitor, sorted."""
        return sorted({pair.victims.queue for pair in self.frozen})

    @property
    def queue_table(self) -> QueueTable:
        """The queues as arrays, in the order of ``queues``."""
        return self.tables.of([*self.queues.values()])

    # Nodes ----------------------------------------------------------------------------------------

    def row_of(self, node_id: str) -> int:
        """Return the row of a node, -1 if the node is unknown."""
        try:
            return self.nodes.ids.index(node_id)
        except ValueError:
            return -1

    def exhausted(self, left: Callable[[str], int]) -> Mask | None:
        """Return a mask of the rows that belong to a disruption group in which no more pods may be evicted.

        Return None if no row belongs to a disruption group.
        """
        columns = self.allocations
        rows = columns.grouped()
        if not rows:
            return None
        verdicts: dict[AskSpec | None, bool] = {}
        found = np.zeros(len(columns.keys), dtype=np.bool_)
        for row in rows:
            spec = columns.specs[row]
            if spec not in verdicts:
                verdicts[spec] = any(left(group) <= 0 for group in columns.groups(row))
            found[row] = verdicts[spec]
        return found
