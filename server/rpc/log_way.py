"""The transport through an input log: the leader writes its input to an engine, and followers read it there (design 7.4)."""

import asyncio
from collections import deque
from contextlib import aclosing, suppress
from itertools import count
from typing import Final

import structlog
from nats.aio.msg import Msg

from server.replication.applying import LostError
from server.replication.feed import Feed, Follower, Slice
from server.replication.log import (
    Access,
    Assembly,
    Begun,
    Mark,
    Message,
    beginning,
    messages,
    process_of,
    term_of,
)
from server.rpc import log_engine
from server.rpc.errors import CallError
from server.rpc.following import Followed, LogState, ended
from server.rpc.log_engine import SLOTS, AwayError, Link, RefusedError, Tail
from server.rpc.reads import Question, Reads
from server.rpc.roles import LOCAL_OPERATOR
from server.state.pickled import BadCheckpointError

_log = structlog.get_logger(__name__)

SILENT_S: Final = 1.0
"""The seconds without a message after which the end of the log is looked up."""
RETRY_S: Final = 0.25
RETRY_S_MAX: Final = 2.0
"""The least and the largest number of seconds between two attempts to reach an engine that is away. The pause doubles after each failure."""
TAKE_OVER_S: Final = 2.0
"""The seconds that a core tries to read the log to its end before it leads."""
FINISH_S: Final = 1.0
"""The seconds in which a core that ends may write its waiting slices."""
WINDOW: Final = 64
"""The largest number of messages that wait for their acknowledgements at once."""
CHECKPOINT_S: Final = 60.0
CHECKPOINT_MESSAGES: Final = 5_000
"""The seconds and the number of messages after which a leader writes a checkpoint, whichever limit is reached first.

A leader without new input writes no checkpoint.
"""


class FencedError(Exception):
    """The error of a leader whose term has ended, because another core has begun a new term."""


