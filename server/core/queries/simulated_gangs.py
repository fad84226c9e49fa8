"""The gangs among simulated asks: asks with the same gang key, which are placed all together or not at all (J8).

The simulated members and the running members together must reach the gang's size. The answer to each member describes the whole
gang.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from server.core.preemption import decision_records
from server.core.queries import next_steps, simulation_answers, verdicts
from server.core.queries.fit_text import fit_text
from server.core.queries.group_fit import Members, PersonLimit, free_row, group_fit
from server.core.queries.simulation_answers import SimulatedAsk
from server.model.asks import UNSIZED, AskSpec
from server.model.fit import fits
from server.model.phrases import count
from server.model.records import AskSimulation, GroupSimulation, Verdict
from server.model.reports import Excluded, GroupFit
from server.preemption.gangs import gang_policy
from server.preemption.gangs.eligibility import added
from server.preemption.policy import Plan, Refusal
from server.preemption.trial import Trial
from server.snapshot.waiting import WaitingAsk, WaitingGang
from server.state import snapshotting
from server.state.partition import Partition

Key = tuple[str, str, str]
"""The key of a gang: queue, application, gang key."""


def sized(partition: Partition, asks: Sequence[SimulatedAsk]) -> list[SimulatedAsk]:
    """Return the asks with the sizes of their gangs (J1).

    A new gang without a stated size is complete with the simulated members.
    """
    keys = Counter(_name(ask) for ask in asks if _is_unsized(ask))
    sizes = {key: _counted(partition, key, asked) for key, asked in keys.items()}
    specs = {
        (ask.spec, _name(ask)): replace(ask.spec, min_members=sizes[_name(ask)])
        for ask in asks
        if _is_unsized(ask)
    }
    return [ask._replace(spec=specs.get((ask.spec, _name(ask)), ask.spec)) for ask in asks]


def _is_unsized(ask: SimulatedAsk) -> bool:
    return bool(ask.spec.gang_key) and not ask.spec.min_members


def _counted(partition: Partition, key: Key, asked: int) -> int:
    application = partition.applications.get(key[1])
    known = application.gangs.get(key[2]) if application else None
    if known is None:
        return asked
    if known.min_members == UNSIZED:
        return asked + known.placed
    return 1 if known.placed >= known.min_members else known.min_members


def whole(
    partition: Partition, asks: Sequence[SimulatedAsk], read: Sequence[WaitingAsk | str]
) -> dict[Key, WaitingGang | str]:
    """Return the gangs among the asks, by key. If a member of a gang would not be accepted, return the reason instead of the gang."""
    members: dict[Key, list[WaitingAsk]] = {}
    broken: dict[Key, WaitingGang | str] = {}
    for ask, waiting in zip(asks, read, strict=True):
        key = _key(ask)
        if key is None:
            continue
        if isinstance(waiting, str):
            broken[key] = waiting
        else:
            members.setdefault(key, []).append(waiting)
    return {key: _gang(partition, key, some) for key, some in members.items()} | broken


def _key(ask: SimulatedAsk) -> Key | None:
    spec = ask.spec
    gang = bool(spec.gang_key) and spec.min_members > 1
    return _name(ask) if gang else None


def _name(ask: SimulatedAsk) -> Key:
    return ask.queue, ask.application_id, ask.spec.gang_key


def _gang(partition: Partition, key: Key, members: list[WaitingAsk]) -> WaitingGang:
    application = partition.applications.get(key[1])
    known = application.gangs.get(key[2]) if application else None
    placed, number = (known.placed, known.number) if known else (0, 0)
    demand = added(one.kind.demand for one in members)
    people = [one for one in application.limiters if one.kind != "queue"] if application else []
    within = all(fits(demand, one.headroom) for one in people)
    order = sorted(members, key=snapshotting.gang_order)
    return WaitingGang(key[2], number, tuple(order), placed, members[0].spec.min_members, within)


class _Alike(NamedTuple):
    """Equal asks that wait, with the number of their group and the answer of preemption to the first ask."""

    number: int
    asks: list[WaitingAsk]
    verdict: Verdict | None


class Simulation:
    """The answers to simulated asks. Each answer assumes that the asks before it in the list are placed, if they can be.

    Once all asks are answered, `groups` has their groups. A group is a gang, or a set of equal asks that wait. The simulation
    does not read the state.
    """

    def __init__(
        self,
        trial: Trial,
        asked: Sequence[tuple[SimulatedAsk, WaitingAsk | str]],
        gangs: Mapping[Key, WaitingGang | str],
        people: Mapping[str, tuple[PersonLimit, ...]],
        excluded: Mapping[AskSpec, tuple[Excluded, ...]],
    ) -> None:
        self._groups: dict[int, GroupSimulation] = {}
        self._trial = trial
        self._asked = asked
        self._gangs = gangs
        self._people = people
        self._excluded = excluded
        self._known: dict[Key, dict[str, AskSimulation]] = {}
        self._alike: dict[SimulatedAsk, _Alike] = {}

    @property
    def groups(self) -> list[GroupSimulation]:
        """Return the groups, sorted by the group numbers that answers contain.

        The list is complete once the last ask is answered.
        """
        return [self._groups[number] for number in sorted(self._groups)]

    def _next_number(self) -> int:
        return len(self._known) + len(self._alike)

    def answers(self) -> Iterator[AskSimulation]:
        """Yield the answer to each ask. The answers for all members of a gang are computed together, when the first member of the gang is reached."""
        for ask, waiting in self._asked:
            key = _key(ask)
            gang = None if key is None else self._gangs[key]
            if key is None or isinstance(waiting, str):
                yield self._single(ask, waiting)
            elif isinstance(gang, WaitingGang):
                if key not in self._known:
                    self._known[key] = self._gang(gang, self._next_number() + 1)
                yield self._known[key][waiting.key]
            else:
                yield simulation_answers.refused(ask, gang or "")
        self._count_together()

    def _single(self, ask: SimulatedAsk, waiting: WaitingAsk | str) -> AskSimulation:
        """Return the answer to an ask that is in no gang.

        If the ask waits, `_count_together` counts it together with equal asks after the last answer.
        """
        people = self._people[ask.application_id]
        excluded = self._excluded.get(ask.spec, ())
        found = simulation_answers.answer(self._trial, ask, waiting, people, excluded)
        if found.outcome != simulation_answers.WAITS or isinstance(waiting, str):
            return found
        kind = ask._replace(key="")
        alike = self._alike.get(kind)
        if alike is None:
            number = self._next_number() + 1
            alike = self._alike[kind] = _Alike(number, [], found.verdict)
        alike.asks.append(waiting)
        return replace(found, group=alike.number)

    def _gang(self, gang: WaitingGang, number: int) -> dict[str, AskSimulation]:
        """Return the answer for each member of a gang, by the member's key."""
        trial, now = self._trial, self._trial.snapshot.now
        fit = group_fit(trial, self._members(gang))
        by_key = {one.key: ask for ask, one in self._asked if not isinstance(one, str)}
        found = _placed(trial, by_key, gang) if gang.gathered and gang.within_limits else {}
        verdict = None
        if not found:
            answer = verdicts.plan_gang(trial, gang)
            if isinstance(answer, Refusal):
                verdict = decision_records.refused(trial.snapshot, gang_policy.NAME, answer, now)
                found = _waits(by_key, gang, (fit, answer, verdict))
            else:
                trial.apply(answer)
                found = _preempts(trial, by_key, gang, answer, now)
                verdict = found[gang.members[0].key].verdict
        self._groups[number] = GroupSimulation(fit, _steps(gang, fit, verdict, now))
        return {key: replace(one, group=number) for key, one in found.items()}

    def _members(self, gang: WaitingGang) -> Members:
        placeholders = all(one.spec.placeholder for one in gang.members)
        name = (
            f"placeholders of application {gang.application_id}"
            if placeholders
            else f"gang {gang.key}"
        )
        people = self._people[gang.application_id]
        return Members(
            name,
            gang.members,
            gang.placed,
            gang.size,
            people,
            key=gang.key,
            placeholders=placeholders,
            excluded=next(filter(None, map(self._excluded_of, gang.members)), ()),
        )

    def _excluded_of(self, ask: WaitingAsk) -> tuple[Excluded, ...]:
        return self._excluded.get(ask.spec, ())

    def _count_together(self) -> None:
        """Count the equal asks that wait, and compute the amounts that each set of equal asks lacks once all other asks are placed."""
        for kind, (number, asks, verdict) in self._alike.items():
            more = f"{count(len(asks), 'ask')} like {asks[0].key}" if len(asks) > 1 else asks[0].key
            people = self._people[kind.application_id]
            excluded = self._excluded_of(asks[0])
            alike = Members(more, asks, people=people, gang=False, excluded=excluded)
            fit = group_fit(self._trial, alike)
            steps = next_steps.of_fit(fit, verdict, self._trial.snapshot.now)
            self._groups[number] = GroupSimulation(fit, steps)


