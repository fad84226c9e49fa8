"""A claim's search for victims: the best node and the best set on it, for all asks of one class in one leaf (G3-G9).

What holds for the class is worked out once a Trial: which leaves may give, which rows pass, and a true bound for each
node. Plans only make nodes worse for it, except those that they touch: these are bounded anew (design 6.7).
"""

import heapq
from collections.abc import Iterator
from typing import Final, NamedTuple

from server.kernels import cover
from server.kernels.fit import Array, Mask
from server.model.fit import Demand
from server.model.quota import is_below
from server.preemption import victim_gangs, victims
from server.preemption.comparator import Comparator, order
from server.preemption.entitlement import may_cross, protects_only_whole
from server.preemption.own_terms import OwnTerms
from server.preemption.policy import Spared
from server.preemption.terms import CODES, Block, Terms, spared
from server.preemption.trial import Trial
from server.preemption.victims import Candidate, Found, NotFound, Task
from server.view import screen as screens
from server.view.columns import OPTED_OUT, ORIGINATOR
from server.view.screen import Field, Screen
from server.view.waiting import WaitingAsk

NodeKey = tuple[int, int, int, int, int, str]
"""A set's key, then the node's name: the least is the best (G8)."""
Place = tuple[str, int]
"""A queue and a type index, or a disruption group and BUDGET: what has a cap."""
BUDGET = -1
NODE_STEPS: Final = 1
"""What it costs to judge a node, in placements; branch and bound comes on top."""
STEPS_A_STEP: Final = 32
"""Steps of branch and bound that take as long as a placement."""
FEW = 4
"""So many nodes are judged in the time that it takes to bound any number of them."""
UNJUDGED = -1
"""In place of a number of plans: only a bound is known of the node."""


class Choice(NamedTuple):
    """Where the ask goes and who goes for it, row numbers of the View."""

    node: int
    rows: tuple[int, ...]


class _Entry(NamedTuple):
    """The best set on a node as it was after so many plans, or what bounds it (UNJUDGED)."""

    key: NodeKey
    plans: int
    node: int
    rows: tuple[int, ...]


