"""Simulations as messages of `evenhand.v1`, to a viewer without what belongs to others. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from evenhand.v1 import simulate_pb2 as pb
from server.model.phrases import count
from server.model.quota import PartitionSpec, QueueSpec
from server.model.records import AskSimulation, GroupSimulation, QueueSimulation
from server.model.reports import QueueReport
from server.rpc.evenhand import fit_pictures, sides
from server.rpc.evenhand.decision_pictures import (
    Names,
    levels,
    quota_run,
    spared,
    verdict,
    victim,
)
from server.rpc.evenhand.simulated import ReadAsk
from server.rpc.limits import VICTIMS_TOLD_MAX
from server.rpc.roles import Caller

_OUTCOMES: Final = {
    "placed": pb.ASK_OUTCOME_PLACED,
    "preempts": pb.ASK_OUTCOME_PREEMPTS,
    "waits": pb.ASK_OUTCOME_WAITS,
    "refused": pb.ASK_OUTCOME_REFUSED,
}


class AskPictures:
    """Answers about asks as one caller may know them."""

    def __init__(self, caller: Caller, names: Names) -> None:
        self._caller = caller
        self._names = names

    def ask(self, asked: ReadAsk, found: AskSimulation) -> pb.AskSimulation:
        """One answer. What stands beside the verdict is not repeated in it."""
        caller, sees = self._caller, sides.sees(self._caller)
        goes = sides.own_victims(found.victims, caller)
        picture = pb.AskSimulation(
            allocation_key=asked.message.allocationKey,
            outcome=_OUTCOMES[found.outcome],
            queue=found.queue,
            node_id=found.node_id,
            resources=dict(asked.spec.resource),
            priority=asked.message.priority,
            victims=[victim(one, self._names) for one in goes],
            spared=spared(sides.spared(found.spared, caller), self._names),
            levels=levels(sides.levels(found.levels, caller), sees),
            victims_elsewhere=len(found.victims) - len(goes),
            group=found.group,
            assumed=[
                pb.Assumption(name=one.name, value=one.value, because=one.because)
                for one in asked.assumed
            ],
        )
        if found.verdict is not None:
            told = sides.verdict(found.verdict, caller)
            picture.verdict.CopyFrom(verdict(told, self._names, sees))
            if found.spared:
                picture.verdict.ClearField("spared")
            if found.levels:
                picture.verdict.ClearField("levels")
        own = sides.sees_all(caller) or found.outcome == "refused"
        picture.lines.extend((own and found.lines) or _lines(picture))
        return picture

    def group(self, found: GroupSimulation) -> pb.SimulatedGroup:
        """A group of asks; to a viewer without nodes, without limits of other queues, and without steps that name them."""
        fit = fit_pictures.seen(found.fit, self._caller)
        steps = found.next_steps if sides.sees_all(self._caller) else ()
        return pb.SimulatedGroup(fit=fit_pictures.group_fit(fit), next_steps=steps)


def _lines(picture: pb.AskSimulation) -> Iterator[str]:
    """The answer in sentences that name nobody else."""
    goes = len(picture.victims) + picture.victims_elsewhere
    if picture.outcome == pb.ASK_OUTCOME_PLACED:
        yield f"It would be placed at once, on node {picture.node_id}."
    elif picture.outcome == pb.ASK_OUTCOME_PREEMPTS:
        yield f"It would get node {picture.node_id}: {count(goes, 'allocation')} would be evicted."
    else:
        yield "It would wait: no node has room for it, or its queue has no headroom."
        if picture.verdict.law:
            yield f"Preemption makes no room for it (`{picture.verdict.law}`): {picture.verdict.rule}."


def queue_pictures(
    found: Iterable[QueueSimulation], wanted: PartitionSpec, root: QueueReport, names: Names
) -> list[pb.QueueSimulation]:
    """The queues of one partition, with what they use now and what they could."""
    reports = {one.path: one for one in _reports(root)}
    limits = {path: dict(spec.max or ()) for path, spec in _specs(wanted.root, "")}
    left, pictures = VICTIMS_TOLD_MAX, []
    for one in found:
        picture = _queue(one, reports.get(one.queue), limits.get(one.queue, {}))
        picture.victims.extend(victim(each, names) for each in one.victims[:left])
        picture.victims_left_out = len(one.victims) - len(picture.victims)
        left -= len(picture.victims)
        pictures.append(picture)
    return pictures


def _queue(
    one: QueueSimulation, report: QueueReport | None, limit: Mapping[str, int]
) -> pb.QueueSimulation:
    picture = pb.QueueSimulation(
        queue=one.queue,
        usage={} if report is None else _held(report),
        max=limit,
        target=one.target,
        delay_ms=one.delay_ms,
        due_ms=one.due_ms,
        why_not=one.why_not,
    )
    if one.shrink is not None:
        picture.run.CopyFrom(quota_run(one.shrink))
    return picture


def _held(report: QueueReport) -> dict[str, int]:
    """What is used, less what is on its way out."""
    return {kind: used - report.releasing.get(kind, 0) for kind, used in report.usage.items()}


def _reports(report: QueueReport) -> Iterator[QueueReport]:
    yield report
    for child in report.children:
        yield from _reports(child)


def _specs(spec: QueueSpec, above: str) -> Iterator[tuple[str, QueueSpec]]:
    path = f"{above}.{spec.name}" if above else spec.name
    yield path, spec
    for child in spec.children:
        yield from _specs(child, path)
