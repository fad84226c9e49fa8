"""The tables of the history, the same in SQLite and PostgreSQL.

Instants are Unix milliseconds. An end that is not known yet is NULL. The writer assigns identifiers: the upper bits are the number
of the run, the lower bits a counter.
"""

from typing import Final

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, Table, Text

REVISION: Final = "0002"
"""The revision of the schema that this version of the program reads and writes: that of the last migration."""

METADATA: Final = MetaData()

FIXED: Final = "fixed"
"""The key of a table's `info` that names the columns whose values never change.

Replacing a row does not write these columns and their indexes.
"""


def _number(name: str, *, key: bool = False, optional: bool = False) -> Column[int]:
    return Column(
        name,
        BigInteger(),
        primary_key=key,
        nullable=optional,
        autoincrement=False if key else "auto",
    )


def _text(name: str, *, key: bool = False) -> Column[str]:
    return Column(name, Text(), primary_key=key, nullable=False)


RUNS: Final = Table(
    "runs",
    METADATA,
    Column("id", Integer(), primary_key=True),
    _number("started_ms"),
    _number("seen_ms"),
    _number("ended_ms", optional=True),
    _text("why"),
    _text("version"),
)
"""The runs of the core. ``seen_ms`` is the latest instant up to which everything is written."""

FAILOVERS: Final = Table(
    "failovers",
    METADATA,
    _number("id", key=True),
    _number("at_ms"),
    _text("kind"),
    _text("subject"),
    _text("text"),
    _text("facts"),
    _text("core"),
    Index("failovers_at", "at_ms"),
)
"""Starts and ends of cores, changes of the leader, and registrations. ``facts`` is a JSON object of whole numbers.

``core`` is the name of the core, "" in rows of version 0001.
"""

PODS: Final = Table(
    "pods",
    METADATA,
    _number("id", key=True),
    _text("rm_id"),
    _text("partition"),
    _text("pod_key"),
    _text("name"),
    _text("application_id"),
    _text("queue"),
    _text("user_name"),
    _text("resources"),
    _number("priority"),
    _number("asked_ms"),
    _number("placed_ms", optional=True),
    _text("node_id"),
    _number("ended_ms", optional=True),
    _text("end_code"),
    _text("end_text"),
    _text("decision_id"),
    _number("brought"),
    Index("pods_key", "pod_key"),
    Index("pods_name", "name"),
    Index("pods_asked", "asked_ms"),
    Index("pods_ended", "ended_ms"),
    info={
        FIXED: frozenset(
            {
                *("partition", "pod_key", "name", "application_id", "user_name", "resources"),
                "priority",
            }
        )
    },
)
"""The pods: each row describes an ask from its arrival to its end. ``resources`` is a JSON object.

``brought`` is 1 for a pod that already ran when the history first recorded the pod. The waiting time of such a pod is not known.
"""

WAITS: Final = Table(
    "waits",
    METADATA,
    _number("id", key=True),
    _number("pod_id"),
    _text("partition"),
    _text("queue"),
    _text("code"),
    _number("since_ms"),
    _number("until_ms", optional=True),
    Index("waits_pod", "pod_id"),
    Index("waits_since", "since_ms"),
    info={FIXED: frozenset({"pod_id", "partition", "code", "since_ms"})},
)
"""The intervals in which an ask waited for one reason."""

MEASURES: Final = ("usage", "guaranteed", "deserved", "promised", "waiting")
"""The measures of a queue in one resource type."""

USAGE: Final = Table(
    "usage",
    METADATA,
    _number("id", key=True),
    _text("partition"),
    _text("queue"),
    _text("resource_type"),
    _number("step_ms"),
    _number("from_ms"),
    _number("to_ms", optional=True),
    _number("covered_ms"),
    *(_number(name) for name in MEASURES),
    *(_number(f"{name}_rest") for name in MEASURES),
    _number("usage_peak"),
    _number("waiting_peak"),
    Index("usage_series", "partition", "queue", "from_ms"),
    Index("usage_step", "step_ms", "to_ms"),
)
"""The usage of queues by resource type; see `spans`. The type "" counts pods: running pods as usage, waiting pods as waiting."""

DECISIONS: Final = Table(
    "decisions",
    METADATA,
    _text("partition", key=True),
    _text("decision_id", key=True),
    _number("at_ms"),
    _text("policy"),
    _text("queue"),
    _text("state"),
    _number("moved_ms"),
    _text("record"),
    _text("names"),
    Index("decisions_at", "at_ms"),
    Index("decisions_id", "decision_id"),
)
"""The decisions. ``record`` is the whole record as JSON, ``names`` the names of its pods by key."""

VICTIMS: Final = Table(
    "victims",
    METADATA,
    _text("partition", key=True),
    _text("decision_id", key=True),
    _text("pod_key", key=True),
    _number("at_ms"),
    _text("policy"),
    _text("claimant"),
    _text("name"),
    _text("queue"),
    _text("application_id"),
    _text("user_name"),
    _text("resources"),
    _number("ran_ms"),
    _number("stayed"),
    Index("victims_at", "at_ms"),
    Index("victims_key", "pod_key"),
)
"""The victims of decisions; ``stayed`` is 1 for a victim that was vetoed or whose eviction was withdrawn."""

MOVES: Final = Table(
    "moves",
    METADATA,
    _number("id", key=True),
    _text("partition"),
    _text("decision_id"),
    _number("at_ms"),
    _text("state"),
    _text("reason"),
    _text("pod_key"),
    Index("moves_decision", "decision_id"),
    Index("moves_at", "at_ms"),
)
"""The changes of decisions after they were made."""

CONFIGURATIONS: Final = Table(
    "configurations",
    METADATA,
    _number("id", key=True),
    _number("revision"),
    _text("digest"),
    _text("source"),
    _text("applied_by"),
    _number("at_ms"),
    _text("document"),
    Index("configurations_at", "at_ms"),
)

GAPS: Final = Table(
    "gaps",
    METADATA,
    _number("id", key=True),
    _number("from_ms"),
    _number("to_ms"),
    _number("lost"),
    _text("why"),
    Index("gaps_to", "to_ms"),
)
"""The intervals in which records were lost, with the number of lost records and the reason."""
