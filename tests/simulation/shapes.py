"""The random parts of worlds: queue trees, their limits, node sizes and ask templates."""

import random
from collections.abc import Iterable
from dataclasses import replace

from server.model.asks import (
    NO_PREFERENCES,
    UNCONSTRAINED,
    AskSpec,
    Constraints,
    GroupPreference,
    HostPort,
    Operator,
    Preferences,
    PreferredTerm,
    Requirement,
    Taint,
    Term,
    Toleration,
)
from server.model.quota import (
    WILDCARD,
    Acl,
    Configuration,
    NodeSort,
    PartitionSpec,
    PlacementRule,
    PreemptionSettings,
    PriorityPolicy,
    QueueProperties,
    QueueSpec,
    SortPolicy,
    UserLimit,
)
from server.model.resources import Limit, Resource, limit, resource

LABELS = (("zone", ("a", "b", "c")), ("disk", ("ssd", "hdd")), ("cores", ("4", "16", "many")))
TAINTS = (
    Taint("gpu", "yes", "NoSchedule"),
    Taint("maintenance", "", "NoExecute"),
    Taint("crowded", "", "PreferNoSchedule"),
)
PRIORITY_EDGES = (2**31 - 1, -(2**31))


def leaves(queue: QueueSpec, path: str = "root") -> list[str]:
    """Return the paths of all leaf queues."""
    found = [leaf for child in queue.children for leaf in leaves(child, f"{path}.{child.name}")]
    return found or [path]


