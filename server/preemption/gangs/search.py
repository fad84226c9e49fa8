"""The search for a gang's plan (J8, J9). The search finds a node for each member in turn, and victims for all members together.

Nodes are judged in the order of a lower bound on their keys, as in a claim (design 6.7). Normally, placing a member makes no
node better for the next members. In two cases nodes may become better, and are judged again. First, victims leave a node. If a
whole gang is evicted, its members leave all nodes on which they run. Second, victims of the gang's own queue increase the
amount that may be taken from other queues (J7). All nodes are then judged again.

The finished plan must justify each victim of another queue (J7). A victim is justified if it passes a test in which all victims
of the gang's own queue count as gone. In this test, the victim must free a type that is still lacking and to which the gang's
queue is entitled. If a victim is not justified, the search is repeated once. The repeated search takes the allocations of the
gang's own queue first on every node. If the repeated search finds no justified plan either, the gang gets no plan.
"""

import heapq
from collections.abc import Sequence, Set
from typing import Final, NamedTuple

from server.kernels.distinct import as_column
from server.model.policies import JOB
from server.model.ranking import Ranking, window
from server.preemption import victim_order
from server.preemption.claims.eligibility import CODES, RULES, spared
from server.preemption.entitlement import numbers
from server.preemption.gangs.eligibility import GangEligibility
from server.preemption.gangs.node_plans import NO_VICTIMS, Closer, NodeKey, NodePlanner
from server.preemption.gangs.tentative import TentativeAssignment, Unit
from server.preemption.gangs.units import Rank, Units
from server.preemption.policy import ProtectedCandidates
from server.preemption.trial import Trial
from server.snapshot import assignments, eligibility_filter, gangs
from server.snapshot.eligibility_filter import Rules
from server.snapshot.leaf_eligibility import PASSED
from server.snapshot.waiting import ClassFacts, WaitingAsk, WaitingGang

UNJUDGED: Final = -1
RANKED_NODES_MAX: Final = 8
"""The number of nodes for which a decision records the order of the candidates."""
Ties = Set[str | int]
"""The queues, disruption budgets and gangs to which both a victim and other candidates belong."""
Mark = tuple[bool, str | int]
OF_OTHERS: Final[Mark] = (False, 0)
"""The mark of allocations of other queues.

No mark with a tie equals this mark, because a tie is a text or the positive number of a gang.
"""


class MemberAssignment(NamedTuple):
    """The node of a member, and the units that are evicted on it for this member."""

    member: WaitingAsk
    node: int
    units: tuple[Unit, ...]


class GangAnswer(NamedTuple):
    """The result of a search: a whole plan, or the reason why there is none.

    A plan has the members' nodes in the order of the members, and all victims, least important first. Without a plan, the answer
    says what is missing.
    """

    assignments: tuple[MemberAssignment, ...] = ()
    rows: tuple[int, ...] = ()
    member: WaitingAsk | None = None
    """The member that gets no node, None with a plan."""
    row: int = -1
    """The row of the node that lacks least for ``member``."""
    lacks: tuple[int, ...] = ()
    """The amounts that are missing on the node ``row``, by type."""
    full: tuple[tuple[str, int], ...] = ()
    """The queues whose maximum has too little headroom, each with a type index (J4)."""
    unowed: bool = False
    """Whether evictions in other queues could free the missing amounts, but the gang's queue is not entitled to these amounts."""

    @property
    def found(self) -> bool:
        """Return whether the answer is a plan."""
        return self.member is None and not self.full


