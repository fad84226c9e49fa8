"""The beginning and end of a run in the history, and the open pods and decisions that a run takes over from earlier runs."""

import json
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update

from server.history import schema
from server.history.decided import record_of
from server.history.ledger import Ledger
from server.history.pods import Pod, Wait, resource_of
from server.history.starts import LEADS, Before
from server.model.records import DecisionState
from server.record.serialization import BadFormError

_OPEN = tuple(one.value for one in DecisionState if one.is_open)


def latest(connection: Connection) -> Before | None:
    """Return the end of the latest run, or None if there was no run."""
    table = schema.RUNS
    row = connection.execute(select(table).order_by(table.c.id.desc()).limit(1)).mappings().first()
    return None if row is None else Before(row["seen_ms"], row["ended_ms"] is not None)


def begin(connection: Connection, now: int, version: str) -> int:
    """Add a run that begins at ``now``, and return its number.

    End the open series of usage of the previous run at the instant at which the previous run ended.
    """
    before = latest(connection)
    table = schema.USAGE
    if before is not None:
        is_open = table.c.to_ms.is_(None)
        connection.execute(delete(table).where(is_open & (table.c.from_ms >= before.seen_ms)))
        covered = before.seen_ms - table.c.from_ms
        connection.execute(
            update(table).where(is_open).values(to_ms=before.seen_ms, covered_ms=covered)
        )
    number = (
        connection.execute(select(func.coalesce(func.max(schema.RUNS.c.id), 0))).scalar_one() + 1
    )
    row = {"id": number, "started_ms": now, "seen_ms": now, "why": "", "version": version}
    connection.execute(insert(schema.RUNS), [row])
    return int(number)


def seen(connection: Connection, run: int, now: int) -> None:
    """Record that everything up to ``now`` is written."""
    table = schema.RUNS
    connection.execute(update(table).where(table.c.id == run).values(seen_ms=now))


def ended(connection: Connection, run: int, now: int, why: str) -> None:
    """Record the end of a run, with the reason ``why``."""
    table = schema.RUNS
    values = {"seen_ms": now, "ended_ms": now, "why": why}
    connection.execute(update(table).where(table.c.id == run).values(**values))


def load(connection: Connection, ledger: Ledger) -> None:
    """Give a ledger the pods, waits and decisions that earlier runs left open, and the latest configuration."""
    pods, waits = schema.PODS, schema.WAITS
    found: dict[int, Pod] = {}
    for row in connection.execute(select(pods).where(pods.c.ended_ms.is_(None))).mappings():
        pod = found[row["id"]] = _pod(row)
        ledger.pods.add(pod)
    for row in connection.execute(select(waits).where(waits.c.until_ms.is_(None))).mappings():
        if row["pod_id"] in found:
            found[row["pod_id"]].wait = Wait(row["id"], row["code"], row["since_ms"], is_kept=True)
    decisions = schema.DECISIONS
    for row in connection.execute(select(decisions).where(decisions.c.state.in_(_OPEN))).mappings():
        try:
            ledger.decisions.adopt(record_of(row["record"]), json.loads(row["names"]))
        except BadFormError:
            continue  # Another version of the program wrote this decision. Its row stays as it is.
    _load_term(connection, ledger)
    table = schema.CONFIGURATIONS
    last = connection.execute(select(table).order_by(table.c.id.desc()).limit(1)).mappings().first()
    if last is not None:
        ledger.configured(last["revision"], last["digest"])


def _load_term(connection: Connection, ledger: Ledger) -> None:
    table = schema.FAILOVERS
    latest = select(table).where(table.c.kind == LEADS).order_by(table.c.id.desc()).limit(1)
    for row in connection.execute(latest).mappings():
        if "until_ms" not in json.loads(row["facts"]):
            ledger.starts.adopt(dict(row))


def _pod(row: Any) -> Pod:  # noqa: ANN401 - a row, as a mapping
    return Pod(
        number=row["id"],
        rm_id=row["rm_id"],
        partition=row["partition"],
        key=row["pod_key"],
        name=row["name"],
        application_id=row["application_id"],
        queue=row["queue"],
        user=row["user_name"],
        resource=tuple(sorted(resource_of(row["resources"]).items())),
        priority=row["priority"],
        asked_ms=row["asked_ms"],
        arrived_ms=row["asked_ms"],
        placed_ms=row["placed_ms"],
        node_id=row["node_id"],
        decision_id=row["decision_id"],
        is_brought=bool(row["brought"]),
    )
