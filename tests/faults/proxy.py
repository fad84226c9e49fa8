"""A proxy between shim and core, as a process, that can delay, slow, stall, half-close and cut connections.

    python -m tests.faults.proxy PORT CORE_PORT CONTROL COUNTS

The control file has `delay_ms`, `stalled`, `bytes_per_s`, and the counters `cut` and `half`. When one of the counters
grows, the present connections, or the next one, are cut in the middle of a message, or lose one direction. COUNTS
gets the number of faults that took effect.

A network that is parted in one direction has two forms. The direction is `there`, from the client to the server, or
`back`. With `lost_there` or `lost_back`, what is sent in that direction is swallowed. A connection that lost something
ends when the fault does. With `held_there` or `held_back`, it arrives when the fault ends. Neither side learns of the
end of the other one through a parted direction.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Final

from tests.faults.counts import Counts

LOOK_S: Final = 0.02
PIECE: Final = 1_460
"""Number of bytes that are passed on at once, as in one packet, so that a cut falls into the middle of a message."""


class Proxy:
    """A proxy that passes bytes on under the faults in force."""

    def __init__(self, core_port: int, counts: Counts) -> None:
        self.port = 0
        """The port on which this proxy listens; 0 before it does."""
        self._core_port = core_port
        self._counts = counts
        self._due: set[str] = set()
        """The faults that break connections, applied as soon as there is a connection."""
        self._faults: dict[str, int] = {}
        self._flowing = asyncio.Event()
        self._changed = asyncio.Event()
        self._torn: set[asyncio.StreamWriter] = set()
        """The ends of connections that lost something in the present fault."""
        self._ways: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._halved: set[asyncio.StreamWriter] = set()

    async def serve(self, port: int, control: Path) -> None:
        """Serve until the process ends, with the faults in a control file."""
        async with await self.listen(port):
            while True:
                self.hurt(_faults_in(control))
                await asyncio.sleep(LOOK_S)

    async def listen(self, port: int) -> asyncio.Server:
        """Return a server on a port, or with 0 on a free one, without a fault."""
        self.hurt({})
        server = await asyncio.start_server(self._join, "127.0.0.1", port)
        self.port = server.sockets[0].getsockname()[1]
        return server

    def end(self) -> None:
        """Cut all connections."""
        self.hurt({})
        for writer in self._ways.values():
            writer.transport.abort()

    def hurt(self, faults: dict[str, int]) -> None:
        """Put these faults in force; break connections when a counter has grown, or when they lost something."""
        before, self._faults = self._faults, faults
        if faults != before:
            self._changed.set()
            self._changed.clear()
        if not self._is_parted("there") and not self._is_parted("back"):
            for writer in self._torn:
                writer.transport.abort()
            self._torn.clear()
        if self._of("stalled"):
            self._flowing.clear()
        else:
            self._flowing.set()
        self._due |= {name for name in ("cut", "half") if self._of(name) > before.get(name, 0)}
        self._break()

    def _break(self) -> None:
        """Cut or half-close the present connections, when that is due."""
        for number, writer in enumerate(list(self._ways.values())):
            if "cut" in self._due:
                writer.transport.abort()
                self._counts.add("connections cut", number % 2)
            elif "half" in self._due and number % 2 and writer.can_write_eof():
                writer.write_eof()
                self._halved.add(writer)
                self._counts.add("connections half-closed")
        if self._ways:
            self._due.clear()

    def _of(self, name: str) -> int:
        return self._faults.get(name, 0)

    def _is_parted(self, way: str) -> bool:
        return bool(self._of(f"lost_{way}") or self._of(f"held_{way}"))

    async def _loses(self, way: str) -> bool:
        """Wait while a direction holds what is sent; return whether it swallows it."""
        if self._is_parted(way):
            self._counts.add("pieces parted")
        while self._of(f"held_{way}"):
            await self._changed.wait()
        return bool(self._of(f"lost_{way}"))

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far = await asyncio.open_connection("127.0.0.1", self._core_port)
        except OSError:
            writer.transport.abort()
            return
        ways = [
            asyncio.create_task(self._pass(reader, far, "there")),
            asyncio.create_task(self._pass(far_reader, writer, "back")),
        ]
        self._ways |= {ways[0]: far, ways[1]: writer}
        await asyncio.wait(ways)
        for way, end in zip(ways, (far, writer), strict=True):
            del self._ways[way]
            self._halved.discard(end)
            self._torn.discard(end)
            end.transport.abort()

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: str
    ) -> None:
        """Pass on one direction of a connection until that direction ends. Pass on the end, too, unless the direction is parted."""
        try:
            await self._pass_data(reader, writer, way)
            if await self._loses(way):
                self._torn.add(writer)
            elif writer.can_write_eof() and writer not in self._halved:
                writer.write_eof()
        except OSError:
            if await self._loses(way):
                self._torn.add(writer)
            else:
                writer.transport.abort()

    async def _pass_data(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: str
    ) -> None:
        while piece := await reader.read(PIECE if self._faults else 1 << 16):
            self._counts.add("pieces delayed", self._of("delay_ms") > 0)
            await asyncio.sleep(self._of("delay_ms") / 1000)
            self._counts.add("pieces held", self._of("stalled"))
            await self._flowing.wait()
            if self._of("bytes_per_s"):
                self._counts.add("pieces narrowed")
                await asyncio.sleep(len(piece) / self._of("bytes_per_s"))
            if writer in self._halved:
                return
            if await self._loses(way):
                self._torn.add(writer)
                continue
            writer.write(piece)
            await writer.drain()


def _faults_in(control: Path) -> dict[str, int]:
    found: dict[str, int] = json.loads(control.read_text() or "{}")
    return found


if __name__ == "__main__":
    proxy = Proxy(int(sys.argv[2]), Counts(Path(sys.argv[4])))
    asyncio.run(proxy.serve(int(sys.argv[1]), Path(sys.argv[3])))
