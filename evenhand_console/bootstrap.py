"""The running console: its clock, and the server of its pages."""

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from typing import NamedTuple

import uvicorn

from evenhand_cli.connect import Opener
from evenhand_console.app import Options, make_app
from evenhand_console.connection import Connection
from evenhand_console.protection import Hosts
from evenhand_console.reading import Source

END_S = 1
"""Seconds that open streams get when the console ends."""
CLIENTS_MAX = 2000
"""Largest number of connections of browsers; further ones are answered with 503."""


class Place(NamedTuple):
    """Where browsers reach the console: its own HOST:PORT, other origins, and the header of a proxy that has the token."""

    address: str
    origins: tuple[str, ...] = ()
    token_header: str = ""


def run(opener: Opener, sock: socket.socket, place: Place) -> None:
    """Serve the console on a socket that listens, until SIGTERM or Ctrl-C."""
    connection = Connection(opener, time.monotonic)
    options = Options(Hosts(place.address, place.origins), place.token_header)
    config = uvicorn.Config(
        make_app(Source(connection), options),
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=CLIENTS_MAX,
        timeout_graceful_shutdown=END_S,
    )
    with contextlib.closing(connection), contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[sock])


def end_with_parent() -> None:
    """End this process when its standard input ends, which happens at the latest when the process that started it ends."""

    def watch() -> None:
        # Not by the buffer of `sys.stdin`, whose lock this thread would hold when the program ends.
        while os.read(sys.stdin.fileno(), 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
