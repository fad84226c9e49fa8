"""The eligibility of allocations as victims for one class of asks, as numbers for each leaf.

`ClaimEligibility` computes these numbers for a queue that claims from other queues (G2-G5). A queue on a victim's path can lose
the amount that it uses above its entitlement. A queue that also contains the preemptor can lose the amount of the ask in
addition (G4). This module compares these numbers with the amounts of single victims. The module `search` compares them with the
total amounts of a set of victims. `InQueueEligibility` computes these numbers for an ask that replaces pods of its own queue
(I2). Such victims have a lower priority than the ask and belong to another application.
"""

from collections.abc import Container, Hashable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from server.kernels.fit import Mask
from server.model.asks import PRIORITY_MAX, PRIORITY_MIN
from server.model.quota import PreemptionPolicy, is_below
from server.preemption import admission
from server.preemption.claims.margins import of as margins_of
from server.preemption.entitlement import (
    Openness,
    floor,
    may_cross,
    meeting,
    openness,
    protects_only_whole,
    scope_root,
    seen_at,
    shifts,
    shows_itself,
)
from server.preemption.pace import is_beyond
from server.preemption.policy import SPARED_KEYS_MAX, ProtectedCandidates, Rule
from server.preemption.trial import Trial
from server.snapshot import eligibility_filter, gangs
from server.snapshot.eligibility_filter import Codes, FilteredRows
from server.snapshot.leaf_eligibility import (
    PASSED,
    UNLIMITED,
    EligibilityColumns,
    LeafEligibility,
)
from server.snapshot.leaf_margins import Level
from server.snapshot.queues import FrozenAmounts, QueueFacts
from server.snapshot.snapshot import Snapshot
from server.snapshot.waiting import WaitingAsk

RULES: Final = tuple(Rule)
CODE: Final = {rule: number for number, rule in enumerate(RULES, start=1)}
"""The code of each rule in arrays. The code 0 means that a row passed all rules."""
CODES: Final = Codes(
    gone=CODE[Rule.RELEASING],
    required_node=CODE[Rule.REQUIRED_NODE],
    firm=CODE[Rule.FIRM],
    untouchable=CODE[Rule.UNTOUCHABLE],
    replaced=CODE[Rule.REPLACED],
    budget=CODE[Rule.BUDGET],
    priority=CODE[Rule.PRIORITY],
    min_runtime=CODE[Rule.MIN_RUNTIME],
    no_type=CODE[Rule.NO_COMMON_TYPE],
    useless=CODE[Rule.NOT_OVER_GUARANTEE],
    below=CODE[Rule.BELOW_GUARANTEE],
    kin=CODE[Rule.OWN_APPLICATION],
    gang=CODE[Rule.GANG],
    inside=CODE[Rule.DECIDING_QUEUE],
)


CHANGED_MOST: Final = 100
"""The largest number of changed leaves for which only these leaves' protected candidates are listed again.

If more leaves changed, the protected candidates of all leaves are listed again.
"""
QueueMargins = Sequence[tuple[QueueFacts, list[int]]]
"""The queues from a leaf up to the root. Each queue comes with the amounts that it can lose, by type."""


class Block(NamedTuple):
    """A maximum on the ask's path under which the ask has too little headroom (G9), with the queue, the type and the missing amount."""

    path: str
    at: int
    lack: int


class Path(NamedTuple):
    """The queues from a victim's leaf up to the root. The queues from index ``common`` on also contain the preemptor."""

    queues: tuple[QueueFacts, ...]
    common: int