class GangSearch:
    """The search for one gang on one Trial. The search changes nothing on the Trial except the count of steps."""

    def __init__(self, trial: Trial, gang: WaitingGang) -> None:
        self.trial = trial
        self.gang = gang
        self.eligibility = GangEligibility(trial, gang)
        snapshot = trial.snapshot
        budgets = snapshot.settings.disruption_budgets
        spent = trial.exhausted()
        needed = tuple(index for index, _ in self.eligibility.whole.kind.node_demand)
        barred = (
            (spent if budgets == "respect" else None, CODES.budget),
            (gangs.of(snapshot.allocations, gang.number), CODES.kin),
        )
        self.filtered = eligibility_filter.filter_rows(
            snapshot.allocations,
            trial.standing,
            self.eligibility.columns(trial),
            Rules(CODES, needed, snapshot.firm_flags, barred),
        )
        rows = assignments.marked(spent) if budgets == "prefer" else ()
        self.units = Units(trial, self.eligibility, self.filtered, rows)
        self._fields: dict[tuple[int, bool], assignments.MemberNodes] = {}

    def best(self) -> GangAnswer:
        """Return a plan without opted-out pods.

        If there is no such plan, return a plan with opted-out pods (V3), or the reason why there is no plan.
        """
        self.units.willing = True
        answer = self._try()
        if not answer.found and self.units.has_reluctant():
            self.units.willing = False
            answer = self._try()
        return answer

    def releasable(self) -> list[int]:
        """Return, by type, the sum of the amounts of the allocations that may be evicted for the gang in its own leaf (J6)."""
        snapshot = self.trial.snapshot
        rows = assignments.passed(
            snapshot.allocations, self.filtered, snapshot.queues[self.gang.leaf].number
        )
        return assignments.held(snapshot.allocations, rows)

    def _try(self) -> GangAnswer:
        """Return a plan whose victims are taken in the partition's order of victims.

        If that plan takes too much from other queues, return a plan for which allocations of the gang's own queue are taken
        first.
        """
        answer = self._attempt()
        if not answer.unowed:
            return answer
        second = self._attempt(own_first=True)
        return second if second.found else answer

    def _attempt(self, *, own_first: bool = False) -> GangAnswer:
        attempt = Attempt(self, own_first=own_first)
        chosen: list[MemberAssignment] = []
        for member in self.gang.members:  # J8: by priority, age, key
            assigned = attempt.place(member)
            if assigned is None:
                row, lacks = attempt.nearest(member)
                return GangAnswer(member=member, row=row, lacks=tuple(lacks))
            chosen.append(assigned)
        full = attempt.make_headroom()
        if full:
            return GangAnswer(full=full)
        attempt.give_back()
        unowed = attempt.assignment.unowed()
        if unowed:
            return attempt.without(max(unowed, key=attempt.importance), chosen)
        rows = sorted(attempt.assignment.taken, key=self.units.rank)
        return GangAnswer(tuple(chosen), tuple(rows))

    def field(self, kind: ClassFacts) -> assignments.MemberNodes:
        """Return the nodes for members of a class, with a bound for each node."""
        which = kind.number, self.units.willing
        known = self._fields.get(which)
        if known is None:
            nodes, need = self.trial.short_nodes(kind)
            snapshot = self.trial.snapshot
            known = self._fields[which] = assignments.field(
                snapshot.allocations, self.units.may_go(), nodes, need, snapshot.nodes.names
            )
        return known

    def spared(self) -> tuple[ProtectedCandidates, ...]:
        """Return the protected candidates, by rule and leaf."""
        return tuple(spared(self.trial.snapshot, self.filtered).values())

    def ranking(self, rows: Sequence[int]) -> Ranking:
        """Return the order of the candidates on the first RANKED_NODES_MAX nodes of these victims."""
        trial, columns = self.trial, self.trial.snapshot.allocations
        nodes = list(dict.fromkeys(columns.nodes_of(as_column(rows))))[:RANKED_NODES_MAX]
        there = [row for node in nodes for row in trial.rows_on(node)]
        codes = dict(zip(there, self.filtered.codes[there].tolist(), strict=True))
        passed = {*rows, *(row for row, code in codes.items() if code == PASSED)}
        leaves = {columns.keys[row]: self.units.line(row).leaf for row in passed}
        order = sorted(map(self.units.rank, passed))
        start, shown = window(order, frozenset(columns.keys[row] for row in rows))
        protected = tuple(
            (columns.keys[row], RULES[code - 1].value)
            for row, code in codes.items()
            if row not in passed and code != CODES.gone
        )
        return Ranking(
            victim_order.order(trial.snapshot.settings, JOB.order.name),
            shown,
            [leaves[str(one[-1])] for one in shown],
            len(order),
            start,
            tuple(trial.snapshot.nodes.ids[node] for node in nodes),
            protected=protected,
            types=trial.snapshot.types,
            numbers=numbers(trial, [self.units.line(row).leaf for row in rows]),
        )