class Shapes:
    """A generator of the parts of one world; templates are few and shared, like those of the pods of one workload."""

    def __init__(self, dice: random.Random, weights: random.Random | None = None) -> None:
        self.dice = dice
        self.weights = weights
        """The random generator for shares by weight; None without shares by weight."""
        self.wishes = random.Random(repr(dice.getstate()[1][:8]))
        """The random generator for preferences, apart from `dice`, so that all other parts stay as they were."""
        self.kinds = ("memory", "vcore", "gpu", "pods")[: dice.choice((1, 2, 2, 3, 4))]
        self.whole = dice.choice((8, 12, 20, 1_000))
        self.specs: list[AskSpec] = []
        self.jobs = 0
        self.limited = dice.random() < 0.25
        self.queues = 0

    # -- nodes and asks ----------------------------------------------------------------------------

    def capacity(self) -> Resource:
        """Return the capacity of a node."""
        whole = self.whole
        return resource(
            {kind: self.dice.choice((whole // 2, whole, whole, whole * 2)) for kind in self.kinds}
        )

    def spec(self, nodes: list[str]) -> AskSpec:
        """Return a template, mostly one that was used before."""
        if not self.specs or (len(self.specs) < 6 and self.dice.random() < 0.5):
            self.specs.append(self._new_spec(nodes))
        return self.dice.choice(self.specs)

    def _new_spec(self, nodes: list[str]) -> AskSpec:
        dice = self.dice
        sizes: tuple[int, ...] = (
            1,
            2,
            self.whole // 8,
            self.whole // 4,
            self.whole // 4,
            self.whole // 3,
        )
        sizes += (self.whole // 2, self.whole) if dice.random() < 0.3 else ()
        wanted = {kind: dice.choice(sizes) for kind in self.kinds if dice.random() < 0.8}
        spec = AskSpec(
            resource=resource(wanted or {self.kinds[0]: 1}),
            priority=dice.choice((0, 0, 0, 1, 5, -2, *PRIORITY_EDGES)),
            constraints=self._constraints(nodes) if dice.random() < 0.35 else UNCONSTRAINED,
            rm_check=dice.random() < 0.1,
            timeout_ms=dice.choice((0,) * 14 + (3_000,)),
            preferences=self._preferences(nodes) if self.wishes.random() < 0.25 else NO_PREFERENCES,
        )
        if dice.random() < 0.2:
            self.jobs += 1
            spec = replace(spec, gang_key=f"job{self.jobs}", min_members=dice.randint(1, 4))
        return spec

    def _constraints(self, nodes: list[str]) -> Constraints:
        dice = self.dice
        some = tuple(dice.sample(nodes, min(len(nodes), 2)))
        one = dice.choice(nodes) if nodes else "n0"
        toleration = dice.choice(
            (
                Toleration("gpu", "Equal", "yes", "NoSchedule"),
                Toleration("maintenance", "Exists"),
                Toleration("", "Exists"),
            )
        )
        return dice.choice(
            (
                Constraints(node_selector=(("zone", dice.choice("abc")),)),
                Constraints(required_terms=self._terms(one)),
                Constraints(tolerations=(toleration,)),
                Constraints(node_name=one),
                Constraints(required_node=one),
                Constraints(allowed_nodes=some),
                Constraints(excluded_nodes=some),
                Constraints(host_ports=(HostPort(80, dice.choice(("TCP", "UDP"))),)),
                Constraints(
                    host_ports=(HostPort(80, "TCP", dice.choice(("10.0.0.1", "10.0.0.2"))),)
                ),
            )
        )

    def _preferences(self, nodes: list[str]) -> Preferences:
        wishes = self.wishes
        zones = Term((Requirement("zone", Operator.IN, (wishes.choice("abc"),)),))
        disks = Term((Requirement("disk", Operator.EXISTS),))
        named = Term((), (Requirement("metadata.name", Operator.IN, tuple(nodes[:1] or ["n0"])),))
        terms = wishes.sample((zones, disks, named), wishes.randint(0, 2))
        groups = [
            GroupPreference(
                wishes.choice(("web", "db")),
                wishes.choice(("zone", "disk")),
                wishes.choice((-100, -10, 10, 100)),
            )
            for _ in range(wishes.randint(0, 2))
        ]
        return Preferences(
            tuple(PreferredTerm(wishes.choice((-20, 10, 50, 100)), one) for one in terms),
            tuple(groups),
        )

    def _terms(self, node: str) -> tuple[Term, ...]:
        requirements = (
            Requirement("zone", Operator.IN, ("a", "b")),
            Requirement("zone", Operator.NOT_IN, ("a",)),
            Requirement("disk", Operator.EXISTS),
            Requirement("disk", Operator.DOES_NOT_EXIST),
            Requirement("cores", Operator.GT, ("8",)),
            Requirement("cores", Operator.LT, ("8",)),
        )
        drawn = [
            Term(tuple(self.dice.sample(requirements, self.dice.randint(1, 2))))
            for _ in range(self.dice.randint(1, 2))
        ]
        if self.dice.random() < 0.3:
            field = Requirement(
                "metadata.name", self.dice.choice((Operator.IN, Operator.NOT_IN)), (node,)
            )
            drawn.append(Term(match_fields=(field,)))
        return tuple(drawn)

    # -- queues ------------------------------------------------------------------------------------

    def configuration(self) -> Configuration:
        """Return a configuration with one partition, sometimes with two."""
        names = ("default", "second") if self.dice.random() < 0.12 else ("default",)
        return Configuration(tuple(self._partition(name) for name in names))

    def _partition(self, name: str) -> PartitionSpec:
        dice = self.dice
        count = dice.randint(2, 8)
        weights = tuple((kind, dice.choice((0, 500, 1_000))) for kind in self.kinds)
        return PartitionSpec(
            name=name,
            root=replace(
                self._queue("root", self._children(count, 1)),
                parent=True,
                max=None,
                guaranteed=(),
                submit_acl=Acl(everyone=True),
                max_applications=0,
            ),
            rules=(PlacementRule(kind="provided"),),
            node_sort=dice.choice((NodeSort.FAIR, NodeSort.BINPACKING)),
            node_weights=weights if dice.random() < 0.5 else (("memory", 1000), ("vcore", 1000)),
            preemption=self._settings(),
        )

    def _settings(self) -> PreemptionSettings:
        if self.weights is None:
            return PreemptionSettings(enabled=False)
        return PreemptionSettings(
            enabled=False,
            entitlement=self.weights.choice(("proportional",) * 5 + ("guaranteed",)),
            demand_cap=self.weights.random() < 0.5,
            trigger="after",
        )

    def _children(self, count: int, depth: int) -> tuple[QueueSpec, ...]:
        children = []
        while count > 0:
            inside = self.dice.randint(1, 3) if depth < 3 and self.dice.random() < 0.4 else 0
            self.queues += 1
            name = f"q{self.queues}"
            grandchildren = self._children(inside, depth + 1) if inside else ()
            children.append(self._queue(name, grandchildren))
            count -= 1 + inside
        return tuple(children)

    def _queue(self, name: str, children: tuple[QueueSpec, ...]) -> QueueSpec:
        dice = self.dice
        return QueueSpec(
            name=name,
            parent=bool(children),
            guaranteed=resource(self._amounts(0.4)),
            weight=self.weights.choice((1, 1, 2, 3, 7)) if self.weights else 1,
            max=self._max() if dice.random() < 0.5 else None,
            max_applications=dice.choice((0, 0, 0, 0, 0, 0, 1, 3)),
            properties=self._properties(),
            limits=self._limits() if self.limited else (),
            children=children,
        )

    def _amounts(self, chance: float) -> dict[str, int]:
        return {
            kind: self.dice.randint(1, self.whole * 3)
            for kind in self.kinds
            if self.dice.random() < chance
        }

    def _max(self) -> Limit:
        amounts = self._amounts(0.6)
        if self.dice.random() < 0.05:
            amounts[self.kinds[-1]] = 0
        return limit(amounts)

    def _properties(self) -> QueueProperties:
        dice = self.dice
        return QueueProperties(
            sort_policy=dice.choice((SortPolicy.FIFO, SortPolicy.FAIR)),
            priority_sort=dice.random() < 0.85,
            priority_policy=(
                PriorityPolicy.FENCE if dice.random() < 0.15 else PriorityPolicy.DEFAULT
            ),
            priority_offset=dice.choice((0, 0, 0, 1, -1, 5, *PRIORITY_EDGES)),
        )

    def _limits(self) -> tuple[UserLimit, ...]:
        users = (("u1",), ("u2", "u3"), (WILDCARD,))
        groups = (("g1",), ("g2",), (WILDCARD,))
        entries = [UserLimit(users=names) for names in users if self.dice.random() < 0.3]
        entries += [UserLimit(groups=names) for names in groups if self.dice.random() < 0.3]
        return self._bounded(entries)

    def _bounded(self, entries: Iterable[UserLimit]) -> tuple[UserLimit, ...]:
        """Return limits for the same names with other bounds."""
        return tuple(
            replace(
                entry,
                max_resources=limit(self._amounts(0.6)),
                max_applications=self.dice.choice((0, 0, 0, 1, 2)),
            )
            for entry in entries
        )

    # -- a changed configuration -------------------------------------------------------------------

    def changed(self, partitions: Iterable[PartitionSpec]) -> Configuration:
        """Return the configuration with other numbers; now and then a queue is added or removed."""
        specs = []
        for spec in partitions:
            children = [self._mutated(child) for child in spec.root.children]
            draw = self.dice.random()
            if draw < 0.15 and len(children) > 1:
                children.pop(self.dice.randrange(len(children)))
            elif draw < 0.3:
                children += self._children(1, 3)
            root = replace(spec.root, children=tuple(children))
            settings = spec.preemption
            if self.weights is not None and self.weights.random() < 0.3:
                settings = self._settings()
            specs.append(replace(spec, root=root, preemption=settings))
        return Configuration(tuple(specs))

    def _mutated(self, queue: QueueSpec) -> QueueSpec:
        children = tuple(self._mutated(child) for child in queue.children)
        if self.dice.random() < 0.6:
            return replace(queue, children=children)
        # A limit keeps its users and groups; only its bounds change.
        changed = self._queue(queue.name, children)
        return replace(changed, limits=self._bounded(queue.limits))
