"""What planners remember of the asks that they could not help, so that these are not tried again at once (G1).

Two sides plan for the same asks: the live one, and beside it a shadow that carries nothing out. Each keeps its own
tries, so that neither holds the other back.
"""

from typing import Final, Protocol

from server.books.applications import Ask, Group, Job, Tried
from server.model.records import Verdict

NODES_MAX: Final = 4_096
"""Asks with a required node of which a shadow remembers that it refused them."""

Rest = tuple[object, int]
"""Until when, under a configuration, nobody of a group is due for a policy."""


class Tries(Protocol):
    """The memory of one side."""

    def refused_ms(self, group: Group | Job) -> int:
        """When those of the group, or the job, that were due were last refused, 0 for never."""

    def refuse(self, group: Group | Job, now: int) -> None:
        """They are refused now."""

    def verdict(self, group: Group | Job) -> Verdict | None:
        """With which verdict."""

    def judge(self, group: Group | Job, verdict: Verdict) -> None:
        """With this verdict."""

    def rest(self, group: Group, policy: str) -> Rest | None:
        """Until when nobody of the group is due for a policy, as long as nobody joins it."""

    def let_rest(self, group: Group, policy: str, rest: Rest) -> None:
        """Nobody is due until then."""

    def node_seen(self, ask: Ask) -> int:
        """The change of the node that it requires at which it was last refused (G11), -1 for none."""

    def see_node(self, ask: Ask, changes: int) -> None:
        """It is refused at this change."""


class LiveTries:
    """Kept with the groups and asks themselves."""

    __slots__ = ()

    def refused_ms(self, group: Group | Job) -> int:
        """As the protocol says."""
        return group.refused_ms

    def refuse(self, group: Group | Job, now: int) -> None:
        """As the protocol says."""
        group.refused_ms = now

    def verdict(self, group: Group | Job) -> Verdict | None:
        """As the protocol says."""
        return group.verdict

    def judge(self, group: Group | Job, verdict: Verdict) -> None:
        """As the protocol says."""
        group.verdict = verdict

    def rest(self, group: Group, policy: str) -> Rest | None:
        """As the protocol says."""
        return group.rests.get(policy)

    def let_rest(self, group: Group, policy: str, rest: Rest) -> None:
        """As the protocol says."""
        group.rests[policy] = rest

    def node_seen(self, ask: Ask) -> int:
        """As the protocol says."""
        return ask.tried_node

    def see_node(self, ask: Ask, changes: int) -> None:
        """As the protocol says."""
        ask.tried_node = changes


class ShadowTries:
    """Kept beside those of the live side; what an earlier shadow left there is not this one's."""

    __slots__ = ("_nodes",)

    def __init__(self) -> None:
        self._nodes: dict[str, int] = {}

    def _known(self, group: Group | Job) -> Tried | None:
        known = group.beside
        return known if known is not None and known.side is self else None

    def _own(self, group: Group | Job) -> Tried:
        known = self._known(group)
        if known is None:
            known = group.beside = Tried(self)
        return known

    def refused_ms(self, group: Group | Job) -> int:
        """As the protocol says."""
        known = self._known(group)
        return 0 if known is None else known.refused_ms

    def refuse(self, group: Group | Job, now: int) -> None:
        """As the protocol says."""
        self._own(group).refused_ms = now

    def verdict(self, group: Group | Job) -> Verdict | None:
        """As the protocol says."""
        known = self._known(group)
        return None if known is None else known.verdict

    def judge(self, group: Group | Job, verdict: Verdict) -> None:
        """As the protocol says."""
        self._own(group).verdict = verdict

    def rest(self, group: Group, policy: str) -> Rest | None:
        """As the protocol says."""
        known = self._known(group)
        return None if known is None else known.rests.get(policy)

    def let_rest(self, group: Group, policy: str, rest: Rest) -> None:
        """As the protocol says."""
        self._own(group).rests[policy] = rest

    def node_seen(self, ask: Ask) -> int:
        """As the protocol says."""
        return self._nodes.get(ask.key, -1)

    def see_node(self, ask: Ask, changes: int) -> None:
        """As the protocol says; of very many asks the first is forgotten, and tried again."""
        self._nodes.pop(ask.key, None)
        self._nodes[ask.key] = changes
        if len(self._nodes) > NODES_MAX:
            del self._nodes[next(iter(self._nodes))]