def _steps(gang: WaitingGang, fit: GroupFit, verdict: Verdict | None, now: int) -> tuple[str, ...]:
    if gang.gathered:
        return next_steps.of_fit(fit, verdict, now)
    return (next_steps.of_gathering(fit),)


def _waits(
    by_key: Mapping[str, SimulatedAsk], gang: WaitingGang, why: tuple[GroupFit, Refusal, Verdict]
) -> dict[str, AskSimulation]:
    """Return the answers for a gang that waits: how many members fit, what the others lack, and why preemption does not help."""
    fit, refusal, verdict = why
    lacks = fit_text(fit) if gang.gathered and fit.left else ""
    return {
        one.key: simulation_answers.waiting_for(by_key[one.key], fit, lacks, refusal, verdict)
        for one in gang.members
    }


def _placed(
    trial: Trial, by_key: Mapping[str, SimulatedAsk], gang: WaitingGang
) -> dict[str, AskSimulation]:
    """Return the answers for a gang whose members all get a node now, and assign the members to these nodes on the Trial.

    Return {}, and assign no member, if a member gets no node.
    """
    mark, found = trial.mark(), {}
    for one in gang.members:
        row = free_row(trial, one)
        if row < 0:
            trial.rollback(mark)
            return {}
        found[one.key] = simulation_answers.placed(trial, by_key[one.key], one, row)
    return found


def _preempts(
    trial: Trial,
    by_key: Mapping[str, SimulatedAsk],
    gang: WaitingGang,
    plan: Plan,
    now: int,
) -> dict[str, AskSimulation]:
    """Return the answers for a gang for which pods would be evicted.

    Each answer names the node of its member, and the answer for the first member also names all victims.
    """
    found = {}
    nodes = {one.ask.key: one.node_id for one in plan.pledges}
    shown = simulation_answers.victims(trial, plan)
    for one in gang.members:
        verdict = verdicts.of_plan(gang_policy.NAME, plan, nodes[one.key], now)
        found[one.key] = AskSimulation(
            simulation_answers.PREEMPTS,
            one.leaf,
            nodes[one.key],
            by_key[one.key].spec.resource,
            shown if one is gang.members[0] else (),
            decision_records.spared(plan),
            plan.levels,
            verdict,
            (f"As a member of gang {gang.key}: {decision_records.would_gang(plan)}.",),
        )
    return found