class Claim:
    """The search for one class of asks of one leaf, on one Trial. ``cut``: on some node it was given up too early.

    ``limited`` False: as if the queues on its path had no maximum.
    """

    def __init__(
        self,
        trial: Trial,
        ask: WaitingAsk,
        *,
        limited: bool = True,
        terms: OwnTerms | None = None,
    ) -> None:
        self.ask = ask
        self.cut = False
        self._limited = limited
        self._alone: Claim | None = None
        self._terms: Terms | OwnTerms = terms or Terms(trial, ask)
        self._lines: dict[object, tuple[Demand, Demand]] = {}
        self._heap: list[_Entry] = []
        self._latest: dict[int, _Entry] = {}
        self._moved: set[int] = set()
        """Nodes that plans touched since all were bounded: what is known of them is in the heap."""
        self._spared: tuple[Spared, ...] | None = None
        self._weights = trial.view.weights
        self._begin(trial)

    def _begin(self, trial: Trial) -> None:
        """Judge every row and bound every node, on the Trial as it is now."""
        view = trial.view
        budgets = view.settings.disruption_budgets
        exhausted = trial.exhausted()
        self._preferred: Mask | None = exhausted if budgets == "prefer" else None
        spent = None if self._preferred is None else self._preferred.item
        self._order = Comparator(trial, order(view.settings, "claim"), spent)
        gone = exhausted if budgets == "respect" else None
        barred = victim_gangs.barred(trial, gone, self._terms.kin(trial))
        self._screen: Screen = screens.screen(
            view.allocations,
            trial.standing,
            dict(self._terms.by_leaf(trial)),
            CODES,
            [index for index, _ in self.ask.kind.node_demand],
            view.firm_flags,
            barred,
        )
        self._blocks: tuple[Block, ...] = self._find_blocks(trial)
        nodes, need = self._short(trial)
        rows = screens.passed(view.allocations, self._screen, nodes)
        self._field: Field = self._bounded(trial, rows, need)
        self._drawn = 0
        self._moved.clear()
        self._seen = len(trial.touched)
        self._heap.clear()
        self._latest.clear()

    def _find_blocks(self, trial: Trial) -> tuple[Block, ...]:
        return self._terms.blocks(trial) if self._limited else ()

    def _bounded(self, trial: Trial, rows: Array, need: Array) -> Field:
        """The nodes of these rows with their bounds."""
        view = trial.view
        return screens.field(
            view.allocations, rows, need, self._weights, view.nodes.names, self._preferred
        )

    def _short(self, trial: Trial) -> tuple[Mask, Array]:
        """The nodes of use, and by node what has to be freed there at the least."""
        least = [(block.at, block.lack) for block in self._blocks]
        return trial.short_nodes(self.ask.kind, least)

    # The search ---------------------------------------------------------------------------------------

    def best(self, trial: Trial) -> Choice | None:
        """The best node with the best set on it, on top of the plans so far; None: there is none."""
        blocks = self._find_blocks(trial)
        if not blocks:
            row = trial.fits_claim(self.ask.kind)
            if row >= 0:
                return Choice(row, ())  # G8: it fits once what was ordered is gone
        lacks = {(one.path, one.at): one.lack for one in blocks}
        if any(lacks.get((one.path, one.at), 0) < one.lack for one in self._blocks):
            self._begin(trial)  # others made head-room: nodes may be better than their bounds say
        self._blocks = blocks
        self._look_again(trial)
        return self._pop(trial)

    def across(self, trial: Trial) -> Choice | None:
        """Where maxima block the ask: a node for it, and victims below those maxima wherever they stand (G9).

        The node is the one that the ask would get without the maxima; only its own victims make room there.
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
        view = trial.view
        everywhere = view.nodes.numbers > 0
        known = screens.passed(view.allocations, self._screen, everywhere).tolist()
        rows = [row for row in known if trial.stands(row) and self._helps(trial, row, node)]
        found = self._solve(trial, node, rows)
        if not isinstance(found, Found):
            return None
        return Choice(node, tuple(one.row for one in found.victims))

    def _helps(self, trial: Trial, row: int, node: int) -> bool:
        leaf = self._leaf(trial, row)
        on_it = int(trial.view.allocations.nodes[row]) == node
        return on_it or any(is_below(leaf, block.path) for block in self._blocks)

    def _look_again(self, trial: Trial) -> None:
        """Nodes that plans touched since may be better now: they are bounded anew, a few are judged at once."""
        touched = sorted(set(trial.touched[self._seen :]))
        self._seen = len(trial.touched)
        self._moved.update(touched)
        if len(touched) <= FEW:
            for node in touched:
                self._judge(trial, node)
            return
        nodes, need = self._short(trial)
        rows = self._field.among(touched, trial.standing)
        found = self._bounded(trial, screens.on(trial.view.allocations, rows, nodes), need)
        for node in touched:
            self._latest.pop(node, None)
        for node in found.order:
            self._keep(_Entry(self._bound(trial, found, node), UNJUDGED, node, ()))

    def _pop(self, trial: Trial) -> Choice | None:
        now = len(trial.plans)
        while True:
            self._draw(trial)
            if not self._heap:
                return None
            top = self._heap[0]
            current = self._latest.get(top.node) is top
            if current and top.plans == now:
                return Choice(top.node, top.rows)
            heapq.heappop(self._heap)
            if current:
                self._judge(trial, top.node)

    def _draw(self, trial: Trial) -> None:
        """Judge nodes in the order of their bounds, as long as one could be better than the best that is known."""
        order = self._field.order
        while self._drawn < len(order):
            node = order[self._drawn]
            if self._heap and self._heap[0].key < self._bound(trial, self._field, node):
                return
            self._drawn += 1
            if node not in self._moved:
                self._judge(trial, node)

    def _bound(self, trial: Trial, field: Field, node: int) -> NodeKey:
        rank, fewest, excess = field.bound(node)
        return (*cover.parts(rank), fewest, excess, trial.view.nodes.ids[node])

    def _judge(self, trial: Trial, node: int) -> None:
        """Find the best set on a node and keep it, if there is one."""
        self._latest.pop(node, None)
        found = self._victims_on(trial, node)
        trial.steps += NODE_STEPS + (0 if found is None else found.steps // STEPS_A_STEP)
        if not isinstance(found, Found):
            self.cut = self.cut or (found is not None and found.cut)
            return
        key = (*found.key, trial.view.nodes.ids[node])
        rows = tuple(one.row for one in found.victims)
        self._keep(_Entry(key, len(trial.plans), node, rows))

    def _keep(self, entry: _Entry) -> None:
        self._latest[entry.node] = entry
        heapq.heappush(self._heap, entry)

    # One node -----------------------------------------------------------------------------------------

    def _victims_on(self, trial: Trial, node: int) -> Found | NotFound | None:
        rows = [row for row in self._field.rows(node) if trial.stands(row)]
        return self._solve(trial, node, rows) if trial.is_open(node) else None

    def _solve(self, trial: Trial, node: int, rows: list[int]) -> Found | NotFound | None:
        """The best of these rows to go, for the ask to get its place on the node."""
        lacks = self._lacks(trial, node)
        needs = tuple(lack for lack in lacks if lack) + tuple(one.lack for one in self._blocks)
        if not rows or not needs:
            return None
        places = self._caps(trial, rows)
        caps = tuple(places.values())
        at = {place: number for number, place in enumerate(places)}
        task = Task(needs, caps, tuple(lacks), self._weights)
        everybody = list(self._candidates(trial, node, rows, task, at))
        candidates = [one for one in everybody if victims.is_legal(one, task)]
        found = victims.choose(candidates, task) if candidates else None
        if isinstance(found, Found) or not self._terms.crosses(trial):
            return found
        return victims.choose_with_boundary(everybody, task) or found

    def _lacks(self, trial: Trial, node: int) -> list[int]:
        """What the node lacks for the ask, by type."""
        room = trial.claim_room(node)
        lacks = [0] * len(room)
        for index, wanted in self.ask.kind.node_demand:
            lacks[index] = max(0, wanted - room[index])
        return lacks

    def _caps(self, trial: Trial, rows: list[int]) -> dict[Place, int]:
        """What each queue on the victims' paths, and each respected budget, can lose."""
        caps: dict[Place, int] = {}
        for path in dict.fromkeys(self._leaf(trial, row) for row in rows):
            for queue, room in self._terms.rooms(trial, path):
                for index, quantity in enumerate(room):
                    caps[queue.path, index] = quantity
        if trial.view.settings.disruption_budgets == "respect":
            for row in rows:
                for group in self._groups(trial, row):
                    caps[group, BUDGET] = trial.disruptions_left(group)
        return caps | {(gang, BUDGET): most for gang, most in victim_gangs.caps(trial, rows)}

    def _candidates(
        self, trial: Trial, node: int, rows: list[int], task: Task, at: dict[Place, int]
    ) -> Iterator[Candidate]:
        """Those who help, in claim order (7.5)."""
        lacking = [index for index, lack in enumerate(task.lacks) if lack]
        place = 0
        kinds = (*lacking, *(one.at for one in self._blocks))
        for row in self._order.in_order(rows, kinds):
            frees = self._line(trial, row)[1]
            gives = self._gives(trial, node, row, lacking)
            if not any(gives) or not self._may_give(trial, row, kinds, gives):
                continue
            over = self._over(trial, row, kinds, gives, at)
            if over or not self._selects(trial):
                takes = self._takes(trial, row, at)
                opted, originator, priority = self._protection(trial, row)
                yield Candidate(place, row, opted, originator, priority, gives, takes, frees, over)
                place += 1

    def _selects(self, trial: Trial) -> bool:
        """Does rule 5 not follow from rule 2, so that somebody could go for what its queue has too little of (W8)?"""
        return protects_only_whole(trial) or may_cross(trial)

    def _over(
        self,
        trial: Trial,
        row: int,
        kinds: tuple[int, ...],
        gives: tuple[int, ...],
        at: dict[Place, int],
    ) -> tuple[tuple[int, ...], ...]:
        """The caps of its queues, in each type that it gives and of which they have too much (rule 5, W9)."""
        if not self._selects(trial):
            return ()
        leaf = self._leaf(trial, row)
        path = self._terms.path(trial, leaf)
        budgets = [at[group, BUDGET] for group in self._groups(trial, row) if (group, BUDGET) in at]
        given = {index for index, much in zip(kinds, gives, strict=True) if much}
        return tuple(
            (*(at[one.path, index] for one in path.queues[: path.common]), *budgets)
            for index in sorted(given)
            if self._terms.is_over(trial, leaf, index)
        )

    def _may_give(
        self, trial: Trial, row: int, kinds: tuple[int, ...], gives: tuple[int, ...]
    ) -> bool:
        """Does it give something of which its queues have more than the dead zone (P9)? ``kinds`` are type indices."""
        rest = self._terms.at_rest(trial, self._leaf(trial, row))
        return not rest or any(
            given and index not in rest for index, given in zip(kinds, gives, strict=True)
        )

    def _gives(self, trial: Trial, node: int, row: int, lacking: list[int]) -> tuple[int, ...]:
        """What an allocation adds to each need: of the node, if it is there, then of the maxima above it (G9)."""
        given, leaf = dict(self._line(trial, row)[1]), self._leaf(trial, row)
        there = int(trial.view.allocations.nodes[row]) == node
        for index in self._terms.withheld(leaf):
            given.pop(index, None)
        blocks = (
            given.get(block.at, 0) if is_below(leaf, block.path) else 0 for block in self._blocks
        )
        return (*(given.get(index, 0) if there else 0 for index in lacking), *blocks)

    def _takes(self, trial: Trial, row: int, at: dict[Place, int]) -> Demand:
        """What it takes of each cap."""
        demand = self._line(trial, row)[0]
        path = self._terms.path(trial, self._leaf(trial, row))
        queues = [(at[one.path, index], much) for one in path.queues for index, much in demand]
        groups = [(group, BUDGET) for group in self._groups(trial, row)]
        groups.append((victim_gangs.name(trial, row), BUDGET))
        return (*queues, *((at[place], 1) for place in groups if place in at))

    # Rows ---------------------------------------------------------------------------------------------

    def _protection(self, trial: Trial, row: int) -> tuple[bool, bool, int]:
        columns = trial.view.allocations
        flags = int(columns.flags[row])
        spent = self._preferred is not None and bool(self._preferred[row])
        return (
            bool(flags & OPTED_OUT) or spent,
            bool(flags & ORIGINATOR),
            int(columns.priorities[row]),
        )

    def _leaf(self, trial: Trial, row: int) -> str:
        return trial.view.leaf_paths[int(trial.view.allocations.leaves[row])]

    def _groups(self, trial: Trial, row: int) -> tuple[str, ...]:
        spec = trial.view.allocations.specs[row]
        return spec.disruption_groups if spec is not None else ()

    def _line(self, trial: Trial, row: int) -> tuple[Demand, Demand]:
        """What its queues are charged, and what its node gets back, ports included."""
        columns = trial.view.allocations
        spec = columns.specs[row]
        known = self._lines.get(spec)
        if known is None:
            line = columns.resources[row].tolist()
            frees = tuple((index, quantity) for index, quantity in enumerate(line) if quantity)
            known = self._lines[spec] = (columns.demands[row], frees)
        return known

    # What people are told -----------------------------------------------------------------------------

    def nearest(self, trial: Trial) -> tuple[int, list[int]]:
        """The node that comes nearest with the room that the laws allow, -1 for none, and what it still lacks (G12)."""
        nodes, need = trial.short_nodes(self.ask.kind)
        view = trial.view
        return screens.nearest(
            view.allocations, self._screen, nodes, need, self._weights, view.nodes.names
        )

    def spared(self, trial: Trial) -> tuple[Spared, ...]:
        """Whom the laws spared when the search began, by law and leaf."""
        if self._spared is None:
            self._spared = spared(trial.view, self._screen)
        return self._spared
