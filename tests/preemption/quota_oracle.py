"""Quota runs, implemented sentence by sentence from the specification (Q9-Q15, V3); slow and plain on purpose."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import floor
from typing import NamedTuple

Amounts = dict[str, int]
Order = tuple[bool, int, bool, int, str]


class Pod(NamedTuple):
    """A running allocation. ``bar`` is the rule that excludes the pod whatever the target is, "" for none."""

    key: str
    leaf: str
    size: Mapping[str, int]
    priority: int = 0
    created: int = 0
    originator: bool = False
    opted_out: bool = False
    bar: str = ""
    groups: tuple[str, ...] = ()


@dataclass
class Tree:
    """The queues by path with guarantees and maxima; ``busy`` has the queues with a run of their own that began earlier."""

    guaranteed: Mapping[str, Mapping[str, int]]
    maxima: Mapping[str, Mapping[str, int] | None]
    busy: frozenset[str] = frozenset()

    def path_up(self, path: str) -> list[str]:
        names = path.split(".")
        return [".".join(names[:depth]) for depth in range(len(names), 0, -1)]

    def children(self, path: str) -> list[str]:
        return sorted(one for one in self.maxima if one.rpartition(".")[0] == path)

    def below(self, path: str) -> list[str]:
        """Return the queues that take part in a run; a child with its own run, and all queues below it, do not (Q15)."""
        found = [path]
        for child in self.children(path):
            if child not in self.busy:
                found += self.below(child)
        return found


@dataclass
class QuotaRun:
    """One run of one queue. ``taken`` and ``rules`` are its result."""

    tree: Tree
    pods: list[Pod]
    queue: str
    overshoot: str = "last"
    budgets: str = "ignore"
    allowed: Amounts = field(default_factory=dict)
    taken: list[Pod] = field(default_factory=list)
    rules: dict[str, str] = field(default_factory=dict)
    turns: dict[str, Order] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.target = self._target()
        self.candidates = [pod for pod in self._part_takers() if not self._no_candidate(pod)]
        if self.target:
            self._run()

    # Amounts to free, and candidates ---------------------------------------------------------------

    def eff(self, path: str) -> Amounts:
        """Return what a queue uses, without pods that are already being evicted."""
        sums: Amounts = {}
        for pod in self.pods:
            if path in self.tree.path_up(pod.leaf) and pod.bar != "already-releasing":
                for kind, amount in pod.size.items():
                    sums[kind] = sums.get(kind, 0) + amount * (pod not in self.taken)
        return sums

    def _target(self) -> Amounts:
        """Return, for each type of the max, by how much the effective usage exceeds the max (Q9)."""
        used = self.eff(self.queue)
        most = self.tree.maxima[self.queue] or {}
        over = {kind: used.get(kind, 0) - amount for kind, amount in most.items()}
        return {kind: amount for kind, amount in over.items() if amount > 0}

    def _part_takers(self) -> list[Pod]:
        below = self.tree.below(self.queue)
        return [pod for pod in self.pods if pod.leaf in below]

    def _no_candidate(self, pod: Pod) -> str:
        """Return the rule that excludes the pod from the candidates; "" when no rule does (Q10)."""
        if pod.bar:
            return pod.bar
        helps = any(pod.size.get(kind, 0) > 0 for kind in self.target)
        return "" if helps else "no-common-type"

    # The run -------------------------------------------------------------------------------------

    def _run(self) -> None:
        self._free(self.queue, dict(self.target))
        self._give_back(list(self.taken), self.rest())
        while any(left > 0 for left in self.rest().values()):
            before, left = len(self.taken), self.rest()
            stay = [pod for pod in self.candidates if pod not in self.taken]
            for pod in stay:  # reported even if the walk ends before
                if self._objection(pod, left) == "below-guarantee":
                    self.rules[pod.key] = "below-guarantee"
            self._walk(stay, left)
            if len(self.taken) == before:
                break
            self._give_back(list(self.taken), self.rest())
        if any(left > 0 for left in self.rest().values()) and len(self.candidates) <= 16:
            self._search()

    def rest(self) -> Amounts:
        """Return the amounts that are still to be freed; negative when more was freed."""
        freed = {kind: sum(pod.size.get(kind, 0) for pod in self.taken) for kind in self.target}
        return {kind: amount - freed[kind] for kind, amount in self.target.items()}

    def _free(self, path: str, wanted: Amounts) -> Amounts:
        """Evict pods below a queue, level by level, and return the freed amounts (Q15)."""
        before = self.rest()
        children = [child for child in self.tree.children(path) if child not in self.tree.busy]
        if children:
            self._share_out(children, wanted)
        else:
            known = list(self.taken)
            rest = self._walk([pod for pod in self.candidates if pod.leaf == path], wanted)
            self._give_back([pod for pod in self.taken if pod not in known], rest)
        return {kind: before[kind] - left for kind, left in self.rest().items()}

    def _share_out(self, children: list[str], wanted: Amounts) -> None:
        releasable = {child: self._releasable(child) for child in children}
        shares = _shares(wanted, releasable)
        credit = dict.fromkeys(wanted, 0)
        for child in sorted(children, key=lambda one: (-_turn(wanted, releasable[one]), one)):
            used = {kind: min(credit[kind], part) for kind, part in shares[child].items()}
            credit = {kind: have - used[kind] for kind, have in credit.items()}
            share = {kind: part - used[kind] for kind, part in shares[child].items()}
            freed = self._free(child, share)
            for kind, amount in freed.items():
                credit[kind] += max(0, amount - share[kind])

    def _releasable(self, path: str) -> Amounts:
        used, least = self.eff(path), self.tree.guaranteed[path]
        return {kind: max(0, used.get(kind, 0) - least.get(kind, 0)) for kind in self.target}

    # Walks ---------------------------------------------------------------------------------------

    @staticmethod
    def order_of_all(pod: Pod) -> Order:
        """Return the key of the victim order without disruption budgets (Q11)."""
        return pod.originator, pod.priority, pod.opted_out, -pod.created, pod.key

    def order(self, pod: Pod) -> Order:
        """Return the key of the victim order; with `prefer`, a pod whose budget is used up counts as opted out (Q11, V5)."""
        opted_out = pod.opted_out or (self.budgets == "prefer" and self._exhausted(pod))
        return pod.originator, pod.priority, opted_out, -pod.created, pod.key

    def _exhausted(self, pod: Pod) -> bool:
        gone = [group for one in self.taken for group in one.groups]
        return any(self.allowed.get(group, 0) <= gone.count(group) for group in pod.groups)

    def _walk(self, pods: list[Pod], wanted: Amounts) -> Amounts:
        """Evict pods in order until the wanted amounts are freed; return what remains of them, negative when more was freed (Q12)."""
        left, rest = list(pods), dict(wanted)
        while left and any(amount > 0 for amount in rest.values()):
            pod = min(left, key=self.order)
            left.remove(pod)
            self.turns[pod.key] = self.order(pod)
            rule = self._objection(pod, rest)
            if rule:
                if rule != "not-needed":
                    self.rules[pod.key] = rule
                continue
            self.taken.append(pod)
            rest = {kind: amount - pod.size.get(kind, 0) for kind, amount in rest.items()}
        return rest

    def _objection(self, pod: Pod, wanted: Amounts) -> str:
        if not any(amount > 0 and pod.size.get(kind, 0) for kind, amount in wanted.items()):
            return "not-needed"
        if self.floored(pod):
            return "below-guarantee"
        if self.overshoot == "none":
            rest = self.rest()
            if any(pod.size.get(kind, 0) > max(0, amount) for kind, amount in rest.items()):
                return "overshoot"
        if self.budgets == "respect" and self._exhausted(pod):
            return "disruption-budget"
        return ""

    def floored(self, pod: Pod) -> str:
        """Return the lowest queue that would be below its guarantee without the pod, in a type that the pod uses."""
        for path in self.tree.path_up(pod.leaf):
            used, least = self.eff(path), self.tree.guaranteed[path]
            for kind, amount in pod.size.items():
                if amount and used[kind] - amount < least.get(kind, 0):
                    return path
        return ""

    def _give_back(self, pods: list[Pod], wanted: Amounts) -> None:
        """Give back each victim that is no longer needed, from the most protected victim to the least (Q12)."""
        rest = dict(wanted)
        for pod in sorted(pods, key=lambda one: self.turns[one.key], reverse=True):
            without = {kind: amount + pod.size.get(kind, 0) for kind, amount in rest.items()}
            if all(without[kind] <= 0 for kind in rest if pod.size.get(kind, 0)):
                self.taken.remove(pod)
                rest = without

    def _search(self) -> None:
        """Find the first set of victims, in the order of Q11, that meets the target and whose members may be evicted in turn (Q15)."""
        found, turns = list(self.taken), dict(self.turns)
        self.taken.clear()
        pods = sorted(self.candidates, key=self.order)
        self.turns |= {pod.key: self.order(pod) for pod in pods}
        sets = self._legal_sets(pods, [])
        first = next(
            (each for each in sets if not any(left > 0 for left in self._left(each))), None
        )
        self.taken = found if first is None else first
        if first is None:
            self.turns = turns
        else:
            self._give_back(list(self.taken), self.rest())

    def _legal_sets(self, pods: list[Pod], chosen: list[Pod]) -> Iterator[list[Pod]]:
        """Yield the sets of victims that may be evicted in turn, in lexicographic order.

        A set comes before its extensions, and an earlier pod before a later one. Sets that cannot be extended to
        meet the target are left out, because there are too many of them.
        """
        yield chosen
        for number, pod in enumerate(pods):
            self.taken = list(chosen)
            if any(
                left > sum(one.size.get(kind, 0) for one in pods[number:])
                for kind, left in self.rest().items()
            ):
                return
            if not self._objection(pod, self.rest()):
                yield from self._legal_sets(pods[number + 1 :], [*chosen, pod])

    def _left(self, chosen: list[Pod]) -> Iterable[int]:
        self.taken = list(chosen)
        return self.rest().values()

    # Results -------------------------------------------------------------------------------------

    def result(self, miss_permyriad: int = 0) -> str:
        """Return the result of the run (Q14)."""
        missing = {kind: max(0, left) for kind, left in self.rest().items()}
        if not any(missing.values()):
            return "complete"
        if not self.taken:
            return "impossible"
        miss = Fraction(miss_permyriad, 10_000)
        shares = [Fraction(missing[kind], amount) for kind, amount in self.target.items()]
        return "within-miss" if max(shares) <= miss else "shortfall"

    def spared(self) -> dict[str, str]:
        """Return the pods that are not evicted, each with the rule that spares it."""
        return {
            pod.key: self._no_candidate(pod) or self.rules.get(pod.key, "not-needed")
            for pod in self._part_takers()
            if pod not in self.taken
        }


def _shares(wanted: Amounts, releasable: Mapping[str, Amounts]) -> dict[str, Amounts]:
    """Return each child's share: target x releasable / sum of releasable, by largest remainder, at most releasable (Q15)."""
    found: dict[str, Amounts] = {child: {} for child in releasable}
    for kind, amount in wanted.items():
        total = sum(own[kind] for own in releasable.values())
        exact = {
            child: Fraction(amount * own[kind], total) if total else Fraction(0)
            for child, own in releasable.items()
        }
        whole = {child: floor(part) for child, part in exact.items()}
        left = amount - sum(whole.values()) if total else 0
        for child in sorted(exact, key=lambda one: (whole[one] - exact[one], one))[:left]:
            whole[child] += 1
        for child, part in whole.items():
            found[child][kind] = min(part, releasable[child][kind])
    return found


def _turn(wanted: Amounts, releasable: Amounts) -> Fraction:
    """Return the key that orders children: the largest releasable / target over the target types (Q15)."""
    shares = [Fraction(releasable[kind], amount) for kind, amount in wanted.items() if amount > 0]
    return max(shares, default=Fraction(0))