class ClaimEligibility:
    """The eligibility of victims for one class of asks on one Trial. Values that plans cannot change are computed once.

    ``closed`` has the types of which the deciding queue already has its whole entitlement. No victim is taken on a node that
    lacks one of these types.
    """

    def __init__(self, trial: Trial, ask: WaitingAsk, types: Openness | None = None) -> None:
        snapshot = trial.snapshot
        types = types or openness(trial, ask.leaf, ask.kind.demand)
        self.ask = ask
        self.closed = types.closed_types
        self._wanted = dict(ask.kind.demand)
        self._needed = dict(ask.kind.node_demand)
        self._top = scope_root(snapshot, ask.leaf).path
        self._outside, self._lowest = types.outside
        self._paths: dict[str, Path] = {}
        self._withheld: dict[str, frozenset[int]] = {}
        self._lines: dict[str, tuple[FrozenAmounts, list[int]]] = {}
        """The usage of each queue when it was last read, and what the queue could lose then."""

    def by_leaf(self, trial: Trial) -> Iterator[tuple[int, LeafEligibility]]:
        """Yield, for every leaf in which allocations run, the leaf's number and its eligibility.

        The values equal those of `columns`, but are computed leaf by leaf.
        """
        snapshot = trial.snapshot
        for number in snapshot.allocations.leaf_places()[0]:
            path = snapshot.leaf_paths.get(number)
            if path is not None:
                rule = self._rule_of(trial, path)
                yield number, LeafEligibility(CODE[rule]) if rule else self._open(trial, path)

    def columns(self, trial: Trial) -> EligibilityColumns:
        """Return the eligibility of all leaves in which allocations run.

        The meeting queue of a leaf and the preemptor's leaf is the lowest queue that holds both. What the queues below the
        meeting queue can lose is the same for every preemptor (`LeafMargins`). Everything else is the same for all leaves that
        have the same meeting queue. Every meeting queue is on the preemptor's path, so that everything else is computed once for
        each queue on this path.
        """
        snapshot, margins = trial.snapshot, margins_of(trial)
        levels = margins.levels(self.ask.leaf)
        way = [queue.path for queue in reversed(snapshot.path_up(self.ask.leaf))]
        paths = [*snapshot.queues]
        highest: dict[Hashable, int] = {}

        def highest_priority(row: int) -> int:
            return self._highest_priority(trial, paths[row], highest)

        found = margins.columns(
            levels,
            [self._level(trial, way[:at]) for at in range(1, len(way) + 1)],
            gone=CODES.gone,
            now=snapshot.now,
            highest=highest_priority,
            crosses=may_cross(trial),
        )
        single = (paths[int(margins.leaves[place])] for place in margins.disabled())
        for path in (*single, *snapshot.frozen_leaves):
            for place in margins.places(path):
                rule = self._rule_of_leaf(trial, path)
                if rule is not None and found.spared[place] == PASSED:
                    found.spared[place] = CODE[rule]
        for place in margins.places(self.ask.leaf):
            found.spared[place] = CODE[Rule.OWN_QUEUE]
        found.protect(found.spared != PASSED)
        return found

    def _level(self, trial: Trial, way: Sequence[str]) -> Level:
        """Return the eligibility that leaves have in common if their meeting queue is the last queue of ``way``.

        ``way`` has the queues from the root down to the meeting queue.
        """
        meets, ports = way[-1], trial.snapshot.ports
        rule = self._rule_within(meets)
        if rule is not None:
            return Level(CODE[rule])
        withheld = self.withheld(meets)
        inside = withheld - self.closed
        lines = [self._margin(trial, path, holds_asker=True) for path in way]
        return Level(
            PASSED,
            takes=tuple(
                index in self._needed and index not in withheld for index in range(len(ports))
            ),
            ports=ports,
            most=tuple(map(min, zip(*lines, strict=True))),
            priority=_clamped(self._priority_at(trial, meets)),
            inside=tuple(index in inside for index in range(len(ports))) if inside else (),
        )

    def _rule_of(self, trial: Trial, path: str) -> Rule | None:
        """Return the rule that protects all allocations of a leaf. Return None if its allocations must be judged one by one."""
        if path == self.ask.leaf:
            return Rule.OWN_QUEUE  # G3
        return self._rule_within(path) or self._rule_of_leaf(trial, path)

    def _rule_within(self, path: str) -> Rule | None:
        """Return the rule that protects all allocations of a queue because of its place in the tree.

        A leaf has the same rule as its meeting queue, the lowest queue that contains both the leaf and the preemptor.
        """
        if not is_below(path, self._top):
            return Rule.FENCE  # G3
        if len(self.withheld(path)) == len(self._needed):
            return Rule.DECIDING_QUEUE  # G2, W6
        return None

    def _rule_of_leaf(self, trial: Trial, path: str) -> Rule | None:
        """Return the rule that protects all allocations of a leaf because of the leaf itself."""
        properties = trial.snapshot.queues[path].spec.properties
        if properties.preemption_policy is PreemptionPolicy.DISABLED:
            return Rule.CANDIDATE_DISABLED  # G3
        if trial.snapshot.is_frozen(self.ask, path):
            return Rule.FROZEN  # invariant 18
        return None

    def _open(self, trial: Trial, path: str) -> LeafEligibility:
        snapshot, withheld = trial.snapshot, self.withheld(path)
        minimum = snapshot.queues[path].spec.properties.preemption_minruntime_ms
        useful = tuple(
            index in self._needed
            and index not in withheld
            and (port or self.is_over(trial, path, index))
            for index, port in enumerate(snapshot.ports)
        )
        inside = withheld - self.closed
        return LeafEligibility(
            most=self._most(trial, path),
            useful=useful,
            priority=self._highest_priority(trial, path),
            since_ms=snapshot.now - minimum if minimum else UNLIMITED,  # V4
            inside=tuple(index in inside for index in range(len(snapshot.ports))) if inside else (),
        )

    def withheld(self, path: str) -> frozenset[int]:
        """Return the types for which no allocation of a leaf may be taken (G2, W6).

        The result has the closed types, and the types for which the leaf or a queue above it decides.
        """
        known = self._withheld.get(path)
        if known is None:
            known = frozenset(index for index in self._needed if self._is_withheld(path, index))
            self._withheld[path] = known
        return known

    def _is_withheld(self, path: str, index: int) -> bool:
        return index in self.closed or is_below(path, self._outside.get(index, self._lowest))

    def at_rest(self, trial: Trial, path: str) -> Sequence[int]:
        """Return the types in which a leaf, or a queue above it, is now in the dead zone (P9)."""
        if not trial.snapshot.settings.deadzone_permyriad:
            return ()
        ports = trial.snapshot.ports
        needed = (index for index in self._needed if not ports[index])
        return [index for index in needed if not self.is_over(trial, path, index)]

    def _most(self, trial: Trial, path: str) -> tuple[int, ...]:
        """Return the largest amounts that one victim may hold, by type (G4).

        The amount of a type is the smallest of the amounts that the queues on the victim's path can lose.

        If one victim may bring its queues below their shares, these amounts are not limited (W8).
        """
        if may_cross(trial):
            return (UNLIMITED,) * len(trial.snapshot.ports)
        return _narrowest(trial, self.margins(trial, path))

    def margins(self, trial: Trial, path: str) -> QueueMargins:
        """Return the queues from a leaf up to the root. Each queue comes with the amounts that it can lose, by type (G4)."""
        way = self.path(trial, path)
        return [(queue, self.margin(trial, way, place)) for place, queue in enumerate(way.queues)]

    def margin(self, trial: Trial, way: Path, place: int) -> list[int]:
        """Return the amounts that one queue of a path can lose, by type.

        The amounts are computed again when the queue's usage has changed.
        """
        path = way.queues[place].path
        return self._margin(trial, path, holds_asker=place >= way.common)

    def _margin(self, trial: Trial, path: str, *, holds_asker: bool) -> list[int]:
        used, known = trial.eff(path), self._lines.get(path)
        if known is None or known[0] is not used:
            known = self._lines[path] = used, self._line(trial, path, holds_asker=holds_asker)
        return known[1]

    def _line(self, trial: Trial, path: str, *, holds_asker: bool) -> list[int]:
        """Return the amounts that one queue can lose, by type.

        A queue that contains the preemptor also gains the amount of the ask. For such a queue, only the net loss counts (G4).
        """
        pairs = zip(trial.eff(path), floor(trial, path), strict=True)
        over = [eff - entitled for eff, entitled in pairs]
        if protects_only_whole(trial):
            over = [UNLIMITED if one < 0 else one for one in over]  # W8
        if holds_asker:
            wanted = self._wanted
            over = [max(0, one) + wanted.get(index, 0) for index, one in enumerate(over)]
        return over

    def is_over(self, trial: Trial, path: str, index: int) -> bool:
        """Return whether a leaf, and each queue above it that does not contain the preemptor, exceeds its entitlement to a type (G4).

        With a dead zone, each of these queues must exceed its entitlement by more than the dead zone (P9).
        """
        known = self.path(trial, path)
        return all(
            is_beyond(
                trial.eff(queue.path)[index],
                floor(trial, queue.path)[index],
                trial.snapshot.settings,
            )
            for queue in known.queues[: known.common]
        )

    def path(self, trial: Trial, path: str) -> Path:
        """Return the path from a leaf to the root, with the index of the first queue that also contains the preemptor."""
        known = self._paths.get(path)
        if known is None:
            queues = trial.snapshot.path_up(path)
            meets = meeting(trial.snapshot, self.ask.leaf, path)
            common = next(at for at, queue in enumerate(queues) if queue.path == meets)
            known = self._paths[path] = Path(queues, common)
        return known

    def _priority_at(self, trial: Trial, top: str) -> int:
        """Return the highest priority that victims may have, as the queue ``top`` sees it (G5).

        This queue contains the preemptor and the victims.
        """
        snapshot, rule = trial.snapshot, trial.snapshot.settings.equal_priority
        if rule == "ignore":
            return UNLIMITED
        return seen_at(snapshot, self.ask.leaf, top, self.ask.spec.priority) - (rule == "never")

    def _highest_priority(
        self, trial: Trial, path: str, known: dict[Hashable, int] | None = None
    ) -> int:
        """Return the highest priority that victims in the leaf may have, as the leaf itself sees it (G5).

        ``known`` has the results for leaves whose queues change priorities in the same way.
        """
        snapshot, top = trial.snapshot, meeting(trial.snapshot, self.ask.leaf, path)
        most = self._priority_at(trial, top)
        if most == UNLIMITED or shows_itself(snapshot, path, top):
            return _clamped(most)
        key = (most, *shifts(snapshot, path, top))
        if known is not None and key in known:
            return known[key]
        low, high = PRIORITY_MIN - 1, PRIORITY_MAX
        # If a pod has a higher priority inside the leaf, it has no lower priority as seen from
        # outside.
        while low < high:
            middle = (low + high + 1) // 2
            if seen_at(snapshot, path, top, middle) <= most:
                low = middle
            else:
                high = middle - 1
        if known is not None:
            known[key] = low
        return low

    def crosses(self, trial: Trial) -> bool:
        """Return whether one victim may bring its queues below their shares (W8)."""
        return may_cross(trial)

    def kin(self, trial: Trial) -> Mask | None:
        """Return None.

        No row has to be protected as the preemptor's own, because the preemptor's whole leaf is protected (G3).
        """
        del trial
        return None

    def blocks(self, trial: Trial) -> tuple[Block, ...]:
        """Return the maxima on the ask's path under which the ask has too little headroom (G9).

        All terminating pods count as ended.
        """
        return blocks(trial, self.ask)


