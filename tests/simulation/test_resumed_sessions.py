"""A follower that continues a session decides as its leader would have done, wherever the leader is killed (design 7.5).

The input of a random life is given to a core that is never killed. A follower joins at some slice, is some slices behind when the
leader is killed, and continues the session. The manager then sends what the follower has not got. From then on both cores have to
make the same decisions, with the same numbers and the same bytes, and to be equal.
"""

import random
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import pytest

from server.core.core import Core
from server.model.decisions import AskStateChanged, Decision, Decisions, Noted
from server.model.events import (
    Event,
    LeadershipTaken,
    ManagerRegistered,
    SessionResumed,
    SyncCompleted,
)
from server.replication.applying import Applier
from server.replication.feed import Feed, Follower, Slice, digest_of
from server.rpc.dispatch import Dispatch
from server.rpc.kept import Kept
from server.rpc.sessions import Kind, Sessions
from tests.effort import cases
from tests.simulation.restarts import configuration
from tests.simulation.resumed import Past
from tests.ticks import ticked

LIVES: Final = cases(60, least=6)
SOAK: Final = 3_000
CHUNK: Final = 300
SESSION: Final = "session"
PARENT, MID = 60, 30


class Step(NamedTuple):
    """What a core was given: events at one instant, or a tick with its budget."""

    events: Sequence[Event]
    now: int
    budget: int


class Recorder:
    """The input of a core, split into slices that end with a tick."""

    def __init__(self, core: Core) -> None:
        self.slices: list[list[Step]] = []
        self._open: list[Step] = []
        self._take, self._tick = core.take, core.tick
        given: Any = core
        given.take, given.tick = self.take, self.tick

    def take(self, events: Sequence[Event], now: int) -> list[Decision]:
        """Record events, and pass them on."""
        self._open.append(Step([*events], now, 0))
        return self._take(events, now)

    def tick(self, now: int, budget: int = 20_000) -> Any:
        """Record a tick, and pass it on."""
        self.slices.append([*self._open, Step((), now, budget)])
        self._open = []
        return self._tick(now, budget)


class Seat:
    """A core with its feed, its sessions, and its decisions."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.feed = Feed(core, "v")
        self.sessions = Sessions()
        self.dispatch = Dispatch(self.sessions)

    def give(self, slice_: list[Step]) -> list[Decision]:
        """Give the core a slice, and keep its decisions."""
        found: list[Decision] = []
        for step in slice_:
            if step.budget:
                found += ticked(self.feed, step.now, step.budget).decisions
            else:
                found += self.feed.take(step.events, step.now)
        self.keep(found)
        return found

    def apply(self, applier: Applier, one: Slice) -> list[Decision]:
        """Apply a slice of the leader's input, and keep the decisions."""
        applied = applier.apply(one)
        assert applied is not None
        self.keep(applied.decisions)
        return applied.decisions

    def keep(self, decisions: list[Decision]) -> None:
        """Keep decisions as a follower does."""
        self.dispatch.send(Decisions([*decisions]))
        self.sessions.follow(self.feed.managers)

    def digest(self) -> str:
        """Return the digest of the state without the reasons that asks were told last: a resumed session tells them once more."""
        for ask in self.core.state.partitions["default"].asks.values():
            ask.code = ""
        return self.core.digest()

    def sent(self, kind: Kind) -> int:
        """Return the number of decisions that were sent on a stream."""
        session = self.core.managers["rm"].session
        assert session is not None
        return session.sent.get(kind, 0)


def _named(event: Event) -> Event:
    if not isinstance(event, ManagerRegistered):
        return event
    return event._replace(explicit_sync=True, session=SESSION)


def told(decisions: list[Decision]) -> list[bytes]:
    """Return a digest of each decision that a manager acts on. States of asks may be sent once more, and notes are for people."""
    return [digest_of([one]) for one in decisions if not isinstance(one, Noted | AskStateChanged)]


