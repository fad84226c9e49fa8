"""The Trial: a snapshot with the changes that the plans so far would make.

A Trial equals the snapshot after the plans so far, and can be rolled back (design 6.2). The snapshot is never written to. An array
of the snapshot is copied when the first plan changes it. All changes are sums, so that a plan is undone by subtracting it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from server.kernels import sums
from server.kernels.distinct import FEW
from server.kernels.fit import Array, Mask
from server.model.fit import Demand
from server.preemption.policy import Plan, PlannedPledge
from server.preemption.proportion import Proportion, of_view
from server.snapshot import node_search
from server.snapshot.queues import FrozenAmounts, QueueFacts, has_headroom
from server.snapshot.snapshot import Snapshot
from server.snapshot.tentative import Tentative
from server.snapshot.waiting import ClassFacts, WaitingAsk

ClaimTurn = tuple[int, int, int, int]
"""The sort key of a claim among the claims of its leaf (`WaitingAsk.turn`)."""
FurtherClaims = Callable[[str], tuple[WaitingAsk, ...] | None]
"""A function that returns the claims of a leaf that follow the claims read so far, or () if there are no more.

The result is None if this tick may read no more of them.
"""


class Trial:
    """A snapshot with changes on top: which allocations run, the usage and promises of queues, and the free capacity of nodes.

    ``touched`` lists the rows of nodes that plans changed, in order. ``kept`` is a cache for searches. A rollback empties this
    cache. ``further_claims`` reads the claims that the snapshot leaves out. ``further_claims`` is None if the snapshot has all
    claims. ``unread_claims`` has the leaves whose claims are not in the snapshot, but may be returned by ``further_claims``. Each
    leaf comes with a lower bound on the sort keys of these claims. ``is_cut`` is true once the order of claims has ended at a
    claim that this tick may not read, so that the next tick continues with that claim. ``steps`` is the cost of searches so far,
    in units of one placement. With ``brief``, refusals of claims leave out the protected candidates, because no caller reads
    them.
    """

    __slots__ = (
        "_claims_known_to",
        "_coming",
        "_disrupted",
        "_eff",
        "_firm",
        "_fitting",
        "_free",
        "_free_for_claims",
        "_held",
        "_known_eff",
        "_known_held",
        "_nodes",
        "_open",
        "_plans",
        "_pledged",
        "_promised",
        "_reserved",
        "_reserving",
        "_served",
        "_shares",
        "_standing",
        "_weak",
        "_weak_firm",
        "brief",
        "further_claims",
        "is_cut",
        "kept",
        "snapshot",
        "steps",
        "touched",
        "unread_claims",
    )

    def __init__(
        self,
        snapshot: Snapshot,
        shares: Proportion | None = None,
        further_claims: FurtherClaims | None = None,
        unread_claims: Mapping[str, ClaimTurn] = MappingProxyType({}),
    ) -> None:
        self.snapshot = snapshot
        self.further_claims, self.unread_claims = further_claims, unread_claims
        self._shares = shares
        self._served = {one.key for one in snapshot.commitments if not one.weak}
        self._reserving = {one.key for one in snapshot.commitments if one.weak}
        self._open = Counter(
            (one.policy, leaf) for one in snapshot.commitments for leaf in ("", one.leaf)
        )
        self._standing: Mask | None = None
        self._free: Array | None = None
        self._coming: Array | None = None
        self._held: Mask | None = None
        self._pledged: Counter[int] = Counter()
        self._nodes = snapshot.nodes
        self._reserved: Array | None = None
        self._disrupted: Counter[str] = Counter()
        self.touched: list[int] = []
        self.steps, self.brief, self.is_cut = 0, False, False
        self.kept: dict[Any, Any] = {}
        self._weak: dict[str, list[int]] = {}
        self._weak_firm: dict[str, list[int]] = {}
        self._eff: dict[str, list[int]] = {}
        self._promised: dict[str, list[int]] = {}
        self._firm: dict[str, list[int]] = {}
        self._known_eff: dict[str, FrozenAmounts] = {}
        self._known_held: dict[str, FrozenAmounts] = {}
        """The cached `eff` and `held` of queues, until a plan changes them."""
        self._plans: list[Plan] = []
        self._free_for_claims: Array | None = None
        self._claims_known_to = 0
        self._fitting: tuple[ClassFacts | None, int, int] = (None, 0, -1)
        """The class in the last call of `fits_claim`, the number of nodes touched until then, and the result."""

    # Plans ----------------------------------------------------------------------------------------

    @property
    def plans(self) -> tuple[Plan, ...]:
        """Return the plans that were applied and not rolled back, in order."""
        return tuple(self._plans)

    def plans_since(self, mark: int) -> list[Plan]:
        """Return the plans that were applied after ``mark`` was taken (see `mark`), in order."""
        return self._plans[mark:]

    def apply(self, plan: Plan) -> None:
        """Apply a plan, so that all later results treat the plan as carried out. The plan is not checked."""
        self._plans.append(plan)
        self._change(plan, 1)

    def mark(self) -> int:
        """Return a mark for `rollback`: the number of plans so far."""
        return len(self._plans)

    def rollback(self, mark: int) -> None:
        """Undo all plans that were applied after the mark, and empty the cache ``kept``."""
        assert mark <= len(self._plans), "the mark was rolled back already"
        while len(self._plans) > mark:
            self._change(self._plans.pop(), -1)

    def _change(self, plan: Plan, sign: int) -> None:
        for pledge in plan.pledges:
            self._open[plan.policy, pledge.ask.leaf] += sign
            self._open[plan.policy, ""] += sign
            self._pledge(plan, pledge, sign)
        if plan.releases:
            self._release(plan.rows, sign)
        if sign < 0:
            self.kept.clear()

    def _pledge(self, plan: Plan, pledge: PlannedPledge, sign: int) -> None:
        kind, row = pledge.ask.kind, pledge.row
        served = self._reserving if plan.facts.reserves else self._served
        (served.add if sign > 0 else served.discard)(pledge.ask.key)
        if self._free is None:
            self._free = self.snapshot.nodes.free.copy()
        _add(self._free, row, kind.node_demand, -sign)
        if plan.facts.reserves:
            # A reservation yields to claims, so that its capacity counts as free for claims (see `free_for_claim`).
            self._reserve(row, kind.node_demand, sign)
        if self._held is None:
            self._held = self.snapshot.nodes.held.copy()
        self._pledged[row] += sign
        if pledge.exclusive:
            self._close(row, sign)
        self._held[row] = bool(self.snapshot.nodes.held[row]) or self._pledged[row] > 0
        self.touched.append(row)
        self._promise(plan, pledge, sign)

    def _promise(self, plan: Plan, pledge: PlannedPledge, sign: int) -> None:
        """Count a pledge in the promised, reserved and firm amounts of the queues on its path.

        With ``sign`` -1, subtract the pledge again.
        """
        kind = pledge.ask.kind
        for queue in self.snapshot.path_up(pledge.ask.leaf):
            self._known_held.pop(queue.path, None)
            promised = self._promised.setdefault(queue.path, list(queue.promised))
            reserved = self._reserved_of(queue) if plan.facts.reserves else None
            if kind.firm:
                self._hold_firm(queue.path, kind.demand, sign, weak=reserved is not None)
            for index, quantity in kind.demand:
                promised[index] += sign * quantity
                if reserved is not None:
                    reserved[index] += sign * quantity

    def _hold_firm(self, path: str, demand: Demand, sign: int, *, weak: bool) -> None:
        use = self.snapshot.firm[path]
        table, before = (self._weak_firm, use.reserved) if weak else (self._firm, use.held)
        held = table.setdefault(path, list(before))
        for index, quantity in demand:
            held[index] += sign * quantity

    def _close(self, row: int, sign: int) -> None:
        """Close a node to all asks except the one for which the node is held (G11). With ``sign`` -1, open the node again."""
        if self._nodes is self.snapshot.nodes:
            self._nodes = replace(self._nodes, open=self._nodes.open.copy())
        self._nodes.open[row] = sign < 0 and bool(self.snapshot.nodes.open[row])

    def _reserve(self, row: int, demand: Demand, sign: int) -> None:
        if self._reserved is None:
            self._reserved = self.snapshot.nodes.reserved.copy()
        _add(self._reserved, row, demand, sign)

    def _reserved_of(self, queue: QueueFacts) -> list[int]:
        return self._weak.setdefault(queue.path, list(queue.reserved))

    def _release(self, rows: Array, sign: int) -> None:
        columns = self.snapshot.allocations
        if self._standing is None:
            self._standing = columns.standing.copy()
        if self._coming is None:
            self._coming = self.snapshot.nodes.releasing.copy()
        held = columns.nodes, columns.leaves, columns.resources
        released = sums.release(self._standing, self._coming, *held, rows, sign)
        self.touched += released.nodes
        for number, amounts in released.by_leaf:
            charged = [pair for pair in amounts if not self.snapshot.ports[pair[0]]]
            for queue in self.snapshot.path_up(self.snapshot.leaf_paths[number]):
                self._known_eff.pop(queue.path, None)
                self._known_held.pop(queue.path, None)
                eff = self._eff.setdefault(queue.path, _eff(queue))
                for index, quantity in charged:
                    eff[index] -= sign * quantity
        self._disrupt(rows, sign)

    def _disrupt(self, rows: Array, sign: int) -> None:
        for row in rows.tolist() if self.snapshot.disruptions else ():
            for group in self.snapshot.allocations.groups(row):
                self._disrupted[group] += sign

    # Queues ---------------------------------------------------------------------------------------

    def eff(self, path: str) -> FrozenAmounts:
        """Return a queue's effective usage by type (G4): its usage minus the amounts of terminating pods and of victims of plans."""
        known = self._known_eff.get(path)
        if known is None:
            using = self._eff.get(path) or _eff(self.snapshot.queues[path])
            known = self._known_eff[path] = tuple(using)
        return known

    def used(self, path: str) -> FrozenAmounts:
        """Return a queue's usage by type, minus the amounts that the plans release.

        Amounts that were already being released when the snapshot was taken still count as used.
        """
        queue = self.snapshot.queues[path]
        return tuple([a + b for a, b in zip(self.eff(path), queue.releasing, strict=True)])

    def promised(self, path: str) -> FrozenAmounts:
        """Return, by type, the amounts that open decisions, reservations and plans will add to a queue."""
        return tuple(self._promised.get(path) or self.snapshot.queues[path].promised)

    def held(self, path: str) -> FrozenAmounts:
        """Return the amounts that a queue will use once every open decision and plan is carried out, by type.

        Claims compare these amounts with the queue's entitlement (G2).

        Reservations are left out, because they yield to claims, and because their capacity may never become free.
        """
        known = self._known_held.get(path)
        if known is None:
            weak = self._weak.get(path) or self.snapshot.queues[path].reserved
            parts = zip(self.eff(path), self.promised(path), weak, strict=True)
            known = tuple([using + promised - less for using, promised, less in parts])
            self._known_held[path] = known
        return known

    @property
    def shares(self) -> Proportion:
        """Return the shares of the queues when the snapshot was taken.

        Plans change the usage of queues, but not their deserved shares (design 6.7).
        """
        if self._shares is None:
            self._shares = of_view(self.snapshot)
        return self._shares

    def entitled(self, path: str) -> FrozenAmounts:
        """Return the entitlement of a queue by type: its guarantee, or with shares by weight the amount `Proportion.entitled` (W2)."""
        snapshot = self.snapshot
        return (
            self.shares.entitled(path)
            if snapshot.is_shared_out
            else snapshot.queues[path].guaranteed
        )

    def firm_held(self, path: str) -> FrozenAmounts:
        """Return the amounts that firm asks of a queue will use once every open decision and plan is carried out, by type (J4)."""
        return tuple(self._firm.get(path) or self.snapshot.firm[path].held)

    def firm_reserved(self, path: str) -> FrozenAmounts:
        """Return, by type, the amounts that are reserved for firm asks of a queue. `firm_held` leaves out reserved amounts."""
        return tuple(self._weak_firm.get(path) or self.snapshot.firm[path].reserved)

    def has_headroom(self, leaf: str, demand: Demand) -> bool:
        """Return whether the leaf and every queue above it have headroom for one more ask of this demand.

        Promised capacity counts as used.
        """
        promised = self._promised
        return all(
            has_headroom(queue, promised.get(queue.path, queue.promised), demand)
            for queue in self.snapshot.path_up(leaf)
        )

    # Nodes ----------------------------------------------------------------------------------------

    @property
    def _free_now(self) -> Array:
        return self.snapshot.nodes.free if self._free is None else self._free

    def stands(self, row: int) -> bool:
        """Return whether the allocation in this row runs and its release is not ordered."""
        return bool(self.standing[row])

    def overfull(self, types: list[int]) -> dict[int, dict[int, int]]:
        """Return the usage beyond each node's capacity once all terminating pods have ended, by node row and type index.

        Only the given types are examined. Promised capacity is not counted as used.
        """
        coming = self.snapshot.nodes.releasing if self._coming is None else self._coming
        free = self.snapshot.nodes.free + coming
        for one in self.snapshot.commitments:
            _add(free, one.row, one.node_demand, 1)
        return {row: dict(pairs) for row, pairs in node_search.overfull(free, types)}

    def free_for_claim(self, row: int) -> list[int]:
        """Return the amounts that a node will have free for a claim once all terminating pods have ended. Reservations count as free."""
        found: list[int] = self._claimable()[row].tolist()
        return found

    def _claimable(self) -> Array:
        """Return the amounts that all nodes will have free for a claim. The caller must not change the array.

        The array is cached. The next call updates the rows that plans changed.
        """
        known, touched = self._free_for_claims, len(self.touched)
        if known is not None and self._claims_known_to == touched:
            return known
        free, coming, weak = self._parts()
        if known is None:
            known = self._free_for_claims = free + coming + weak
        else:
            moved = list(set(self.touched[self._claims_known_to :]))
            at = moved[0] if len(moved) == 1 else moved
            known[at] = free[at] + coming[at] + weak[at]
        self._claims_known_to = touched
        return known

    def _parts(self) -> tuple[Array, Array, Array]:
        """Return three arrays by node and type: the free amounts, the amounts of terminating pods, and the reserved amounts."""
        nodes = self.snapshot.nodes
        coming = nodes.releasing if self._coming is None else self._coming
        weak = nodes.reserved if self._reserved is None else self._reserved
        return self._free_now, coming, weak

    def fits_claim(self, kind: ClassFacts) -> int:
        """Return the row of the node that takes a claim once all terminating pods have ended (G8), -1 if there is none."""
        touched = len(self.touched)
        known, seen, row = self._fitting
        if known is not kind or seen != touched:
            row = node_search.best(self._nodes, self._claimable(), kind, self.snapshot.sort)
            self._fitting = kind, touched, row
        return row

    def fits_coming(self, ask: WaitingAsk) -> int:
        """Return the row of the node that takes the ask once all terminating pods have ended. Return -1 if there is none.

        Nodes that are reserved for other asks are left out, because reservations yield only to claims.
        """
        now, coming, weak = self._parts()
        others = weak.copy()
        for one in self.snapshot.commitments if ask.reserved else ():
            if one.weak and one.key == ask.key:
                _add(others, one.row, one.node_demand, -1)
        free = now + coming + weak
        free[others.any(axis=1)] = -1
        return node_search.best(self._nodes, free, ask.kind, self.snapshot.sort)

    def short_nodes(
        self,
        kind: ClassFacts,
        least: Iterable[tuple[int, int]] = (),
        closed: Iterable[int] = (),
    ) -> tuple[Mask, Array]:
        """Return the nodes that could take the ask if nothing ran on them, by row.

        Each row comes with the amounts that must be freed on its node for the ask, by type index. An amount is the lacking
        amount of the node, or the amount in ``least`` if that is larger. Nodes on which an amount of a ``closed`` type must be
        freed are left out (G2).
        """
        return node_search.lacking(self._nodes, self._claimable(), kind, least, closed)

    def is_open(self, row: int) -> bool:
        """Return whether the node takes placements and is not held for one ask alone."""
        return bool(self._nodes.open[row])

    def may_require(self, kind: ClassFacts, row: int) -> bool:
        """Return whether the node would suit an ask that requires it, if nothing ran there (G11). The node may be cordoned."""
        return node_search.may_require(self.snapshot.nodes, kind, row)

    def all_stand(self, rows: Array) -> bool:
        """Return whether the allocations in all of these rows run, and none of their releases is ordered."""
        if len(rows) <= FEW:
            return all(map(self.standing.item, rows.tolist()))
        return bool(self.standing[rows].all())

    def freed(self, rows: Array) -> list[tuple[str, list[tuple[int, int]]]]:
        """Return the amounts that each leaf loses if these allocations are evicted, as pairs of a type index and a quantity.

        Ports are left out.
        """
        columns, ports = self.snapshot.allocations, self.snapshot.ports
        totals = sums.by_leaf(columns.leaves, columns.resources, rows)
        return [
            (self.snapshot.leaf_paths[number], [pair for pair in amounts if not ports[pair[0]]])
            for number, amounts in totals
        ]

    def rows_on(self, node: int) -> list[int]:
        """Return the rows of the allocations that run on a node and whose release is not ordered."""
        return [row for row in self.snapshot.allocations.rows_on(node) if self.stands(row)]

    @property
    def standing(self) -> Mask:
        """Return, for each row, whether the allocation runs and its release is not ordered."""
        return self.snapshot.allocations.standing if self._standing is None else self._standing

    def disruptions_left(self, group: str) -> int:
        """Return how many more pods of a disruption group may be evicted after the plans so far.

        A group that was never reported allows 0.
        """
        return self.snapshot.disruptions.get(group, 0) - self._disrupted[group]

    def exhausted(self) -> Mask | None:
        """Return a mask of the rows of pods whose disruption budget is used up (V5).

        Return None if budgets are ignored, or if no pod belongs to a disruption budget.
        """
        ignored = self.snapshot.settings.disruption_budgets == "ignore"
        return None if ignored else self.snapshot.exhausted(self.disruptions_left)

    def best(self, kind: ClassFacts) -> int:
        """Return the row of the node that takes one ask of the class now, -1 if there is none."""
        return node_search.best(self._nodes, self._free_now, kind, self.snapshot.sort)

    def tentative(self) -> Tentative:
        """Return an empty tentative assignment, which starts from the capacity that is free after the plans so far."""
        evicted = None if self._coming is None else self._coming - self.snapshot.nodes.releasing
        return Tentative(self._nodes, self._free_now, self.snapshot.sort, evicted)

    def free_on(self, row: int) -> FrozenAmounts:
        """Return the amounts that a node has free now, by type, after the plans so far. Victims still use their capacity."""
        return tuple(self._free_now[row].tolist())

    def least_short(self, kind: ClassFacts) -> int:
        """Return the row of the node that lacks least now for asks of the class, -1 if there is none.

        The node must be able to hold such an ask when it is empty. No capacity of the node may be held for another ask.
        """
        nodes = self._nodes
        held = nodes.held if self._held is None else self._held
        candidates = node_search.able_when_empty(nodes, self._free_now, kind) & ~held
        return node_search.least_short(nodes, self._free_now, kind, candidates)

    def is_held(self, row: int) -> bool:
        """Return whether a decision, a reservation or a plan holds capacity on the node."""
        return bool((self.snapshot.nodes.held if self._held is None else self._held)[row])

    # Commitments ----------------------------------------------------------------------------------

    def open_for(self, policy: str, leaf: str = "") -> int:
        """Return the number of asks for which decisions and plans of this policy hold capacity.

        With ``leaf``, count only asks of that leaf.
        """
        return self._open[policy, leaf]

    def is_served(self, key: str) -> bool:
        """Return whether a decision or a plan already holds capacity for this ask. Reservations are not considered."""
        return key in self._served

    def is_reserved(self, key: str) -> bool:
        """Return whether a reservation, in the snapshot or in a plan, holds capacity for this ask."""
        return key in self._reserving


def _eff(queue: QueueFacts) -> list[int]:
    return [used - going for used, going in zip(queue.usage, queue.releasing, strict=True)]


def _add(table: Array, row: int, demand: Demand, sign: int) -> None:
    for index, quantity in demand:
        table[row, index] += sign * quantity
