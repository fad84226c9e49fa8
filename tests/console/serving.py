"""The console as an application in this process, with a client for it."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

from starlette.testclient import TestClient

from evenhand_cli.connect import connected_core
from evenhand_cli.contexts import Context
from evenhand_console.bootstrap import ConsoleSettings, app_of
from evenhand_console.connection import Connection
from evenhand_console.views import VIEWS
from tests.cli.fake import FakeCore, running

ADDRESS = "127.0.0.1:8080"
HERE = ConsoleSettings(ADDRESS)
SELDOM = tuple(replace(one, pause_s=600.0) for one in VIEWS)
"""The views, read again only after an event."""


@contextmanager
def console(
    core: FakeCore,
    *origins: str,
    token_header: str = "",
    token_file: str = "",
    share_identity: bool = False,
) -> Iterator[TestClient]:
    """Run a core, and serve its console."""
    place = ConsoleSettings(ADDRESS, origins, token_header, share_identity)
    with running(core), console_of(core.address, place, token_file) as client:
        yield client


@contextmanager
def console_of(
    address: str,
    place: ConsoleSettings = HERE,
    token: str = "",
    clock: Callable[[], float] = lambda: 0.0,
) -> Iterator[TestClient]:
    """Serve the console of the core at an address; `token` is the file with its own token."""
    context = Context(core=address, token_file=token)
    connection = Connection(lambda _token: connected_core(context, "", 5.0), lambda: 0.0)
    app = app_of(connection, place, clock)
    base = place.origins[0] if place.origins else f"http://{ADDRESS}"
    with (
        closing(connection),
        TestClient(app, base_url=base, raise_server_exceptions=False) as client,
    ):
        yield client
