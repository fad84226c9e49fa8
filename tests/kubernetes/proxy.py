"""A TCP proxy on the loopback before the API server; its connections can be cut."""

import socket
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import yaml

from scripts.real.cluster import Cluster

BYTES = 65_536


class Proxy:
    """A proxy between its port and a server's, which can cut all open connections."""

    def __init__(self, port: int) -> None:
        self._server = ("127.0.0.1", port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._flows = threading.Event()
        self._flows.set()
        self._threads = [threading.Thread(target=self._accept)]

    @property
    def port(self) -> int:
        return int(self._listening.getsockname()[1])

    def __enter__(self) -> "Proxy":
        self._threads[0].start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.mend()
        for thread in self._threads:
            thread.join()

    def cut(self) -> int:
        """Break every open connection and return their number; new connections are accepted."""
        with self._lock:
            open_now = list(self._open)
        for one in open_now:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        return len(open_now) // 2

    def part(self) -> None:
        """Let nothing through from now on: connections stay open and silent, as in a network partition."""
        self._flows.clear()

    def mend(self) -> None:
        """Let new connections through again; data that was under way in the old connections is lost."""
        self.cut()
        self._flows.set()

    def kubeconfig(self, cluster: Cluster, given: Path, folder: Path) -> Path:
        """Write the given kubeconfig with this proxy as its server and return its path."""
        file = folder / "proxied.kubeconfig"
        text = given.read_text().replace(cluster.server, f"https://127.0.0.1:{self.port}")
        assert yaml.safe_load(text)["clusters"][0]["cluster"]["server"].endswith(str(self.port))
        file.write_text(text)
        return file

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return  # The socket was closed.
            try:
                far = socket.create_connection(self._server)
            except OSError:
                near.close()
                continue
            self._join(near, far)

    def _join(self, near: socket.socket, far: socket.socket) -> None:
        """Start a thread for each direction; the thread that ends last closes both sockets."""
        with self._lock:
            self._open |= {near, far}
        ends = threading.Barrier(2)
        for source, sink in ((near, far), (far, near)):
            thread = threading.Thread(target=self._pass, args=(source, sink, ends))
            self._threads.append(thread)
            thread.start()

    def _pass(self, source: socket.socket, sink: socket.socket, ends: threading.Barrier) -> None:
        with suppress(OSError):
            while data := source.recv(BYTES):
                self._flows.wait()
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)
        ends.wait()
        source.close()
        with self._lock:
            self._open.discard(source)
