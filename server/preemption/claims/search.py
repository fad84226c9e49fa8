"""The search of claims for victims, for all asks of one class in one leaf.

The search finds the best node, and the best set of victims on that node (G3-G9).

Facts about the class are computed once per Trial: the leaves with victims, the allocations that pass the rules, and a bound for
each node. A plan can make a node better for the class only if the plan touches it. Touched nodes therefore get a new bound
(design 6.7). If queues may fall below their shares, a plan can also make untouched nodes better. The search then starts again
after each plan (W8).
"""

import heapq
from collections.abc import Sequence
from typing import Final, NamedTuple

from server.kernels import cover
from server.kernels.fit import Array, Mask, equal
from server.model.quota import is_below
from server.model.ranking import RANKED_MAX, RIVALS_MAX, Ranked, Ranking, window
from server.preemption.claims import victim_sets
from server.preemption.claims.candidate_pool import (
    Candidates,
    ClaimNeed,
    Least,
    find_pool,
    preferred_now,
)
from server.preemption.claims.eligibility import (
    CODES,
    RULES,
    Block,
    ClaimEligibility,
    InQueueEligibility,
)
from server.preemption.claims.victim_sets import CoveringSet, NotFound, Task
from server.preemption.entitlement import may_improve, numbers
from server.preemption.policy import ProtectedCandidates
from server.preemption.trial import Trial
from server.preemption.victim_order import order
from server.snapshot import eligibility_filter
from server.snapshot.eligibility_filter import VictimNodes
from server.snapshot.leaf_eligibility import PASSED
from server.snapshot.waiting import WaitingAsk

VictimSetKey = tuple[int, int, int, int, int, str]
"""The key of a set of victims (see `victim_sets.Key`), followed by the node's name. The smallest key is the best (G8)."""
NODE_STEPS: Final = 1
"""The cost of judging a node, in units of one placement. The steps of branch and bound are not included."""
STEPS_A_STEP: Final = 32
"""The number of branch and bound steps that take as much time as one placement."""
FEW = 4
"""The largest number of nodes for which it is faster to judge all nodes than to compute their bounds first."""
UNTOLD: Final = frozenset({PASSED, CODES.gone})
"""The codes of rows that are not reported as protected by a rule."""
UNJUDGED = -1
"""The value of ``plans`` for a node for which only a bound is known."""


class Considered(NamedTuple):
    """The rows from which the victims on a node were chosen, and the types that were needed when they were chosen."""

    rows: Sequence[int] = ()
    kinds: tuple[int, ...] = ()


class ChosenNode(NamedTuple):
    """The chosen node, its victims, and the rows from which the victims were chosen. Nodes and victims are row numbers of the snapshot."""

    node: int
    rows: tuple[int, ...]
    considered: Considered = Considered()


class Nearest(NamedTuple):
    """The node that comes nearest to a plan, -1 if there is none, with the amounts that it ``lacks``, by type.

    ``barred`` is the number of nodes that lack a closed type. ``is_barred`` says that the nearest node is one of these nodes. If
    ``is_barred`` is true, ``closed`` contains the closed types that this node lacks.
    """

    node: int
    lacks: list[int]
    barred: int
    closed: frozenset[int]
    is_barred: bool


class _Entry(NamedTuple):
    """The best set of victims on a node, chosen when the Trial had ``plans`` plans.

    If ``plans`` is UNJUDGED, the node has no set of victims yet, and ``key`` is a bound.
    """

    key: VictimSetKey
    plans: int
    node: int
    rows: tuple[int, ...]
    considered: Considered = Considered()


