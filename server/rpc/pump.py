"""The pump, which moves events from the inbox to the core and decisions to the outboxes. Nothing else calls `take` and `tick`.

The pump is one asyncio task. The pump works in slices. A *slice* is a number of events, then a tick, then the sending of the
decisions after `before_leaving`. Between slices the pump yields to the event loop. If the core has nothing more to decide, the
pump sleeps until a message arrives or until the core's next due instant. If the events of a slice take long, the pump also yields
between two events, and between the parts of one event. If the steps of the core take long, a tick has fewer steps. After long
work the pump waits until open health checks are answered, for a few milliseconds at most. No report is read from the core within
a slice. A defect in the core ends the pump and with it the process. Clients send everything again to the next process
(crash-only).
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

from server.core.decider import Decider
from server.model.decisions import Decision, Decisions, Tick
from server.model.events import Event
from server.model.parts import Parts, whole
from server.rpc.allowance import Allowance
from server.rpc.dispatch import Dispatch
from server.rpc.errors import CallError
from server.rpc.limits import (
    BREATHS_MAX,
    CHECK_WAIT_S,
    CHECK_WAITS_MAX,
    GATHER_EVENTS,
    GATHER_S,
    GATHER_TIMES_MAX,
    INBOX_EVENTS_MAX,
    OUTBOX_OBJECTS_CONGESTED,
    PIECE_EVENTS_MAX,
    PIECE_EVENTS_MIN,
    PIECE_S,
    SLICE_EVENTS_MAX,
    TICK_BUDGET,
    TICK_BUDGET_MIN,
    TICK_S,
    TURN_S,
    TURNS,
    WRITING_LOOK_S,
    WRITING_LOOKS_MAX,
)
from server.rpc.reads import Reads
from server.rpc.sessions import Session, Sessions
from server.rpc.tally import Tally
from server.rpc.translate.allocations import Batch

_T = TypeVar("_T")
_SLEEP_MS_MIN: Final = 1
"""The shortest sleep in milliseconds.

This limit keeps the event loop free if the core's next instant is always due but the core decides nothing.
"""

_BREATHS_MIN: Final = 3
"""The iterations of the event loop until a received message is in the inbox: one each for the call, its reader and the pump."""
_BREATHS_FOR_SECOND: Final = 16
"""The number of iterations in which a client's next message arrives, if the client does not wait for an answer."""


class Observer(Protocol):
    """An observer of decisions. An observer must not change the state or the decisions."""

    def decided(self, decisions: Decisions, now: int, /) -> None:
        """Receive decisions of a slice, in order.

        Usually these are all decisions of the slice. If the slice has a registration, the decisions made before the registration
        come in a separate call.
        """

    def sliced(self, events: int, seconds: float, now: int, /) -> None:
        """Receive the number of events of a finished slice, and the seconds that it took."""

    def idle(self) -> None:
        """Do postponed work, such as counting. The pump calls this method when it has nothing to do."""


class Time(NamedTuple):
    """The clocks, which bootstrap provides."""

    now: Callable[[], int]
    """The clock in Unix milliseconds, never decreasing."""
    seconds: Callable[[], float]
    """The clock in seconds, for measuring only."""


class _Mail(NamedTuple):
    """A message on its way to the core, or events with a future for the replies to them."""

    session: Session | None
    batch: Batch
    reply: asyncio.Future[list[Decision]] | None = None
    after: Callable[[], None] | None = None


