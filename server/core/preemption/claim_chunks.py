"""The claims of a round, read in chunks that are small enough for the round's budget (G1, P4, design 6.2).

A snapshot has only the claims of the present chunk.

If at most SEARCH_MOST groups of equal asks wait, each tick finds all claims. If more groups wait, a *search* of all groups
takes several ticks. The round plans claims, gangs and the later steps (O6) only after that search. If one tick searched all
groups, a tenant whose asks have many different sizes would make the tick long.

After a search, all groups are searched again only if capacity was freed or promised, or if the delay or back-off of an ask has
ended. If nothing was freed and no delay has ended, placements and new asks can add claims in only two kinds of groups: groups
that an ask has joined, and groups that did not wait for preemption before. In that case only these groups are searched.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from server.core.preemption import due, due_claims, pacing
from server.core.preemption.deficits import Shortage
from server.preemption.claims import guarantee
from server.preemption.trial import ClaimTurn
from server.snapshot.waiting import WaitingAsk
from server.state import pending, sharing, snapshotting
from server.state.applications import Ask, Group
from server.state.partition import Partition
from server.state.queues import Queue
from server.state.rounds import ClaimSearch, InTurn

SEARCH_MOST: Final = 5_000
"""If at most this many groups of equal asks wait, each tick checks all of them.

During a search, a tick also checks at most this many of the asks that earlier ticks found.
"""
SHARE_MOST: Final = 2_000
"""The largest number of queues and groups of equal asks that one tick of a search checks."""
CHUNK_MOST: Final = 256
"""The largest number of claims of one leaf that are read at once. A claim costs several steps in a cluster of a thousand nodes."""
FIRST_MOST: Final = 1_000
"""The largest number of claims that a tick reads before it tries the first claim.

If more leaves than this have claims, one claim of each leaf is read.
"""
READ_MOST: Final = 100
"""If at most this many leaves have claims, claims of all these leaves are read before the first claim is tried.

If more leaves have claims, the claims of a leaf are read when its turn comes.
"""
LATE_MOST: Final = 5_000
"""The largest number of claims in `search.found` that a tick checks again after it began to try claims, for all leaves together.