class Claim:
    """The search for one class of asks of one leaf, on one Trial.

    ``cut`` says that on at least one node the search reached its limit before it had a result. If ``limited`` is false, maxima
    on the path of the ask's queue are ignored.
    """

    def __init__(
        self,
        trial: Trial,
        ask: WaitingAsk,
        *,
        limited: bool = True,
        eligibility: InQueueEligibility | None = None,
    ) -> None:
        self.ask = ask
        self.cut = False
        self._limited = limited
        self._alone: Claim | None = None
        self._eligibility: ClaimEligibility | InQueueEligibility = eligibility or ClaimEligibility(
            trial, ask
        )
        self._heap: list[_Entry] = []
        self._latest: dict[int, _Entry] = {}
        self._moved: set[int] = set()
        """The nodes that plans have touched since bounds were computed for all nodes.

        The heap has the new bounds or results of these nodes.
        """
        self._weights = trial.snapshot.weights
        self._improves = may_improve(trial)
        self._begin(trial)

    def _begin(self, trial: Trial) -> None:
        """Compute the rows that pass, and a bound for every node. If a queue with equal eligibility has a pool, reuse that pool."""
        self._blocks: tuple[Block, ...] = self._find_blocks(trial)
        self._pool = find_pool(trial, self.ask.kind, self._eligibility, self._least())
        self._order = order(trial.snapshot.settings, "claim")
        self._candidates = Candidates(trial, self._eligibility, self._order, self._pool.preferred)
        self._drawn = 0
        self._ahead: VictimSetKey | None = None
        """The bound of the next node in the order of bounds. The value is None until this bound is computed."""
        self._began = len(trial.touched)
        self._moved.clear()
        self._seen = self._pool.seen
        self._heap.clear()
        self._latest.clear()

    def _least(self) -> Least:
        """Return the amounts that must be freed whichever node is chosen: the headroom that is missing in the queues on the ask's path."""
        return tuple((block.at, block.lack) for block in self._blocks)

    def _find_blocks(self, trial: Trial) -> tuple[Block, ...]:
        return self._eligibility.blocks(trial) if self._limited else ()

    def _bounded(self, trial: Trial, rows: Array, need: Array) -> VictimNodes:
        """Return the nodes on which these allocations run, with a bound for each node."""
        snapshot = trial.snapshot
        return eligibility_filter.field(
            snapshot.allocations,
            rows,
            need,
            self._weights,
            snapshot.nodes.names,
            self._pool.preferred,
        )

    def _short(self, trial: Trial) -> tuple[Mask, Array]:
        """Return, for each node, whether the ask would fit if no pod ran there, and the amounts that must at least be freed there."""
        return trial.short_nodes(self.ask.kind, self._least(), self._eligibility.closed)

    # The search ---------------------------------------------------------------------------------------

    def best(self, trial: Trial) -> ChosenNode | None:
        """Return the best node with the best set of victims on it, after the plans so far. Return None if there is none."""
        blocks = self._find_blocks(trial)
        if not blocks:
            row = trial.fits_claim(self.ask.kind)
            if row >= 0:
                # G8: the ask fits once the pods whose eviction was ordered have ended.
                return ChosenNode(row, ())
        lacks = {(one.path, one.at): one.lack for one in blocks}
        if any(lacks.get((one.path, one.at), 0) < one.lack for one in self._blocks):
            self._begin(trial)  # other plans made headroom: nodes may be better than their bounds
        elif self.is_stale(trial) and not equal(self._pool.preferred, preferred_now(trial)):
            # Rows whose disruption budgets are used up count as opted out now (V5).
            self._begin(trial)
        elif self._began != len(trial.touched) and self._improves:
            self._begin(trial)  # rows that were protected may be evicted now (W8)
        self._blocks = blocks
        self._look_again(trial)
        return self._pop(trial)

    def is_stale(self, trial: Trial) -> bool:
        """Return whether plans have touched a node since the candidate pool was built.

        After such a plan, the pool may be out of date.
        """
        return self._pool.seen != len(trial.touched)

    def across(self, trial: Trial) -> ChosenNode | None:
        """Return a node and victims for an ask that maxima block (G9).

        Victims run on that node, or in queues below those maxima on any node.

        The node is the one that the ask would get without the maxima. Return None if no maximum blocks the ask, or if no set of
        victims is found.
        """
        if not self._blocks:
            return None
        node = trial.fits_claim(self.ask.kind)
        if node < 0:
            self._alone = self._alone or Claim(trial, self.ask, limited=False)
            choice = self._alone.best(trial)
            if choice is None:
                return None
            node = choice.node
        snapshot = trial.snapshot
        everywhere = snapshot.nodes.numbers > 0
        known = eligibility_filter.passed(
            snapshot.allocations, self._pool.filtered, everywhere
        ).tolist()
        rows = [row for row in known if trial.stands(row) and self._helps(trial, row, node)]
        need = self._need(trial, node)
        found = self._solve(trial, need, rows)
        if not isinstance(found, CoveringSet):
            return None
        going = tuple(one.row for one in found.victims)
        return ChosenNode(node, going, Considered(rows, need.kinds))

    def _helps(self, trial: Trial, row: int, node: int) -> bool:
        leaf = self._candidates.row(trial, row).leaf
        on_it = int(trial.snapshot.allocations.nodes[row]) == node
        return on_it or any(is_below(leaf, block.path) for block in self._blocks)

    def _look_again(self, trial: Trial) -> None:
        """Compute new bounds for the nodes that plans touched since the last call. These nodes may be better now.

        If there are few such nodes, judge them at once.
        """
        touched = sorted(set(trial.touched[self._seen :]))
        self._seen = len(trial.touched)
        self._moved.update(touched)
        if len(touched) <= FEW:
            for node in touched:
                self._judge(trial, node)
            return
        nodes, need = self._short(trial)
        rows = self._pool.field.among(touched, trial.standing)
        found = self._bounded(
            trial, eligibility_filter.on(trial.snapshot.allocations, rows, nodes), need
        )
        for node in touched:
            self._latest.pop(node, None)
        for node in found.order:
            self._keep(_Entry(self._bound(trial, found, node), UNJUDGED, node, ()))

    def _pop(self, trial: Trial) -> ChosenNode | None:
        now = trial.mark()
        while True:
            self._draw(trial)
            if not self._heap:
                return None
            top = self._heap[0]
            current = self._latest.get(top.node) is top
            if current and top.plans == now:
                return ChosenNode(top.node, top.rows, top.considered)
            heapq.heappop(self._heap)
            if current:
                self._judge(trial, top.node)

    def _draw(self, trial: Trial) -> None:
        """Judge nodes in the order of their bounds. Stop when the next node cannot be better than the best node so far."""
        order = self._pool.field.order
        while self._drawn < len(order):
            node = order[self._drawn]
            if self._ahead is None:
                self._ahead = self._bound(trial, self._pool.field, node)
            if self._heap and self._heap[0].key < self._ahead:
                return
            self._drawn, self._ahead = self._drawn + 1, None
            if node not in self._moved:
                self._judge(trial, node)

    def _bound(self, trial: Trial, field: VictimNodes, node: int) -> VictimSetKey:
        rank, fewest, excess = field.bound(node)
        return (*cover.parts(rank), fewest, excess, trial.snapshot.nodes.ids[node])

    def _judge(self, trial: Trial, node: int) -> None:
        """Find the best set of victims on a node, and store it if there is one."""
        self._latest.pop(node, None)
        considered, need = self._standing_on(trial, node), self._need(trial, node)
        found = self._solve(trial, need, considered) if trial.is_open(node) else None
        trial.steps += NODE_STEPS + (0 if found is None else found.steps // STEPS_A_STEP)
        if not isinstance(found, CoveringSet):
            self.cut = self.cut or (found is not None and found.cut)
            return
        key = (*found.key, trial.snapshot.nodes.ids[node])
        rows = tuple(one.row for one in found.victims)
        self._keep(_Entry(key, trial.mark(), node, rows, Considered(considered, need.kinds)))

    def _keep(self, entry: _Entry) -> None:
        self._latest[entry.node] = entry
        heapq.heappush(self._heap, entry)

    # One node -----------------------------------------------------------------------------------------

    def _standing_on(self, trial: Trial, node: int) -> list[int]:
        """Return the rows on a node that passed every rule and still run."""
        codes, stands = self._pool.filtered.codes.item, trial.standing.item
        rows = self._pool.field.rows(node)
        return [row for row in rows if codes(row) == PASSED and stands(row)]

    def _need(self, trial: Trial, node: int) -> ClaimNeed:
        return ClaimNeed(node, self._lacks(trial, node), self._blocks)

    def _solve(
        self, trial: Trial, need: ClaimNeed, rows: list[int]
    ) -> CoveringSet | NotFound | None:
        """Return the best set of victims among these rows that makes the ask fit on a node.

        Return `NotFound` if the search finds none.

        Return None in three cases: no row can help, the ask lacks nothing on the node, or the ask lacks a closed type there (G2).
        """
        if not rows or not need.amounts or not self._eligibility.closed.isdisjoint(need.kinds):
            return None
        caps = self._candidates.caps(trial, rows)
        task = Task(need.amounts, tuple(caps.left), need.lacks, self._weights)
        everybody = list(self._candidates.of(trial, rows, need, caps))
        candidates = [one for one in everybody if victim_sets.is_legal(one, task)]
        found = victim_sets.choose(candidates, task) if candidates else None
        if isinstance(found, CoveringSet) or not self._eligibility.crosses(trial):
            return found
        return victim_sets.choose_with_boundary(everybody, task) or found

    def _lacks(self, trial: Trial, node: int) -> list[int]:
        """Return the amounts that the node lacks for the ask, by type."""
        free = trial.free_for_claim(node)
        lacks = [0] * len(free)
        for index, wanted in self.ask.kind.node_demand:
            lacks[index] = max(0, wanted - free[index])
        return lacks

    # The report ---------------------------------------------------------------------------------------

    def nearest(self, trial: Trial) -> Nearest:
        """Return the node that would lack least if all victims that the rules allow were evicted, with the missing amounts (G12).

        A node that lacks a closed type is returned only if every node lacks a closed type (G2).
        """
        snapshot, closed = trial.snapshot, self._eligibility.closed
        nodes, need = trial.short_nodes(self.ask.kind)
        filtered = self._pool.filtered.without(~trial.standing, CODES.gone)
        barred = nodes & (need[:, sorted(closed)] > 0).any(axis=1)
        of_use = nodes & ~barred
        places = (snapshot.allocations, filtered, of_use if of_use.any() else nodes)
        row, lacks = eligibility_filter.nearest(*places, need, self._weights, snapshot.nodes.names)
        is_barred = row >= 0 and bool(barred[row])
        if is_barred:
            lacks = need[row].tolist()
            barred[:] = False
            barred[row] = True
        lacking = frozenset(index for index in closed if (need[barred, index] > 0).any())
        return Nearest(row, lacks, int(barred.sum()), lacking, is_barred)

    def closed_blocks(self) -> tuple[Block, ...]:
        """Return each ``max`` on the ask's path that leaves too little headroom in a closed type.

        A type is closed if the deciding queue already has its entitlement to the type. No victim may free headroom under such a
        ``max`` (G2).
        """
        return tuple(one for one in self._blocks if one.at in self._eligibility.closed)

    @property
    def spared(self) -> tuple[ProtectedCandidates, ...]:
        """Return the candidates that rules protected when the search began, by rule and leaf."""
        return self._pool.spared

    def ranking(self, trial: Trial, choice: ChosenNode) -> Ranking:
        """Return the ranking of the candidates from which the victims were chosen, for explanations.

        If there are more than RANKED_MAX candidates, the candidates are sorted, and the ranking is an excerpt. Fewer candidates
        are not sorted here, because claims are frequent and sorting takes time.
        """
        snapshot = trial.snapshot
        columns, keys, known = snapshot.allocations, snapshot.allocations.keys, self._candidates
        values: Sequence[Ranked] = known.ranks(*choice.considered)
        start, total = 0, len(values)
        queues = known.leaves(choice.considered.rows)
        if total > RANKED_MAX:
            leaves = dict(zip((one[-1] for one in values), queues, strict=True))
            start, values = window(sorted(values), frozenset(keys[row] for row in choice.rows))
            queues = [leaves[one[-1]] for one in values]
        there = columns.on_node(choice.node)
        codes = self._pool.filtered.codes[there].tolist()
        protected = [
            (keys[row], RULES[code - 1].value)
            for row, code in zip(there.tolist(), codes, strict=True)
            if code not in UNTOLD
        ]
        return Ranking(
            self._order,
            values,
            queues,
            total,
            start,
            (snapshot.nodes.ids[choice.node],),
            "",
            protected,
            self._pool.passed,
            [one.key for one in self._heap[: RIVALS_MAX + 1]],
            snapshot.types,
            numbers(trial, known.leaves(choice.rows)),
        )
