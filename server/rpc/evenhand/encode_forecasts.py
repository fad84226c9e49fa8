"""Messages of `evenhand.v1` for the forecast of a configuration. The functions are pure.

Only operators, who may see everything, get these messages.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from evenhand.v1 import simulate_pb2 as pb
from server.config import Change
from server.model.forecast import (
    Forecast,
    ForeseenDecision,
    PartitionForecast,
    QueueForecast,
    QueueNumbers,
)
from server.model.quota import Configuration
from server.model.records import QueueSimulation
from server.rpc.evenhand.encode_decisions import Names, decision, quota_run, victim
from server.rpc.evenhand.redaction import VisibleDecision
from server.rpc.limits import VICTIMS_TOLD_MAX

FOR_LATER: Final = (
    "submitacl",
    "adminacl",
    "placementrules",
    "maxapplications",
    "childtemplate.",
    "preemption.shadow.",
)
"""The prefixes of fields that affect only later applications and queues, or a shadow, which evicts nothing."""


def is_for_later(change: Change) -> bool:
    """Return whether the change is left out of forecasts, because it affects nothing that exists now."""
    return change.field.startswith(FOR_LATER)


def forecast_picture(
    found: Forecast,
    configuration: Configuration,
    names: Mapping[str, Names],
    answer: pb.SimulateConfigurationResponse,
) -> None:
    """Write the forecast into the answer. Victims beyond `VICTIMS_TOLD_MAX` are only counted."""
    answer.complete, answer.cut, answer.until_ms = found.complete, found.cut, found.until_ms
    most = VICTIMS_TOLD_MAX
    for part in found.partitions:
        picture = _partition(part, names[part.partition])
        for one in part.decisions:
            told = _decision(one, names[part.partition], most)
            most -= len(told.decision.victims)
            picture.decisions.append(told)
        for quota in part.quotas:
            shown = _quota(quota, part, names[part.partition], most)
            most -= len(shown.victims)
            picture.queues.append(shown)
        answer.partitions.append(picture)
    known = {part.partition for part in found.partitions}
    for spec in configuration.partitions:
        if spec.name not in known:
            answer.partitions.add(partition=spec.name)


def _partition(part: PartitionForecast, names: Names) -> pb.PartitionSimulation:
    return pb.PartitionSimulation(
        partition=part.partition,
        placements=[
            pb.ForeseenPlacement(
                after_ms=one.after_ms,
                allocation_key=one.key,
                application_id=one.application_id,
                queue=one.queue,
                node_id=one.node_id,
                decision_id=one.decision_id,
                name=names(one.key),
            )
            for one in part.placements
        ],
        ends=[
            pb.ForeseenEnd(
                after_ms=one.after_ms,
                allocation_key=one.key,
                application_id=one.application_id,
                reason=one.reason,
                name=names(one.key),
            )
            for one in part.ends
        ],
        forecasts=map(_queue, part.queues),
        removed=part.removed,
        observed=part.observed,
        unsynced=part.unsynced,
        victims=sum(len(one.record.victims) for one in part.decisions),
    )


def _decision(one: ForeseenDecision, names: Names, most: int) -> pb.ForeseenDecision:
    """Return the message of a decision with at most ``most`` of its victims."""
    shown = replace(one.record, state=one.outcome, victims=one.record.victims[:most])
    told = decision(VisibleDecision(shown), names, lambda _path: True)
    told.victims_left_out = len(one.record.victims) - len(told.victims)
    for each in told.victims:
        each.ClearField("state")  # no victim of a forecast is ordered to end
    return pb.ForeseenDecision(
        after_ms=one.after_ms, decision=told, unchanged=sorted(one.unchanged), at_ms=one.at_ms
    )


def _quota(
    one: QueueSimulation, part: PartitionForecast, names: Names, most: int
) -> pb.QueueSimulation:
    known = {queue.queue: queue for queue in part.queues}[one.queue]
    picture = pb.QueueSimulation(
        queue=one.queue,
        usage=known.before.held if known.before is not None else {},
        max=known.applied.max if known.applied is not None else {},
        target=one.target,
        delay_ms=one.delay_ms,
        due_ms=one.due_ms,
        why_not=one.why_not,
        victims=[victim(each, names) for each in one.victims[:most]],
    )
    picture.victims_left_out = len(one.victims) - len(picture.victims)
    if one.shrink is not None:
        picture.run.CopyFrom(quota_run(one.shrink))
    return picture


def _queue(one: QueueForecast) -> pb.QueueForecast:
    picture = pb.QueueForecast(queue=one.queue)
    for name in ("before", "applied", "after"):
        numbers: QueueNumbers | None = getattr(one, name)
        if numbers is not None:
            getattr(picture, name).CopyFrom(_numbers(numbers))
    return picture


def _numbers(one: QueueNumbers) -> pb.QueueNumbers:
    return pb.QueueNumbers(
        held=one.held,
        guaranteed=one.guaranteed,
        max=one.max,
        weight=one.weight,
        allocations=one.allocations,
        waiting=one.waiting,
        proportional=one.deserved is not None,
        deserved=one.deserved or {},
        entitled=one.entitled or {},
        draining=one.draining,
    )
