"""Ask classes: one class has all asks with the same demand, constraints, preferences and gang class (design 6.10).

A gang class is firm or lendable.

Placement works with classes. If one ask of a class fits on no node, the other asks of the class fit on no node either. A limit
that blocks one ask blocks all asks of the class. An ask with a pledge has a class of its own, because its own pledge and promise
do not count as used when the ask is tried (design 6.6).
"""

from typing import TYPE_CHECKING, Final

from server.model.asks import NO_PREFERENCES, AskSpec, Constraints, GangClass, Preferences
from server.model.fit import Demand
from server.model.resources import Resource
from server.state.preferred import Preferred
from server.state.unschedulable import Unschedulable

if TYPE_CHECKING:
    from server.state.applications import Group
    from server.state.commitments import Pledge
    from server.state.constraints import NodeMask
    from server.state.nodes import NodeEntry

SMALL: Final = 1 << 40
"""The bound below which a quantity counts as small.

A small quantity of an ask is checked against the partition's total of its type only if that total is high (design 6.13,
`events.overflow`).
"""


def is_small(resource: Resource) -> bool:
    """Return whether all quantities are below `SMALL`.

    If no type has a high total (`EquivalenceClasses.crowded`), the totals need no check for an ask whose quantities are all
    small.
    """
    return all(quantity < SMALL for _, quantity in resource)


class AskClass:
    """One equivalence class of asks, and what the search for nodes has found out about the class."""

    __slots__ = (
        "asks",
        "constraints",
        "cursor",
        "dead",
        "demand",
        "firm",
        "gang_class",
        "heap",
        "log_epoch",
        "mask",
        "node_demand",
        "number",
        "pending",
        "pledge",
        "preferences",
        "preferred",
        "resource",
        "small",
        "specs",
        "waiting",
    )

    def __init__(  # noqa: PLR0913, PLR0917 - a record of the state
        self,
        number: int,
        resource: Resource,
        demand: Demand,
        ports: Demand,
        constraints: Constraints,
        mask: "NodeMask",
        gang_class: GangClass | None = None,
        preferences: Preferences = NO_PREFERENCES,
    ) -> None:
        self.number = number
        self.resource = resource
        self.demand = demand
        """The amounts that are charged to queues."""
        self.node_demand = demand + ports
        """The demand with host ports, which only nodes count."""
        self.constraints = constraints
        self.gang_class = gang_class
        """The gang class of the asks, firm or lendable. None if the partition has no gang classes (J4)."""
        self.firm = gang_class is GangClass.FIRM
        self.mask = mask
        self.preferences = preferences
        self.preferred = None if preferences == NO_PREFERENCES else Preferred(preferences)
        """The order of the nodes for a class with ``preferences``.

        The value is None for a class without preferences. Most classes have none.
        """
        self.specs: list[AskSpec] = []
        self.small = is_small(resource)
        self.asks = 0
        self.pending = 0
        self.dead = False
        """Whether the class is unschedulable: its asks fit on no node."""
        self.waiting: list[Group] = []
        """The groups that are parked because the class is unschedulable."""
        self.heap: list[NodeEntry] | None = None
        """The class's own heap of nodes.

        The heap is built when searches for this class have passed over too many unsuitable nodes of the shared heap.
        """
        self.cursor = 0
        """The position up to which the class has read the log of nodes (`NodeIndex.log`)."""
        self.log_epoch = -1
        """The value of `NodeIndex.epoch` when the class last read the log of nodes."""
        self.pledge: Pledge | None = None


ClassKey = tuple[Resource, Constraints, GangClass | None, Preferences]


def key_of(ask_class: AskClass) -> ClassKey:
    """Return the values that all asks of a class share."""
    return (
        ask_class.resource,
        ask_class.constraints,
        ask_class.gang_class,
        ask_class.preferences,
    )


SHAPES_MAX: Final = 8192
"""The largest number of specs whose class is remembered. If there are more specs, all remembered specs are forgotten."""


class EquivalenceClasses:
    """The ask classes of one partition, and the specs whose class is known."""

    __slots__ = ("by_key", "by_spec", "crowded", "dead", "groups", "joined", "live_asks", "plain")

    def __init__(self) -> None:
        self.by_key: dict[ClassKey, AskClass] = {}
        self.by_spec: dict[AskSpec, AskClass] = {}
        self.plain: dict[AskSpec, AskClass] = {}
        """The class of each spec whose asks may be added on the fast path."""
        self.crowded: set[str] = set()
        """The names of the resource types with very large totals of usage and requests.

        For these types, even small asks have to be checked (6.13).
        """
        self.dead = Unschedulable()
        """The unschedulable classes, whose asks fit on no node."""
        self.live_asks = 0
        """The number of waiting asks whose classes are not unschedulable. If this number is 0, no waiting ask can be placed."""
        self.groups = 0
        """The number of groups of waiting asks."""
        self.joined = 0
        """The number of times that an ask joined a group."""

    def remember(self, spec: AskSpec, ask_class: AskClass) -> None:
        """Remember the class of a spec.

        The class is also added to ``plain`` if asks with this spec may be added on the fast path: the spec is plain
        (`AskSpec.is_plain`), its quantities are small and no type is crowded.

        If SHAPES_MAX specs are already remembered, all of them are forgotten first.
        """
        if len(self.by_spec) >= SHAPES_MAX:
            self.forget_specs()
        self.by_spec[spec] = ask_class
        ask_class.specs.append(spec)
        if ask_class.small and spec.is_plain and not self.crowded:
            self.plain[spec] = ask_class

    def forget_specs(self) -> None:
        """Forget the classes of all specs, so that the class of a spec is looked up again when the spec is next used."""
        self.by_spec.clear()
        self.plain.clear()

    def crowd(self, name: str, *, crowded: bool) -> None:
        """Record whether the total of this resource type is so high that small asks can raise it to 2^62 (design 6.13)."""
        if crowded != (name in self.crowded):
            (self.crowded.add if crowded else self.crowded.discard)(name)
            self.forget_specs()

    def remove(self, ask_class: AskClass) -> None:
        """Remove a class that has no asks, and forget the class of each of its specs."""
        self.dead.discard(ask_class)
        key = key_of(ask_class)
        if self.by_key.get(key) is ask_class:
            del self.by_key[key]
            for spec in ask_class.specs:
                self.by_spec.pop(spec, None)
                self.plain.pop(spec, None)
