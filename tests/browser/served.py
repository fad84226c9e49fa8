"""Cores and consoles as processes, and a proxy between browser and console. A test can cut the connections of the proxy."""

import select
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen
from typing import Final
from urllib.parse import quote, urlencode

from evenhand_cli.connect import connected_core
from evenhand_cli.contexts import Context
from evenhand_console.views import VIEWS
from tests.cli.processes import CONSOLE, SECONDS_MAX, address_of, running, until
from tests.console import record

ANY_PORT: Final = "127.0.0.1:0"
NAMES: Final = (*(one.name for one in VIEWS), "what-if")
"""Every page of the console."""


@dataclass(frozen=True, slots=True)
class Site:
    """A core, the address of its console, and the path of each page with a text that the page shows."""

    core: str
    url: str
    paths: Mapping[str, str]


@contextmanager
def claim_site(folder: Path) -> Iterator[Site]:
    """Run a core and its console. Pods run and wait on the core, and decisions are made."""
    state = ["--state-dir", str(folder), "--history-sample", "1s"]
    with running(["serve", "--listen", ANY_PORT, *state], folder / "core.log") as core:
        address = address_of(core, folder / "core.log")
        with (
            shim_beside(address, folder / "shim.log"),
            console_beside(address, folder / "console.log") as url,
        ):
            yield Site(address, url, _paths(address))


def _paths(address: str) -> dict[str, str]:
    """Return the path of each page once pods run and wait, and a decision was made."""
    with connected_core(Context(core=address), "", SECONDS_MAX) as core:
        until(lambda: record.is_ready(core))
        known = record.known(core)
    given = {
        name: {key: known.get(value, value) for key, value in parameters.items()}
        for name, parameters in record.ADDRESSES.items()
    }
    found = {one.name: f"{one.path}?{urlencode(given.get(one.name, {}))}" for one in VIEWS}
    return found | {"what-if": "/what-if?queue=root.shop"}


def named_paths(name: str) -> dict[str, str]:
    """Return the path of each page for a core whose objects all have one name."""
    given = {"queue": f"queue={quote(f'root.{name}')}", "why": f"key={quote(name)}"}
    found = {one.name: f"{one.path}?{given.get(one.name, 'id=any')}" for one in VIEWS}
    return found | {"what-if": f"/what-if?queue={quote(name)}"}


def shim_beside(core: str, log: Path, *options: str) -> AbstractContextManager[Popen[str]]:
    """Run the shim of the prepared cluster."""
    return running(["shim", "--cluster", str(record.CLUSTER), "--core", core, *options], log)


@contextmanager
def console_beside(core: str, log: Path, *options: str) -> Iterator[str]:
    """Run the console of a core, and yield its address as a URL."""
    with running(["console", "--core", core, "--listen", ANY_PORT, *options], log) as process:
        yield f"http://{address_of(process, log, CONSOLE)}"


class Proxy:
    """A proxy that passes connections of browsers on to `target`. A test can cut open connections and refuse new ones."""

    def __init__(self) -> None:
        self._listens = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listens.getsockname()[1]}"
        self.target = ""
        """The URL of the console; empty: connections are closed at once."""
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    def cut(self) -> None:
        """Close all open connections, and refuse others until `target` is set again."""
        self.target = ""
        with self._lock:
            for one in self._open:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the proxy."""
        self._listens.shutdown(socket.SHUT_RDWR)
        self._accepting.join(SECONDS_MAX)
        self._listens.close()

    def _accept(self) -> None:
        with ExitStack() as passing, suppress(OSError):
            passing.callback(self.cut)
            while True:
                client, _ = self._listens.accept()
                thread = threading.Thread(target=self._pass, args=[client])
                thread.start()
                passing.callback(thread.join, SECONDS_MAX)

    def _pass(self, client: socket.socket) -> None:
        host, _, port = self.target.removeprefix("http://").rpartition(":")
        with client, ExitStack() as stack, suppress(OSError):
            if not host:
                return
            server = stack.enter_context(socket.create_connection((host, int(port)), SECONDS_MAX))
            ends = (client, server)
            with self._lock:
                self._open.update(ends)
            stack.callback(self._forget, ends)
            _copy(client, server)

    def _forget(self, ends: tuple[socket.socket, socket.socket]) -> None:
        with self._lock:
            self._open.difference_update(ends)


def _copy(one: socket.socket, other: socket.socket) -> None:
    """Pass bytes in both directions until one side ends."""
    while True:
        ready, _, _ = select.select([one, other], [], [])
        for source in ready:
            if not (data := source.recv(65536)):
                return
            (other if source is one else one).sendall(data)


@contextmanager
def proxy() -> Iterator[Proxy]:
    """Run a proxy."""
    made = Proxy()
    try:
        yield made
    finally:
        made.close()
