"""Messages of `evenhand.v1` for the history. The functions are pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from evenhand.v1 import history_pb2 as pb
from server.config import diff, load
from server.history.pods import resource_of
from server.history.reading import Period, Point, Waits, whole
from server.model.quota import DEFAULT_CONFIGURATION, Configuration
from server.rpc.evenhand.configuration_service import change

Row = Mapping[str, Any]


def period(found: Period) -> pb.HistoryPeriod:
    """Return the message of a period."""
    return pb.HistoryPeriod(
        since_ms=found.since_ms,
        until_ms=found.until_ms,
        written_to_ms=found.written_to_ms,
        gaps=[
            pb.HistoryGap(from_ms=one.from_ms, to_ms=one.to_ms, lost=one.records, why=one.why)
            for one in found.gaps
        ],
    )


def series(kind: str, points: Sequence[Point]) -> pb.UsageSeries:
    """Return the message of the usage in one resource type."""
    return pb.UsageSeries(
        resource_type=kind, points=map(_point, points), average=_point(whole(points))
    )


def _point(found: Point) -> pb.UsagePoint:
    usage, guaranteed, deserved, promised, waiting = found.values
    return pb.UsagePoint(
        at_ms=found.at_ms,
        covered_ms=found.covered_ms,
        usage=usage,
        guaranteed=guaranteed,
        deserved=deserved,
        promised=promised,
        waiting=waiting,
        usage_peak=found.peaks[0],
        waiting_peak=found.peaks[1],
    )


def waits(found: Waits) -> pb.WaitSummary:
    """Return the message of the waits of a queue."""
    median, p90, p99, most = found.percentiles
    placed, waiting = len(found.placed_ms), len(found.waiting_ms)
    ranked = sorted(found.reasons.items(), key=lambda one: (-one[1][1], one[0]))
    return pb.WaitSummary(
        queue=found.queue,
        asked=placed + waiting + found.withdrawn,
        placed=placed,
        waiting=waiting,
        withdrawn=found.withdrawn,
        median_ms=median,
        p90_ms=p90,
        p99_ms=p99,
        max_ms=most,
        longest_waiting_ms=max(found.waiting_ms, default=0),
        reasons=[
            pb.WaitReason(code=code, pods=pods, total_ms=total) for code, (pods, total) in ranked
        ],
    )


def pod(row: Row, waited: Sequence[Row], *, with_node: bool) -> pb.PastPod:
    """Return the message of one ask of a past pod, with the reasons for which the ask waited."""
    return pb.PastPod(
        partition=row["partition"],
        key=row["pod_key"],
        name=row["name"],
        application_id=row["application_id"],
        queue=row["queue"],
        user=row["user_name"],
        resources=resource_of(row["resources"]),
        priority=row["priority"],
        asked_ms=row["asked_ms"],
        placed_ms=row["placed_ms"] or 0,
        node_id=row["node_id"] if with_node else "",
        ended_ms=row["ended_ms"] or 0,
        end_code=row["end_code"],
        end_text=row["end_text"] if with_node else "",
        decision_id=row["decision_id"],
        waits=[
            pb.PastWait(code=one["code"], since_ms=one["since_ms"], until_ms=one["until_ms"] or 0)
            for one in waited
        ],
    )


def failover(row: Row) -> pb.Failover:
    """Return the message of a row of the table `failovers`, such as a start or an end of a core, or a registration."""
    return pb.Failover(
        at_ms=row["at_ms"],
        kind=row["kind"],
        subject=row["subject"],
        text=row["text"],
        facts=row["facts"],
        core=row["core"],
    )


def plain_configuration(row: Row) -> pb.PastConfiguration:
    """Return the message of a configuration, without differences from other configurations and without decisions."""
    return pb.PastConfiguration(
        revision=row["revision"],
        digest=row["digest"],
        source=row["source"],
        applied_by=row["applied_by"],
        at_ms=row["at_ms"],
    )


def configuration(
    row: Row, before: Row | None, after: Row | None, effects: Sequence[tuple[str, int, int]]
) -> pb.PastConfiguration:
    """Return the message of a configuration, with the decisions made under it and its differences from the previous configuration."""
    found = plain_configuration(row)
    found.until_ms = after["at_ms"] if after is not None else 0
    for policy, decisions, victims in effects:
        found.effects.add(policy=policy, decisions=decisions, victims=victims)
    if before is None:
        found.changes_unknown = "the history begins with it"
        return found
    old, new = _configuration(before), _configuration(row)
    if old is None or new is None:
        found.changes_unknown = "this version cannot read one of the two texts"
        return found
    found.changes.extend(change(one) for one in diff(old, new))
    return found


def _configuration(row: Row) -> Configuration | None:
    if not row["document"]:
        return DEFAULT_CONFIGURATION
    return load(row["document"], "the history")[0]
