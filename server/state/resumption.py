"""The state of a partition whose manager registered again and has not completed its sync yet (design 1.10).

The core keeps everything that the manager had reported. Each object that the manager reports again is taken out of this state.
Objects that are left at the end of the sync count as ended. Until then nothing is placed or evicted, timers wait, and the capacity
of pods that may be gone counts as used.
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
"""A timer as `server.core.state.Timer`."""


class Resumption:
    """The objects that a manager has not reported again, and the work that waits for the end of its sync.

    - ``nodes``, ``applications``, ``asks`` (with allocations) and ``foreign`` are the objects that were not reported again yet.
      These tables may still have an object that was removed meanwhile, or whose name now belongs to another object. Therefore
      compare identities (`still_there`).
    - ``announced`` has the nodes that were reported as draining, as long as the manager has neither drained nor enabled them
      afterwards.
    - ``unseen`` are the allocations that the manager reported as waiting asks, because it did not receive their placements.
    - ``unordered`` are the allocations that were being released or replaced, and are now reported without a mark.
    - ``withdrawn`` has by key the decision of each soft eviction that the core had withdrawn, but whose mark the manager reports.
    - ``unchecked`` has the nodes whose pledges may no longer fit. The value says whether the node itself changed.
    - ``grown`` has the allocations that are new or larger, each with its former demand, for the timers of quota runs (Q7).
    - ``vacated`` are the replacements whose placeholders have ended during the sync. Their asks can be placed at its end.
    - ``timers`` are the timers that came due during the sync.
    - ``keeps_quota`` says that the timers of quota runs go on (Q7).
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
        self.applications: dict[str, Application] = {}
        self.asks: dict[str, Ask] = {}
        self.foreign: dict[str, Foreign] = {}
        self.announced: dict[str, None] = {}
        self.unseen: dict[str, Ask] = {}
        self.unordered: dict[str, Ask] = {}
        self.withdrawn: dict[str, str] = {}
        self.unchecked: dict[str, bool] = {}
        self.grown: dict[str, tuple[Ask, Demand]] = {}
        self.vacated: dict[str, Commitment] = {}
        self.timers: list[HeldTimer] = []
        self.keeps_quota = keeps_quota

    def check_later(self, node: "Node", *, changed: bool = False) -> None:
        """Remember to check at the end of the sync whether the pledges on a node still fit."""
        known = self.unchecked.get(node.node_id, False)
        self.unchecked[node.node_id] = known or changed

    def reported(self, ask: "Ask") -> None:
        """Note that an ask or allocation is reported again. The caller notes what else the report says."""
        self.asks.pop(ask.key, None)
        self.unseen.pop(ask.key, None)
        self.unordered.pop(ask.key, None)
        self.withdrawn.pop(ask.key, None)


def still_there(table: Mapping[str, _Object], present: Mapping[str, _Object]) -> Iterator[_Object]:
    """Yield those objects of a table of `Resumption` that were not removed, given what is ``present`` now under each name."""
    for name, one in list(table.items()):
        if present.get(name) is one:
            yield one
