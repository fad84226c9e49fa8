"""The reading of configurations outside the event loop, so that a slow reading does not delay other calls for long.

A separate process reads long texts. Measurements showed that a thread is not enough: parts of PyYAML and of the schema check
(`server.config.shape`) hold Python's interpreter lock without a pause. While a text of 60,000 queues (1.2 MB) was read, the event
loop stood still for up to 297 ms with a thread, and for 5 ms with the process. These times were measured with 2 processors. With
a thread on a loaded machine, the loop stood still for 4.3 s. The process starts with the first long text and ends with the
server. Reading a short text on the loop costs less than sending it to the process.

A text that takes longer than `FIRST_READING_S` is stopped. A second process, which reads such slow texts one after another, reads
the text again from its beginning.
"""

import asyncio
import contextlib
import pickle
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Final
from weakref import WeakValueDictionary

from server.config import Loaded, examine
from server.config.worker import LENGTH_BYTES, SECONDS_MAX, packed
from server.rpc.errors import (
    invalid,
    reading_ended,
    reading_failed,
    reading_took_long,
    too_many,
    too_many_of_yours,
)
from server.rpc.limits import (
    CALLER_READINGS_MAX,
    CONFIGURATION_BYTES_MAX,
    FIRST_READING_S,
    READING_START_S,
    READINGS_MAX,
    SHORT_CONFIGURATION_CHARACTERS,
)
from server.rpc.roles import CALLER, LOCAL_OPERATOR, Caller

_WHAT: Final = "configurations being read"
_BUFFER_BYTES: Final = 1 << 20
_ENDS_MAX: Final = 2
"""The number of times that the process may end while it reads one text. After that, the text counts as the cause.

The first end may have another cause.
"""
_PROGRAM: Final = (
    "import sys; sys.path[:] = sys.argv[1:]; from server.config.worker import main; main()"
)
COMMAND: Final = (sys.executable, "-c", _PROGRAM)
"""The command that starts the process. The module search paths are appended to the command."""


class _Reader:
    """A process that reads one text after another.

    The first text starts the process. If the process ends, the next text restarts it.
    """

    def __init__(self, command: Sequence[str], *, stays: bool) -> None:
        """Make a reader. Without ``stays``, the reader's process ends after each text, which frees the memory of the process."""
        self._command = command
        self._stays = stays
        self._turn = asyncio.Lock()  # The lock is fair: the first task that waits reads first.
        self.process: asyncio.subprocess.Process | None = None

    async def read(self, message: bytes, seconds: float) -> bytes:
        """Return the answer to one message. Messages are answered in the order of calls. An error or cancellation ends the process.

        Raise TimeoutError if the answer takes longer than ``seconds``, EOFError or ConnectionError if the process ends, and
        CallError if no process can be started.
        """
        async with self._turn:
            answer = None
            try:
                process = self.process or await self._started()
                async with asyncio.timeout(seconds):
                    answer = await _exchange(process, message)
            finally:
                if answer is None or not self._stays:
                    await self._end()
        return answer

    async def close(self) -> None:
        """End the process, and wait until a cancelled reading no longer uses the process."""
        await self._end()
        async with self._turn:
            await self._end()

    async def _end(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _started(self) -> asyncio.subprocess.Process:
        """Start a process and wait until it says that it is ready. Raise CallError if the process cannot start or is not ready in time."""
        try:
            process = self.process = await asyncio.create_subprocess_exec(
                *self._command,
                *sys.path,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=_BUFFER_BYTES,
                start_new_session=True,  # Ctrl-C ends the server, and the server ends its process
            )
            assert process.stdout is not None
            async with asyncio.timeout(READING_START_S):
                await process.stdout.readexactly(LENGTH_BYTES)
        except (EOFError, OSError) as error:
            raise reading_failed() from error
        return process


class Readings:
    """The readings of one server, and the two processes that carry them out."""

    def __init__(
        self,
        command: Sequence[str] = COMMAND,
        seconds: float = SECONDS_MAX,
        first_seconds: float = FIRST_READING_S,
    ) -> None:
        self._seconds = seconds
        self._first_seconds = first_seconds
        self._first = _Reader(command, stays=True)
        self._second = _Reader(command, stays=False)
        self._orders: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._callers: list[Caller] = []

    async def read(self, text: str, source: str, field: str = "yaml", order: str = "") -> Loaded:
        """Return the result of reading a text.

        ``order`` is a name. Readings with the same name return in the order in which they were requested.

        Raise CallError in these cases: the text is too long (in ``field`` of the request), there are too many readings at once,
        the text took too long or ended the process twice, or no process could be started.
        """
        check_length(text, field)
        with self._counted(CALLER.get()):
            async with self._in_order(order):
                if len(text) <= SHORT_CONFIGURATION_CHARACTERS:
                    return examine(text, source)
                return await self._read(text, source)

    async def close(self) -> None:
        """End the two processes that read configurations."""
        await self._first.close()
        await self._second.close()

    @contextlib.asynccontextmanager
    async def _in_order(self, order: str) -> AsyncIterator[None]:
        """Wait for the earlier readings with the name ``order``, and make later readings with this name wait for this reading.

        A reading with the name "" does not wait.
        """
        if not order:
            yield
            return
        async with self._orders.setdefault(order, asyncio.Lock()):
            yield

    @contextlib.contextmanager
    def _counted(self, caller: Caller) -> Iterator[None]:
        """Count a reading while it runs. Raise CallError if there are too many readings.

        On an open port, callers cannot be told apart, and only the limit for all readings together applies.
        """
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
        """Return the result of the first process. If the first process takes too long or ends, return the result of the second process."""
        message = packed((text, source))
        answer, ends = None, 0
        with contextlib.suppress(TimeoutError):
            answer, ends = await _attempt(self._first, message, self._first_seconds)
        try:
            while answer is None:
                answer, ended = await _attempt(self._second, message, self._seconds)
                ends += ended
                if ends >= _ENDS_MAX:
                    raise reading_ended()
        except TimeoutError as error:
            raise reading_took_long(self._seconds) from error
        found: Loaded = await asyncio.to_thread(pickle.loads, answer)
        return found


async def _attempt(reader: _Reader, message: bytes, seconds: float) -> tuple[bytes | None, int]:
    """Return the answer of the process, and how often the process ended.

    If there is an answer, the number is 0. Otherwise the number is 1 and the answer is None. Raise TimeoutError if the process
    takes too long.
    """
    try:
        return await reader.read(message, seconds), 0
    except (EOFError, ConnectionError):
        return None, 1


async def _exchange(process: asyncio.subprocess.Process, message: bytes) -> bytes:
    """Send one message to a process and return its answer."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(message)
    await process.stdin.drain()
    head = await process.stdout.readexactly(LENGTH_BYTES)
    return await process.stdout.readexactly(int.from_bytes(head))


def check_length(text: str, field: str) -> None:
    """Raise CallError for a text that is too long, in ``field`` of the request."""
    if len(text.encode()) > CONFIGURATION_BYTES_MAX:
        limit = f"is longer than {CONFIGURATION_BYTES_MAX} bytes"
        raise invalid("INVALID_CONFIGURATION", (field, limit))