class Pump:
    """The pump of a core. `run` runs as a task. Handlers call the other methods, in the same event loop."""

    def __init__(
        self,
        core: Decider,
        sessions: Sessions,
        time: Time,
        observers: Sequence[Observer] = (),
        reads: Reads | None = None,
    ) -> None:
        """Make a pump. No read of ``reads`` starts during a slice, even while the pump yields to the event loop within it."""
        self.before_leaving: Callable[[], Awaitable[None]] | None = None
        """The function to await before a slice's decisions and replies are sent, for example until they are on disk.

        If it is None, they are sent at once.
        """
        self.checks: Callable[[], int] = lambda: 0
        """The function that returns how many health checks are open."""
        self._replies: list[tuple[asyncio.Future[list[Decision]], list[Decision]]] = []
        self._core = core
        self._sessions = sessions
        self._reads = reads
        self._events = Allowance(PIECE_EVENTS_MIN, PIECE_EVENTS_MAX, PIECE_S)
        self._steps = Allowance(TICK_BUDGET_MIN, TICK_BUDGET, TICK_S)
        self._turned, self._held, self._is_late = 0.0, False, False
        self._dispatch, self._tally = Dispatch(sessions), Tally(sessions)
        self._time, self._observers = time, observers
        self._inbox: deque[_Mail] = deque()
        self._waiting = self._asking = self._taken = 0
        self._more = self._flooded = self._coming = False
        self.stopping = self.resting = False
        self._refusal: CallError | None = None
        self.ended = False
        """Whether the pump was stopped and has taken all messages that were then in the inbox."""
        self._awake = asyncio.Event()
        self._enough = asyncio.Event()
        self._has_capacity = asyncio.Event()
        self._has_capacity.set()
        self._settling: list[asyncio.Future[None]] = []
        self.changed = asyncio.Event()
        """The event that wakes watchers at each change."""
        self.version = 0
        """The version of the state. The version rises each time watchers are woken, which is whenever something may have changed."""

    def now(self) -> int:
        """Return the time in Unix milliseconds."""
        return self._time.now()

    def seconds(self) -> float:
        """Return the time in seconds, for measuring only."""
        return self._time.seconds()

    async def put(self, session: Session, batch: Batch) -> None:
        """Put a message into the inbox. Wait while the inbox is full, so that gRPC's flow control stops the client."""
        if not self._has_capacity.is_set():
            await self._has_capacity.wait()
        self._post(_Mail(session, batch))

    async def ask(self, *events: Event, after: Callable[[], None] | None = None) -> list[Decision]:
        """Put events into the inbox, and return the replies to these events.

        ``after`` is called right after the last event.

        The core gets no other event between these events and the call of ``after``. The pump may yield to the event loop if these
        events take long. A full inbox does not delay these events. Raise CallError if the core no longer leads (see `refuse`).
        """
        if self._refusal is not None:
            raise self._refusal
        reply: asyncio.Future[list[Decision]] = asyncio.get_running_loop().create_future()
        self._post(_Mail(None, Batch(events[0].rm_id, [*events]), reply, after))
        return await reply

    async def settled(self) -> None:
        """Wait until everything that is in the inbox now was taken, and the core has nothing more to decide at this time."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._settling.append(future)
        self._awake.set()
        self._enough.set()
        await future

    def stop(self) -> None:
        """End `run` once the current slice is over and the messages that are then in the inbox were taken."""
        self.stopping = True
        self._awake.set()
        self._enough.set()
        self.wake_watchers()

    def followed(self, decisions: list[Decision], events: int, seconds: float, now: int) -> None:
        """Pass the decisions of a slice of this core's leader to the observers. The decisions are kept for sessions that may be resumed."""
        if decisions:
            told = Decisions(decisions)
            if self._sessions.kept:
                self._dispatch.send(told)
            for observer in self._observers:
                observer.decided(told, now)
        for observer in self._observers:
            observer.sliced(events, seconds, now)
        if events or decisions:
            self.wake_watchers()

    async def in_parts(self, parts: Parts[_T]) -> tuple[_T, float]:
        """Run all parts of a follower's work, and yield to the event loop as within a slice.

        Return the result and the seconds of work. If the task is cancelled, all parts are done nevertheless, because other code
        must not use the core between two parts. A cancelled task ends at its next wait after the parts.
        """
        self._turned = started = self._time.seconds()
        try:
            return await self._whole(parts)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            # `asyncio.timeout` counts cancellations, so that one cancellation has to stay one.
            task.uncancel()
            task.cancel()
            return whole(parts), self._time.seconds() - started
        finally:
            self._go_on()

    def rest(self) -> None:
        """End `run` when the current slice is over and the messages that are then in the inbox were taken.

        Messages that arrive later stay in the inbox. `run` may be called again, and then takes these messages.
        """
        self.resting = True
        self._awake.set()
        self._enough.set()

    def refuse(self, error: CallError) -> None:
        """Empty the inbox of a core that no longer leads. Callers that wait for replies get an error.

        Callers that ask later get the error, too, until `accept` is called. The events of such callers would wait here until the
        core leads again, perhaps for days. A core that leads again would take these events although the callers have given up.
        """
        self._refusal = error
        for mail in self._inbox:
            if mail.reply is not None and not mail.reply.done():
                mail.reply.set_exception(error)
        self._inbox.clear()
        self._waiting = self._asking = 0
        self._has_capacity.set()

    def accept(self) -> None:
        """Take events again, because the core will soon lead."""
        self._refusal = None

    async def run(self) -> None:
        """Run until `stop` or `rest` is called. An exception of the core ends `run`. The core must not be used afterwards.

        A stream that never pauses does not delay the end. `run` takes only the messages that are in the inbox when the last slice
        before the end is over. At most, these are `INBOX_EVENTS_MAX` events and one more message of each stream and call.
        """
        self.resting = False
        self.accept()
        while not (self.stopping or self.resting):
            if not (self._more or self._inbox or self._settling):
                await self._sleep()
            await self._gather()
            await self._slice()
            if self._is_turn_due():
                await self._turn()
            await self._breathe()
        last = self._taken + len(self._inbox)
        while self._taken < last:
            await self._slice()
        self.ended = self.stopping

    def _post(self, mail: _Mail) -> None:
        self._inbox.append(mail)
        self._waiting += len(mail.batch.events)
        if self._waiting > INBOX_EVENTS_MAX:
            self._has_capacity.clear()
        self._asking += mail.reply is not None
        if self._waiting >= GATHER_EVENTS or self._asking:
            self._enough.set()
        self._awake.set()

    async def _sleep(self) -> None:
        """Wait for a message or for the core's next due instant. Observers may do idle work first, after all decisions are written."""
        due = self._core.next_due()
        timer = None
        if due is not None:
            delay = max(due - self._time.now(), _SLEEP_MS_MIN) / 1000
            timer = asyncio.get_running_loop().call_later(delay, self._awake.set)
        await self._let_write()
        if not self._awake.is_set():
            for observer in self._observers:
                observer.idle()
        await self._awake.wait()
        if timer is not None:
            timer.cancel()

    async def _let_write(self) -> None:
        """Wait until all streams have written their objects. Stop the wait if there is work, or if a client takes too long."""
        for _ in range(WRITING_LOOKS_MAX):
            if self._awake.is_set() or not self._sessions.unwritten():
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WRITING_LOOK_S):
                    await self._awake.wait()

    async def _gather(self) -> None:
        """If there is a backlog, wait a moment, so that the messages that follow the first one join the same slice."""
        self._coming = False
        if not self._flooded:
            return
        for _ in range(GATHER_TIMES_MAX):
            before = self._waiting
            busy = self._more or self._settling or self._asking or self.stopping
            if busy or before >= GATHER_EVENTS:
                return
            await self._patience()
            if self._waiting == before:
                return
        self._coming = self._is_flood()

    async def _patience(self) -> None:
        """Wait for `GATHER_S`, or until there are enough events for a slice."""
        self._enough.clear()
        timer = asyncio.get_running_loop().call_later(GATHER_S, self._enough.set)
        await self._enough.wait()
        timer.cancel()

    async def _slice(self) -> None:
        """Run a slice: events, a tick, and the sending of the decisions."""
        self._awake.clear()
        started, now = self._time.seconds(), self._time.now()
        self._turned = started
        decisions: list[Decision] = []
        events = await self._drain(now, decisions)
        tick = await self._tick(now)
        self._go_on()
        decisions += tick.decisions
        self._more = tick.more
        changed = bool(events or decisions)
        seconds = self._time.seconds() - started
        if self.before_leaving is not None:
            await self.before_leaving()
        leaving = self._time.seconds()
        self._send(decisions, now)
        self._reply()
        seconds += self._time.seconds() - leaving
        for observer in self._observers:
            observer.sliced(events, seconds, now)
        if changed:
            self.wake_watchers()
        self._settle()

    async def _tick(self, now: int) -> Tick:
        """Run a tick with as many steps as fit into `TICK_S`. After an event that took long, the tick gets `TICK_BUDGET_MIN` steps."""
        if self._is_late:
            self._is_late = False
            return (await self._whole(self._core.tick_in_parts(now, TICK_BUDGET_MIN)))[0]
        tick, seconds = await self._whole(self._core.tick_in_parts(now, self._steps.amount))
        self._steps.took(seconds)
        return tick

    async def _whole(self, parts: Parts[_T]) -> tuple[_T, float]:
        """Run all parts of some work. Return the result of the work, and the seconds that its parts took.

        If the parts take long, yield to the event loop between two parts. The time of these yields does not count.
        """
        seconds = 0.0
        while True:
            started = self._time.seconds()
            try:
                next(parts)
            except StopIteration as end:
                return end.value, seconds + self._time.seconds() - started
            seconds += self._time.seconds() - started
            await self._turn_if_due()

    async def _drain(self, now: int, decisions: list[Decision]) -> int:
        """Take messages until the slice is full, and return the number of events.

        Messages whose replies no caller awaits are given to the core together.
        """
        taken, together = 0, list[Event]()
        while self._inbox:
            count = len(self._inbox[0].batch.events)
            if taken and taken + count > SLICE_EVENTS_MAX:
                break
            if (taken or decisions) and self._is_held_up(self._inbox[0]):
                break
            mail = self._next()
            taken += count
            if mail.reply is not None:
                await self._give(together + self._tally.take(), now, decisions)
                together = []
                await self._answer(mail, mail.reply, now, decisions)
            elif mail.batch.refusals and _is_heard(mail):
                await self._give(together, now, decisions)
                together = [*mail.batch.events]
                decisions += mail.batch.refusals
            elif _is_heard(mail):
                together += mail.batch.events
        await self._give(together + self._tally.take(), now, decisions)
        self._coming |= taken >= GATHER_EVENTS
        self._waiting -= taken
        if self._waiting <= INBOX_EVENTS_MAX:
            self._has_capacity.set()
        return taken

    def _next(self) -> _Mail:
        """Take the next message out of the inbox, and count it."""
        mail = self._inbox.popleft()
        self._taken += 1
        if _is_heard(mail):
            self._tally.add(mail.session, mail.batch)
        return mail

    async def _give(self, events: Sequence[Event], now: int, decisions: list[Decision]) -> None:
        """Give events to the core in parts. If the events take long, yield to the event loop between two parts."""
        at = 0
        while at < len(events):
            piece = events[at : at + self._events.amount]
            started = self._time.seconds()
            decisions += self._core.take(piece, now)
            at += len(piece)
            self._events.took(self._time.seconds() - started)
            await self._turn_if_due()

    async def _turn_if_due(self) -> None:
        """Yield to the event loop within a slice that takes long, and hold reads until the slice ends."""
        if not self._is_turn_due():
            return
        if self._reads is not None and not self._held:
            self._held = True
            self._reads.hold()
        await self._turn()

    def _is_turn_due(self) -> bool:
        """Return whether the pump has not yielded to the event loop for more than `TURN_S`."""
        return self._time.seconds() - self._turned > TURN_S

    async def _turn(self) -> None:
        """Yield to the event loop, and wait a moment until health checks that have begun are answered.

        Each message of a call passes through gRPC's own threads. Yielding once is therefore not enough to answer a check.
        """
        for _ in range(TURNS):
            await asyncio.sleep(0)
        for _ in range(CHECK_WAITS_MAX):
            if not self.checks():
                break
            await asyncio.sleep(CHECK_WAIT_S)
        self._turned = self._time.seconds()

    def _go_on(self) -> None:
        """Start the reads that were held back."""
        if self._reads is not None and self._held:
            self._held = False
            self._reads.go_on()

    async def _answer(
        self,
        mail: _Mail,
        reply: asyncio.Future[list[Decision]],
        now: int,
        decisions: list[Decision],
    ) -> None:
        """Give the core the events of a message one by one, and collect the replies for the caller that awaits them."""
        self._asking -= 1
        if mail.after is not None:
            # Decisions made before a registration belong to the streams that the registration ends.
            self._send(decisions, now)
        first = len(decisions)
        for event in mail.batch.events:
            await self._turn_if_due()
            replies, seconds = await self._whole(self._core.take_in_parts(event, now))
            self._is_late |= seconds > TURN_S
            decisions += replies
        if mail.after is not None:
            mail.after()
        self._replies.append((reply, decisions[first:]))
        if self.before_leaving is None:
            self._reply()

    def _reply(self) -> None:
        """Pass the collected replies to the callers that await them."""
        for reply, answer in self._replies:
            if not reply.done():
                reply.set_result(answer)
        self._replies.clear()

    def _is_held_up(self, mail: _Mail) -> bool:
        """Return whether the message ends streams for which this slice has decisions that must not be sent yet."""
        return self.before_leaving is not None and mail.after is not None

    def _send(self, decisions: list[Decision], now: int) -> None:
        """Pass decisions to outboxes and observers, and empty the list."""
        if decisions:
            told = Decisions(decisions)
            self._dispatch.send(told)
            for observer in self._observers:
                observer.decided(told, now)
            decisions.clear()

    def wake_watchers(self) -> None:
        """Wake watchers, because something may have changed in the core or around it."""
        self.version += 1
        self.changed.set()
        self.changed.clear()

    def _settle(self) -> None:
        if self._settling and not self._inbox and not self._more:
            for future in self._settling:
                if not future.done():
                    future.set_result(None)
            self._settling.clear()

    async def _breathe(self) -> None:
        """Yield to the event loop, so that streams read and write. Record whether there is a backlog.

        While many objects wait for a stream, yield longer.

        There is a backlog if the inbox has two messages of one stream, even if both messages are small. Clients that wait for
        each answer cause no backlog, even if there are many of them. A backlog is also recorded after a slice with at least
        GATHER_EVENTS events, and if the inbox has two messages of one stream when the wait in `_gather` ends. In these two
        cases more messages may follow. While a caller waits for replies, no backlog is recorded.
        """
        for turn in range(1, BREATHS_MAX + 1):
            await asyncio.sleep(0)
            if turn >= self._breaths() and self._sessions.unwritten() <= OUTBOX_OBJECTS_CONGESTED:
                break
        self._flooded = self._is_flood() or (self._coming and not self._asking)

    def _is_flood(self) -> bool:
        """Return whether one stream has two messages in the inbox while no caller waits for the replies to a message."""
        if self._asking:
            return False
        heard: set[Session | None] = set()
        # This loop is short: there are few streams, and the second message of a stream ends it.
        for mail in self._inbox:
            if mail.session in heard:
                return True
            heard.add(mail.session)
        return False

    def _breaths(self) -> int:
        """Return how often to yield to the event loop.

        After a single message the pump yields more often, because the message may be the first of many.
        """
        return _BREATHS_FOR_SECOND if len(self._inbox) == 1 else _BREATHS_MIN


def _is_heard(mail: _Mail) -> bool:
    """Return whether a message is still to be taken.

    A message is to be taken if its stream is open or has ended normally, or if the message came from no stream. If a stream ended
    because this core handed over, its client sends the messages again to another core.
    """
    session = mail.session
    if session is None or session.alive:
        return True
    return session.farewell is not None and not session.is_handed_over