class LogWay:
    """The transport of one core through a log. A follower reads the log. A leader writes to the log, and never waits for the engine."""

    def __init__(
        self, access: Access, followed: Followed, feed: Feed, reads: Reads, name: str
    ) -> None:
        self._access = access
        self._label = str(access.address)
        self._followed = followed
        self._feed = feed
        self._reads = reads
        self._name = name
        self._process = followed.replica.process
        self._numbers = count(1)
        self._state = followed.replica.log = LogState(self._label)
        self._reader = _Reader(followed, feed, self._state)
        self._writer: _Writer | None = None
        self._link: Link | None = None
        self._failures = 0

    async def follow(self) -> None:
        """Read the log, until cancelled: the newest checkpoint that can be read, then the messages after it."""
        while True:
            try:
                await self._follow(await self._connected())
            except (AwayError, RefusedError) as error:
                self._away(str(error))
            except LostError as error:
                self._reader.lost(str(error))
            finally:
                self._followed.cut()
                await self._disconnect()
            await self._rest()

    async def _follow(self, link: Link) -> None:
        self._back()
        state = self._state
        state.last_sequence = await link.last()
        if self._reader.is_joined:
            self._followed.cut(is_cut=False)
            self._followed.heard(self._feed.position + (state.sequence < state.last_sequence))
        else:
            await self._reader.join(link)
        async with aclosing(link.read(state.sequence, SILENT_S)) as found:
            async for message in found:
                if message is None:
                    await self._look(link)
                    continue
                await self._reader.take(message)
                await asyncio.sleep(0)  # Other calls are answered between two messages.

    async def _look(self, link: Link) -> None:
        """Look up the end of the log. Raise AwayError if the log has messages that were not delivered."""
        self._state.last_sequence = await link.last()
        if self._state.last_sequence != self._state.sequence:
            raise AwayError("the engine no longer delivers messages")
        self._followed.heard(self._feed.position)

    async def take_over(self) -> None:
        """Read the log to its end, and begin a term there, so that the previous leader can write nothing more.

        If that is not possible in a short time, this core leads nevertheless, and `lead` begins the term.
        """
        try:
            async with asyncio.timeout(TAKE_OVER_S):
                await self._take_over(await self._connected())
        except (AwayError, RefusedError) as error:
            self._away(str(error))
        except TimeoutError:
            self._away(f"the log could not be read to its end in {TAKE_OVER_S:.0f} s")
        except LostError as error:
            self._reader.lost(str(error))
        if self._writer is None:
            await self._disconnect()

    async def _take_over(self, link: Link) -> None:
        while self._reader.is_joined:
            tail = await link.tail()
            await self._read_to(link, tail.last)
            writer = _Writer(self._feed, self._next_term())
            begun = Begun(writer.term, self._name, self._feed.position, continues=True)
            try:
                writer.begin(await link.append(beginning(begun), self._state.sequence))
            except RefusedError:
                writer.close()
                continue
            except BaseException:
                writer.close()
                raise
            self._lead_with(writer)
            return
        tail = await link.tail()
        self._state.sequence, self._reader.term = tail.last, tail.term

    async def _read_to(self, link: Link, last: int) -> None:
        if self._state.sequence >= last:
            return
        async with aclosing(link.read(self._state.sequence, SILENT_S)) as found:
            async for message in found:
                if message is not None:
                    await self._reader.take(message)
                if self._state.sequence >= last:
                    return

    def _next_term(self) -> str:
        return term_of(self._process, next(self._numbers))

    def _lead_with(self, writer: "_Writer") -> None:
        self._writer = writer
        self._reader.leave(writer.term)
        self._state.leader = self._name
        self._wrote(writer)

    def _wrote(self, writer: "_Writer") -> None:
        self._state.sequence = self._state.last_sequence = writer.at
        self._state.position = writer.position

    async def lead(self) -> str:
        """Write the input of this core to the log. Return once another core has begun a term."""
        while True:
            try:
                await self._write()
            except FencedError:
                await self._leave()
                return self._label
            except (AwayError, RefusedError) as error:
                self._away(str(error))
            except Exception as error:
                # Whatever happens to the log, this core continues to decide.
                _log.exception("log-failed")
                self._away(repr(error))
            await self._leave()
            await self._rest()

    async def _write(self) -> None:
        link = self._link or await self._connected()
        if self._writer is None:
            await self._recover(link)
        writer = self._writer
        assert writer is not None
        self._back()
        keeper = asyncio.create_task(self._keep(link, writer))
        try:
            while True:
                try:
                    await writer.write(link)
                except RefusedError as error:
                    await self._check(link)
                    raise AwayError(f"a message was refused: {error}") from error
                self._wrote(writer)
                if await writer.is_idle(SILENT_S) and await link.last() != writer.at:
                    await self._check(link)
                    raise AwayError("the log has other messages than this core wrote")
        finally:
            await ended(keeper)

    async def _check(self, link: Link) -> Tail:
        """Return the end of the log. Raise FencedError if another core has begun a term since this core read or wrote last.

        There is one exception: if this core never read which term was in force, it continues to lead while a manager has a stream
        to it.
        """
        tail = await link.tail()
        if tail.last <= self._state.sequence or not tail.term:
            return tail
        if process_of(tail.term) == self._process:
            return tail
        known = self._reader.term
        if self._followed.replica.is_free or (known and tail.term != known):
            raise FencedError
        return tail

    async def _recover(self, link: Link) -> None:
        """Begin a term with a checkpoint, because the log lacks input of this core."""
        tail = await self._check(link)
        writer = _Writer(self._feed, self._next_term())
        try:
            mark = Mark(writer.term, tail.last, self._name, self._followed.now())
            await self._store(link, mark)
            begun = Begun(writer.term, self._name, writer.joined_at, continues=False)
            writer.begin(await link.append(beginning(begun), tail.last))
        except BaseException:
            writer.close()
            raise
        self._state.gaps += 1
        self._lead_with(writer)
        _log.warning("log-gap", log=self._label, position=writer.joined_at)

    async def _keep(self, link: Link, writer: "_Writer") -> None:
        """Write checkpoints at intervals, and remove the messages that are older than the last two checkpoints."""
        while True:
            await writer.checkpoint_due()
            mark = Mark(writer.term, writer.at, self._name, self._followed.now())
            self._feed.renew()
            try:
                await self._store(link, mark)
            except (AwayError, RefusedError) as error:
                _log.warning("log-checkpoint-failed", log=self._label, why=str(error))

    async def _store(self, link: Link, mark: Mark) -> None:
        """Make a checkpoint in a copy of this process, write it, and trim the log."""
        question = Question("Log", str(next(self._numbers)).encode(), LOCAL_OPERATOR)
        try:
            data = await self._reads.answer(question, lambda: b"".join(self._feed.checkpoint()))
        except CallError as error:
            raise AwayError(f"no checkpoint could be made: {error.message}") from error
        held = await link.checkpoints()
        slot = next((one for one in SLOTS if not held or one != held[0].slot), SLOTS[0])
        try:
            await link.store(slot, data, mark)
        except AwayError:
            # The store may be full. Removing messages that the newest checkpoint replaces makes space for the next attempt.
            if held:
                await link.trim(held[0].mark.after + 1)
            raise
        self._state.checkpoint_sequence, self._state.checkpoint_ms = mark.after, mark.made_ms
        if held:
            await link.trim(min(mark.after, held[0].mark.after) + 1)

    async def finish(self) -> None:
        """Write the waiting slices, and close the connection."""
        if self._writer is not None and self._link is not None:
            with suppress(AwayError, RefusedError, TimeoutError):
                async with asyncio.timeout(FINISH_S):
                    await self._writer.write(self._link)
        await self._leave()

    async def _connected(self) -> Link:
        await self._disconnect()
        self._link = await log_engine.connect(self._access, self._name)
        return self._link

    async def _disconnect(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            await link.close()

    async def _leave(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        await self._disconnect()

    async def _rest(self) -> None:
        """Wait before the next attempt, longer after each failure."""
        await asyncio.sleep(min(RETRY_S * 2**self._failures, RETRY_S_MAX))
        self._failures = min(self._failures + 1, 10)

    def _away(self, why: str) -> None:
        if not self._state.away_since_ms:
            self._state.away_since_ms = self._followed.now()
            _log.warning("log-away", log=self._label, why=why)
        self._state.connected, self._state.why = False, why

    def _back(self) -> None:
        self._failures = 0
        if self._state.away_since_ms:
            _log.info("log-back", log=self._label)
        self._state.connected, self._state.away_since_ms, self._state.why = True, 0, ""


class _Reader:
    """The reader of the log.

    The reader records in ``state`` the number of the last message that it read, and the leader that wrote this message.
    """

    def __init__(self, followed: Followed, feed: Feed, state: LogState) -> None:
        self._followed = followed
        self._feed = feed
        self._state = state
        self._assembly = Assembly()
        self._base = ""
        self._bad: set[str] = set()
        self._told = ""
        self.is_joined = False
        """Whether the core has exactly the input up to the last message that was read."""
        self.term = ""
        """The term of the last message that was read, or written by this core."""

    async def join(self, link: Link) -> None:
        """Take over the newest checkpoint that can be read. Raise LostError if no checkpoint can be read.

        Until the core has read the last message that is known to be in the log, it counts as a follower that is behind.
        """
        tail = await link.tail()
        why = "it has no checkpoint yet"
        for held in await link.checkpoints():
            mark = held.mark
            if held.version in self._bad or mark.after > tail.last or mark.after + 1 < tail.first:
                why = "no checkpoint fits the messages that are there"
                continue
            data = await link.fetch(held)
            ahead = int(mark.after < self._state.last_sequence)
            try:
                self._followed.begin(self._state.address, data, ahead)
            except BadCheckpointError as error:
                self._bad.add(held.version)
                why = f"the checkpoint cannot be read: {error}"
                continue
            self._assembly = Assembly()
            self._base, self._told, self.is_joined = held.version, "", True
            self.term = mark.term
            self._state.sequence, self._state.leader = mark.after, mark.leader
            return
        raise LostError(why)

    async def take(self, message: Message) -> None:
        """Give the core the input of a message. Raise LostError if the message does not follow the state of this core."""
        state = self._state
        if message.sequence <= state.sequence:
            return
        if message.sequence != state.sequence + 1:
            raise LostError(f"messages {state.sequence + 1} to {message.sequence - 1} are missing")
        found = self._assembly.take(message)
        if isinstance(found, Begun):
            self._begin(found)
        elif message.term and message.term != self.term:
            raise LostError(f"message {message.sequence} is of another term")
        elif found is not None:
            is_last = message.sequence >= state.last_sequence
            await self._followed.apply(found, found.position + (not is_last))
        state.sequence = message.sequence
        state.last_sequence = max(state.last_sequence, message.sequence)

    def _begin(self, begun: Begun) -> None:
        have = self._feed.position
        if begun.continues and begun.position != have:
            raise LostError(f"a term begins at input {begun.position}, this core has {have}")
        if not begun.continues and (begun.term != self.term or have < begun.position):
            raise LostError("a term begins with a checkpoint")
        if begun.continues:
            self._feed.begin_term(process_of(begun.term))
        self.term, self._state.leader = begun.term, begun.leader

    def leave(self, term: str) -> None:
        """Record that this core leads in a term. When this core follows again, it begins with a checkpoint."""
        self.is_joined, self.term = False, term

    def lost(self, why: str) -> None:
        """Record that no further input fits this core's state. The checkpoint with which the state began is not used again."""
        if self.is_joined:
            self._bad.add(self._base)
            self.is_joined = False
        if why != self._told:
            self._told = why
            _log.warning("log-not-followed", log=self._state.address, why=why)


class _Writer:
    """The writer of one term: the slices that wait, and the messages without an acknowledgement."""

    def __init__(self, feed: Feed, term: str) -> None:
        """Collect the slices of the core from now on, until `close` is called."""
        self.term = term
        self.at = 0
        """The number of the last message that the engine has stored."""
        self._feed = feed
        self._wake = asyncio.Event()
        self._follower = Follower("log", self._wake.set, is_log=True)
        feed.join(self._follower)
        self.joined_at = self.position = feed.position
        """The position of the first slice, and the position of the last slice that the engine has stored."""
        self._slices: deque[Slice] = deque()
        self._window: deque[tuple[asyncio.Future[Msg], int]] = deque()
        self._sent = self._written = 0
        self._due = asyncio.Event()

    def begin(self, at: int) -> None:
        """Record that the term begins with the message ``at``. `write` continues after that message."""
        self.at = self._sent = at

    def close(self) -> None:
        """Stop collecting the slices of the core."""
        self._feed.leave(self._follower)
        self._slices.clear()

    async def write(self, link: Link) -> None:
        """Write all slices that wait, and wait until the engine has stored them.

        Raise AwayError if the engine cannot be reached, and RefusedError if another message came first.
        """
        while True:
            self._wake.clear()
            if self._follower.is_behind:
                raise AwayError("too much input waits for the engine")
            self._slices.extend(self._follower.take())
            if self._slices:
                await self._send(link, self._slices[0])
                self._slices.popleft()
            elif self._window:
                await self._settle(link)
            else:
                return
            while self._window and self._window[0][0].done():
                await self._settle(link)

    async def _send(self, link: Link, one: Slice) -> None:
        for headers, content in messages(one, self.term, link.part_bytes):
            while len(self._window) >= WINDOW:
                await self._settle(link)
            self._window.append((await link.publish(headers, content, self._sent), one.position))
            self._sent += 1

    async def _settle(self, link: Link) -> None:
        """Wait for the acknowledgement of the oldest message that has no acknowledgement yet."""
        future, position = self._window.popleft()
        at = await link.acknowledged(future)
        if at != self.at + 1:
            raise AwayError(f"the engine stored message {at} instead of {self.at + 1}")
        self.at, self.position = at, position
        self._written += 1
        if self._written >= CHECKPOINT_MESSAGES:
            self._due.set()

    async def is_idle(self, seconds: float) -> bool:
        """Wait ``seconds`` for a slice. Return whether no slice arrived in this time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()
                return False
        return True

    async def checkpoint_due(self) -> None:
        """Wait until a checkpoint is due: some time after the last checkpoint if there was input, or after many messages."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(CHECKPOINT_S):
                    await self._due.wait()
            self._due.clear()
            if self._written:
                self._written = 0
                return
