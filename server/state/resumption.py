"""The objects of a partition whose manager registered again and has not completed its sync yet (design 1.10).

The core keeps everything that the manager reported before. When the manager reports an object again, the object is removed from
these tables. The objects that are still in the tables at the end of the sync count as ended. Until the end of the sync nothing
is placed or evicted, and timers wait. The capacity of pods that may be gone counts as used.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

from server.model.fit import Demand

if TYPE_CHECKING:
    from server.state.applications import Application, Ask
    from server.state.commitments import Commitment
    from server.state.nodes import Foreign, Node

_Object = TypeVar("_Object")
HeldTimer = tuple[int, int, str, str, str]
"""A timer, with the fields of `server.core.state.Timer`."""


class Resumption:
    """The objects that a manager has not reported again, and the work that waits for the end of the manager's sync.

    During the sync, an object in one of the tables ``nodes``, ``applications``, ``asks`` and ``foreign`` may be removed from the
    partition, and a new object may get its name. Therefore `still_there` checks that a name still belongs to the object in the
    table.
    """

    __slots__ = (
        "announced",
        "applications",
        "asks",
        "foreign",
        "grown",
        "keeps_quota",
        "nodes",
        "timers",
        "unchecked",
        "unordered",
        "unseen",
        "vacated",
        "withdrawn",
    )

    def __init__(self, *, keeps_quota: bool) -> None:
        self.nodes: dict[str, Node] = {}
        """The nodes that were not reported again yet."""
        self.applications: dict[str, Application] = {}
        """The applications that were not reported again yet."""
        self.asks: dict[str, Ask] = {}
        """The asks and allocations that were not reported again yet."""
        self.foreign: dict[str, Foreign] = {}
        """The foreign pods that were not reported again yet."""
        self.announced: dict[str, None] = {}
        """The nodes that were reported as draining, until the manager drains or enables them."""
        self.unseen: dict[str, Ask] = {}
        """The allocations that the manager reported as waiting asks, because the manager did not receive the placements."""
        self.unordered: dict[str, Ask] = {}
        """The allocations that were being released or replaced, and that the manager now reports without the mark of that order."""
        self.withdrawn: dict[str, str] = {}
        """The soft evictions that the core withdrew although the manager still reports their marks: the id of the decision, by the key of the victim."""
        self.unchecked: dict[str, bool] = {}
        """The nodes whose pledges may no longer fit. For each of these nodes, a flag says whether the node itself changed."""
        self.grown: dict[str, tuple[Ask, Demand]] = {}
        """The allocations that are new or larger, each with its earlier demand, for the timers of quota runs (Q7)."""
        self.vacated: dict[str, Commitment] = {}
        """The replacements whose placeholders ended during the sync.

        The asks of these replacements can be placed at the end of the sync.
        """
        self.timers: list[HeldTimer] = []
        """The timers that came due during the sync."""
        self.keeps_quota = keeps_quota
        """Whether the timers of quota runs continue (Q7)."""

    def check_later(self, node: "Node", *, changed: bool = False) -> None:
        """Record that the pledges on a node must be checked at the end of the sync, because they may no longer fit."""
        known = self.unchecked.get(node.node_id, False)
        self.unchecked[node.node_id] = known or changed

    def reported(self, ask: "Ask") -> None:
        """Record that an ask or allocation was reported again.

        The caller records all other facts of the report, such as a changed size.
        """
        self.asks.pop(ask.key, None)
        self.unseen.pop(ask.key, None)
        self.unordered.pop(ask.key, None)
        self.withdrawn.pop(ask.key, None)


def still_there(table: Mapping[str, _Object], present: Mapping[str, _Object]) -> Iterator[_Object]:
    """Yield the objects of a table of `Resumption` that still exist. ``present`` has the present objects by name."""
    for name, one in list(table.items()):
        if present.get(name) is one:
            yield one
