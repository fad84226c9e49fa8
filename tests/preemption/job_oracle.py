"""The plan for a job, by a literal implementation of J4 to J9 and J12: each node for each member, and each victim in turn.

The module is written from the specification alone and shares no code with the core. When a plan of the core
differs, the core or a rule is wrong. With shares by weight, the entitlement E is the deserved share (W2, W6). The
module also has the conditions that every plan must meet: capacity for all members, no needless victim, no protected
victim.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import permutations
from typing import Final

from tests.preemption.job_clusters import Amounts, Member, Pod, Queue, World
from tests.preemption.paths import is_below, path_up, seen_from
from tests.preemption.proportion_oracle import Node, Outcome, shares

NOBODY: Final = -(1 << 40)
Key = tuple[int, int, int, str]


@dataclass
class Found:
    """The nodes of the members, in the order in which they were planned, and the victims."""

    assignments: list[tuple[str, str]] = field(default_factory=list)
    victims: list[Pod] = field(default_factory=list)


def total(sizes: Iterable[Amounts]) -> Amounts:
    """Return the sum of amounts."""
    found: Amounts = {}
    for size in sizes:
        for kind, much in size.items():
            found[kind] = found.get(kind, 0) + much
    return found


class Oracle:
    """A cluster to which the rules are applied literally."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.known = {one.path: one for one in world.queues}
        self.want = total(one.size for one in world.members)
        self.lowest = min(one.priority for one in world.members)
        self.shares = self.shared() if world.entitlement == "proportional" else {}
        self.own_first = False

    # Facts ----------------------------------------------------------------------------------------

    def queue(self, path: str) -> Queue:
        """Return the queue of this path; a root that is not configured has no limits."""
        return self.known.get(path, Queue(path))

    def used(self, path: str, gone: Iterable[Pod] = (), *, firm: bool = False) -> Amounts:
        """Return what a queue uses without some pods; with `firm` only what its firm pods use."""
        keys = {one.key for one in gone}
        return total(
            one.size
            for one in self.world.pods
            if is_below(one.queue, path) and one.key not in keys and (one.firm or not firm)
        )

    def shared(self) -> dict[str, dict[str, Outcome]]:
        """Return what each queue deserves, by type (W1)."""
        whole = total(self.world.nodes.values())
        return {kind: shares(self.tree("root", kind), whole[kind]) for kind in sorted(whole)}

    def tree(self, path: str, kind: str) -> Node:
        """Return a queue in one type, with the queues below it."""
        queue, asks = self.queue(path), [(one.queue, one.size) for one in self.world.waiting]
        asks += [(self.world.queue, one.size) for one in self.world.members]
        paths = {each for one in self.known for each in path_up(one)}
        children = sorted(one for one in paths if one.rpartition(".")[0] == path)
        return Node(
            path,
            queue.weight,
            queue.guaranteed.get(kind, 0),
            (queue.max or {}).get(kind),
            self.used(path).get(kind, 0),
            sum(size.get(kind, 0) for leaf, size in asks if leaf == path),
            [self.tree(child, kind) for child in children],
        )

    def entitled(self, path: str, kind: str) -> int:
        """Return the entitlement: the guarantee; with weights the deserved share of a contended type, else the floor (W2)."""
        if not self.shares:
            return self.queue(path).guaranteed.get(kind, 0)
        return self.shares[kind][path].entitled

    def floor(self, path: str, kind: str) -> int:
        """Return the amount below which no claim may bring the queue; with weights, the floor of the root is zero."""
        return 0 if self.shares and path == "root" else self.entitled(path, kind)

    def decides(self, path: str, kind: str) -> bool:
        """Return whether the queue decides for a type: the type is guaranteed (G2) or, with weights, contended or below its floor (W6)."""
        if not self.shares:
            return self.queue(path).guaranteed.get(kind, 0) > 0
        share = self.shares[kind][path]
        return share.contended or self.used(path).get(kind, 0) < share.floor

    def scope(self) -> str:
        """Return the nearest fence, or the root when there is none (G3)."""
        return next(
            path for path in path_up(self.world.queue) if self.queue(path).fence or path == "root"
        )

    def deciding(self) -> dict[str, str]:
        """Return, by type, the lowest queue within the fence that guarantees the type (G2)."""
        found = {}
        for kind in self.want:
            for path in path_up(self.world.queue):
                if self.decides(path, kind):
                    found[kind] = path
                    break
                if path == self.scope():
                    break
        return found

    # Admission (J4, J6) ---------------------------------------------------------------------------

    def most(self, path: str, kind: str) -> int | None:
        """Return what a queue may use of a type when the job is in it."""
        limit = (self.queue(path).max or {}).get(kind)
        if limit is None or self.world.firm:
            return limit
        held = self.used(path, firm=True).get(kind, 0)
        waits = sum(
            one.size.get(kind, 0) for one in self.world.waiting if is_below(one.queue, path)
        )
        least = self.queue(path).guaranteed.get(kind, 0)
        return limit - (max(held, min(least, held + waits)) - held)

    def within_min(self) -> bool:
        """Return whether the firm use of the job's queues, including the job, is within each guarantee; true for a lendable job."""
        return not self.world.firm or all(
            self.used(path, firm=True).get(kind, 0) + much <= least
            for path in path_up(self.world.queue)
            for kind, much in self.want.items()
            for least in [self.queue(path).guaranteed.get(kind, 0)]
            if least
        )

    def full(self, gone: Iterable[Pod]) -> list[tuple[str, str]]:
        """Return the queues and types whose max has no headroom for the whole job."""
        gone = list(gone)
        return [
            (path, kind)
            for path in path_up(self.world.queue)
            for kind, much in self.want.items()
            for limit in [self.most(path, kind)]
            if limit is not None and self.used(path, gone).get(kind, 0) + much > limit
        ]

    def gate(self) -> bool:
        """Return whether the queue of a lendable job has headroom when all pods that may be evicted are gone (J6)."""
        own = [
            one
            for one in self.world.pods
            if one.queue == self.world.queue and self.may_go(one, willing=False)
        ]
        return self.world.firm or not [one for one in self.full(own) if one[0] == self.world.queue]

    # Victims (J7) ---------------------------------------------------------------------------------

    def may_go(self, pod: Pod, *, willing: bool) -> bool:
        """Return whether the rules on single candidates allow the eviction of the pod for the job."""
        if self.is_protected(pod, willing=willing):
            return False
        if not any(kind in self.want for kind in pod.size):
            return False
        if pod.queue == self.world.queue:
            return pod.priority < self.lowest and self.keeps_floors([pod])
        return self.may_give(pod) and self.keeps_floors([pod]) and bool(self.takes_for(pod))

    def outside(self, pod: Pod) -> set[str]:
        """Return the pod's types for which a queue on the job's path decides, when the pod runs outside that queue (J7)."""
        return {
            kind
            for kind, path in self.deciding().items()
            if pod.size.get(kind, 0) and not is_below(pod.queue, path)
        }

    def takes_for(self, pod: Pod) -> set[str]:
        """Return the types of ``outside`` in which the pod's own queues exceed their entitlement (rule 5, P9)."""
        return {kind for kind in self.outside(pod) if self.is_over(pod, {kind})}

    def is_protected(self, pod: Pod, *, willing: bool) -> bool:
        """Return whether the pod is protected: it is firm, too young, of a spent budget, or opted out (with `willing`)."""
        young = pod.ran < self.queue(pod.queue).min_runtime
        bound = self.world.budgets == "respect" and self.is_spent(pod)
        return pod.firm or young or bound or (willing and self.would_rather_stay(pod))

    def is_spent(self, pod: Pod) -> bool:
        """Return whether the pod's disruption budget allows no further disruption."""
        return bool(pod.group) and self.world.allowed[pod.group] == 0

    def would_rather_stay(self, pod: Pod) -> bool:
        """Return whether the pod opted out or, by its disruption budget, counts as opted out (V3)."""
        return pod.opted_out or (self.world.budgets == "prefer" and self.is_spent(pod))

    def keeps_budgets(self, gone: list[Pod]) -> bool:
        """Return whether no disruption group loses more pods than it allows, when budgets are respected."""
        groups = [one.group for one in gone if one.group]
        return self.world.budgets != "respect" or all(
            groups.count(group) <= self.world.allowed[group] for group in groups
        )

    def is_important(self, pod: Pod) -> bool:
        """Return whether the pod is more important than the job, compared at the queue where their paths meet (G5)."""
        if self.world.equal_priority == "ignore":
            return False
        meeting = next(path for path in path_up(pod.queue) if is_below(self.world.queue, path))
        goes = seen_from(meeting, pod.queue, pod.priority, self.queue)
        most = seen_from(meeting, self.world.queue, self.lowest, self.queue)
        return goes >= most if self.world.equal_priority == "never" else goes > most

    def may_give(self, pod: Pod) -> bool:
        """Return whether a pod of another queue may be evicted by G3 and G5."""
        owed = self.deciding().values()
        outside = not all(is_below(pod.queue, path) for path in owed)
        return (
            bool(owed)
            and outside
            and is_below(pod.queue, self.scope())
            and not self.queue(pod.queue).disabled
            and not self.is_important(pod)
        )

    def is_over(self, pod: Pod, lacking: set[str]) -> bool:
        """Return whether the pod's queues, up to where the paths meet, exceed their guarantee in a missing type (rule 5, P9).

        They must exceed it by more than the dead zone.
        """
        alone = [path for path in path_up(pod.queue) if not is_below(self.world.queue, path)]
        more = 10_000 + self.world.dead_zone
        return any(
            all(
                self.used(path).get(kind, 0) * 10_000 > self.entitled(path, kind) * more
                for path in alone
            )
            for kind in lacking & set(pod.size)
        )

    def keeps_floors(self, gone: list[Pod]) -> bool:
        """Return whether no queue ends below its guarantee in victims' types (rule 2); the job counts in its own queues."""
        for path in {path for one in gone for path in path_up(one.queue)}:
            more = self.want if is_below(self.world.queue, path) else {}
            before, after = self.used(path), self.used(path, gone)
            for kind in {kind for one in gone if is_below(one.queue, path) for kind in one.size}:
                then = after.get(kind, 0) + more.get(kind, 0)
                fell = then < before.get(kind, 0) or not more
                if fell and then < self.floor(path, kind):
                    return False
        return True

    def within_share(self, assignments: list[tuple[Member, str]], gone: list[Pod]) -> bool:
        """Return whether the queue may still claim the amounts that free capacity and its own victims do not cover."""
        own = [one for one in gone if one.queue == self.world.queue]
        if len(own) == len(gone):
            return True
        owed = self.deciding()
        for kind in self.want:
            need = 0
            for node in self.world.nodes:
                here = total(one.size for one, at in assignments if at == node).get(kind, 0)
                freed = total(one.size for one in own if one.node == node).get(kind, 0)
                need += max(0, here - max(0, self.free(node).get(kind, 0)) - freed) if here else 0
            path = owed.get(kind)
            if path is None:
                continue  # No victim is evicted for this type; victims for other types may cover it.
            left = self.entitled(path, kind) - self.used(path, own).get(kind, 0)
            if need and need > left:
                return False
        return True

    def justified(self, assignments: list[tuple[Member, str]], gone: list[Pod]) -> bool:
        """Return whether each victim of another queue frees a missing type that has a deciding queue (J7).

        Victims of the job's own queue count as gone; the other victims are tested one after the other, and one
        order must pass.
        """
        own = [one for one in gone if one.queue == self.world.queue]
        left = [
            unit for unit in self.units(gone) if any(one.queue != self.world.queue for one in unit)
        ]
        return any(
            all(
                self.is_taken_for_a_type(
                    unit, assignments, [*own, *(one for before in order[:at] for one in before)]
                )
                for at, unit in enumerate(order)
            )
            for order in permutations(left)
        )

    def is_taken_for_a_type(
        self, unit: list[Pod], assignments: list[tuple[Member, str]], gone: list[Pod]
    ) -> bool:
        """Return whether a pod of another queue frees a type for which it may be evicted and which its node still lacks.

        The job's queue must hold less of that type than it is entitled to, without its victims.
        """
        own = [one for one in gone if one.queue == self.world.queue]
        short = {
            kind
            for kind, path in self.deciding().items()
            if self.used(path, own).get(kind, 0) < self.entitled(path, kind)
        }
        return any(
            self.takes_for(one) & self.lacks(one.node, assignments, gone) & short
            for one in unit
            if one.queue != self.world.queue
        )

    def unit(self, pod: Pod, gone: list[Pod], *, willing: bool) -> list[Pod] | None:
        """Return the pods that are evicted together with the pod (J12); None when the pod may not be evicted."""
        gang = self.gang(pod)
        if not pod.gang or len(gang) < pod.least:
            return [pod]
        left = [one for one in gang if one not in gone]
        if len(left) > pod.least:
            return [pod]
        if self.world.victim_gang == "avoid":
            return None
        return left if all(self.may_join(one, willing=willing) for one in left) else None

    def gang(self, pod: Pod) -> list[Pod]:
        """Return the running members of the pod's gang."""
        return [
            one
            for one in self.world.pods
            if pod.gang and (one.gang, one.owner) == (pod.gang, pod.owner)
        ]

    def may_join(self, pod: Pod, *, willing: bool) -> bool:
        """Return whether a member of a gang may be evicted with the other members, even if it frees no missing type."""
        if self.is_protected(pod, willing=willing):
            return False
        if pod.queue == self.world.queue:
            return pod.priority < self.lowest
        return self.may_give(pod) and not self.is_at_rest(pod)

    def is_at_rest(self, pod: Pod) -> bool:
        """Return whether the pod's queues are within the dead zone in all types of the pod that the job requests (P9)."""
        held = self.outside(pod)
        return bool(self.world.dead_zone and held) and not self.is_over(pod, held)

    def broken(self, gone: list[Pod]) -> bool:
        """Return whether a gang that is not evicted as a whole would be left with fewer members than its minimum."""
        for pod in gone:
            gang = self.gang(pod)
            left = [one for one in gang if one not in gone]
            if pod.gang and len(gang) >= pod.least > len(left) and left:
                return True
        return False

    # Nodes ----------------------------------------------------------------------------------------

    def free(self, node: str) -> Amounts:
        """Return the free capacity of a node."""
        taken = total(one.size for one in self.world.pods if one.node == node)
        return {kind: much - taken.get(kind, 0) for kind, much in self.world.nodes[node].items()}

    def lacks(self, node: str, assignments: list[tuple[Member, str]], gone: list[Pod]) -> set[str]:
        """Return the resource types in which the planned members of a node do not fit."""
        here = total(one.size for one, at in assignments if at == node)
        freed = total(one.size for one in gone if one.node == node)
        free = self.free(node)
        return {k for k, much in here.items() if much > free.get(k, 0) + freed.get(k, 0)}

    # The plan (J8, J9) ----------------------------------------------------------------------------

    def plan(self) -> Found | None:
        """Return the plan, without victims that opted out if such a plan exists; None when there is no plan."""
        if self.queue(self.world.queue).disabled or not self.within_min() or not self.gate():
            return None
        return self.justified_attempt(willing=True) or self.justified_attempt(willing=False)

    def justified_attempt(self, *, willing: bool) -> Found | None:
        """Return a plan that justifies every victim; otherwise a plan that evicts pods of the job's own queue first (J7, J8)."""
        found = self.attempt(willing=willing)
        if found is None or self.is_justified(found):
            return found
        found = self.attempt(willing=willing, own_first=True)
        return found if found is not None and self.is_justified(found) else None

    def is_justified(self, found: Found) -> bool:
        """Return whether the finished plan justifies each victim."""
        members = {one.key: one for one in self.world.members}
        return self.justified(
            [(members[key], node) for key, node in found.assignments], found.victims
        )

    def attempt(self, *, willing: bool, own_first: bool = False) -> Found | None:
        """Plan one member after the other, then satisfy the maxima, then give back victims that are not needed."""
        self.own_first = own_first
        assignments: list[tuple[Member, str]] = []
        gone: list[Pod] = []
        for member in sorted(self.world.members, key=lambda one: -one.priority):
            if any(
                much > max(n.get(k, 0) for n in self.world.nodes.values())
                for k, much in member.size.items()
            ):
                return None
            choices = [
                (self.key(node, more), node, more)
                for node in self.world.nodes
                for more in [self.walk(node, [*assignments, (member, node)], gone, willing=willing)]
                if more is not None
            ]
            if not choices:
                return None
            _, node, more = min(choices, key=lambda one: one[0])
            assignments.append((member, node))
            gone += more
        if not self.make_headroom(assignments, gone, willing=willing):
            return None
        self.give_back(assignments, gone)
        order = sorted(gone, key=self.rank)
        return Found([(one.key, node) for one, node in assignments], order)

    def key(self, node: str, more: list[Pod]) -> Key:
        """Return the key by which nodes are compared (J9)."""
        highest = max((one.priority for one in more), default=NOBODY)
        jobs = {(one.owner, one.gang) if one.gang else one.key for one in more}
        return highest, len(jobs), len(more), node

    def rank(self, pod: Pod) -> tuple[bool, int, str, str]:
        """Return the key of the victim order, least important first (V2)."""
        return self.would_rather_stay(pod), pod.priority, pod.gang, pod.key

    def walk(
        self, node: str, assignments: list[tuple[Member, str]], gone: list[Pod], *, willing: bool
    ) -> list[Pod] | None:
        """Return the pods that are evicted from a node until its members fit; None when they never fit."""
        more: list[Pod] = []
        order = [
            one for one in self.world.pods if one.node == node and self.may_go(one, willing=willing)
        ]
        order.sort(
            key=lambda one: (self.own_first and one.queue != self.world.queue, self.rank(one))
        )
        progress = True
        while progress and self.lacks(node, assignments, gone + more):
            progress = False
            for pod in order:
                lacking = self.lacks(node, assignments, gone + more)
                if not lacking:
                    break
                if pod in gone or pod in more or not lacking & set(pod.size):
                    continue
                unit = self.unit(pod, gone + more, willing=willing)
                if unit is not None and self.may_take(unit, assignments, gone + more):
                    more += unit
                    progress = True
        fits = not self.lacks(node, assignments, gone + more)
        return more if fits and self.within_share(assignments, gone + more) else None

    def may_take(
        self, unit: list[Pod], assignments: list[tuple[Member, str]], gone: list[Pod]
    ) -> bool:
        """Return whether the pods may be evicted in addition to those that are gone."""
        if not self.keeps_floors([*gone, *unit]) or not self.keeps_budgets([*gone, *unit]):
            return False
        if all(one.queue == self.world.queue for one in unit):
            return True
        if not self.is_taken_for_a_type(unit, assignments, gone):
            return False
        stranger = next(one for one in unit if one.queue != self.world.queue)
        return self.within_share(assignments, [*gone, stranger])

    def make_headroom(
        self, assignments: list[tuple[Member, str]], gone: list[Pod], *, willing: bool
    ) -> bool:
        """Evict pods of the job's own queue on other nodes as long as a max requires it; return whether all maxima are kept."""
        for pod in sorted(self.world.pods, key=self.rank):
            over = self.full(gone)
            if not over:
                return True
            own = pod.queue == self.world.queue and self.may_go(pod, willing=willing)
            if not own or pod in gone or not {kind for _, kind in over} & set(pod.size):
                continue
            unit = self.unit(pod, gone, willing=willing)
            if unit is not None and self.may_take(unit, assignments, gone):
                gone += unit
        return not self.full(gone)

    def give_back(self, assignments: list[tuple[Member, str]], gone: list[Pod]) -> None:
        """Give back victims that are not needed, the most important first; a gang evicted as a whole is given back whole."""
        changed = True
        while changed:
            changed = False
            for unit in sorted(
                self.as_taken(gone), key=lambda one: max(map(self.rank, one)), reverse=True
            ):
                rest = [one for one in gone if one not in unit]
                if all(one in gone for one in unit) and self.holds(assignments, rest):
                    gone[:] = rest
                    changed = True

    def as_taken(self, gone: list[Pod]) -> list[list[Pod]]:
        """Return the victims in groups as they were chosen; members above a gang's minimum are groups of one (J12)."""
        found: list[list[Pod]] = []
        for unit in self.units(gone):
            in_order = [one for one in gone if one in unit]
            alone = max(0, len(unit) - unit[0].least) if unit[0].gang else 0
            found += [[one] for one in in_order[:alone]]
            found.append(in_order[alone:])
        return found

    def units(self, gone: list[Pod]) -> list[list[Pod]]:
        """Return the victims in units that are evicted together."""
        found: list[list[Pod]] = []
        for pod in gone:
            gang = self.gang(pod)
            whole = bool(gang) and len(gang) >= pod.least and all(one in gone for one in gang)
            unit = gang if whole else [pod]
            if unit not in found:
                found.append(unit)
        return found

    def holds(self, assignments: list[tuple[Member, str]], gone: list[Pod]) -> bool:
        """Return whether a plan keeps every rule: node capacity, maxima, gangs, floors and share."""
        return (
            not any(self.lacks(node, assignments, gone) for _, node in assignments)
            and not self.full(gone)
            and not self.broken(gone)
            and self.keeps_floors(gone)
            and self.keeps_budgets(gone)
            and self.within_share(assignments, gone)
        )
