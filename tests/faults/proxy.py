"""A proxy between shim and core, as a process, that can delay, slow, stall, half-close and cut connections.

    python -m tests.faults.proxy PORT CORE_PORT CONTROL COUNTS

The control file has `delay_ms`, `stalled`, `bytes_per_s`, and the counters `cut` and `half`. When one of the counters
grows, the present connections, or the next one, are cut in the middle of a message, or lose one direction. COUNTS
gets the number of faults that took effect.
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

    def __init__(self, core_port: int, control: Path, counts: Counts) -> None:
        self._core_port = core_port
        self._control = control
        self._counts = counts
        self._due: set[str] = set()
        """The faults that break connections, applied as soon as there is a connection."""
        self._faults: dict[str, int] = {}
        self._flowing = asyncio.Event()
        self._ways: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._halved: set[asyncio.StreamWriter] = set()

    async def serve(self, port: int) -> None:
        """Serve until the process ends."""
        server = await asyncio.start_server(self._join, "127.0.0.1", port)
        async with server:
            while True:
                self._look()
                await asyncio.sleep(LOOK_S)

    def _look(self) -> None:
        """Read the control file; break connections when a counter has grown."""
        before = self._faults
        self._faults = json.loads(self._control.read_text() or "{}")
        if self._of("stalled"):
            self._flowing.clear()
        else:
            self._flowing.set()
        self._due |= {name for name in ("cut", "half") if self._of(name) > before.get(name, 0)}
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

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far = await asyncio.open_connection("127.0.0.1", self._core_port)
        except OSError:
            writer.transport.abort()
            return
        ways = [
            asyncio.create_task(self._pass(reader, far)),
            asyncio.create_task(self._pass(far_reader, writer)),
        ]
        self._ways |= {ways[0]: far, ways[1]: writer}
        await asyncio.wait(ways)
        for way, end in zip(ways, (far, writer), strict=True):
            del self._ways[way]
            self._halved.discard(end)
            end.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on one direction of a connection until that direction ends."""
        try:
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
                writer.write(piece)
                await writer.drain()
            if writer.can_write_eof() and writer not in self._halved:
                writer.write_eof()
        except OSError:
            writer.transport.abort()


if __name__ == "__main__":
    proxy = Proxy(int(sys.argv[2]), Path(sys.argv[3]), Counts(Path(sys.argv[4])))
    asyncio.run(proxy.serve(int(sys.argv[1])))
