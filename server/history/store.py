"""The database of the history: its lock, its schema, and the writing of whole rows."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Dialect, Table, text
from sqlalchemy.exc import DatabaseError, OperationalError

from server.history.address import Address, HistoryError, LockedError
from server.history.database import engine, upsert
from server.record.record_file import RecordError, opened

_LOCK: Final = 0x4576656E68616E64
"""The number of the advisory lock that the writer of a PostgreSQL database holds."""
_MIGRATIONS: Final = Path(__file__).parent / "migrations"


class Store:
    """The database of the history. `open` locks the database against other writers and brings its schema up to date."""

    def __init__(self, place: Address) -> None:
        self._place = place
        self._lock: int | None = None
        self._guard: Connection | None = None
        self.engine = engine(place)
        self._statements: dict[Table, str] = {}

    def open(self) -> None:
        """Lock the history and migrate its schema.

        Raise HistoryError if the history cannot be used, and OperationalError if the database cannot be reached at the moment.
        """
        if self._place.file is not None and self._lock is None:
            try:
                self._lock = opened(self._place.file)
            except RecordError as error:
                raise HistoryError(str(error)) from error
        if self._place.file is None:
            self._guard_database()
        try:
            with self.engine.begin() as connection:
                migrate(connection, str(self._place))
        except OperationalError:
            raise
        except DatabaseError as error:
            why = str(error.orig)
            raise HistoryError(f"{self._place}: {why}; name another file or database") from error

    def close(self) -> None:
        """Close all connections and give up the lock."""
        if self._guard is not None:
            self._guard.close()
            self._guard = None
        self.engine.dispose()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def write(self, pending: Mapping[Table, Mapping[object, dict[str, Any]]]) -> None:
        """Write whole rows in one transaction, and replace existing rows with the same keys. Raise SQLAlchemyError if the write fails."""
        with self.engine.begin() as connection:
            for table, rows in pending.items():
                if rows:
                    connection.exec_driver_sql(
                        self._statement(table, connection.dialect), list(rows.values())
                    )

    def _statement(self, table: Table, dialect: Dialect) -> str:
        """Return the statement that writes rows of a table."""
        if table not in self._statements:
            self._statements[table] = upsert(table, dialect)
        return self._statements[table]

    def _guard_database(self) -> None:
        if self._guard is not None:
            self._guard.close()
            self._guard = None
        guard = self.engine.connect()
        taken = guard.execute(text("SELECT pg_try_advisory_lock(:n)"), {"n": _LOCK}).scalar_one()
        guard.commit()
        if not taken:
            guard.close()
            what = "another core writes its history there; give each core a database of its own, or let one follow the other"
            raise LockedError(f"{self._place}: {what}")
        self._guard = guard


def migrate(connection: Connection, place: str) -> None:
    """Bring the schema up to date. Raise HistoryError for a schema of a later version of the program."""
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    known = {one.revision for one in ScriptDirectory.from_config(config).walk_revisions()}
    found = MigrationContext.configure(connection).get_current_revision()
    if found is not None and found not in known:
        raise HistoryError(
            f"{place}: its schema {found} is of a later version of evenhand; start that version, or name another file or"
            " database"
        )
    command.upgrade(config, "head")