If a tick has used up these checks, the next tick continues with the claim that is next in the order.
"""


class Claims:
    """The claims that the round has not refused yet: the claims of each leaf in the order of P4.

    The claims are read in chunks that are small enough for the budget.

    Most claims cost at least one step, so that a tick seldom needs another chunk. If claims cost no step, further chunks are
    read until the budget is spent. Therefore the size of a chunk changes no decision.
    """

    is_searching = False
    """Whether there may be claims that are not known yet and come before the known claims in the order.

    If so, this tick plans no claims.
    """

    def __init__(
        self, partition: Partition, claiming: Sequence[Ask], budget: int, now: int
    ) -> None:
        self.due = claiming
        """The claims that are due, including claims that were refused earlier in the round.

        In a search of several ticks, these are only the first claims of each leaf.
        """
        self.unread: dict[str, ClaimTurn] = {}
        """The leaves of which no claim was read yet, each with a lower bound on the sort keys of its claims."""
        self._partition = partition
        self._most = min(budget + 2, CHUNK_MOST)
        self._size = 1
        self._leaves: dict[str, list[Ask]] = {}
        masked = False
        for ask in claiming:
            if _mask(ask) in partition.round.masked:
                masked = True
            else:
                self._leaves.setdefault(ask.application.leaf.path, []).append(ask)
        if masked:
            pacing.keep_waiting(partition, guarantee.NAME, now)
        self._share_out(len(self._leaves))
        for found in self._leaves.values():
            if len(found) > self._size:
                found.sort(key=pending.claims_in_turn, reverse=True)

    def first(self) -> list[Ask]:
        """Return the first claims of each leaf."""
        return [ask for leaf in self._leaves for ask in self._chunk(leaf)]

    def further(self, leaf: str) -> tuple[WaitingAsk, ...] | None:
        """Return the next claims of a leaf. Return None if the tick may check no more of the claims that a search found.

        The state still equals the snapshot at this time, because plans are written only later.
        """
        found = self._next(leaf)
        return None if found is None else snapshotting.waiting(self._partition, found)

    def settle(self, *, cut: bool) -> bool:
        """Record which claims the tick tried.

        ``cut`` is true if the tick ended before all claims were tried.

        Return whether the next tick must examine groups again.
        """
        del cut
        return False

    def _share_out(self, leaves: int) -> None:
        """Set the size of a chunk: at most two claims more than the budget has steps. If many leaves have claims, a chunk is smaller.

        Further claims of a leaf are read when the last claim of its chunk is tried. The budget usually ends the round before a
        further claim is read.
        """
        self._size = max(1, min(self._most, FIRST_MOST // max(1, leaves)))

    def _next(self, leaf: str) -> Sequence[Ask] | None:
        return self._chunk(leaf)

    def _chunk(self, leaf: str) -> Sequence[Ask]:
        found = self._leaves.get(leaf, [])
        chunk = found[-self._size :]
        del found[-self._size :]
        return chunk


class ClaimsOfSearch(Claims):
    """The claims that a search of several ticks found. Each claim is checked again in the tick that tries it."""

    def __init__(self, partition: Partition, shortage: Shortage, budget: int, now: int) -> None:
        super().__init__(partition, (), budget, now)
        self._shortage = shortage
        self._now = now
        self._last_served = pacing.last_served(partition)
        """The arrival number of the last ask that this round serves, or None if the round serves all asks.

        The number is read before the tick can begin another round.
        """
        self._search = search = _current_search(partition, now)
        if search.again_ms is not None:
            due_claims.call_again(partition, search.again_ms)
        if search.is_searching:
            _search_groups(partition, search, shortage, now)
        self._left = SEARCH_MOST
        self._chunks: dict[str, list[Ask]] = {}
        if not search.is_searching:
            leaves = self._forget_removed()
            self._share_out(len(leaves))
            self._read_first(leaves)
        self.is_searching = search.is_searching or (not self._left and any(search.found.values()))
        if not self.is_searching:
            self.due = [ask for found in self._chunks.values() for ask in found]
            self._left = LATE_MOST

    def first(self) -> list[Ask]:
        """Return the first claims of each leaf. While the search is in progress, there are no first claims."""
        return [*self.due]

    def settle(self, *, cut: bool) -> bool:
        """Keep, for the next tick, the claims that this tick did not try.

        Return whether another search must begin, because the state has changed since this search began.
        """
        search, state = self._search, self._partition.round
        is_left = cut or self.is_searching
        assert is_left or self.unread.keys() <= self._chunks.keys(), "all leaves had their turn"
        untried: dict[str, list[Ask]] = {**search.untried}
        for leaf, asks in self._chunks.items() if is_left else ():
            left = [ask for ask in asks if _mask(ask) not in state.masked]
            if len(left) < len(asks):
                pacing.keep_waiting(self._partition, guarantee.NAME, self._now)
            if left:
                untried[leaf] = left
        search.untried = untried
        search.found = {leaf: found for leaf, found in search.found.items() if found}
        search.again_ms = state.claims_ms
        return search.is_over and (
            search.mark != _mark(self._partition) or _has_changed(self._partition, search)
        )

    def _next(self, leaf: str) -> Sequence[Ask] | None:
        """Return the next claims of a leaf.

        Return None if no claim can be returned because the tick has used up its checks. The leaf may have more claims then.

        The round calls this method when it tries the last claim that was read from the leaf, or when an unread leaf has its turn.

        The last claim stays among the untried claims, because the budget may be too small to try it.
        """
        last = self._chunks.get(leaf, [])[-1:]
        chunk = self._read(leaf)
        self._chunks[leaf] = last + chunk
        return None if not chunk and self._search.found.get(leaf) else chunk

    def _forget_removed(self) -> list[str]:
        """Forget the claims of leaves that were removed since they were found. Return the leaves that have claims.

        A leaf is removed only after its last application, so that none of its asks waits any more.
        """
        search, queues = self._search, self._partition.queues
        leaves = {**search.untried, **search.found}
        for leaf in [one for one in leaves if one not in queues]:
            search.untried.pop(leaf, None)
            search.found.pop(leaf, None)
            del leaves[leaf]
        return [*leaves]

    def _read_first(self, leaves: Sequence[str]) -> None:
        """Read claims of the leaves. If there are many leaves, stop after the first leaf of which an ask may claim."""
        for at, leaf in enumerate(leaves, start=1):
            chunk = self._chunks[leaf] = self._read(leaf)
            if chunk and self._left and len(leaves) > READ_MOST:
                self.unread = {one: self._turn(one) for one in leaves[at:]}
                return

    def _turn(self, leaf: str) -> ClaimTurn:
        """Return a lower bound on the sort keys of a leaf's claims."""
        search = self._search
        turns = [pending.claims_in_turn(ask) for ask in search.untried.get(leaf, ())]
        turns += [turn for turn, _ in search.found.get(leaf, ())[-1:]]
        priority, cycle, *rest = min(turns)
        since, arrival = rest
        return priority, cycle - self._partition.round.cycles, since, arrival

    def _read(self, leaf: str) -> list[Ask]:
        """Return the untried claims of a leaf, and then claims from `search.found`, up to the size of a chunk.

        Before the first claim is tried, at most SEARCH_MOST claims from `search.found` are checked again in one tick, and
        afterwards at most LATE_MOST. The untried claims of earlier ticks do not count, because a leaf has at most one more of
        them than a chunk has claims.
        """
        search = self._search
        chunk = [ask for ask in search.untried.pop(leaf, ()) if self._may_claim(ask)]
        found = search.found.get(leaf, [])
        while found and self._left and len(chunk) < self._size:
            turn, ask = found.pop()
            self._left -= 1
            if turn == pending.claims_in_turn(ask) and self._may_claim(ask):
                chunk.append(ask)
        return chunk

    def _may_claim(self, ask: Ask) -> bool:
        """Return whether an ask that was found earlier still waits and may claim in this round."""
        partition, now = self._partition, self._now
        if self._last_served is not None and ask.arrival > self._last_served:
            due_claims.call_again(partition, now)
            return False
        is_masked = _mask(ask) in partition.round.masked
        return not is_masked and _is_due(partition, self._shortage, ask, now)


