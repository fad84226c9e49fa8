"""The work of a follower: it gives its core the events and ticks of the leader's core, and compares the decisions of the two cores."""

import io
from collections.abc import Sequence
from typing import Final, NamedTuple

from server.core.core import TAKEN_IN_PARTS
from server.core.decider import Decider
from server.core.state import State
from server.model.assignment import Assignment
from server.model.decisions import Decision
from server.model.events import Event
from server.model.parts import Parts, whole
from server.model.phrases import count
from server.replication import checkpoint
from server.replication.checkpoint import Header
from server.replication.feed import Feed, Slice, digest_of
from server.replication.input_form import BadInputError, Given, InputReader, Ticked
from server.state.pickled import BadCheckpointError

PIECE_EVENTS: Final = 250
"""The number of events that the core gets in one part of `apply_in_parts`."""
_SHOWN: Final = 12
"""The number of hexadecimal digits of a digest that are shown."""


class LostError(Exception):
    """The error of a slice that does not continue the input of this core. The core has to begin with a checkpoint again."""


class Applied(NamedTuple):
    """The result of a slice: the core's decisions, the number of events, and the instant of the tick."""

    decisions: list[Decision]
    events: int
    now: int


class Applier:
    """A follower's core. ``decider`` passes input to the core: it is the `Feed` itself, or a recorder that calls the feed."""

    def __init__(self, feed: Feed, decider: Decider) -> None:
        self._feed = feed
        self._decider = decider
        self._reader: InputReader | None = None
        self._assignment = feed.assignment
        """The table of cores with which this core was started."""
        self.difference = ""
        """The first difference between the decisions of this core and those of its leader, or "" while there is no difference."""

    @property
    def position(self) -> int:
        """The number of events and ticks that the core has received."""
        return self._feed.position

    def begin(self, data: bytes) -> Header:
        """Take over the state of a checkpoint. Raise BadCheckpointError if the checkpoint cannot be used, or has another table of cores."""
        header, core = checkpoint.read(io.BytesIO(data))
        self._check_table(core.state)
        self._feed.adopt(core, header)
        self._reader = None
        self.difference = ""
        return header

    def _check_table(self, state: State) -> None:
        """Raise BadCheckpointError if the tables of this core and of its leader differ (design 7.6).

        A core without a table takes the table of its leader. A core with an older table takes the leader's table if the two
        tables differ only by moves of partitions (design 7.9). If the leader has no table, this core uses its own table once it
        leads itself. This is allowed only if this core then decides for the same partitions as the leader.
        """
        mine, theirs = self._assignment, state.assignment
        if mine is None:
            return
        if theirs is None:
            _check_first(mine, state)
        elif mine.revision != theirs.revision and not (
            mine.revision < theirs.revision and state.changes
        ):
            raise BadCheckpointError(
                f"this core has revision {mine.revision} of its group in the table of cores, the leader has {theirs.revision}: "
                "start what is older with the newer table"
            )

    def apply(self, one: Slice) -> Applied | None:
        """Apply a slice as `apply_in_parts` does, without a pause between the parts."""
        return whole(self.apply_in_parts(one))

    def apply_in_parts(self, one: Slice) -> Parts[Applied | None]:
        """Give the core the events and ticks of a slice that the core has not received yet.

        Return None if the core has already received the whole slice. Raise LostError if input before the slice is missing, or if
        the slice cannot be read.
        """
        if self._reader is None and not one.begins and one.position <= self._feed.position:
            return None
        steps = self._read(one)
        begins = one.position - len(steps)
        have = self._feed.position - begins
        if have < 0:
            raise LostError(f"input {self._feed.position} to {begins} is missing")
        if have >= len(steps):
            return None
        decisions = yield from _give(self._decider, steps[have:])
        if not have:
            self._compare(one, decisions)
        events = sum(isinstance(step, Given) for step in steps[have:])
        return Applied(decisions, events, self._feed.now)

    def _read(self, one: Slice) -> list[Given | Ticked]:
        if one.begins:
            self._reader = InputReader()
        elif self._reader is None:
            raise LostError("the input does not begin here")
        try:
            steps = self._reader.read(one.input)
        except BadInputError as error:
            raise LostError(str(error)) from error
        if not steps or not isinstance(steps[-1], Ticked):
            raise LostError("a slice does not end with a tick")
        return steps

    def _compare(self, one: Slice, decisions: Sequence[Decision]) -> None:
        mine = digest_of(decisions)
        if self.difference or (mine == one.digest and self._feed.decided == one.decided):
            return
        self.difference = (
            f"after input {one.position}: {count(len(decisions), 'decision')} {_shown(mine)}, "
            f"{self._feed.decided} in all; the leader's are {_shown(one.digest)}, {one.decided} in all"
        )


def why_not_first(mine: Assignment, state: State) -> str:
    """Return why the table of cores ``mine`` cannot be the first table of a group of cores with this state.

    There are two possible reasons: the table gives a partition of the group to another group, or the table has a revision. Return
    "" if it can be the first table.
    """
    if name := state.given_away(mine):
        return f"gives partition {name!r} to cores {mine.owner(name)!r}"
    if mine.revision:
        return f"has revision {mine.revision} for this group, and cores without a table have 0"
    return ""


def _check_first(mine: Assignment, state: State) -> None:
    """Raise BadCheckpointError if a table of cores cannot be the first table of its group (see `why_not_first`)."""
    if why := why_not_first(mine, state):
        raise BadCheckpointError(
            f"the leader decides without a table of cores, and the table of this core {why}: "
            "end all cores of this group, then start them with the table"
        )


def _give(decider: Decider, steps: Sequence[Given | Ticked]) -> Parts[list[Decision]]:
    """Give a core events and ticks as the leader's core got them, in parts, and return the decisions."""
    decisions: list[Decision] = []
    events: list[Event] = []
    at = 0
    for step in steps:
        if isinstance(step, Ticked):
            decisions += yield from _take(decider, events, at)
            tick = yield from decider.tick_in_parts(step.now, step.budget)
            decisions += tick.decisions
        else:
            if step.now != at or len(events) >= PIECE_EVENTS or _is_long(step.event):
                decisions += yield from _take(decider, events, at)
            at = step.now
            events.append(step.event)
            if _is_long(step.event):
                decisions += yield from _take(decider, events, at)
    return decisions


def _is_long(event: Event) -> bool:
    return type(event) in TAKEN_IN_PARTS


def _take(decider: Decider, events: list[Event], now: int) -> Parts[list[Decision]]:
    """Give a core these events, and empty the list. If an event may take long, the list has only this event."""
    if not events:
        return []
    if _is_long(events[0]):
        found = yield from decider.take_in_parts(events[0], now)
    else:
        found = decider.take(events, now)
    events.clear()
    yield
    return found


def _shown(digest: bytes) -> str:
    return digest.hex()[:_SHOWN] or "none"
