"""Reads of decisions, lost work, configurations and fail-overs."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sqlalchemy import Column, ColumnElement, Connection, Table, func, select, tuple_

from server.history import schema
from server.history.decided import record_of
from server.history.pods import resource_of
from server.history.reading import Period, within
from server.model.records import DecisionRecord, Lost, LostLine, lost_by
from server.record.serialization import BadFormError

VICTIMS_MAX: Final = 500_000
"""The largest number of victims whose lost work one answer sums up."""

Row = Mapping[str, Any]


def failovers(connection: Connection, when: Period, start: int, size: int) -> list[Row]:
    """Return the rows of the core's starts and ends and of the managers' registrations in the period, the latest first."""
    table = schema.FAILOVERS
    own = within(table.c.at_ms, when)
    ordered = select(table).where(own).order_by(table.c.at_ms.desc(), table.c.id.desc())
    found = connection.execute(ordered.offset(start).limit(size)).mappings()
    return [{**one, "facts": json.loads(one["facts"])} for one in found]


# Configurations -------------------------------------------------------------------------------------------------------


def configurations(
    connection: Connection, when: Period, start: int, size: int
) -> list[tuple[Row, Row | None, Row | None]]:
    """Return the configurations that came into force in the period, the latest first, each with its predecessor and successor."""
    table = schema.CONFIGURATIONS
    every = [
        dict(one)
        for one in connection.execute(
            select(table).order_by(table.c.at_ms.desc(), table.c.id.desc())
        ).mappings()
    ]
    found: list[tuple[Row, Row | None, Row | None]] = []
    for at, one in enumerate(every):
        if when.since_ms <= one["at_ms"] <= when.until_ms:
            before = every[at + 1] if at + 1 < len(every) else None
            found.append((one, before, every[at - 1] if at else None))
    return found[start : start + size]


def configuration(connection: Connection, revision: int) -> Row | None:
    """Return the latest configuration with this revision number."""
    table = schema.CONFIGURATIONS
    ordered = select(table).where(table.c.revision == revision).order_by(table.c.id.desc()).limit(1)
    found = connection.execute(ordered).mappings().first()
    return None if found is None else dict(found)


def effects(connection: Connection, since_ms: int, until_ms: int) -> list[tuple[str, int, int]]:
    """Return, by policy, the number of decisions made in an interval, and the number of their victims that were evicted."""
    table, victims = schema.DECISIONS, schema.VICTIMS
    inside = (table.c.at_ms >= since_ms) & (table.c.at_ms < until_ms)
    made = _counts(connection, table.c.policy, inside)
    inside = (victims.c.at_ms >= since_ms) & (victims.c.at_ms < until_ms) & (victims.c.stayed == 0)
    evicted = _counts(connection, victims.c.policy, inside)
    return [(policy, made[policy], evicted.get(policy, 0)) for policy in sorted(made)]


def _counts(
    connection: Connection, column: Column[str], own: ColumnElement[bool]
) -> dict[str, int]:
    """Return how many rows have each value of a column."""
    statement = select(column, func.count()).where(own).group_by(column)
    return {value: int(count) for value, count in connection.execute(statement)}


# Lost work ------------------------------------------------------------------------------------------------------------


def lost_work(
    connection: Connection, when: Period, partition: str, policy: str
) -> dict[str, list[LostLine]]:
    """Return, by partition, the lines of the work lost to evictions that were ordered in the period.

    The lines are split by user and application of the victims.
    """
    table = schema.VICTIMS
    own = _made(table, when, partition, policy) & (table.c.stayed == 0)
    statement = select(table).where(own).order_by(table.c.at_ms.desc()).limit(VICTIMS_MAX)
    found: dict[tuple[str, ...], tuple[Lost, Counter[str]]] = {}
    for row in connection.execute(statement).mappings():
        owner = (row["user_name"], row["application_id"])
        line = (row["partition"], row["policy"], row["claimant"], row["queue"], *owner)
        resource = tuple(sorted(resource_of(row["resources"]).items()))
        lost, amounts = found.get(line, (Lost(), Counter[str]()))
        amounts.update({kind: amount * row["ran_ms"] for kind, amount in resource})
        found[line] = (lost.plus(lost_by(resource, row["ran_ms"])), amounts)
    lines: dict[str, list[LostLine]] = {}
    for (name, how, claimant, victim, user, application), (lost, amounts) in sorted(found.items()):
        lines.setdefault(name, []).append(
            LostLine(how, claimant, victim, lost, amounts, user, application)
        )
    return lines


# Decisions ------------------------------------------------------------------------------------------------------------


class ListingKey(NamedTuple):
    """The place of a decision in the order of a listing."""

    at_ms: int
    partition: str
    decision_id: str


class Kept(NamedTuple):
    """A decision of the history, with the names of its pods by key.

    ``record`` is None if a later version of the program wrote the record.
    """

    place: ListingKey
    record: DecisionRecord | None
    names: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Which:
    """The decisions of a listing: made in a period, of a partition and a policy ("" for all), after a place in the order."""

    when: Period
    partition: str = ""
    policy: str = ""
    after: ListingKey | None = None
    latest_first: bool = False


def decisions(connection: Connection, which: Which, size: int) -> Iterator[Kept]:
    """Yield decisions in the order of their instants. At most ``size`` rows are read at once."""
    table, after = schema.DECISIONS, which.after
    key = (table.c.at_ms, table.c.partition, table.c.decision_id)
    order = [one.desc() for one in key] if which.latest_first else [*key]
    own = _made(table, which.when, which.partition, which.policy)
    while True:
        rest = own if after is None else own & _beyond(key, after, back=which.latest_first)
        ordered = select(table).where(rest).order_by(*order).limit(size)
        found = connection.execute(ordered).mappings().all()
        for row in found:
            after = ListingKey(row["at_ms"], row["partition"], row["decision_id"])
            yield Kept(after, *(_decision(row) or (None, {})))
        if len(found) < size:
            return


def _beyond(key: Sequence[Column[Any]], after: ListingKey, *, back: bool) -> ColumnElement[bool]:
    """Return the SQL condition that a row comes after a place in the order of a listing.

    The first part of the condition lets the database use the index of instants.
    """
    if back:
        return (key[0] <= after.at_ms) & (tuple_(*key) < tuple_(*after))
    return (key[0] >= after.at_ms) & (tuple_(*key) > tuple_(*after))


def decision(
    connection: Connection, decision_id: str
) -> tuple[DecisionRecord, Mapping[str, str]] | None:
    """Return a decision with the names of its pods by key. Return None if the history does not have the decision."""
    table = schema.DECISIONS
    row = (
        connection.execute(select(table).where(table.c.decision_id == decision_id))
        .mappings()
        .first()
    )
    return None if row is None else _decision(row)


def _decision(row: Any) -> tuple[DecisionRecord, Mapping[str, str]] | None:  # noqa: ANN401 - a row
    try:
        return record_of(row["record"]), json.loads(row["names"])
    except BadFormError:
        return None  # A later version of the program wrote this record.


def _made(table: Table, when: Period, partition: str, policy: str) -> ColumnElement[bool]:
    """Return the SQL condition that a decision was made in the period. An empty partition or policy does not restrict the decisions."""
    own = within(table.c.at_ms, when)
    if partition:
        own &= table.c.partition == partition
    if policy:
        own &= table.c.policy == policy
    return own