class _Entry(NamedTuple):
    """A node on the heap of a class of members."""

    key: NodeKey
    """The key by which nodes are compared: the key of the verdict, or only a lower bound on it if ``version`` is UNJUDGED."""
    node: int
    version: int
    """The number of members that were placed when the node was judged, or UNJUDGED."""
    units: tuple[Unit, ...]


class Attempt:
    """One attempt to place all members. ``version`` is the number of members placed so far.

    A verdict from a lower version may be too favourable by now. With ``own_first``, the allocations of the gang's own queue are
    evicted before all others on every node.
    """

    def __init__(self, search: GangSearch, *, own_first: bool) -> None:
        self.search = search
        self.trial = search.trial
        self.units = search.units
        self.assignment = TentativeAssignment(search.trial, search.eligibility, search.units)
        self.own_first = own_first
        self.planner = NodePlanner(search.trial, search.units, self.assignment, own_first=own_first)
        self.version = 0
        self.better: dict[int, None] = {}
        """The nodes that may be better now than they were on the Trial."""
        self._lines: dict[int, _Line] = {}

    def place(self, member: WaitingAsk) -> MemberAssignment | None:
        """Place a member on the best node and take the victims for it.

        Return the node and the victims. Return None if no node can hold the member.
        """
        kind = member.kind
        line = self._lines.get(kind.number)
        if line is None:
            line = self._lines[kind.number] = _Line(self, kind)
        best = line.best()
        if best is None:
            return None
        for unit in best.units:
            self.assignment.take(unit)
        self.assignment.assign(best.node, kind.node_demand)
        self.version += 1
        self._offer_again(best)
        return MemberAssignment(member, best.node, best.units)

    def _offer_again(self, best: _Entry) -> None:
        """Discard the verdicts on nodes that a placement improved, or on which a candidate may be protected since the placement.

        These nodes are judged again.

        A placement improves the nodes that victims leave. If more may now be taken from other queues, the placement improves all
        nodes (J7).
        """
        rows = [row for unit in best.units for row in unit]
        nodes = dict.fromkeys([best.node, *(self.units.line(row).node for row in rows)])
        self.better |= nodes
        ties = {tie for row in rows for tie in self.assignment.strained(row)}
        touched = {tie for row in rows for tie in self.assignment.ties(row)}
        for line in self._lines.values():
            if self.assignment.limited and rows:
                line.begin()
            else:
                line.doubt(ties, touched)
            for node in nodes:
                line.offer(node)
        self.assignment.limited = self.assignment.limited and not rows

    def nearest(self, member: WaitingAsk) -> tuple[int, list[int]]:
        """Return the node that lacks least for one more member, and the amounts that this node lacks (G12).

        Members that already have a node keep their capacity.

        The node is -1 if no node could hold the member.
        """
        nodes, need = self.trial.short_nodes(member.kind)
        apart = nodes.copy()
        for node, line in self.assignment.needs_with(member.kind.node_demand):
            need[node], apart[node] = line, False
        snapshot = self.trial.snapshot
        filtered = self.search.filtered
        found = [
            eligibility_filter.nearest(
                snapshot.allocations, filtered, some, need, snapshot.weights, snapshot.nodes.names
            )
            for some in (nodes, apart)
        ]
        # If two nodes lack equal amounts, choose the node without another member of the gang.
        return found[1] if found[1][1] == found[0][1] else found[0]

    # Queues ---------------------------------------------------------------------------------------

    def make_headroom(self) -> tuple[tuple[str, int], ...]:
        """Take victims in the gang's own queue, on any node, until every maximum has headroom for the gang (J8).

        Return the queues that are still full, each with the index of a type.
        """
        over = self.assignment.over_max()
        if not over:
            return ()
        for row in self._own_by_rank():
            held = {index for index, _ in self.units.line(row).charged}
            if row in self.assignment.taken or not any(index in held for _, index in over):
                continue
            unit = self.units.unit(row, self.assignment.taken)
            if unit is not None and self.assignment.may_take(unit):
                self.assignment.take(unit)
                over = self.assignment.over_max()
            if not over:
                break
        return tuple(over)

    def _own_by_rank(self) -> list[int]:
        snapshot = self.trial.snapshot
        number = snapshot.queues[self.search.gang.leaf].number
        rows = assignments.passed(snapshot.allocations, self.search.filtered, number)
        return sorted(filter(self.units.passed, rows), key=self.units.rank)

    def give_back(self) -> None:
        """Remove from the plan the victims that are not needed, the most important first (J8, invariant 11)."""
        spared = True
        while spared:
            spared = False
            for unit in sorted(
                set(self.assignment.taken.values()), key=self.importance, reverse=True
            ):
                if self.assignment.is_enough_without(unit):
                    self.assignment.give_back(unit)
                    spared = True

    def importance(self, unit: Unit) -> Rank:
        """Return the rank of the unit's most important allocation in the order of eviction."""
        return max(map(self.units.rank, unit))

    def without(self, unit: Unit, chosen: Sequence[MemberAssignment]) -> GangAnswer:
        """Return the answer for a gang that has no plan without the eviction of ``unit``.

        This unit runs in another queue and may not be evicted.

        The gang's queue is not entitled to the amounts that ``unit`` frees. The answer has the amounts that the gang lacks
        without this eviction: capacity on a node, or headroom below a maximum.
        """
        self.assignment.give_back(unit)
        for assigned in reversed(chosen):
            lacks = self.assignment.lacks(assigned.node)
            if lacks:
                amounts = tuple(
                    lacks.get(index, 0) for index in range(len(self.trial.snapshot.types))
                )
                return GangAnswer(
                    member=assigned.member, row=assigned.node, lacks=amounts, unowed=True
                )
        return GangAnswer(full=tuple(self.assignment.over_max()), unowed=True)


