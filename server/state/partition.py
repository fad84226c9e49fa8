"""The state of one partition, and look-ups in it. The changes to it are in `journal` and `tree`."""

from typing import Final

from server.model.asks import (
    NO_TAGS,
    AskSpec,
    Constraints,
    JobClass,
    ReleaseMark,
    Tags,
    job_class,
)
from server.model.fit import Amounts
from server.model.quota import DEFAULT_PARTITION, PartitionSpec
from server.model.ranking import Ranking
from server.model.records import DecisionRecord, DecisionState
from server.model.resources import Resource
from server.snapshot.queues import Bounds
from server.state.applications import Application, Ask, Group, Job
from server.state.columns import Columns
from server.state.commitments import Commitment, Pledge
from server.state.constraints import ConstraintIndex, port_demand
from server.state.equivalence import AskClass
from server.state.limits import Limiter
from server.state.lost_work import LostWork
from server.state.nodes import Foreign, Node, NodeIndex
from server.state.queues import Queue
from server.state.rounds import Round
from server.state.shadow import Shadow
from server.state.thrashing import Storms
from server.state.types import NO_LIMIT, ResourceTypes

ENDED_KEPT_MAX: Final = 10_000
"""The fewest ended pods whose tags are kept, once so many have ended; at most twice as many are kept."""
TAGS_KEPT_BYTES_MAX: Final = 4_096
"""The most bytes of an ended pod's tags that are kept."""
SHAPES_MAX: Final = 8192
"""The most specs whose class is remembered by identity; beyond it all are forgotten."""

ClassKey = tuple[Resource, Constraints, JobClass | None]