def of_tick(partition: Partition, shortage: Shortage, budget: int, now: int) -> Claims:
    """Return the claims of the live round in this tick, limited by the pace of rounds (P1)."""
    is_looked_for = _are_many(partition) and due_claims.are_claims_on(partition)
    if is_looked_for and not pacing.is_between(partition, now):
        return ClaimsOfSearch(partition, shortage, budget, now)
    if is_looked_for:
        due_claims.call_again(partition, now)
        return Claims(partition, [*_planned_again(partition, shortage, now)], budget, now)
    partition.round.claim_search = None
    found = due_claims.claiming(partition, shortage, now)
    return Claims(partition, pacing.admitted(partition, found, now), budget, now)


def _are_many(partition: Partition) -> bool:
    """Return whether so many groups wait that one tick does not examine all of them."""
    return partition.classes.groups > SEARCH_MOST


def _planned_again(partition: Partition, shortage: Shortage, now: int) -> Iterator[Ask]:
    """Yield the asks for which policies plan again before the next round (design 1.8).

    Policies plan again after a veto, or after a manager agreed to a plan.
    """
    decisions = partition.decisions
    for key in dict.fromkeys([*decisions.suspended, *decisions.checks.granted()]):
        ask = partition.asks.get(key)
        if ask is not None and _is_due(partition, shortage, ask, now):
            yield ask