class _Judged:
    """The nodes with a verdict, by the marks on which the verdict depends.

    A verdict depends on the marks of the node's victims. If the node's candidates did not suffice, the verdict depends on the
    marks of all its candidates. A *mark* is a pair that describes an allocation: whether it is a gang member, and a *tie*. A tie
    is a queue, disruption budget or gang that the allocation shares with others. Every allocation outside the gang's queue also
    has the mark `OF_OTHERS`.
    """

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._nodes: dict[Mark, dict[int, None]] = {}
        self._marks: dict[int, set[Mark]] = {}

    def note(self, node: int, rows: Sequence[int]) -> None:
        """Record that the verdict on a node depends on these rows."""
        assignment, is_bound = self._attempt.assignment, self._attempt.units.is_bound
        marks: set[Mark] = {(is_bound(row), tie) for row in rows for tie in assignment.ties(row)}
        if any(map(assignment.is_of_others, rows)):
            marks.add(OF_OTHERS)
        self._marks[node] = marks
        for mark in marks:
            self._nodes.setdefault(mark, {})[node] = None

    def forget(self, node: int) -> None:
        """Forget the verdict on a node."""
        for mark in self._marks.pop(node, ()):
            del self._nodes[mark][node]

    def marked(self, marks: Set[Mark]) -> list[int]:
        """Return the nodes whose verdicts depend on any of these marks."""
        return sorted({node for mark in marks for node in self._nodes.get(mark, ())})


