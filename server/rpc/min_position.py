"""Reads with a minimum position: a caller names a state that it has seen, and no core answers from an older state.

The metadata `evenhand-min-position` of a call is POSITION@TERM, or POSITION alone. Position and term are in the `picture` of
answers. A follower that has not reached the position yet waits for a bounded time.
"""

import asyncio
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import grpc

from server.replication.feed import Feed
from server.replication.terms import Reach, reach
from server.rpc.errors import CallError, invalid
from server.rpc.following import FOLLOW, REPLICATION, Replica, State
from server.rpc.limits import POSITION_LOOK_S, POSITION_WAIT_S

KEY: Final = "evenhand-min-position"
_FORM: Final = re.compile(r"(\d{1,18})(?:@([0-9A-Za-z]{1,64}))?")
_SERVICES: Final = "/evenhand.v1."
_ALWAYS: Final = frozenset({FOLLOW, REPLICATION})
"""The calls that are answered at any position, because a caller uses them to learn the positions of cores."""


class MinPosition:
    """The wait of each call for the position that the call names, before the call is handled."""

    def __init__(self, feed: Feed, replica: Replica, changed: asyncio.Event) -> None:
        """Make the object with which the calls of one core wait.

        ``changed`` is set, and cleared, each time the core has received events.
        """
        self._feed = feed
        self._replica = replica
        self._changed = changed

    async def wait(self, method: str, metadata: Iterable[tuple[str, str | bytes]]) -> None:
        """Wait until this core has reached the position that the metadata name, if they name a position.

        Raise CallError if the core does not reach the position in time.
        """
        given = next((value for key, value in metadata if key == KEY), None)
        if given is None or not method.startswith(_SERVICES) or method in _ALWAYS:
            return
        position, term = _parsed(given)
        with suppress(TimeoutError):
            async with asyncio.timeout(POSITION_WAIT_S):
                while self._may_come(found := self._reach(position, term)):
                    await self._change()
                if found is Reach.GOT:
                    return
        raise self._refusal(position, term)

    def _reach(self, position: int, term: str) -> Reach:
        return reach(self._feed.terms, self._feed.position, position, term)

    def _may_come(self, found: Reach) -> bool:
        """Return whether this core may soon reach the position.

        This is never so for a leader, because a leader gets no input of another core.
        """
        waits = found in (Reach.BEHIND, Reach.UNKNOWN)
        return waits and self._replica.state is not State.LEADER

    async def _change(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(POSITION_LOOK_S):
                await self._changed.wait()

    def _refusal(self, position: int, term: str) -> CallError:
        have, found = self._feed.position, self._reach(position, term)
        if found is Reach.BEHIND and self._replica.state is not State.LEADER:
            message = f"this core follows and has got {have} of the {position} events and ticks asked for: try again, or ask the leader"
            return CallError(grpc.StatusCode.FAILED_PRECONDITION, "FOLLOWER_BEHIND", message)
        why = {
            Reach.LOST: "that input was lost with its leader, and this core's continues without it",
            Reach.UNKNOWN: f"this core knows no term {term}",
        }.get(found, f"this core decides, and has got only {have} events and ticks")
        message = (
            f"position {position} is of a core with another history: {why}; ask without a position"
        )
        return CallError(grpc.StatusCode.FAILED_PRECONDITION, "OTHER_HISTORY", message)


def _parsed(given: str | bytes) -> tuple[int, str]:
    """Return the position and the name of its term. Raise CallError for a text of another form."""
    text = given.decode("ascii", "replace") if isinstance(given, bytes) else given
    found = _FORM.fullmatch(text)
    if found is None:
        raise invalid(
            "BAD_POSITION", (KEY, "must be POSITION or POSITION@TERM, as in an answer's picture")
        )
    return int(found[1]), found[2] or ""
