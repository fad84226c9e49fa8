"""The records of refused asks, which keep planners from trying these asks again at once (G1).

Two sides plan for the same asks: the live side, and a *shadow*, whose decisions are not carried out. Each side has its own memory,
so that a refusal on one side does not delay the other side.
"""

from typing import Final, Protocol

from server.model.records import Verdict
from server.state.applications import Ask, Gang, Group, Tried

NODES_MAX: Final = 4_096
"""The largest number of asks with a required node whose refusal a shadow remembers."""

Rest = tuple[object, int]
"""A configuration, and an instant. Until that instant, and while that configuration is in force, no ask of a group is due for a policy."""


class Tries(Protocol):
    """The memory of one side, live or shadow."""

    def refused_ms(self, group: Group | Gang) -> int:
        """Return the instant at which the due asks of the group, or the job, were last refused. Return 0 if they were never refused."""

    def refuse(self, group: Group | Gang, now: int) -> None:
        """Record that the due asks of the group, or the job, are refused now."""

    def verdict(self, group: Group | Gang) -> Verdict | None:
        """Return the verdict of the last refusal, or None."""

    def judge(self, group: Group | Gang, verdict: Verdict) -> None:
        """Record the verdict of the last refusal of the group or gang."""

    def rest(self, group: Group, policy: str) -> Rest | None:
        """Return the `Rest` of a group for a policy, or None. An ask that joins the group ends this rest."""

    def let_rest(self, group: Group, policy: str, rest: Rest) -> None:
        """Record the `Rest` of a group for a policy."""

    def node_seen(self, ask: Ask) -> int:
        """Return the ``changes`` counter of the required node when the ask was last refused (G11), -1 if it was never refused."""

    def see_node(self, ask: Ask, changes: int) -> None:
        """Record the ``changes`` counter of the required node, because the ask is refused now."""


class LiveTries:
    """The memory of the live side, which is stored in the groups and asks themselves."""

    __slots__ = ()

    def refused_ms(self, group: Group | Gang) -> int:
        """Return the instant at which the due asks of the group, or the job, were last refused. Return 0 if they were never refused."""
        return group.refused_ms

    def refuse(self, group: Group | Gang, now: int) -> None:
        """Record that the due asks of the group, or the job, are refused now."""
        group.refused_ms = now

    def verdict(self, group: Group | Gang) -> Verdict | None:
        """Return the verdict of the last refusal, or None."""
        return group.verdict

    def judge(self, group: Group | Gang, verdict: Verdict) -> None:
        """Record the verdict of the last refusal of the group or gang."""
        group.verdict = verdict

    def rest(self, group: Group, policy: str) -> Rest | None:
        """Return the `Rest` of a group for a policy, or None. An ask that joins the group ends this rest."""
        return group.rests.get(policy)

    def let_rest(self, group: Group, policy: str, rest: Rest) -> None:
        """Record the `Rest` of a group for a policy."""
        group.rests[policy] = rest

    def node_seen(self, ask: Ask) -> int:
        """Return the ``changes`` counter of the required node when the ask was last refused (G11), -1 if it was never refused."""
        return ask.tried_node

    def see_node(self, ask: Ask, changes: int) -> None:
        """Record the ``changes`` counter of the required node, because the ask is refused now."""
        ask.tried_node = changes


class ShadowTries:
    """The memory of a shadow, in the field ``beside`` of groups and jobs. The memory of an earlier shadow is ignored."""

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
        """Return the instant at which the due asks of the group, or the job, were last refused. Return 0 if they were never refused."""
        known = self._known(group)
        return 0 if known is None else known.refused_ms

    def refuse(self, group: Group | Gang, now: int) -> None:
        """Record that the due asks of the group, or the job, are refused now."""
        self._own(group).refused_ms = now

    def verdict(self, group: Group | Gang) -> Verdict | None:
        """Return the verdict of the last refusal, or None."""
        known = self._known(group)
        return None if known is None else known.verdict

    def judge(self, group: Group | Gang, verdict: Verdict) -> None:
        """Record the verdict of the last refusal of the group or gang."""
        self._own(group).verdict = verdict

    def rest(self, group: Group, policy: str) -> Rest | None:
        """Return the `Rest` of a group for a policy, or None. An ask that joins the group ends this rest."""
        known = self._known(group)
        return None if known is None else known.rests.get(policy)

    def let_rest(self, group: Group, policy: str, rest: Rest) -> None:
        """Record the `Rest` of a group for a policy."""
        self._own(group).rests[policy] = rest

    def node_seen(self, ask: Ask) -> int:
        """Return the ``changes`` counter of the required node when the ask was last refused (G11), -1 if it was never refused."""
        return self._nodes.get(ask.key, -1)

    def see_node(self, ask: Ask, changes: int) -> None:
        """Record the ``changes`` counter of the required node, because the ask is refused now.

        If there are more than NODES_MAX asks, forget the oldest.
        """
        self._nodes.pop(ask.key, None)
        self._nodes[ask.key] = changes
        if len(self._nodes) > NODES_MAX:
            del self._nodes[next(iter(self._nodes))]
