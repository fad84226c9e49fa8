"""Applications with their asks, kept as heaps of groups of equal asks (design 6.4)."""

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from server.model.asks import AskSpec, Generation, Tags
from server.model.decisions import ApplicationState
from server.model.fit import Amounts
from server.model.records import Verdict
from server.state.lost_work import Going

if TYPE_CHECKING:
    from server.state.commitments import Commitment, Pledge
    from server.state.equivalence import AskClass
    from server.state.limits import Limiter
    from server.state.nodes import Node
    from server.state.placeholders import Hold, Reserve
    from server.state.queues import Queue

AskKey = tuple[int, int, int]
"""The sort key of an ask: (-priority, pending since, arrival number). The ask with the smallest key is placed first (design 6.3)."""


class Ask:
    """An ask. An ask that has a node is an allocation."""

    __slots__ = (
        "application",
        "arrival",
        "ask_class",
        "code",
        "created_ms",
        "cycle",
        "expires_ms",
        "generation",
        "going",
        "group",
        "key",
        "leaves_by",
        "node",
        "ordinary",
        "pending_since",
        "placed_ms",
        "pledge",
        "released_by",
        "releasing",
        "rm_id",
        "row",
        "spec",
        "started_ms",
        "tags",
        "tried_ms",
        "tried_node",
        "vetoed",
        "wait_ms",
        "was_brought",
    )

    def __init__(  # noqa: PLR0913, PLR0915, PLR0917 - a record of the state
        self,
        rm_id: str,
        key: str,
        application: "Application",
        spec: AskSpec,
        ask_class: "AskClass",
        arrival: int,
        pending_since: int,
        tags: Tags,
        generation: Generation,
    ) -> None:
        self.rm_id = rm_id
        self.key = key
        self.application = application
        self.spec = spec
        self.ask_class = ask_class
        self.arrival = arrival
        self.pending_since = pending_since
        self.created_ms = pending_since
        self.cycle = 0
        """The number of complete scheduling cycles that had ended when the ask began to wait.

        Each later complete cycle that leaves the ask waiting is a missed opportunity (P2).
        """
        self.tags = tags
        self.generation = generation
        self.group: Group | Gang | None = None
        self.node: Node | None = None
        self.placed_ms = 0
        self.expires_ms = 0
        self.started_ms: int | None = None
        self.releasing = False
        self.pledge: Pledge | None = None
        """The capacity that is kept for the ask while it waits."""
        self.released_by: Commitment | None = None
        """The open decision that evicts the allocation or, if the allocation is a placeholder, replaces it."""
        self.leaves_by = ""
        """The id of the decision that ordered the eviction of the allocation, "" if no eviction is ordered."""
        self.going: Going | None = None
        """The facts of the order to evict the allocation, such as its instant. None if no eviction is ordered."""
        self.row = -1
        self.code = ""
        """The reason for waiting that was last sent to the shim.

        ``code`` is "" if no reason was sent, or if the reason must be sent again.
        """
        self.vetoed = False
        """Whether the resource manager could not evict the allocation, and the back-off after this veto is not over yet."""
        self.ordinary = False
        """Whether the ask has stopped waiting for placeholders of its application (docs/gang-placeholders.md)."""
        self.tried_ms = 0
        """The instant at which a decision for the ask last ended without effect, 0 if there was no such decision."""
        self.tried_node = -1
        """The ``changes`` counter of the ask's required node when preemption for the ask was last refused (G11)."""
        self.wait_ms = 0
        """The ask's own back-off in milliseconds, which doubles with each decision for the ask that ends without effect.

        The ask waits for the longer of this back-off and the usual back-off.
        """
        self.was_brought = False
        """Whether the pod already ran when the core first learned of it."""

    @property
    def is_replaced(self) -> bool:
        """Return whether the ask is a placeholder that a real ask is to replace."""
        return self.released_by is not None and self.released_by.replaces

    @property
    def sort_key(self) -> AskKey:
        """Return the sort key of the ask among the asks of its application."""
        return (-self.spec.priority, self.pending_since, self.arrival)

    @property
    def runs_since(self) -> tuple[int, bool]:
        """Return the instant since which the allocation runs, and whether it may have begun to run earlier.

        If the allocation already ran when this core first learned of it, the instant is the start of its pod. If the shim did
        not report that start, the allocation may have begun to run earlier than the returned instant.
        """
        if self.was_brought and self.started_ms is not None:
            return min(self.placed_ms, self.started_ms), False
        return self.placed_ms, self.was_brought

    def ran_until(self, instant: int) -> int:
        """Return for how many milliseconds the allocation had run at an instant.

        The running time begins when the pod starts or, if no start was reported, when the ask is placed.
        """
        since = self.placed_ms if self.started_ms is None else self.started_ms
        return max(0, instant - since)