def past(seed: int) -> list[list[Step]]:
    """Return the input of a random life, in slices."""
    life = Past.__new__(Past)
    kept: list[Recorder] = []
    original = Core.__init__

    def record(core: Core, *given: Any, **named: Any) -> None:
        original(core, *given, **named)
        kept.append(Recorder(core))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Core, "__init__", record)
        life.__init__(seed)  # type: ignore[misc]
    life.live(30)
    first, *rest = kept[0].slices
    begin = [one._replace(events=[*map(_named, one.events)]) for one in first[:-1]]
    synced = Step([SyncCompleted("rm")], first[-1].now, 0)
    return [[*begin, synced, first[-1]], *rest]


def check(seed: int) -> int:
    """Kill the leader of one life at some slice, and return the number of decisions after that."""
    dice, slices = random.Random(f"resumed {seed}"), past(seed)
    leader = Seat(Core(configuration(PARENT, MID)))
    killed = dice.randrange(len(slices) // 4, len(slices) - 1)
    behind = dice.randrange(0, 4)
    joins = dice.randrange(1, max(2, killed - behind))
    follower, seat, applier = Follower("f", lambda: None), Seat(Core()), None
    for at, slice_ in enumerate(slices[:killed]):
        leader.give(slice_)
        if at + 1 == joins:
            leader.feed.join(follower)
            applier = Applier(seat.feed, seat.feed)
            applier.begin(b"".join(leader.feed.checkpoint()))
            seat.sessions.follow(seat.feed.managers)
    assert applier is not None
    has = follower.take()
    got, missed = has[: len(has) - behind], has[len(has) - behind :]
    for one in got:
        seat.apply(applier, one)
    assert not applier.difference
    missing = dict(_missing(seat))
    _resume(seat)
    for one in missed:
        seat.apply(applier, one)
    _compare_kept(leader, seat, missing)
    count = 0
    for slice_ in slices[killed:]:
        wanted = told(leader.give(slice_))
        (one,) = follower.take()
        assert told(seat.apply(applier, one)) == wanted
        count += len(wanted)
    assert [seat.sent(kind) for kind in Kind] == [leader.sent(kind) for kind in Kind]
    assert seat.digest() == leader.digest()
    return count


def _resume(seat: Seat) -> None:
    """Let a follower lead and continue the session, at the instant of its last tick."""
    feed = seat.feed
    before = feed.position, feed.decided
    found = feed.take([LeadershipTaken()], feed.now)
    found += feed.take([SessionResumed("rm", SESSION)], feed.now)
    assert not told(found)
    feed.position, feed.decided = (
        before  # What was missed is given to the core as slices of its former leader.
    )


def _compare_kept(
    leader: Seat, seat: Seat, missing: dict[Kind, tuple[int, Sequence[bytes]]]
) -> None:
    """Assert that the follower would have sent what the leader sent, after what the manager had received."""
    for kind, (number, pieces) in missing.items():
        theirs = leader.sessions.kept[_place(kind)].after(number)
        assert seat.sessions.kept[_place(kind)].after(number) == theirs, kind
        assert pieces == (theirs or [])[: len(pieces)]


def _missing(seat: Seat) -> Iterator[tuple[Kind, tuple[int, Sequence[bytes]]]]:
    """Yield for each stream a number that the manager may have received, and the kept decisions after it."""
    for kind in Kind:
        kept: Kept = seat.sessions.kept[_place(kind)]
        number = max(0, kept.last - 3)
        while (pieces := kept.after(number)) is None:
            number += 1
        yield kind, (number, pieces)


def _place(kind: Kind) -> tuple[str, Kind]:
    return "rm", kind


def live(seeds: range) -> int:
    """Check a life for each seed; a failure names its seed."""
    count = 0
    for seed in seeds:
        try:
            count += check(seed)
        except AssertionError as fault:
            fault.add_note(f"seed {seed}")
            raise
    return count


def test_a_follower_continues_a_session_as_if_its_leader_had_not_been_killed() -> None:
    assert live(range(LIVES)) > LIVES


@pytest.mark.soak
@pytest.mark.parametrize("start", range(10_000, 10_000 + SOAK, CHUNK))
def test_very_many_kills(start: int) -> None:
    live(range(start, start + CHUNK))
