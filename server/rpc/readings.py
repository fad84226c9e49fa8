"""Readings of configurations off the event loop, one after the other, in the order in which they were asked for.

A long text is read by a process of its own. A thread was measured and is not enough: parts of PyYAML and of the check
of the shape hold Python's lock without a break. Beside a text of 60,000 queues (1.2 MB) the event loop stood still for
up to 297 ms with a thread and for 5 ms with the process (2 processors; a loaded machine made it 4.3 s with a thread).
The process starts with the first long text and stays; it ends with the server. A short text costs less on the loop
than its way to the process.
"""

import asyncio
import contextlib
import pickle
import sys
from collections.abc import Iterator, Sequence
from typing import Final

from server.config import Loaded, examine
from server.config.worker import LENGTH_BYTES, SECONDS_MAX, packed
from server.rpc.failures import (
    invalid,
    reading_failed,
    reading_took_long,
    too_many,
    too_many_of_yours,
)
from server.rpc.limits import (
    CALLER_READINGS_MAX,
    CONFIGURATION_BYTES_MAX,
    READINGS_MAX,
    SHORT_CONFIGURATION_CHARACTERS,
)
from server.rpc.roles import CALLER, LOCAL_OPERATOR, Caller

_WHAT: Final = "configurations being read"
_BUFFER_BYTES: Final = 1 << 20
_PROGRAM: Final = (
    "import sys; sys.path[:] = sys.argv[1:]; from server.config.worker import main; main()"
)
COMMAND: Final = (sys.executable, "-c", _PROGRAM)
"""How the process is started; where modules are found follows."""


class Readings:
    """The readings of one server, and the process that does them."""

    def __init__(self, command: Sequence[str] = COMMAND, seconds: float = SECONDS_MAX) -> None:
        self._command = command
        self._seconds = seconds
        self._turn = asyncio.Lock()  # fair: who asked first reads first
        self._callers: list[Caller] = []
        self.process: asyncio.subprocess.Process | None = None
        """The process that reads; there is none before the first long text."""

    @property
    def waiting(self) -> int:
        """Readings that are under way or wait for their turn."""
        return len(self._callers)

    async def read(self, text: str, source: str, field: str = "yaml") -> Loaded:
        """Return what a text says. Of two readings the one that was asked for first returns first.

        Raises CallError for a text too long (in ``field`` of the request), for too many readings at once, and when the
        process took too long or ended.
        """
        check_length(text, field)
        with self._counted(CALLER.get()):
            async with self._turn:
                if len(text) <= SHORT_CONFIGURATION_CHARACTERS:
                    return examine(text, source)
                return await self._read(text, source)

    async def close(self) -> None:
        """End the process."""
        process, self.process = self.process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    @contextlib.contextmanager
    def _counted(self, caller: Caller) -> Iterator[None]:
        """Count a reading while it lasts; on an open port callers are not told apart."""
        if caller is not LOCAL_OPERATOR and self._callers.count(caller) >= CALLER_READINGS_MAX:
            raise too_many_of_yours(_WHAT, caller.name, CALLER_READINGS_MAX)
        if len(self._callers) >= READINGS_MAX:
            raise too_many(_WHAT, READINGS_MAX)
        self._callers.append(caller)
        try:
            yield
        finally:
            self._callers.remove(caller)

    async def _read(self, text: str, source: str) -> Loaded:
        """Let the process read; whatever ends this early ends the process, and the next reading starts another one."""
        is_read = False
        try:
            async with asyncio.timeout(self._seconds):
                answer = await self._exchange(packed((text, source)))
            is_read = True
        except TimeoutError as error:
            raise reading_took_long(self._seconds) from error
        except (EOFError, OSError) as error:
            raise reading_failed() from error
        finally:
            if not is_read:
                await self.close()
        found: Loaded = await asyncio.to_thread(pickle.loads, answer)
        return found

    async def _exchange(self, message: bytes) -> bytes:
        """Send one message to the process and return its answer."""
        if self.process is None:
            self.process = await asyncio.create_subprocess_exec(
                *self._command,
                *sys.path,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=_BUFFER_BYTES,
                start_new_session=True,  # Ctrl-C ends the server, and that its process
            )
        process = self.process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(message)
        await process.stdin.drain()
        head = await process.stdout.readexactly(LENGTH_BYTES)
        return await process.stdout.readexactly(int.from_bytes(head))


def check_length(text: str, field: str) -> None:
    """Raise CallError for a text too long, in ``field`` of the request."""
    if len(text) > CONFIGURATION_BYTES_MAX:
        limit = f"is longer than {CONFIGURATION_BYTES_MAX} characters"
        raise invalid("INVALID_CONFIGURATION", (field, limit))