class Tried:
    """The memory that a shadow has of refusals: when and why preemption was refused to one group or gang.

    ``refused_ms``, ``verdict`` and ``rests`` have the same meaning as in `Group`.

    ``side`` identifies the shadow (`state.backoff.ShadowTries`) to which this memory belongs.
    """

    __slots__ = ("refused_ms", "rests", "side", "verdict")

    def __init__(self, side: object) -> None:
        self.side = side
        self.refused_ms = 0
        self.verdict: Verdict | None = None
        self.rests: dict[str, tuple[object, int]] = {}

    def joined(self, known: "Tried | None") -> "Tried":
        """Combine the refusals to this group with ``known``, the refusals to another group, and return the result.

        The pauses in ``rests`` are not combined. If ``known`` belongs to the same shadow, ``known`` is changed and returned.
        Otherwise the result is a new object.
        """
        other = known if known is not None and known.side is self.side else Tried(self.side)
        other.refused_ms = max(self.refused_ms, other.refused_ms)
        other.verdict = other.verdict or self.verdict
        return other


class Group:
    """The waiting asks of one application with one class and one priority, sorted by `Ask.sort_key`."""

    __slots__ = (
        "application",
        "ask_class",
        "asks",
        "beside",
        "entry",
        "in_turn",
        "live",
        "number",
        "parked",
        "priority",
        "refused_ms",
        "rests",
        "told",
        "untold",
        "verdict",
    )

    def __init__(
        self, number: int, application: "Application", ask_class: "AskClass", priority: int
    ) -> None:
        self.number = number
        self.application = application
        self.ask_class = ask_class
        self.priority = priority
        self.asks: deque[Ask] = deque()
        """The asks of the group, and perhaps asks that have left the group since.

        The field ``group`` of an ask that has left no longer refers to this group.
        """
        self.live = 0
        """The number of asks in ``asks`` that are still in the group."""
        self.in_turn = True
        """Whether no ask of the group has missed more opportunities than an ask before it (P4)."""
        self.entry: GroupEntry | None = None
        """The group's current entry in the application's heap. ``entry`` is None while the group is parked or empty."""
        self.parked = False
        self.untold: list[Ask] = []
        """The asks whose reason for waiting has not been sent to the shim yet."""
        self.told = ""
        self.refused_ms = 0
        """The instant at which preemption was last refused to the due asks of the group."""
        self.verdict: Verdict | None = None
        """Why preemption was last refused to the due asks of the group."""
        self.rests: dict[str, tuple[object, int]] = {}
        """For each policy, a configuration and an instant.

        While this configuration is in force, the policy does not plan for the group before that instant. If an ask joins the
        group, the entry is removed.
        """
        self.beside: Tried | None = None
        """A shadow's memory of the refusals of preemption to the group."""

    def wake(self) -> None:
        """Clear ``rests``, because an ask joined the group, or because an ask of the group can be tried at once."""
        self.rests.clear()
        if self.beside is not None:
            self.beside.rests.clear()


class Gang:
    """A gang: its waiting members are placed together or not at all (design 6.11, J1).

    Like a group, a gang has an entry in the application's heap. This entry has the sort key of the gang's first member.
    """

    __slots__ = (
        "application",
        "beside",
        "counted",
        "entry",
        "example",
        "key",
        "members",
        "min_members",
        "number",
        "parked",
        "placed",
        "priority",
        "refused_ms",
        "told",
        "tried",
        "tried_reserved",
        "verdict",
    )

    def __init__(self, number: int, application: "Application", key: str, min_members: int) -> None:
        self.number = number
        self.application = application
        self.key = key
        self.min_members = min_members
        self.counted = False
        """Whether no client stated the gang's size, so that the core counts the members (see `state.gang_sizes`)."""
        self.example: AskSpec | None = None
        """The spec of the member that was reported last."""
        self.tried = (-1, -1)
        """The counters ``relief`` and ``placements`` of the partition when the gang was last found not to fit."""
        self.tried_reserved = (-1, -1)
        """The counters at the last test in which the gang could also use the capacity that is reserved for lower priorities."""
        self.members: list[Ask] = []
        self.placed = 0
        """The number of members that have a node and keep it."""
        self.priority = 0
        """The priority of the gang's first member in `Ask.sort_key`: the highest priority of its waiting members.

        This value places the gang in the order of placement. Victims are compared with another value, the lowest priority of the
        members (`WaitingGang.priority`).
        """
        self.refused_ms = 0
        """The instant at which preemption was last refused to the gang."""
        self.verdict: Verdict | None = None
        """Why preemption was last refused to the gang."""
        self.beside: Tried | None = None
        """A shadow's memory of the refusals of preemption to the gang."""
        self.entry: GroupEntry | None = None
        self.parked = False
        self.told = ""

    @property
    def gathered(self) -> bool:
        """Return whether at least one member waits, and the number of waiting and placed members is at least the number that the gang needs."""
        return bool(self.members) and len(self.members) + self.placed >= self.min_members


