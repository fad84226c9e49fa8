"""The recording of a core's history: the queue of items to write, the thread that writes them, and samples made in copies of the process."""

import asyncio
import importlib.metadata
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Protocol

from server.core.core import Core
from server.core.decider import Decider
from server.history import sampling
from server.history.address import FILE, Address, HistoryError, address
from server.history.feeder import Feeder, Health
from server.history.settings import SECOND_MS, Beginning, Settings
from server.history.tap import InForce, Kind, Queue, Tap
from server.model.reports import Finding
from server.rpc.access import BadOptionError
from server.rpc.errors import CallError
from server.rpc.following import Joining, Replica, State
from server.rpc.reads import Question, Reads
from server.rpc.roles import LOCAL_OPERATOR

OFF: Final = "off"
"""The value of `--history` with which no history is kept."""
ENDED_WHY: Final = "the server ended"
FAILED_WHY: Final = "the core failed"
_VERSION: Final = importlib.metadata.version("evenhand")


class Options(Protocol):
    """The options of the server that the history depends on."""

    @property
    def history(self) -> str:
        """The value of `--history`."""

    @property
    def history_settings(self) -> Settings:
        """The settings of the history."""

    @property
    def state_dir(self) -> Path | None:
        """The folder of `--state-dir`."""

    @property
    def follow(self) -> Joining:
        """The cores that this core may follow."""


class Remembering:
    """The keeper of a core's history. All methods are called in the event loop."""

    def __init__(
        self, core: Core, place: Address, options: Options, replica: Replica, now: Callable[[], int]
    ) -> None:
        settings = options.history_settings
        self._core = core
        self._now = now
        self._sample_s = settings.sample_ms / SECOND_MS
        self._queue = Queue()
        self._feeder = Feeder(self._queue, place, settings, now, self._about)
        self._tap: Tap | None = None
        self._replica = replica
        self._shares = place.file is None and bool(options.follow.leaders)
        self._name = ""
        self.place = place
        replica.rested = self._rested

    def tap(self, decider: Decider) -> Tap:
        """Return a decider that passes all input on to ``decider``, and records the history.

        The pump has to call the returned decider.
        """
        core = self._core  # `core.state` is replaced when the core joins a leader.
        self._tap = Tap(
            decider,
            self._queue,
            lambda: InForce(core.state.revision, core.state.configuration.text),
        )
        return self._tap

    def start(self, listening: str) -> None:
        """Start the thread and its process, and record the configuration in force. ``listening`` is the address of this core."""
        assert self._tap is not None
        self._name = f"{socket.gethostname()}:{listening.rpartition(':')[2]}"
        self._tap.note_configuration(self._now())
        self._feeder.start()

    async def refused(self) -> str:
        """Return why the history can never be used.

        Return "" if the history can be used, even if its database does not answer at the moment.
        """
        return await asyncio.to_thread(self._feeder.wait_opened)

    async def sample(self, reads: Reads) -> None:
        """Take a sample of the core at once, and then at regular intervals."""
        while True:
            await self._sample(reads)
            await asyncio.sleep(self._sample_s)

    def health(self) -> dict[str, Health]:
        """Return the health of the history, for metrics."""
        return self._feeder.health()

    def findings(self) -> Iterator[Finding]:
        """Yield the doctor's findings about the history."""
        return self._feeder.findings()

    def close(self) -> None:
        """Write the queued items and the end of this core's run to the history, and end the writing process."""
        failed = self._tap is not None and self._tap.deciding
        self._feeder.close(FAILED_WHY if failed else ENDED_WHY)

    def _about(self) -> Beginning:
        return Beginning(_VERSION, self._name, self._leads, self._shares)

    @property
    def _leads(self) -> bool:
        return self._replica.state is State.LEADER

    def _rested(self) -> None:
        """Queue an item that says that this core no longer leads."""
        self._queue.put(Kind.FOLLOWS, self._now(), [self._replica.leader])

    async def _sample(self, reads: Reads) -> None:
        if self._shares and not self._leads:
            return
        try:
            await self._take(reads, Kind.SAMPLE, lambda: sampling.usage(self._core, self._now()))
            if self._queue.picture_wanted and self._is_synced():
                self._queue.picture_wanted = False
                self._queue.put(Kind.PICTURE, self._now(), [b""])
                await self._take(
                    reads, Kind.PICTURE, lambda: sampling.pods(self._core, self._queue.number)
                )
        except CallError:
            self._queue.picture_wanted = True  # Too many reads wait, or the copy ended: try again.

    async def _take(self, reads: Reads, kind: Kind, read: Callable[[], bytes]) -> None:
        data = await reads.answer(Question(f"history {kind}", b"", LOCAL_OPERATOR), read)
        self._queue.put(kind, self._now(), [data])

    def _is_synced(self) -> bool:
        managers = self._core.state.managers.values()
        return bool(managers) and all(one.synced for one in managers)


def remembering(
    core: Core, options: Options, replica: Replica, now: Callable[[], int]
) -> Remembering | None:
    """Return the keeper of the history, not yet started, or None without a history. Raise BadOptionError for a wrong address.

    Without `--history`, the history is a file in the folder of `--state-dir`, if that is given.
    """
    folder = options.state_dir
    where = options.history or ("" if folder is None else str(folder / FILE))
    if where in {"", OFF}:
        return None
    try:
        place = address(where)
    except HistoryError as error:
        raise BadOptionError(f"--history: {error}") from error
    return Remembering(core, place, options, replica, now)
