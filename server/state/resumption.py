"""The state of a partition whose manager registered again and did not complete its sync yet (design 1.10).

Everything that the manager reported before stays. What it reports again is taken out of this state; what is left at the end of the
sync has ended. Until then nothing is placed or evicted, timers wait, and capacity of pods that may be gone counts as used.
"""

from typing import TYPE_CHECKING

from server.model.fit import Demand

if TYPE_CHECKING:
    from server.state.applications import Application, Ask
    from server.state.commitments import Commitment
    from server.state.nodes import Foreign, Node

HeldTimer = tuple[int, int, str, str, str]
"""A timer as `server.core.state.Timer`."""


class Resumption:
    """The objects that a manager has not reported again, and the work that waits for the end of its sync.

    - ``nodes``, ``applications``, ``asks`` (with allocations) and ``foreign`` are the objects that were not reported again yet.
      An object that was removed meanwhile, or replaced by another with its name, may be left in them: compare identities.
    - ``announced`` has the nodes that were reported as draining, as long as neither a drain nor an enable followed. ``unchanged``
      has the nodes that were reported as they were.
    - ``unseen`` are the allocations that the manager reported as waiting asks, because it did not receive their placements.
    - ``unordered`` are the allocations that have to end, by an order of the core or of their owners, and were reported without a mark.
    - ``withdrawn`` has by key the decision of a soft eviction that was withdrawn, and whose mark the manager reported.
    - ``unchecked`` has the nodes whose pledges may not fit any more, each with whether the node itself changed.
    - ``grown`` has the allocations that are new or larger, each with its former demand, for the timers of quota runs (Q7).
    - ``vacated`` are the replacements whose placeholders have ended, so that their asks can be placed.
    - ``timers`` are the timers that came due.
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
        "unchanged",
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
        self.unchanged: dict[str, None] = {}
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
        """Take an ask or allocation out of those that were not reported again; the caller notes what else the report says."""
        self.asks.pop(ask.key, None)
        self.unseen.pop(ask.key, None)
        self.unordered.pop(ask.key, None)
        self.withdrawn.pop(ask.key, None)
