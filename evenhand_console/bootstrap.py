"""The running console: its clock, and the server of its pages."""

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

import uvicorn
from starlette.types import ASGIApp

from evenhand_console.app import Options, make_app
from evenhand_console.connection import Connection, Open
from evenhand_console.patience import CLIENTS_MAX, impatient
from evenhand_console.protection import Hosts
from evenhand_console.reading import Source

END_S = 1
"""The longest time, in seconds, that the ending console waits for its open streams to end."""


class ConsoleSettings(NamedTuple):
    """The addresses at which browsers reach the console, and the identity with which visitors read from the core."""

    address: str
    """The console's own HOST:PORT."""
    origins: tuple[str, ...] = ()
    """Other addresses at which browsers reach the console."""
    token_header: str = ""
    """The name of the HTTP header in which a proxy sends the visitor's token; "" if no proxy sends tokens."""
    share_identity: bool = False
    """Whether visitors without a token read with the identity of the console even if ``origins`` are given."""
    address_max: int = 0
    """Largest number of connections from one address; 0: no limit."""

    @property
    def shares_identity(self) -> bool:
        """Whether visitors without a token read with the console's own token or certificate.

        The console shares its identity if ``share_identity`` is set. The console also shares its identity if there are no
        ``origins``, because it then serves only this machine.
        """
        return self.share_identity or not self.origins


def app_of(
    connection: Connection, place: ConsoleSettings, clock: Callable[[], float] = time.monotonic
) -> ASGIApp:
    """Return the web application that reads from the core over a connection. ``clock`` returns seconds that never decrease."""
    source = Source(connection, shares_identity=place.shares_identity)
    return make_app(source, Options(Hosts(place.address, place.origins), clock, place.token_header))


def run(opener: Open, sock: socket.socket, place: ConsoleSettings) -> None:
    """Serve the console on a socket that listens, until SIGTERM or Ctrl-C. All instants on its pages are in UTC."""
    os.environ["TZ"] = "UTC"
    time.tzset()
    connection = Connection(opener, time.monotonic)
    config = uvicorn.Config(
        app_of(connection, place),
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=CLIENTS_MAX,
        http=impatient(place.address_max),
        ws="none",
        timeout_graceful_shutdown=END_S,
    )
    with contextlib.closing(connection), contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[sock])


def end_with_parent() -> None:
    """End this process when its standard input ends. The input ends at the latest when the parent process ends."""

    def watch() -> None:
        # This does not read from the buffer of `sys.stdin`, because this thread would hold the buffer's lock when the
        # program ends.
        while os.read(sys.stdin.fileno(), 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
