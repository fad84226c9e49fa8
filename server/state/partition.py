"""The state of one partition, and functions that read it. `journal` and `tree` change the state."""

from server.model.asks import (
    AskSpec,
    Constraints,
    Tags,
    gang_class,
)
from server.model.fit import NO_SCALE, Amounts
from server.model.quota import DEFAULT_PARTITION, PartitionSpec, PreemptionSettings
from server.snapshot.queues import Bounds
from server.state.applications import Application, Ask, Gang, Group, WaitingGangs
from server.state.columns import Columns
from server.state.commitments import Decisions
from server.state.constraints import ConstraintIndex, port_demand
from server.state.ended_tags import EndedTags
from server.state.equivalence import AskClass, ClassKey, EquivalenceClasses
from server.state.limits import Limits
from server.state.lost_work import LostWorkTotals
from server.state.nodes import Foreign, ForeignPods, NodeIndex, NodeSlots
from server.state.queues import Queue
from server.state.resumption import Resumption
from server.state.rounds import Round
from server.state.shadow import Shadow
from server.state.thrashing import ThrashingTables
from server.state.types import NO_LIMIT, ResourceTypes


class Partition:
    """The state of one partition. Amounts are lists by type index.

    State that belongs together is an object of its own: ``types``, ``index``, ``constraint_index``, ``classes``, ``gangs``,
    ``decisions``, ``limits``, ``lost``, ``foreign``, ``node_slots``, ``ended``, ``columns``, ``round``, ``thrashing``, ``shadow``
    and ``resumption``.

    A shadow reads a shallow copy of its partition in which ``spec``, ``round``, ``thrashing`` and ``deserved`` are the shadow's
    own. Therefore these four values must be attributes of the partition itself.
    """

    __slots__ = (
        "applications",
        "arrivals",
        "ask_count",
        "asks",
        "avoided",
        "capacity",
        "class_settings",
        "classes",
        "columns",
        "constraint_index",
        "decisions",
        "deserved",
        "disruptions",
        "ended",
        "foreign",
        "gangs",
        "index",
        "limits",
        "lost",
        "name",
        "node_slots",
        "numbers",
        "owner",
        "placements",
        "queues",
        "quota_due",
        "ranking_stale",
        "relief",
        "resumption",
        "retired",
        "root",
        "round",
        "shadow",
        "shared_for",
        "spec",
        "thrashing",
        "types",
        "unclassed",
        "unqueued",
        "untold",
    )

    def __init__(self, spec: PartitionSpec) -> None:  # noqa: PLR0915 - a record of the state
        self.name = spec.name
        self.owner = ""
        """The resource manager to which the partition belongs, "" while the partition has no nodes and no applications."""
        self.spec = spec
        self.class_settings: PreemptionSettings | None = None
        """The settings by which asks get their gang classes (firm or lendable), or None if the settings in force determine the classes."""
        self.unclassed: list[Ask] = []
        """The asks that may still have a class of earlier settings, the oldest last (see `reclassing`)."""
        self.types = ResourceTypes()
        weights = tuple((self.types.intern(name), weight) for name, weight in spec.node_weights)
        self.index = NodeIndex(spec.node_sort, weights)
        """The nodes of the partition, and the search for the best node for an ask."""
        self.constraint_index = ConstraintIndex()
        self.capacity: Amounts = self.types.zeros()
        self.queues: dict[str, Queue] = {}
        self.root = Queue(spec.root, None, 0, self.types.zeros())
        self.queues[self.root.path] = self.root
        self.applications: dict[str, Application] = {}
        self.asks: dict[str, Ask] = {}
        self.disruptions: dict[str, int] = {}
        """For each disruption group, the number of its pods that may be evicted now."""
        self.thrashing = ThrashingTables()
        """The memory of the thrashing monitor."""
        self.quota_due: dict[str, int] = {}
        """The instants at which quota runs are due, by queue path (see `quota_timers`)."""
        self.deserved: dict[str, Bounds] = {}
        """The deserved share of each leaf, which bounds its usage, if the partition has plain shares by weight (W2)."""
        self.shared_for: object = None
        """The identity of the state for which the bounds in ``deserved`` were computed."""
        self.avoided: dict[str, dict[str, int]] = {}
        self.arrivals = 0
        self.numbers = 1
        self.ask_count = 0
        self.relief = 0
        """A counter of the events that may have freed capacity."""
        self.placements = 0
        """The number of placements.

        A parked gang is tried again when ``relief`` or ``placements`` has changed, because another placement can change which
        nodes the gang's other members take (design 6.11).
        """
        self.untold: dict[Group | Gang, None] = {}
        self.classes = EquivalenceClasses()
        self.gangs = WaitingGangs()
        self.decisions = Decisions()
        self.ended = EndedTags()
        self.foreign = ForeignPods(self.types.zeros())
        self.node_slots = NodeSlots()
        self.lost = LostWorkTotals()
        self.limits = Limits()
        self.columns = Columns()
        self.unqueued: list[Ask] = []
        """The plain asks (`AskSpec.is_plain`) that arrived since the last tick and are not in a group yet."""
        self.round = Round()
        self.shadow: Shadow | None = None
        """The memory of the partition's shadow, None if there is no shadow."""
        self.resumption: Resumption | None = None
        """The state of a sync after a new registration of the manager.

        In this sync, reported objects are compared with those in the core. ``resumption`` is None if no such sync is in progress.
        """
        self.ranking_stale = True
        self.retired = False

    @property
    def classed_by(self) -> PreemptionSettings:
        """Return the settings by which asks get their gang classes."""
        return self.class_settings or self.spec.preemption

    def next_number(self) -> int:
        """Return the next arrival number for a queue, class, node or application."""
        self.numbers += 1
        return self.numbers

    def decision_id(self, letter: str, now: int) -> str:
        """Return a new id for a decision.

        The id consists of the instant, a number and the partition, so that it is unique across restarts.

        The id names the partition only if the partition is not `default`. If the clock was set back, an id of an earlier run of
        the core could occur again. Therefore a number is skipped if it would repeat an id that the partition knows.
        """
        where = "" if self.name == DEFAULT_PARTITION else f"-{self.name}"
        name = f"{letter}-{now:x}-{self.next_number()}{where}"
        while name in self.decisions.open or name in self.decisions.records:
            name = f"{letter}-{now:x}-{self.next_number()}{where}"
        return name

    def grow(self) -> None:
        """Lengthen every list of amounts after new resource types were registered."""
        width = len(self.types)
        if len(self.capacity) == width:
            return
        queues = self.queues.values()
        plain = [self.capacity, self.foreign.usage]
        for queue in queues:
            plain += [queue.usage, queue.promised, queue.releasing, queue.measure, queue.lost]
            if queue.basis is not queue.measure:
                plain.append(queue.basis)
            plain += [queue.firm_held, queue.firm_waiting]
            no_scales = [NO_SCALE] * (width - len(queue.measure_scales))
            queue.measure_scales.extend(no_scales)
            if queue.basis_scales is not queue.measure_scales:
                queue.basis_scales.extend(no_scales)
        plain += [application.usage for application in self.applications.values()]
        for amounts in plain:
            amounts.extend([0] * (width - len(amounts)))
        headrooms = [queue.limiter.headroom for queue in queues if queue.limiter is not None]
        headrooms += [queue.firm.headroom for queue in queues if queue.firm is not None]
        headrooms += [limiter.headroom for limiter in self.limits.by_key.values()]
        for headroom in headrooms:
            headroom.extend([NO_LIMIT] * (width - len(headroom)))
        for node in self.index.nodes.values():
            made_up = self.types.synthetic[len(node.capacity) :]
            node.capacity.extend(made_up)
            node.free.extend(made_up)

    def note_end(self, ask: Ask) -> None:
        """Record for the columns that an allocation ended, if the allocation has a row there, and keep its tags."""
        self.ended.keep(ask.key, ask.tags)
        if ask.row < 0:
            self.columns.changed.pop(ask, None)
        else:
            self.columns.changed[ask] = None

    def tags_of(self, key: str) -> Tags:
        """Return the tags of a pod that is present or ended recently. Return no tags if the pod is unknown."""
        known: Ask | Foreign | None = self.asks.get(key) or self.foreign.pods.get(key)
        if known is not None:
            return known.tags
        return self.ended.get(key)

    def class_of(self, spec: AskSpec, constraints: Constraints) -> AskClass:
        """Return the equivalence class of asks with the spec's demand and gang class and with these constraints.

        Add one to the number of its asks.

        If there is no such class, create it.
        """
        if constraints is spec.constraints:
            found = self.classes.by_spec.get(spec)
            if found is not None:
                found.asks += 1
                return found
        kind = gang_class(spec, self.classed_by)
        key = (spec.resource, constraints, kind, spec.preferences)
        found = self.classes.by_key.get(key)
        if found is None:
            found = self.classes.by_key[key] = self._make_class(key)
        found.asks += 1
        if constraints is spec.constraints:
            self.classes.remember(spec, found)
        return found

    def learn(self, spec: AskSpec) -> None:
        """Remember the equivalence class of a spec, so that later asks with this spec need no search.

        The class is also added to ``classes.plain`` under three conditions: the spec is plain (`AskSpec.is_plain`), its
        quantities are small, and the total of no type is very large (``classes.crowded``).
        """
        self.class_of(spec, spec.constraints).asks -= 1  # the ask that is added next counts itself

    def _make_class(self, key: ClassKey) -> AskClass:
        resource, constraints, kind, preferences = key
        demand = self.types.demand(resource)
        ports = port_demand(constraints.host_ports, self.types)
        self.grow()
        mask = self.constraint_index.acquire(constraints)
        number = self.next_number()
        return AskClass(number, resource, demand, ports, constraints, mask, kind, preferences)

    def private_class(self, like: AskClass) -> AskClass:
        """Return a new class for one ask that has a pledge. The class has one ask from the beginning."""
        mask = self.constraint_index.acquire(like.constraints)
        ports = like.node_demand[len(like.demand) :]
        made = AskClass(
            self.next_number(),
            like.resource,
            like.demand,
            ports,
            like.constraints,
            mask,
            like.gang_class,
            like.preferences,
        )
        made.asks = 1
        return made

    def leave_class(self, ask_class: AskClass) -> None:
        """Decrease the number of asks of the class by one. Remove the class if it has no asks left."""
        ask_class.asks -= 1
        if ask_class.asks:
            return
        self.constraint_index.release(ask_class.mask)
        self.classes.remove(ask_class)

    def constraints_of(self, spec: AskSpec, key: str) -> Constraints:
        """Return the spec's constraints. The result also excludes the nodes that this ask avoids for now (design 1.8)."""
        avoided = self.avoided.get(key)
        if not avoided:
            return spec.constraints
        own = spec.constraints
        return Constraints(
            node_selector=own.node_selector,
            required_terms=own.required_terms,
            tolerations=own.tolerations,
            node_name=own.node_name,
            host_ports=own.host_ports,
            allowed_nodes=own.allowed_nodes,
            excluded_nodes=tuple(sorted({*own.excluded_nodes, *avoided})),
            required_node=own.required_node,
        )
