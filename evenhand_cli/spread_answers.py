"""The combination of the answers of several groups of cores into one answer (design 7.6)."""

from collections.abc import Sequence
from typing import Any, Final

from google.protobuf.message import Message
from grpc_health.v1 import health_pb2

from evenhand.v1 import decisions_pb2, explain_pb2, inspect_pb2

_SUMMED: Final = ("nodes", "applications", "allocations", "asks")
_SUMMED_MORE: Final = ("recovered_allocations", "recovered_asks")


def join(answers: Sequence[Any]) -> Any:  # noqa: ANN401 - of the type of the answers
    """Return the combination of several answers.

    Lists are joined in the order of the groups, and all other fields come from the first group. If only some groups
    know the requested name, return the answer of a group that knows the name.
    """
    known = [one for one in answers if not _is_unknown(one)] or list(answers)
    whole = type(known[0])()
    whole.CopyFrom(known[0])
    if isinstance(whole, explain_pb2.ExplainResponse):
        return whole
    for one in known[1:]:
        _add(whole, one)
    if isinstance(whole, inspect_pb2.ServerInfoResponse):
        _join_managers(whole)
    if isinstance(whole, health_pb2.HealthCheckResponse):
        serving = health_pb2.HealthCheckResponse.SERVING
        whole.status = next((one.status for one in known if one.status != serving), serving)
    if isinstance(whole, inspect_pb2.CheckConsistencyResponse):
        _join_checks(whole, known)
    if isinstance(whole, decisions_pb2.ListDecisionsResponse):
        whole.decisions.sort(key=lambda one: one.at_ms)
    return whole


def _is_unknown(answer: Message) -> bool:
    if not isinstance(answer, explain_pb2.ExplainResponse):
        return False
    return answer.kind == explain_pb2.SUBJECT_KIND_UNKNOWN


def _add(whole: Message, one: Message) -> None:
    """Add the lists of the answer ``one`` to those of the answer ``whole``, also in messages that are fields of both.

    Set the fields that ``whole`` lacks.
    """
    for field, value in one.ListFields():
        mine = getattr(whole, field.name)
        if field.is_repeated:
            merge = getattr(mine, "MergeFrom", None) or mine.update
            merge(value)
        elif field.message_type is not None and whole.HasField(field.name):
            _add(mine, value)
        elif field.message_type is not None:
            mine.CopyFrom(value)
        elif not mine:
            setattr(whole, field.name, value)


def _join_managers(info: inspect_pb2.ServerInfoResponse) -> None:
    """Combine all rows of a manager into one row, with the sums of its objects and the worst state of its sessions."""
    rows: dict[str, inspect_pb2.ManagerInfo] = {}
    for one in info.managers:
        row = rows.get(one.rm_id)
        if row is None:
            rows[one.rm_id] = one
            continue
        for name in (*_SUMMED, *_SUMMED_MORE):
            setattr(row, name, getattr(row, name) + getattr(one, name))
        row.sync_state = min(row.sync_state, one.sync_state)
        row.last_message_ms = min(row.last_message_ms, one.last_message_ms)
        if one.away_since_ms and (one.away or not row.away):
            row.away, row.away_since_ms = one.away, one.away_since_ms
            del row.open_streams[:]
    joined = list(rows.values())
    del info.managers[:]
    info.managers.extend(joined)


def _join_checks(whole: inspect_pb2.CheckConsistencyResponse, answers: Sequence[Any]) -> None:
    """Keep one entry for each check, and add up the numbers that managers reported."""
    checks = list(dict.fromkeys(whole.checks))
    del whole.checks[:]
    whole.checks.extend(checks)
    for name in _SUMMED_MORE:
        setattr(whole, name, sum(getattr(one, name) for one in answers))
