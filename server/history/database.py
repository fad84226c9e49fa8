"""Connections to the database of the history: one connection writes, all others only read.

SQLite writes to a log first (WAL), so that readers do not wait for the writer, and the writer does not wait for readers.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from sqlalchemy import Connection, Dialect, Engine, Table, create_engine, event, make_url
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.pool import NullPool, QueuePool
from sqlalchemy.sql.dml import Insert

from server.history.address import Address, HistoryError
from server.history.schema import FIXED

BUSY_S: Final = 5.0
"""The seconds for which SQLite waits for a lock of another process."""
CACHE_KIB: Final = 8 << 10
"""The KiB of pages that the writer of a file keeps in memory."""
CONNECT_S: Final = 5
"""The seconds that opening a connection to PostgreSQL may take."""


def engine(place: Address, *, read_only: bool = False) -> Engine:
    """Return an engine. A read-only engine of SQLite fails if there is no file, and at every write."""
    if place.file is None:
        options = "-c default_transaction_read_only=on" if read_only else ""
        arguments = {"connect_timeout": CONNECT_S, "options": options}
        try:
            url = make_url(place.text)
        except ArgumentError as error:
            raise HistoryError(f"{place}: it is no URL") from error
        return create_engine(url, connect_args=arguments, pool_size=2, max_overflow=0)
    uri = f"{place.file.as_uri()}?mode={'ro' if read_only else 'rwc'}"

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(uri, uri=True, timeout=BUSY_S, check_same_thread=False)

    if read_only:
        return create_engine("sqlite://", creator=connect, poolclass=NullPool)
    # One connection stays open. When the last connection closes, SQLite copies the log into the file and drops the
    # cached pages.
    made = create_engine(
        "sqlite://", creator=connect, poolclass=QueuePool, pool_size=1, max_overflow=0
    )
    event.listen(made, "connect", _write_ahead)
    event.listen(made, "begin", _begin)
    return made


def _begin(connection: Connection) -> None:
    """Begin a transaction.

    The driver itself begins no transaction before statements that change the schema. Without this function, a failed migration
    could leave a part of its changes.
    """
    connection.exec_driver_sql("BEGIN")


def _write_ahead(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # The driver begins no transaction by itself.
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(
        "PRAGMA synchronous=FULL"
    )  # A transaction that was committed survives a loss of power.
    connection.execute(f"PRAGMA cache_size=-{CACHE_KIB}")


def upsert(table: Table, dialect: Dialect) -> str:
    """Return the statement that inserts rows, and replaces existing rows with the same keys.

    The parameters of the statement have the names of columns.

    The function returns a text and no statement object of SQLAlchemy, because SQLAlchemy examines each row that it inserts with
    a statement object.
    """
    kind = sqlite if dialect.name == "sqlite" else postgresql
    made: Any = kind.insert(table)
    keys = {one.name for one in table.primary_key}
    fixed = keys | table.info.get(FIXED, frozenset())
    others = {one.name: made.excluded[one.name] for one in table.columns if one.name not in fixed}
    statement: Insert = made.on_conflict_do_update(index_elements=sorted(keys), set_=others)
    named = sqlite.dialect(paramstyle="named") if kind is sqlite else dialect
    return str(statement.compile(dialect=named))


def reason_of(error: SQLAlchemyError) -> str:
    """Return why the database failed, in one line and without the statement."""
    original: Any = getattr(error, "orig", None) or error
    return " ".join(str(original).split())


@contextmanager
def reading(place: Address) -> Iterator[Connection]:
    """Provide a connection that only reads. Raise OperationalError if there is no history to read yet."""
    made = engine(place, read_only=True)
    try:
        with made.connect() as connection:
            yield connection
    finally:
        made.dispose()