GroupEntry = tuple[int, int, int, int, Group | Gang]
"""An entry of an application's heap: a sort key, a number that is unique among the entries, and a group or gang.

The sort key is that of the first ask of the group or gang.
"""


class Application:
    """One application in its leaf queue."""

    __slots__ = (
        "allocations",
        "application_id",
        "asks",
        "completing_since",
        "entry",
        "gangs",
        "groups",
        "heap",
        "holds",
        "leaf",
        "limiters",
        "number",
        "priority",
        "reserve",
        "reserves_from_ms",
        "rm_id",
        "share",
        "state",
        "submitted_ms",
        "tags",
        "usage",
        "user",
        "user_groups",
    )

    def __init__(  # noqa: PLR0913, PLR0917 - a record of the state
        self,
        rm_id: str,
        application_id: str,
        leaf: "Queue",
        number: int,
        usage: Amounts,
        user: str,
        user_groups: tuple[str, ...],
        tags: Mapping[str, str],
        submitted_ms: int,
    ) -> None:
        self.rm_id = rm_id
        self.application_id = application_id
        self.leaf = leaf
        self.number = number
        self.usage = usage
        self.user = user
        self.user_groups = user_groups
        self.tags = tags
        self.submitted_ms = submitted_ms
        self.state = ApplicationState.ACCEPTED
        self.completing_since = 0
        self.asks: dict[str, Ask] = {}
        self.allocations: dict[str, Ask] = {}
        self.groups: dict[tuple[AskClass, int], Group] = {}
        self.gangs: dict[str, Gang] = {}
        self.holds: dict[str, Hold] = {}
        """The asks that wait for placeholders, by task group."""
        self.reserve: Reserve | None = None
        """The placeholders that the application declared."""
        self.reserves_from_ms = 0
        """The instant from which nodes may be reserved for the application's asks.

        When a reservation for one of these asks times out, this instant is set to a later instant.
        """
        self.heap: list[GroupEntry] = []
        self.entry: tuple[Any, ...] | None = None
        """The application's current entry in the leaf's heap."""
        self.priority = 0
        """An upper bound on the priorities of the application's placeable asks."""
        self.share = 0
        self.limiters: tuple[Limiter, ...] = ()
        """The limits that each ask of the application has to pass: the limits of the queues from the leaf up, of the user, and of the group.

        A firm ask has to pass more limits (`limits_of`).
        """

    def limits_of(self, ask_class: "AskClass") -> "tuple[Limiter, ...]":
        """Return all limits that an ask of this class has to pass. For firm asks the limits of firm use are included (J4)."""
        if not ask_class.firm:
            return self.limiters
        firm = (queue.firm for queue in self.leaf.path_up())
        return (*(one for one in firm if one is not None), *self.limiters)


class WaitingGangs:
    """The gangs of one partition that wait for members, for placeholders or for free capacity."""

    __slots__ = ("came", "gathering", "holding", "parked", "ready")

    def __init__(self) -> None:
        self.came: dict[Gang, bool] = {}
        """The gangs that changed since the last check of their sizes, each with a flag that says whether a member joined."""
        self.gathering: dict[Gang, int] = {}
        """The gangs without a stated size that wait for the remaining members, each with the instant at which a member last joined."""
        self.holding: dict[Application, tuple[int, int] | None] = {}
        """The applications with asks that wait for placeholders.

        The value for an application has the partition's counters at the last search for placeholders, or None if the next tick
        has to search.
        """
        self.parked: list[Gang] = []
        """The gangs that did not fit when last tried."""
        self.ready: dict[Gang, None] = {}
        """The gangs that may fit."""