class Partition:
    """The state of one partition. Amounts are lists by type index.

    ``relief`` counts events that may have freed capacity, ``placements`` what was placed: a parked gang is tried again
    when either has moved, because a placement can change which nodes the others take (design 6.11).
    ``owner`` is the resource manager whose cluster this is, "" while it has neither nodes nor applications.
    ``reservations`` are the pledges that reserve a node for an ask without evicting anything.
    ``moves`` are ends and confirmations of decisions that were not reported yet, ``decisions`` the records of the
    open ones and of the last that ended, ``rankings`` the orders in which they took their victims.
    ``leaving`` are the victims of decisions, ended ones too, that are not gone yet, ``marked``
    those of them that are only marked (J11).
    ``suspended`` has decisions that are replanned because a victim was vetoed.
    ``marks`` has, by decision that was open before a restart, what its victims reported of it.
    ``ended`` has the tags of the pods that ended last, ``ended_before`` those of pods that ended before them.
    ``disruptions`` says by disruption group how many of its pods may be evicted.
    ``quota_due`` has by path the instants at which quota runs are due (see `quota_timers`).
    ``deserved`` bounds leaves where they share by plain weights (W2); ``shared_for`` is the state for which the shares in
    force were computed.
    ``holding`` has the applications with asks that wait for placeholders, each with the state of the partition in which
    placeholders were last looked for in vain.
    ``gathering`` has the jobs without a stated size that gather members, with the instant since which no member joined;
    ``came`` those for which that has to be checked again, and whether a member joined.
    ``parked_jobs`` are the gangs that were found not to fit, ``ready_jobs`` those that may fit.
    ``shapes`` has the class of each known spec, ``plain`` of those whose asks may be added on the fast path.
    ``changed`` has the allocations that the columns have to carry over, without those that came and went in between.
    ``crowded`` names the resource types of which so much is used and waited for that small asks count, too (6.13).
    ``live_asks`` counts waiting asks of classes that are not dead: at 0 there is nothing to place.
    ``shadow`` is the memory of the shadow of its settings, None without one.
    ``storms`` is the memory of the storm monitor, ``lost_work`` the work that victims lost, ``lost_owners`` the same
    by their users and applications.
    """

    __slots__ = (
        "applications",
        "arrivals",
        "ask_count",
        "asks",
        "avoided",
        "came",
        "capacity",
        "changed",
        "classes",
        "columns",
        "commitments",
        "constraint_index",
        "crowded",
        "dead",
        "decisions",
        "deserved",
        "disruptions",
        "ended",
        "ended_before",
        "foreign",
        "foreign_usage",
        "free_slots",
        "fresh",
        "gathering",
        "holding",
        "index",
        "leaving",
        "limiters",
        "live_asks",
        "lost_owners",
        "lost_work",
        "marked",
        "marks",
        "moves",
        "name",
        "numbers",
        "owner",
        "parked_jobs",
        "placements",
        "plain",
        "pledges",
        "queues",
        "quota_due",
        "ranking_stale",
        "rankings",
        "ready_jobs",
        "relief",
        "relieved",
        "reservations",
        "retired",
        "root",
        "round",
        "shadow",
        "shapes",
        "shared_for",
        "slots",
        "spec",
        "storms",
        "suspended",
        "types",
        "untold",
    )

    def __init__(self, spec: PartitionSpec) -> None:  # noqa: PLR0915 - a record of the state
        self.name = spec.name
        self.owner = ""
        self.spec = spec
        self.types = ResourceTypes()
        weights = tuple((self.types.intern(name), weight) for name, weight in spec.node_weights)
        self.index = NodeIndex(spec.node_sort, weights)
        self.constraint_index = ConstraintIndex()
        self.capacity: Amounts = self.types.zeros()
        self.foreign_usage: Amounts = self.types.zeros()
        self.queues: dict[str, Queue] = {}
        self.root = Queue(spec.root, None, 0, self.types.zeros())
        self.queues[self.root.path] = self.root
        self.applications: dict[str, Application] = {}
        self.asks: dict[str, Ask] = {}
        self.fresh: list[Ask] = []
        self.foreign: dict[str, Foreign] = {}
        self.ended: dict[str, Tags] = {}
        self.ended_before: dict[str, Tags] = {}
        self.classes: dict[ClassKey, AskClass] = {}
        self.shapes: dict[AskSpec, AskClass] = {}
        self.plain: dict[AskSpec, AskClass] = {}
        self.crowded: set[str] = set()
        self.dead: dict[AskClass, None] = {}
        self.limiters: dict[tuple[str, str, str], Limiter] = {}
        self.commitments: dict[str, Commitment] = {}
        self.pledges: dict[str, Pledge] = {}
        self.reservations: dict[str, Pledge] = {}
        self.moves: list[tuple[Commitment, DecisionState, str]] = []
        self.decisions: dict[str, DecisionRecord] = {}
        self.rankings: dict[str, Ranking] = {}
        self.disruptions: dict[str, int] = {}
        self.leaving: dict[str, Ask] = {}
        self.marked: dict[str, Ask] = {}
        self.storms = Storms()
        self.lost_work = LostWork()
        self.lost_owners = LostWork()
        self.marks: dict[str, dict[str, ReleaseMark]] = {}
        self.quota_due: dict[str, int] = {}
        self.deserved: dict[str, Bounds] = {}
        self.shared_for: object = None
        self.suspended: dict[str, Commitment] = {}
        self.avoided: dict[str, dict[str, int]] = {}
        self.arrivals = 0
        self.numbers = 1
        self.live_asks = 0
        self.ask_count = 0
        self.relief = 0
        self.placements = 0
        self.parked_jobs: list[Job] = []
        self.ready_jobs: dict[Job, None] = {}
        self.came: dict[Job, bool] = {}
        self.gathering: dict[Job, int] = {}
        self.holding: dict[Application, tuple[int, int] | None] = {}
        self.relieved: list[Limiter] = []
        self.untold: dict[Group | Job, None] = {}
        self.changed: dict[Ask, None] = {}
        self.columns = Columns()
        self.round = Round()
        self.shadow: Shadow | None = None
        self.ranking_stale = True
        self.retired = False
        self.slots: list[Node | None] = []
        self.free_slots: list[int] = []

    def next_number(self) -> int:
        """Return the next number for a queue, class, node or application, in order of arrival."""
        self.numbers += 1
        return self.numbers

    def decision_id(self, letter: str, now: int) -> str:
        """Return an id for a new decision, made of instant, number and partition so that it is unique across restarts.

        Only partitions other than `default` are named in it. With a clock that was set back, a number may give an id that
        is in use since before a restart; such a number is skipped.
        """
        where = "" if self.name == DEFAULT_PARTITION else f"-{self.name}"
        name = f"{letter}-{now:x}-{self.next_number()}{where}"
        while name in self.commitments or name in self.decisions:
            name = f"{letter}-{now:x}-{self.next_number()}{where}"
        return name

    def grow(self) -> None:
        """Lengthen every amount after new types were interned."""
        width = len(self.types)
        if len(self.capacity) == width:
            return
        queues = self.queues.values()
        plain = [self.capacity, self.foreign_usage]
        for queue in queues:
            plain += [queue.usage, queue.promised, queue.releasing, queue.measure, queue.lost]
            if queue.basis is not queue.measure:
                plain.append(queue.basis)
            plain += [queue.firm_held, queue.firm_waiting]
        plain += [application.usage for application in self.applications.values()]
        for amounts in plain:
            amounts.extend([0] * (width - len(amounts)))
        for queue in queues:
            queue.compare(queue.measure, None if queue.basis is queue.measure else queue.basis)
        rooms = [queue.limiter.room for queue in queues if queue.limiter is not None]
        rooms += [queue.firm.room for queue in queues if queue.firm is not None]
        rooms += [limiter.room for limiter in self.limiters.values()]
        for room in rooms:
            room.extend([NO_LIMIT] * (width - len(room)))
        for node in self.index.nodes.values():
            made_up = self.types.synthetic[len(node.capacity) :]
            node.capacity.extend(made_up)
            node.free.extend(made_up)

    def note_end(self, ask: Ask) -> None:
        """Note for the columns that an allocation ended, if they have a row of it, and keep its tags."""
        self.keep_tags(ask.key, ask.tags)
        if ask.row < 0:
            self.changed.pop(ask, None)
        else:
            self.changed[ask] = None

    def keep_tags(self, key: str, tags: Tags) -> None:
        """Keep the tags of a pod that ended or was refused: its name is read later. Very long ones are not kept."""
        if tags and len(tags[0]) > TAGS_KEPT_BYTES_MAX:
            return
        self.ended[key] = tags
        if len(self.ended) >= ENDED_KEPT_MAX:
            self.ended, self.ended_before = {}, self.ended

    def tags_of(self, key: str) -> Tags:
        """Return the tags of a pod that is here or ended lately; none for one that is not known."""
        known: Ask | Foreign | None = self.asks.get(key) or self.foreign.get(key)
        if known is not None:
            return known.tags
        return self.ended.get(key) or self.ended_before.get(key) or NO_TAGS

    def class_of(self, spec: AskSpec, constraints: Constraints) -> AskClass:
        """Return the class of asks with this demand and these constraints, and count one more ask in it."""
        if constraints is spec.constraints:
            found = self.shapes.get(spec)
            if found is not None:
                found.asks += 1
                return found
        key = (spec.resource, constraints, job_class(spec, self.spec.preemption))
        found = self.classes.get(key)
        if found is None:
            found = self.classes[key] = self._make_class(key)
        found.asks += 1
        if constraints is spec.constraints:
            self._remember(spec, found)
        return found

    def learn(self, spec: AskSpec) -> None:
        """Remember the class of a spec; a plain spec of small quantities is in `plain` from now on."""
        self.class_of(spec, spec.constraints).asks -= 1  # its ask comes next, and counts

    def _remember(self, spec: AskSpec, ask_class: AskClass) -> None:
        if len(self.shapes) >= SHAPES_MAX:
            self.forget_shapes()
        self.shapes[spec] = ask_class
        ask_class.specs.append(spec)
        if ask_class.small and spec.is_plain and not self.crowded:
            self.plain[spec] = ask_class

    def forget_shapes(self) -> None:
        """Forget the classes of all specs, so that each is looked up when its spec comes next."""
        self.shapes.clear()
        self.plain.clear()

    def crowd(self, name: str, *, crowded: bool) -> None:
        """Set whether small asks can take the total of this resource type past 2^62 (design 6.13)."""
        if crowded != (name in self.crowded):
            (self.crowded.add if crowded else self.crowded.discard)(name)
            self.forget_shapes()

    def _make_class(self, key: ClassKey) -> AskClass:
        resource, constraints, kind = key
        demand = self.types.demand(resource)
        ports = port_demand(constraints.host_ports, self.types)
        self.grow()
        mask = self.constraint_index.acquire(constraints)
        return AskClass(self.next_number(), resource, demand, ports, constraints, mask, kind)

    def private_class(self, like: AskClass) -> AskClass:
        """Return a new class for one reserved ask, with that ask counted in it."""
        mask = self.constraint_index.acquire(like.constraints)
        ports = like.node_demand[len(like.demand) :]
        made = AskClass(
            self.next_number(),
            like.resource,
            like.demand,
            ports,
            like.constraints,
            mask,
            like.job_class,
        )
        made.asks = 1
        return made

    def leave_class(self, ask_class: AskClass) -> None:
        """Count one ask less in the class, and remove the class with its last ask."""
        ask_class.asks -= 1
        if ask_class.asks:
            return
        self.constraint_index.release(ask_class.mask)
        self.dead.pop(ask_class, None)
        key = (ask_class.resource, ask_class.constraints, ask_class.job_class)
        if self.classes.get(key) is ask_class:
            del self.classes[key]
            for spec in ask_class.specs:
                self.shapes.pop(spec, None)
                self.plain.pop(spec, None)

    def constraints_of(self, spec: AskSpec, key: str) -> Constraints:
        """Return the spec's constraints, less the nodes that this ask avoids for now (design 1.8)."""
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