def _clamped(priority: int) -> int:
    """Return a bound on priorities that admits the same priorities as the given bound.

    The result is UNLIMITED, a valid priority, or one less than the lowest priority.
    """
    if priority == UNLIMITED:
        return UNLIMITED
    return max(PRIORITY_MIN - 1, min(priority, PRIORITY_MAX))


def _narrowest(trial: Trial, margins: QueueMargins) -> tuple[int, ...]:
    """Return, by type, the smallest of the amounts that the queues can lose. Ports are not limited by queues."""
    lines = [line for _, line in margins]
    return tuple(
        UNLIMITED if port else min(line[index] for line in lines)
        for index, port in enumerate(trial.snapshot.ports)
    )


def own_margins(trial: Trial, leaf: str, wanted: Mapping[int, int]) -> QueueMargins:
    """Return the queues from the preemptor's leaf up to the root, each with the amounts that it can lose.

    All these queues contain the preemptor, so that they lose only the difference between the victims' amounts and the ask's
    amounts (G4).
    """
    return [
        (queue, own_margin(trial, queue.path, wanted)) for queue in trial.snapshot.path_up(leaf)
    ]


def own_margin(trial: Trial, path: str, wanted: Mapping[int, int]) -> list[int]:
    """Return the amounts that a queue that contains the preemptor can lose, by type (G4).

    The amounts are the queue's usage above its entitlement, plus the amounts of the ask.
    """
    pairs = zip(trial.eff(path), floor(trial, path), strict=True)
    over = [max(0, eff - entitled) for eff, entitled in pairs]
    return [one + wanted.get(index, 0) for index, one in enumerate(over)]


