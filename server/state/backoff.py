"""The records of refused asks, which keep planners from trying these asks again at once (G1).

The core may plan twice for the same asks: *live*, with decisions that are carried out, and for a *shadow*, with decisions that
are not carried out. Refusals by live planning and refusals by the shadow are recorded separately. Thus a refusal in the shadow
does not delay a live decision.
"""

from typing import Final, Protocol

from server.model.records import Verdict
from server.state.applications import Ask, Gang, Group, Tried

NODES_MAX: Final = 4_096
"""The largest number of asks with a required node whose refusal a shadow remembers."""

Rest = tuple[object, int]
"""A pause in which one policy does not plan for one group: a configuration, and an instant.

While the configuration is in force, no ask of the group is due for the policy before the instant.
"""


class Tries(Protocol):
    """The record of refused asks that live planning or a shadow reads and writes."""

    def refused_ms(self, group: Group | Gang) -> int:
        """Return the instant of the last refusal of the group's due asks, or of the gang. Return 0 if there was no refusal."""

    def refuse(self, group: Group | Gang, now: int) -> None:
        """Record that preemption is refused now for the group's due asks, or for the gang."""

    def verdict(self, group: Group | Gang) -> Verdict | None:
        """Return why preemption was last refused to the group or gang. Return None if there was no refusal."""

    def judge(self, group: Group | Gang, verdict: Verdict) -> None:
        """Record why preemption was last refused to the group or gang."""

    def rest(self, group: Group, policy: str) -> Rest | None:
        """Return the pause in which a policy does not plan for a group, or None. An ask that joins the group ends the pause."""

    def let_rest(self, group: Group, policy: str, rest: Rest) -> None:
        """Record a pause in which a policy does not plan for a group."""

    def node_seen(self, ask: Ask) -> int:
        """Return the ``changes`` counter of the required node when the ask was last refused (G11).

        Return -1 if there was no refusal.
        """

    def see_node(self, ask: Ask, changes: int) -> None:
        """Record the ``changes`` counter of the required node, because the ask is refused now."""


class LiveTries:
    """The record of asks that live planning refused. The record is stored in the groups and asks themselves."""

    __slots__ = ()

    def refused_ms(self, group: Group | Gang) -> int:
        """Return the instant of the last refusal of the group's due asks, or of the gang. Return 0 if there was no refusal."""
        return group.refused_ms

    def refuse(self, group: Group | Gang, now: int) -> None:
        """Record that preemption is refused now for the group's due asks, or for the gang."""
        group.refused_ms = now

    def verdict(self, group: Group | Gang) -> Verdict | None:
        """Return why preemption was last refused to the group or gang. Return None if there was no refusal."""
        return group.verdict

    def judge(self, group: Group | Gang, verdict: Verdict) -> None:
        """Record why preemption was last refused to the group or gang."""
        group.verdict = verdict

    def rest(self, group: Group, policy: str) -> Rest | None:
        """Return the pause in which a policy does not plan for a group, or None. An ask that joins the group ends the pause."""
        return group.rests.get(policy)

    def let_rest(self, group: Group, policy: str, rest: Rest) -> None:
        """Record a pause in which a policy does not plan for a group."""
        group.rests[policy] = rest

    def node_seen(self, ask: Ask) -> int:
        """Return the ``changes`` counter of the required node when the ask was last refused (G11).

        Return -1 if there was no refusal.
        """
        return ask.tried_node

    def see_node(self, ask: Ask, changes: int) -> None:
        """Record the ``changes`` counter of the required node, because the ask is refused now."""
        ask.tried_node = changes


class ShadowTries:
    """The record of asks that a shadow refused, in the field ``beside`` of groups and gangs.

    The record of an earlier shadow is ignored.
    """

    __slots__ = ("_nodes",)

    def __init__(self) -> None:
        self._nodes: dict[str, int] = {}

    def _known(self, group: Group | Gang) -> Tried | None:
        known = group.beside
        return known if known is not None and known.side is self else None

    def _own(self, group: Group | Gang) -> Tried:
        known = self._known(group)
        if known is None:
            known = group.beside = Tried(self)
        return known

    def refused_ms(self, group: Group | Gang) -> int:
        """Return the instant of the last refusal of the group's due asks, or of the gang. Return 0 if there was no refusal."""
        known = self._known(group)
        return 0 if known is None else known.refused_ms

    def refuse(self, group: Group | Gang, now: int) -> None:
        """Record that preemption is refused now for the group's due asks, or for the gang."""
        self._own(group).refused_ms = now

    def verdict(self, group: Group | Gang) -> Verdict | None:
        """Return why preemption was last refused to the group or gang. Return None if there was no refusal."""
        known = self._known(group)
        return None if known is None else known.verdict

    def judge(self, group: Group | Gang, verdict: Verdict) -> None:
        """Record why preemption was last refused to the group or gang."""
        self._own(group).verdict = verdict

    def rest(self, group: Group, policy: str) -> Rest | None:
        """Return the pause in which a policy does not plan for a group, or None. An ask that joins the group ends the pause."""
        known = self._known(group)
        return None if known is None else known.rests.get(policy)

    def let_rest(self, group: Group, policy: str, rest: Rest) -> None:
        """Record a pause in which a policy does not plan for a group."""
        self._own(group).rests[policy] = rest

    def node_seen(self, ask: Ask) -> int:
        """Return the ``changes`` counter of the required node when the ask was last refused (G11).

        Return -1 if there was no refusal.
        """
        return self._nodes.get(ask.key, -1)

    def see_node(self, ask: Ask, changes: int) -> None:
        """Record the ``changes`` counter of the required node, because the ask is refused now.

        If there are more than NODES_MAX asks, forget the oldest.
        """
        self._nodes.pop(ask.key, None)
        self._nodes[ask.key] = changes
        if len(self._nodes) > NODES_MAX:
            del self._nodes[next(iter(self._nodes))]