def _is_due(partition: Partition, shortage: Shortage, ask: Ask, now: int) -> bool:
    """Return whether an ask waits for preemption and may claim now.

    If the ask may claim only after a delay, schedule a round for the end of the delay.
    """
    group, leaf = ask.group, ask.application.leaf
    if not (
        isinstance(group, Group)
        and due_claims.is_open(leaf)
        and due_claims.is_stuck(group)
        and shortage.lacking(leaf, group.ask_class.demand)
    ):
        return False
    instant, _ = due_claims.awaits(partition, ask, guarantee.NAME)
    if instant > now:
        due_claims.call_again(partition, instant)
    return instant <= now


def _mask(ask: Ask) -> tuple[str, str]:
    return guarantee.NAME, ask.key


# The search ------------------------------------------------------------------------------------------------------------


def _mark(partition: Partition) -> tuple[int, ...]:
    """Return counters that change with each event that may give more claims to a group that was already searched.

    Placements and new asks are left out, because they may give more claims only to the groups of `_has_changed`. A placement or
    a new ask does not raise the deficit of any other group's queues, unless shares follow weights.
    """
    if sharing.is_shared_out(partition):
        return due.marks(partition)
    ordered, answers = partition.round.ordered, partition.decisions.checks.answers
    return *due.changes_beside_asks(partition), ordered, answers


def _changes(partition: Partition) -> tuple[int, ...]:
    return partition.classes.joined, partition.placements


def _has_changed(partition: Partition, search: ClaimSearch) -> bool:
    """Return whether groups may have more claims since the last search, although the counters of `_mark` are unchanged.

    Two kinds of groups may have more claims: groups that an ask has joined, and groups that did not wait for preemption during
    the search. A group of the second kind waits for preemption after a placement that took the capacity for which the group
    waited.
    """
    return search.changes != _changes(partition) and bool(search.joined or search.placeable)


def _current_search(partition: Partition, now: int) -> ClaimSearch:
    """Return the search that is in progress.

    If the last search has ended and the state has changed since it began, begin another search, of all groups or only of the
    groups that may have changed.
    """
    state, mark = partition.round, _mark(partition)
    search = state.claim_search
    if (
        search is None
        or search.spec is not partition.spec
        or (search.is_over and _is_outdated(search, mark, now))
    ):
        queues = [*partition.queues.values()]
        search = ClaimSearch(partition.spec, mark, _changes(partition), queues)
        state.claim_search = search
    elif search.is_over and _has_changed(partition, search):
        search.groups = [*{**search.joined, **search.placeable}]
        search.changes = _changes(partition)
        search.joined.clear()
        search.placeable.clear()
    return search


def _is_outdated(search: ClaimSearch, mark: tuple[int, ...], now: int) -> bool:
    return search.mark != mark or (search.again_ms is not None and search.again_ms <= now)


def _search_groups(partition: Partition, search: ClaimSearch, shortage: Shortage, now: int) -> None:
    """Examine this tick's share of the queues and groups, and add their claims to the claims that earlier ticks found."""
    left, runs = SHARE_MOST, dict[str, list[InTurn]]()
    while search.is_searching and left > 0:
        left -= 1
        if not search.groups:
            search.groups = _groups(search.queues.pop(), shortage)
            continue
        group = search.groups.pop()
        if not (group.live and due_claims.is_open(group.application.leaf)):
            continue
        if not due_claims.is_stuck(group):
            search.placeable[group] = None
            continue
        for ask in due_claims.of_group(partition, group, shortage, now):
            run = runs.setdefault(ask.application.leaf.path, [])
            run.append((pending.claims_in_turn(ask), ask))
            left -= 1
    for path, run in runs.items():
        found = search.found.setdefault(path, [])
        found += run
        found.sort(reverse=True)


def _groups(queue: Queue, shortage: Shortage) -> list[Group]:
    """Return the groups of a queue.

    Return [] unless the queue is a leaf that may preempt (see `due_claims.is_open_leaf`), and a queue on its path is below its
    entitlement.
    """
    if not (queue.pending_asks and shortage.may_lack(queue) and due_claims.is_open_leaf(queue)):
        return []
    return [
        group
        for application in queue.applications.values()
        for group in application.groups.values()
    ]
