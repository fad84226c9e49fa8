"""The entitlement of queues, and the queues that decide whether an ask may claim (G2, G3, W2, W6).

The partition's setting says whether a queue is entitled to its guarantee or to its share by weight. With shares by weight, the
guarantee is the lower bound of the share.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from server.model.fit import Demand, adjusted
from server.model.quota import ROOT, PriorityPolicy, is_below, up_to_fence
from server.model.ranking import QueueNumbers
from server.model.records import Level
from server.preemption.trial import Trial
from server.snapshot.queues import FrozenAmounts, QueueFacts
from server.snapshot.snapshot import Snapshot

DECIDING: Final = "deciding"
"""The key under which a Trial stores deciding queues, by leaf and demand.

In the amounts that explain a plan (`Level`), the same word is the role of a queue that let an ask claim.
"""
BLOCKING: Final = "blocking"
"""The role of a queue that prevented a claim, in the amounts that explain a refusal (`Level`)."""
OPENNESS: Final = "openness"
"""The key under which a Trial stores open and closed types, by leaf and demand."""


class Deciding(NamedTuple):
    """A queue that decides for an ask in the resource type with index ``at``.

    ``entitled`` is the amount of that type to which the queue is entitled (E).
    """

    at: int
    queue: QueueFacts
    entitled: int


@dataclass(frozen=True)
class Openness:
    """The open and closed types among those that an ask requests (G2, W6).

    A type is open while its deciding queue is below its entitlement to the type. A type is closed when that queue has reached
    its entitlement. A type in neither list is *undecided*: no queue decides for this type.
    """

    open: tuple[Deciding, ...]
    closed: tuple[Deciding, ...] = ()

    @cached_property
    def closed_types(self) -> frozenset[int]:
        """Return the indices of the closed types."""
        return frozenset(one.at for one in self.closed)

    @cached_property
    def key(self) -> tuple[tuple[int, str], ...]:
        """Return the key that asks of one class must have in common to share one search.

        The key names the deciding queues of open types only.
        """
        return (
            *((one.at, one.queue.path) for one in self.open),
            *((one.at, "") for one in self.closed),
        )

    @cached_property
    def outside(self) -> tuple[dict[int, str], str]:
        """Return the deciding queue of each open type, and the queue that takes the place of a deciding queue for undecided types.

        A victim that is evicted for a type must run outside the queue that the result has for this type. All deciding queues
        lie on one path. The queue for undecided types is the lowest deciding queue of an open type. Every victim thus runs
        outside this queue, so that each claim lowers the deficit of this queue. If no type is open, the queue for undecided
        types is the root, and no victim runs outside the root.
        """
        paths = {one.at: one.queue.path for one in self.open}
        return paths, max(paths.values(), key=len, default=ROOT)


def floor(trial: Trial, path: str) -> FrozenAmounts:
    """Return, by type, the entitlement (E) of a queue. No claim brings the queue below E. A missing guarantee counts as 0.

    With shares by weight, E of the root is 0, because the root has no sibling from which its share must be protected. If E were
    the root's share, G4 could protect a pod that is larger than the ask: its eviction might bring the root below the share.
    """
    if path == ROOT and trial.snapshot.is_shared_out:
        return (0,) * len(trial.snapshot.types)
    return trial.entitled(path)


def protects_only_whole(trial: Trial) -> bool:
    """Return whether shares protect only queues that have their whole share, so that queues below their shares may lose more (W8).

    The rule applies to plain shares by weight, which are in force when `demandcap` is off.
    """
    return trial.snapshot.is_shared_out and not trial.snapshot.settings.demand_cap


def may_cross(trial: Trial) -> bool:
    """Return whether one victim of a claim may bring its queues below their shares: `proportion.overshoot: last` (W8)."""
    return trial.snapshot.is_shared_out and trial.snapshot.settings.proportion_overshoot == "last"


def may_improve(trial: Trial) -> bool:
    """Return whether a plan may make a node better for the next claim, even if none of its victims runs there (W8).

    This is possible with either of two settings. With the first (`protects_only_whole`), shares protect only queues that have
    their whole share. Once a plan has brought a queue below its share, more pods of the queue may be evicted. With the second
    (`may_cross`), one victim of a claim may bring its queues below their shares. With all other settings, a plan only reduces the
    number of pods that later claims can evict.
    """
    return protects_only_whole(trial) or may_cross(trial)


def scope(snapshot: Snapshot, leaf: str) -> Iterator[QueueFacts]:
    """Yield the queues from the leaf up to the nearest fence, or up to the root if there is no fence (G3)."""
    return up_to_fence(snapshot.path_up(leaf))


def scope_root(snapshot: Snapshot, leaf: str) -> QueueFacts:
    """Return the highest queue of a leaf's scope, the scope root. Victims run in queues below the scope root (G3)."""
    *_, top = scope(snapshot, leaf)
    return top


def deciding(trial: Trial, leaf: str, demand: Demand) -> tuple[Deciding, ...]:
    """Return the deciding queue of each requested type (G2, W6).

    The deciding queue of a type is the lowest queue from the leaf to the scope root that decides for the type.

    Guarantees stay the same during a Trial, so that a result by guarantees is stored on the Trial. With shares by weight, plans
    may change the result, so that it is computed each time.
    """
    if trial.snapshot.is_shared_out:
        return tuple(_deciding(trial, leaf, demand))
    known: tuple[Deciding, ...] | None = trial.kept.get((DECIDING, leaf, demand))
    if known is None:
        known = trial.kept[DECIDING, leaf, demand] = tuple(_deciding(trial, leaf, demand))
    return known


