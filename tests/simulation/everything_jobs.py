"""The amounts of jobs, checked from outside: all members or none, capacity for all, the share of J7, no needless victim.

The nodes of the members are taken from the decision. The job oracle checks whether all members would fit elsewhere
without a victim (invariant 12), and whether another plan would need fewer or less important victims (J9).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from server.model.records import DecisionRecord
from tests.preemption.attack_account import Amounts, Partition, Pod
from tests.simulation.everything_invariants import Judge, is_firm


def total(pods: Sequence[Pod]) -> Amounts:
    """Return the sum of what pods use or request."""
    found: Amounts = Counter()
    for pod in pods:
        found.update(dict(pod.spec.resource))
    return found


@dataclass
class Plan:
    """A decision for a job: its members, their nodes, and its victims. The model does not contain the decision yet."""

    judge: "JobJudge"
    state: Partition
    record: DecisionRecord
    members: list[Pod]
    assignments: dict[str, str]
    going: list[Pod]

    @property
    def partition(self) -> str:
        """Return the partition of the job."""
        return self.record.partition

    @property
    def leaf(self) -> str:
        """Return the queue of the job."""
        return self.judge.path_of(self.partition, self.members[0])

    def own(self, going: Sequence[Pod]) -> list[Pod]:
        """Return the victims of the job's own queue."""
        return [pod for pod in going if self.judge.path_of(self.partition, pod) == self.leaf]

    def nodes(self) -> Iterator[tuple[str, Amounts, Amounts]]:
        """Yield the nodes of members, each with what they request there and what is planned to be free."""
        for node in sorted(set(self.assignments.values())):
            wanted = total([pod for pod in self.members if self.assignments[pod.key] == node])
            yield node, wanted, self.judge.planned_free(self.state, node)

    def fits(self, going: Sequence[Pod]) -> bool:
        """Return whether all members fit on their nodes and below the maxima without these pods (J4, J8)."""
        for node, wanted, free in self.nodes():
            freed = total([pod for pod in going if pod.node == node])
            if any(free[kind] + freed[kind] < size for kind, size in wanted.items()):
                return False
        wanted = total(self.members)
        limits = self.judge.headroom(self.state, self.partition, self.members[0])
        for path, left in limits.items():
            freed = total([pod for pod in going if self.state.is_below(pod, path)])
            if any(left[kind] + freed[kind] < wanted[kind] for kind in left):
                return False
        return True

    def needs(self, own: Sequence[Pod]) -> Amounts:
        """Return what neither free capacity nor victims of the gang's own queue cover, over all nodes."""
        found: Amounts = Counter()
        for node, wanted, free in self.nodes():
            freed = total([pod for pod in own if pod.node == node])
            for kind, size in wanted.items():
                found[kind] += max(0, size - max(0, free[kind]) - freed[kind])
        return +found

    def is_owed(self, going: Sequence[Pod]) -> bool:
        """Return whether other queues give at most what the queue may claim after its own victims are gone (J7).

        A type that no queue on its path guarantees gives no share; the need for such a type is covered by victims
        that are evicted for another type. Each group of victims of other queues frees a guaranteed type that its
        node still lacks without the own queue's victims.
        """
        own = self.own(going)
        if len(own) == len(going):
            return True
        left, kinds = total(own), list(total(self.members))
        decided = set()
        for kind, path, owed in self.judge.deciding(self.state, self.partition, self.leaf, kinds):
            left[kind] += owed - self.judge.held(self.state, path)[kind]
            decided.add(kind)
        needs = self.needs(own)
        others = [pod for pod in going if pod not in own]
        taken_for = all(
            any(pod in others and self.helps(pod, own, decided) for pod in unit)
            for unit in self.units()
            if any(pod in others for pod in unit)
        )
        return taken_for and all(left[kind] >= needs[kind] for kind in decided)

    def helps(self, pod: Pod, own: Sequence[Pod], decided: set[str]) -> bool:
        """Return whether a victim frees one of these types where its node lacks it without victims of its own queue."""
        for node, wanted, free in self.nodes():
            freed = total([one for one in own if one.node == node])
            lacking = {kind for kind in decided if free[kind] + freed[kind] < wanted[kind]}
            if node == pod.node and lacking & set(dict(pod.spec.resource)):
                return True
        return False

    def units(self) -> Iterator[list[Pod]]:
        """Yield the victims that would be given back together: a gang evicted as a whole, or a single pod (invariant 11)."""
        together: dict[tuple[str, str], list[Pod]] = {}
        for pod in self.going:
            together.setdefault((pod.application, pod.spec.gang_key or f"{pod.key} "), []).append(
                pod
            )
        for (application, job), some in together.items():
            rest = [pod for pod in self.state.pods.values() if pod.node and pod.dying is None]
            gang = [
                one for one in rest if (one.application, one.spec.gang_key) == (application, job)
            ]
            if len(gang) == len(some):
                yield some
            else:
                yield from ([pod] for pod in some)


class JobJudge(Judge):
    """A model that also checks the amounts of jobs."""

    def _judge_amounts(self, state: Partition, record: DecisionRecord, going: list[Pod]) -> None:
        super()._judge_amounts(state, record, going)
        if record.policy == "job":
            members = [state.pods[one.key] for one in record.beneficiaries]
            assignments = {one.key: one.node_id for one in record.beneficiaries}
            plan = Plan(self, state, record, members, assignments, going)
            self._assert_whole(plan)
            self._assert_enough(plan)

    def _assert_whole(self, plan: Plan) -> None:
        """Assert that all waiting members get capacity, and the job has its minimum with the running ones (invariant 9)."""
        first, keys = plan.members[0], {pod.key for pod in plan.members}
        together = first.spec.placeholder  # Placeholders of an application are placed together.
        if not first.spec.gang_key and not together:
            assert len(plan.members) == 1, f"{keys} are no job (9)"
            return
        name = (first.application, first.spec.gang_key)
        gang = [
            pod
            for pod in plan.state.pods.values()
            if (pod.application, pod.spec.gang_key) == name
            and pod.spec.placeholder == together
            and pod.dying is None
        ]
        served = plan.state.gainers()
        waiting = {pod.key for pod in gang if not pod.node and pod.key not in served}
        assert waiting == keys, (
            f"{plan.record.decision_id}: {waiting} wait, {keys} get capacity (9)"
        )
        least = max(pod.spec.min_members for pod in gang)
        assert len(gang) >= least, f"{plan.record.decision_id}: {len(gang)} of {least} (9)"
        self.judged(plan.record, "whole")

    def _assert_enough(self, plan: Plan) -> None:
        """Assert that all members get capacity within the share of J7, and every victim is needed (invariants 8, 11)."""
        settings = self.specs[plan.partition].preemption
        ports = any(pod.spec.constraints.host_ports for pod in plan.members)
        gone = [
            pod for pod in plan.state.pods.values() if pod.dying is not None or pod in plan.going
        ]
        if ports or any(is_firm(pod, settings) for pod in gone):
            return  # The amount that is kept for firm asks changes when one of them is evicted.
        what = plan.record.decision_id
        assert plan.fits(plan.going), f"{what}: no capacity for all (9)"
        self.judged(plan.record, "capacity")
        assert plan.is_owed(plan.going), f"{what}: others give more than is owed (J7)"
        if len(plan.own(plan.going)) < len(plan.going):
            self.judged(plan.record, "share")
        for unit in plan.units():
            rest = [pod for pod in plan.going if pod not in unit]
            spared = plan.fits(rest) and plan.is_owed(rest)
            assert not spared, f"{what}: {unit[0].key} could be given back (11)"
            self.judged(plan.record, "given back")