def own_leaf(
    trial: Trial, leaf: str, needed: Container[int], priority: int, margins: QueueMargins
) -> LeafEligibility:
    """Return the eligibility in the preemptor's own leaf (I2, J7).

    Victims there have a priority below ``priority`` and free a type of ``needed``.
    """
    snapshot = trial.snapshot
    minimum = snapshot.queues[leaf].spec.properties.preemption_minruntime_ms
    return LeafEligibility(
        most=_narrowest(trial, margins),
        useful=tuple(index in needed for index in range(len(snapshot.ports))),
        priority=priority - 1,
        since_ms=snapshot.now - minimum if minimum else UNLIMITED,  # V4
    )


SparedByLeaf = Mapping[tuple[int, int], ProtectedCandidates]
"""The candidates that rules protected, by the code of the rule and the number of the leaf, in the order of both."""


def spared(snapshot: Snapshot, filtered: FilteredRows) -> SparedByLeaf:
    """Return the candidates that rules protected, by rule and leaf, without allocations that are ending anyway."""
    return _told(snapshot, filtered, None)


def spared_again(
    snapshot: Snapshot, known: SparedByLeaf, filtered: FilteredRows, changed: Mask
) -> SparedByLeaf:
    """Return the result of `spared` after the eligibility of some leaves has changed.

    ``known`` is the result before the change, and ``changed`` marks the changed leaves.
    """
    leaves = snapshot.allocations.leaves_among(changed)
    if len(leaves) > CHANGED_MOST:
        return spared(snapshot, filtered)
    found = dict(known)
    for leaf in leaves:
        for code in CODE.values():
            found.pop((code, leaf), None)
    found.update(_told(snapshot, filtered, changed))
    return {key: found[key] for key in sorted(found)}


