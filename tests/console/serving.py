"""The console as an application in this process, with a client for it."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

from starlette.testclient import TestClient

from evenhand_cli.connect import connected_core
from evenhand_cli.contexts import Context
from evenhand_console.app import Options, make_app
from evenhand_console.connection import Connection
from evenhand_console.protection import Hosts
from evenhand_console.reading import Source
from tests.cli.fake import FakeCore, running

ADDRESS = "127.0.0.1:8080"


@contextmanager
def console(core: FakeCore, *origins: str, token_header: str = "") -> Iterator[TestClient]:
    """Serve the console of a core that runs meanwhile."""
    with running(core), console_of(core.address, *origins, token_header=token_header) as client:
        yield client


@contextmanager
def console_of(address: str, *origins: str, token_header: str = "") -> Iterator[TestClient]:
    """Serve the console of the core at an address."""
    connection = Connection(lambda: connected_core(Context(core=address), "", 5.0), lambda: 0.0)
    app = make_app(Source(connection), Options(Hosts(ADDRESS, origins), token_header))
    base = origins[0] if origins else f"http://{ADDRESS}"
    with (
        closing(connection),
        TestClient(app, base_url=base, raise_server_exceptions=False) as client,
    ):
        yield client