def _deciding(trial: Trial, leaf: str, demand: Demand) -> Iterator[Deciding]:
    queues = tuple(scope(trial.snapshot, leaf))
    for index, _ in demand:
        queue = next((one for one in queues if _decides(trial, one, index)), None)
        if queue is not None:
            yield Deciding(index, queue, trial.entitled(queue.path)[index])


def _decides(trial: Trial, queue: QueueFacts, at: int) -> bool:
    """Return whether the queue decides for a type: the queue guarantees the type (G2).

    With shares by weight, a queue decides for a type in two cases: its siblings contend for the type, or it has less of the
    type than its floor (W6).
    """
    if not trial.snapshot.is_shared_out:
        return queue.guaranteed[at] > 0
    share = trial.shares.of(queue.path)
    return share.contended[at] or trial.held(queue.path)[at] < share.floor[at]


def openness(trial: Trial, leaf: str, demand: Demand) -> Openness:
    """Return which types of a demand are open and which are closed, after the plans so far (G2, W6)."""
    key, plans = (OPENNESS, leaf, demand), trial.mark()
    known: tuple[int, Openness] | None = trial.kept.get(key)
    if known is not None and known[0] == plans:
        return known[1]
    found = _openness(trial, leaf, demand)
    if known is not None and known[1] == found:
        found = known[1]  # plans seldom close a type, so that the derived values are computed once
    trial.kept[key] = plans, found
    return found


def _openness(trial: Trial, leaf: str, demand: Demand) -> Openness:
    wanted = dict(demand)
    found: dict[bool, list[Deciding]] = {True: [], False: []}
    for one in deciding(trial, leaf, demand):
        found[_is_open(trial, one, wanted[one.at])].append(one)
    return Openness(tuple(found[True]), tuple(found[False]))


def _is_open(trial: Trial, one: Deciding, wanted: int) -> bool:
    """Return whether the queue is below its entitlement.

    With `trigger: after`, return whether its usage with the ask added is within the entitlement.
    """
    held = trial.held(one.queue.path)[one.at]
    after = trial.snapshot.settings.trigger == "after"
    return held + wanted <= one.entitled if after else held < one.entitled


def measures(trial: Trial, leaf: str) -> Iterator[tuple[str, int]]:
    """Yield, for each type, the lowest queue from the leaf to the scope root that is entitled to the type.

    The leaf's distance from its entitlement is measured at these queues (P4).
    """
    lines = [(queue.path, trial.entitled(queue.path)) for queue in scope(trial.snapshot, leaf)]
    for index in range(len(trial.snapshot.types)):
        path = next((path for path, amounts in lines if amounts[index] > 0), None)
        if path is not None:
            yield path, index


def meeting(snapshot: Snapshot, one: str, other: str) -> str:
    """Return the path of the lowest queue that contains both queues."""
    return next(queue.path for queue in snapshot.path_up(other) if is_below(one, queue.path))


def shows_itself(snapshot: Snapshot, leaf: str, top: str) -> bool:
    """Return whether priorities of a leaf have the same value at the queue ``top`` as inside the leaf (G5).

    The values are the same if neither the leaf nor a queue between the leaf and ``top`` has an offset or a fence.
    """
    return not any(offset or is_fence for offset, is_fence in shifts(snapshot, leaf, top))


def shifts(snapshot: Snapshot, leaf: str, top: str) -> Iterator[tuple[int, bool]]:
    """Yield how the queues from a leaf up to the queue below ``top`` change priorities (G5).

    Each pair has the offset of a queue, and says whether the queue is a fence.
    """
    for queue in snapshot.path_up(leaf):
        if queue.path == top:
            return
        properties = queue.spec.properties
        yield properties.priority_offset, properties.priority_policy is PriorityPolicy.FENCE


def seen_at(snapshot: Snapshot, leaf: str, top: str, priority: int) -> int:
    """Return the value that a priority of a leaf has at the queue ``top`` above the leaf (G5).

    The offsets and fences between the leaf and ``top`` change the priority.
    """
    for offset, is_fence in shifts(snapshot, leaf, top):
        priority = adjusted(priority, offset, fence=is_fence)
    return priority


def levels(
    trial: Trial, found: Iterable[Deciding], closed: Collection[Deciding] = ()
) -> tuple[Level, ...]:
    """Return the amounts of deciding queues for an explanation, after the plans so far.

    Queues of ``closed`` types get the role `BLOCKING`.
    """
    return tuple(
        Level(
            one.queue.path,
            BLOCKING if one in closed else DECIDING,
            trial.snapshot.types[one.at],
            one.entitled,
            one.queue.max[one.at],
            trial.held(one.queue.path)[one.at],
            trial.snapshot.is_shared_out,
        )
        for one in (*found, *closed)
    )


def numbers(trial: Trial, leaves: Iterable[str]) -> tuple[QueueNumbers, ...]:
    """Return the amounts of the leaves and of the queues above them, without the root. The amounts include the plans so far."""
    snapshot = trial.snapshot
    queues = {one.path: one for leaf in dict.fromkeys(leaves) for one in snapshot.path_up(leaf)}
    return tuple(
        QueueNumbers(path, trial.eff(path), floor(trial, path), one.max, snapshot.is_shared_out)
        for path, one in queues.items()
        if path != ROOT
    )