def _told(snapshot: Snapshot, filtered: FilteredRows, among: Mask | None) -> SparedByLeaf:
    paths = snapshot.leaf_paths
    found = eligibility_filter.tallied(snapshot.allocations, filtered, SPARED_KEYS_MAX, among)
    return {
        (one.code, one.leaf): ProtectedCandidates(
            RULES[one.code - 1], paths[one.leaf], one.rows, one.keys
        )
        for one in found
        if one.code != CODES.gone and one.leaf in paths
    }


def blocks(trial: Trial, ask: WaitingAsk, *, claiming: bool = True) -> tuple[Block, ...]:
    """Return the maxima on an ask's path below which the ask has too little headroom.

    All terminating pods count as ended.

    A lendable ask must also leave capacity for waiting firm asks (J4). With ``claiming``, plain shares by weight are left out,
    because evictions in other queues do not change the share that the preemptor's queue deserves (W2).
    """
    found = []
    for queue in trial.snapshot.path_up(ask.leaf):
        if not queue.is_limited:
            continue
        held = trial.held(queue.path)
        for index, wanted in ask.kind.demand:
            most = admission.most(trial, queue, index, ask.kind, claiming=claiming)
            if most is not None and held[index] + wanted > most:
                found.append(Block(queue.path, index, held[index] + wanted - most))
    return tuple(found)


