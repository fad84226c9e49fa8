"""The planned hand-over: this core stops, a follower gets the rest of its input, and the managers connect to that follower (design 7.7)."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

import grpc
import structlog

from server.replication.feed import Feed, Follower
from server.rpc.acknowledging import Acknowledgements
from server.rpc.errors import CallError, draining, handed_over
from server.rpc.following import Replica, State
from server.rpc.pump import Pump
from server.rpc.sessions import Sessions

_log = structlog.get_logger(__name__)

LEVEL_S: Final = 10.0
"""The seconds that a hand-over waits for a follower that has all input. The core still decides during this time."""
REST_S: Final = 1.0
"""The seconds in which the follower has to acknowledge the rest of the input. The core does not decide during this time."""
LAST_S: Final = 0.5
"""The seconds in which a core that ends waits for a follower to acknowledge the rest of the input."""


class HandedOver(NamedTuple):
    """The result of a hand-over: the follower's name, the last position of this core, and the seconds since this core stopped."""

    follower: str
    position: int
    seconds: float


@dataclass(eq=False, slots=True)
class _Request:
    """A requested hand-over, for which the pump is being stopped."""

    follower: Follower
    since: float
    result: "asyncio.Future[HandedOver]"

    def fail(self, error: CallError) -> None:
        if not self.result.done():
            self.result.set_exception(error)


class HandingOver:
    """The hand-over of one core. `hand_over` asks for the hand-over. The task that runs the pump finishes the hand-over by `leads_on`."""

    def __init__(
        self,
        replica: Replica,
        feed: Feed,
        pump: Pump,
        sessions: Sessions,
        acknowledgements: Acknowledgements,
    ) -> None:
        self.acknowledgements = acknowledgements
        self.may_follow = False
        """Whether this core can follow another core after it has led."""
        self.replica = replica
        self._feed = feed
        self._pump = pump
        self._sessions = sessions
        self._request: _Request | None = None

    async def hand_over(self, name: str) -> HandedOver:
        """Hand over to the named follower, or without a name to the first follower that has all input.

        Raise CallError if the hand-over is refused.

        A refused hand-over changes nothing.
        """
        self._check(name)
        found = await self.acknowledgements.reached(
            partial(self._candidates, name), self._feed.position, LEVEL_S
        )
        self._check(name)
        if found is None:
            raise _refused(self._why_behind(name))
        result: asyncio.Future[HandedOver] = asyncio.get_running_loop().create_future()
        self._request = _Request(found, self._pump.seconds(), result)
        self._pump.rest()
        return await result

    def _check(self, name: str) -> None:
        """Raise CallError if this core cannot hand over now."""
        if failure := self.replica.not_leader("hand over"):
            raise failure
        if self._request is not None:
            raise _refused("another hand-over is in progress")
        if self.replica.log is not None:
            raise _refused(
                "these cores share a log: end this core with SIGTERM, and the next one reads the log to its end"
            )
        if not self.may_follow:
            raise _refused(
                "this core could not follow the next one: start it with --follow, or end it with SIGTERM"
            )
        if not len(self._sessions):
            raise _refused(
                "no resource manager has a stream to this core; the core at which one registers leads"
            )
        if not self._candidates(name):
            raise _refused(self._why_none(name))

    def _candidates(self, name: str = "") -> Sequence[Follower]:
        """Return the followers that acknowledge their input, and can therefore lead next.

        If a name is given, return only followers with this name.
        """
        followers = self._feed.followers
        return [one for one in followers if one.process and name in {"", one.name}]

    def _why_none(self, name: str) -> str:
        others = ", ".join(one.name for one in self._candidates())
        if not name or not others:
            return "no core follows this one: start one with --follow"
        return f"no follower has the name {name!r}; there are: {others}"

    def _why_behind(self, name: str) -> str:
        """Return a text that says how far the most advanced follower is behind this core."""
        candidates = self._candidates(name)
        if not candidates:
            return self._why_none(name)
        best = max(candidates, key=lambda one: one.acknowledged)
        if best.acknowledged < 0:
            return f"follower {best.name} has not said what it has got: it may still read its checkpoint"
        behind = self._feed.position - best.acknowledged
        return f"follower {best.name} is {behind:,} events and ticks behind"

    async def leads_on(self) -> bool:
        """Finish a hand-over for which the pump has stopped.

        Return whether this core continues to lead, so that the pump has to run again.
        """
        if self._request is None:
            return False
        try:
            return await self._leads_on(self._request)
        finally:
            self._request = None

    async def _leads_on(self, request: _Request) -> bool:
        if failure := self.replica.not_leader("hand over"):
            request.fail(failure)
            return False
        follower = await self._reached(lambda: [request.follower], REST_S)
        if failure := self.replica.not_leader("hand over"):
            request.fail(failure)  # Another core began to lead meanwhile (`Following.watch`).
            return False
        if request.result.cancelled():
            # The caller has disconnected, and would not learn which core has the managers now.
            return True
        if self._pump.stopping or follower is None:
            why = f"follower {request.follower.name} did not get the rest of the input in time: this core leads on"
            request.fail(draining() if self._pump.stopping else _refused(why))
            return True
        self._leave(follower)
        seconds = self._pump.seconds() - request.since
        if not request.result.done():
            done = HandedOver(follower.name, self._feed.position, seconds)
            request.result.set_result(done)
        _log.info("handed-over", follower=follower.name, position=self._feed.position)
        return False

    async def _reached(
        self, candidates: Callable[[], Sequence[Follower]], seconds: float
    ) -> Follower | None:
        """Return the first follower that has received all input. A follower that has disconnected is no candidate."""

        def there() -> Sequence[Follower]:
            return [one for one in candidates() if one in self._feed.followers]

        return await self.acknowledgements.reached(there, self._feed.position, seconds)

    def _leave(self, follower: Follower) -> None:
        """Stop leading, and direct the managers to a follower that has received all input."""
        self.replica.follows(follower.name)
        self._sessions.hand_over(handed_over(follower.name, follower.process))

    async def last_words(self) -> CallError:
        """Return the error that ends the streams of a core that stops.

        The error names a follower that has received all input, if there is one.
        """
        if self.replica.state is not State.LEADER or not len(self._sessions):
            return draining()
        follower = await self._reached(self._candidates, LAST_S)
        return draining() if follower is None else draining(follower.name, follower.process)


def _refused(why: str) -> CallError:
    return CallError(grpc.StatusCode.FAILED_PRECONDITION, "NO_LEVEL_FOLLOWER", why)