class _Line:
    """The nodes for one class of members: a heap of judged nodes, and all other nodes, sorted by the lower bounds on their keys."""

    def __init__(self, attempt: Attempt, kind: ClassFacts) -> None:
        self._attempt = attempt
        self._kind = kind
        self._field = attempt.search.field(kind)
        self._is_close = self._has_plenty() and not attempt.own_first
        self._closer: Closer | None = None
        self.begin()

    def begin(self) -> None:
        """Discard all verdicts, and keep the bounds of the nodes."""
        self._drawn = 0
        self._heap: list[_Entry] = []
        self._latest: dict[int, _Entry] = {}
        self._judged = _Judged(self._attempt)
        for node in self._attempt.better:
            self.offer(node)

    def offer(self, node: int) -> None:
        """Add a node to the nodes that are judged again, because it may have become better."""
        self._judged.forget(node)
        if self._field.takes(node):
            self._push(_Entry((NO_VICTIMS, 0, 0, self._name(node)), node, UNJUDGED, ()))

    def doubt(self, ties: Ties, touched: Ties) -> None:
        """Discard verdicts that may be wrong now, because they depend on allocations with these ties.

        The nodes are then judged again.

        An allocation with one of the ties ``ties`` may be protected now, so that a verdict has to choose other victims. For a
        gang member, one of the ties ``touched`` suffices, because the gang may be evicted whole, on several nodes. Even a
        verdict that the candidates of a node do not suffice may be wrong. Suppose that the eviction of candidate A protected
        candidate B. If A is protected now, B may be evicted, and the candidates may suffice.
        """
        plenty = self._has_plenty()
        if self._is_close and not (plenty and (self._closer is None or self._closer.holds(ties))):
            self._is_close = False
            self.begin()
        marks = {*((False, tie) for tie in ties), *((True, tie) for tie in touched)}
        for node in self._judged.marked(marks if plenty else {*marks, OF_OTHERS}):
            self.offer(node)

    def _has_plenty(self) -> bool:
        return self._attempt.assignment.has_plenty_of_share(self._kind.node_demand)

    def best(self) -> _Entry | None:
        """Return the best node for the next member. Return None if there is no node."""
        while True:
            self._draw()
            if not self._heap:
                return None
            top = self._heap[0]
            if self._latest.get(top.node) is not top:
                heapq.heappop(self._heap)
            elif top.version == self._attempt.version:
                return top
            elif top.version != UNJUDGED and self._still_holds(top):
                fresh = self._latest[top.node] = top._replace(version=self._attempt.version)
                heapq.heapreplace(self._heap, fresh)
            else:
                heapq.heappop(self._heap)
                self._judge(top.node)

    def _draw(self) -> None:
        """Take nodes in the order of their bounds, while the next node could be better than the best node so far."""
        order = self._field.order
        while self._drawn < len(order):
            node = order[self._drawn]
            key = (*(self._field.bound(self._drawn) or (NO_VICTIMS, 0, 0)), self._name(node))
            if self._heap and self._heap[0].key < key:
                return
            if node not in self._latest:
                self._push(_Entry(self._closely(key), node, UNJUDGED, ()))
            self._drawn += 1

    def _closely(self, bound: NodeKey) -> NodeKey:
        """Return a closer bound for the next node in the order of bounds.

        Return ``bound`` itself if candidates may be skipped, because the closer bound is not valid then.
        """
        priority, _, number, name = bound
        if not number or not self._is_close:
            return bound
        if self._closer is None:
            self._closer = Closer(self._attempt.assignment, self._field)
        closer = self._closer.number(self._drawn)
        return (priority, closer, closer, name) if closer > number else bound

    def _still_holds(self, entry: _Entry) -> bool:
        return self._attempt.planner.still_holds(entry.node, entry.units, self._kind.node_demand)

    def _judge(self, node: int) -> None:
        self._latest.pop(node, None)
        key, units = self._attempt.planner.judge(node, self._kind.node_demand)
        if key is None:
            self._judged.note(node, self._attempt.planner.order(node))
        else:
            self._judged.note(node, [row for unit in units for row in unit])
            self._push(_Entry(key, node, self._attempt.version, units))

    def _push(self, entry: _Entry) -> None:
        self._latest[entry.node] = entry
        heapq.heappush(self._heap, entry)

    def _name(self, node: int) -> str:
        return self._attempt.trial.snapshot.nodes.ids[node]


def fits(trial: Trial, gang: WaitingGang) -> bool:
    """Return whether all members fit without victims once all terminating pods have ended (invariant 12).

    Each member is placed on the first node that holds it together with the members placed before. Limits of queues are not
    checked.
    """
    used: dict[int, dict[int, int]] = {}
    return all(_fits_member(trial, one.kind, used) for one in gang.members)


def _fits_member(trial: Trial, kind: ClassFacts, used: dict[int, dict[int, int]]) -> bool:
    nodes, need = trial.short_nodes(kind)
    for node in assignments.free_nodes(nodes, need, trial.snapshot.nodes.names):
        free, line = trial.free_for_claim(node), used.get(node, {})
        if all(free[at] - line.get(at, 0) >= wanted for at, wanted in kind.node_demand):
            line = used.setdefault(node, {})
            for at, wanted in kind.node_demand:
                line[at] = line.get(at, 0) + wanted
            return True
    return False