class InQueueEligibility:
    """The eligibility of victims for asks of one class and application that replace pods of their own queue (I2).

    `InQueueEligibility` has the same methods as `ClaimEligibility`.
    """

    def __init__(self, ask: WaitingAsk) -> None:
        self.ask = ask
        self.closed: frozenset[int] = frozenset()
        self._wanted = dict(ask.kind.demand)

    def columns(self, trial: Trial) -> EligibilityColumns:
        """Return the eligibility of all leaves in which allocations run. Only the ask's own leaf has victims."""
        numbers = trial.snapshot.allocations.leaf_places()[0]
        code, width = CODE[Rule.OTHER_QUEUE], len(trial.snapshot.ports)
        found = EligibilityColumns.spared_by(code, len(numbers), width)
        own, paths = trial.snapshot.queues[self.ask.leaf].number, trial.snapshot.leaf_paths
        for place, number in enumerate(numbers):
            if number == own:
                found.put(place, self._open(trial))
            elif number not in paths:
                found.spared[place] = CODES.gone
        return found

    def _open(self, trial: Trial) -> LeafEligibility:
        leaf, needed = self.ask.leaf, dict(self.ask.kind.node_demand)
        return own_leaf(trial, leaf, needed, self.ask.spec.priority, self.margins(trial, leaf))

    def margins(self, trial: Trial, path: str) -> QueueMargins:
        """Return the queues from the leaf up to the root. Each queue comes with the amounts that it can lose, by type (G4)."""
        return own_margins(trial, path, self._wanted)

    def margin(self, trial: Trial, way: Path, place: int) -> list[int]:
        """Return the amounts that the queue at ``place`` of a path can lose, by type (G4)."""
        return own_margin(trial, way.queues[place].path, self._wanted)

    def path(self, trial: Trial, path: str) -> Path:
        """Return the path from the leaf up to the root. Every queue on it also contains the preemptor."""
        return Path(trial.snapshot.path_up(path), 0)

    def withheld(self, path: str) -> frozenset[int]:
        """Return no types. The preemptor takes the victim's place in the queue, so that victims may be taken for every type."""
        del path
        return frozenset()

    def at_rest(self, trial: Trial, path: str) -> Sequence[int]:
        """Return no types.

        A replacement lowers no usage of its queue, so the dead zone does not apply (P9).
        """
        del trial, path
        return ()

    def is_over(self, trial: Trial, path: str, index: int) -> bool:
        """Return True. A victim helps with every type, because the preemptor replaces the victim in the same queue."""
        del trial, path, index
        return True

    def crosses(self, trial: Trial) -> bool:
        """Return False. No victim leaves its queue below its share, because the preemptor replaces the victim."""
        del trial
        return False

    def kin(self, trial: Trial) -> Mask | None:
        """Return a mask of the rows of the ask's own application, which are no victims (I2)."""
        number = trial.snapshot.queues[self.ask.leaf].number
        return gangs.of_application(trial.snapshot.allocations, number, self.ask.application_id)

    def blocks(self, trial: Trial) -> tuple[Block, ...]:
        """Return the limits that the ask would exceed (I4).

        Plain shares by weight are included, because victims and the ask are in the same queue (W2).
        """
        return blocks(trial, self.ask, claiming=False)
