"""Reads of the core with the token of one caller, and the notices that come with the answers.

If the options name several cores, and one of them follows the core that decides closely, views read at the follower, so that open
pages take no time from decisions. If the follower falls behind or does not answer, views read at the core that decides.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Generic, TypeVar, cast

import grpc

from evenhand.v1 import (
    inspect_pb2,
    replication_pb2,
    replication_pb2_grpc,
    watch_pb2,
    watch_pb2_grpc,
)
from evenhand_cli.connect import Core, as_caller
from evenhand_cli.faults import Fault
from evenhand_cli.follower_choice import is_close
from evenhand_cli.rpc_faults import reason_of
from evenhand_cli.spread_channel import SpreadChannel
from evenhand_cli.staleness import Pictures
from evenhand_console.at_once import extending
from evenhand_console.connection import RENEW_S, Connection, Opened
from evenhand_console.presence import Presence

STREAM_S: Final = 60.0
"""Seconds for which a stream of events is open. The next stream is opened to the core that decides when it is opened."""
_AWAY: Final = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})
_NO_HISTORY: Final = "NO_HISTORY"
_OF_THE_FOLLOWER: Final = frozenset(
    {
        *_AWAY,
        grpc.StatusCode.CANCELLED,
    }
)
"""The failures of a follower after which no view is read at this follower."""
_OF_A_VIEW: Final = frozenset(
    {
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.UNKNOWN,
    }
)
"""Failures that either the follower or the view itself may have caused; the view for example by an invalid token.

They count as failures of the follower only if the core that decides answers the same reads.
"""
_BEHIND: Final = frozenset({"FOLLOWER_BEHIND", "OTHER_HISTORY"})
"""The reasons that a follower gives when its state cannot be used for an answer."""

Read = TypeVar("Read")


@dataclass(frozen=True, slots=True)
class Found(Generic[Read]):
    """The result of a view's reads, and the notices about the core that answered."""

    value: Read
    notices: tuple[str, ...]
    read_at: str = ""
    """A sentence that names the follower at which the view was read, or "" if it was read at the core that decides."""


class DeposedFault(Fault):
    """The fault for an answer of a core that no longer decides but does not know that yet, such as one that was paused."""


class LogInFault(Fault):
    """The fault for a visitor without a token, if the console does not share its own identity."""


class Source:
    """The source of the console's data: the core, which answers the reads of visitors."""

    def __init__(self, connection: Connection, *, shares_identity: bool = True) -> None:
        """Make a source. With ``shares_identity``, visitors without a token read with the console's token or certificate."""
        self._connection = connection
        self._shares_identity = shares_identity
        self._presence = Presence(connection.clock, connection.newest)

    def read(self, token: str, view: Callable[[Core], Read]) -> Found[Read]:
        """Return the result of a view's reads with a token, at a follower if one follows closely.

        Without a token, read with the console's identity if it is shared. If the core that answers no longer decides,
        look once more for the core that does. Raises Fault if the core does not answer or refuses.
        """
        try:
            return self._read(token, view)
        except DeposedFault:
            return self._read(token, view)

    def _read(self, token: str, view: Callable[[Core], Read]) -> Found[Read]:
        with self._leased(token) as leased:
            if leased.core.one_of_several and leased.reader is None:
                self._connection.renew(leased, token)
            reader = leased.reader
            if reader is None:
                return self._at_deciding(leased, token, view)
            return self._at_follower(leased, self._as_visitor(reader, token), token, view)

    def ask(self, token: str, view: Callable[[Core], Read]) -> Found[Read]:
        """Return the result of a view's requests to the core that decides.

        If `view` changes the core, later reads show this change. Raises Fault if the core does not answer or refuses.
        """
        with self._leased(token) as leased:
            found = self._at_deciding(leased, token, view)
            if leased.core.one_of_several:  # Another reader may find a follower in the meantime.
                self._note_position(leased, token)
            return found

    def _note_position(self, leased: Opened, token: str) -> None:
        """Record up to which position of its input the deciding core has come.

        If the core does not answer, stop reading at the follower.
        """
        core = self._as_visitor(leased.core, token)
        stub = replication_pb2_grpc.ReplicationServiceStub(core.channel)
        _, asked_in = self._connection.newest.state()
        try:
            found = core.ask(stub.GetReplication, replication_pb2.GetReplicationRequest())
        except Fault:
            self._connection.leave_follower(leased)
        else:
            self._connection.newest.note(found.position, found.term, asked_in)

    @contextmanager
    def _leased(self, token: str) -> Iterator[Opened]:
        with (
            self._connection.lease(token) as leased,
            extending(partial(self._connection.extend, leased)),
        ):
            yield leased

    def _noting(self) -> Callable[[inspect_pb2.Picture], None]:
        """Return a function that records the states of the answers to questions that are asked after this call."""
        newest = self._connection.newest
        _, asked_in = newest.state()
        return lambda picture: newest.note(picture.position, picture.term, asked_in)

    def _at_deciding(self, leased: Opened, token: str, view: Callable[[Core], Read]) -> Found[Read]:
        notices: list[str] = []
        shown = self._connection.newest.state()
        pictures = Pictures(notices.append, self._noting())
        asked = replace(self._as_visitor(leased.core, token), pictures=pictures)
        try:
            value = view(asked)
        except Fault as fault:
            if status_of(fault) in _AWAY:
                self._connection.retire(leased)
            raise
        missing = _missing_groups(leased.core)
        latest = pictures.latest
        follows = latest is not None and latest.follows
        if missing or follows:
            self._connection.retire(leased, RENEW_S)
        if latest is not None and latest.follows and _is_older(latest, shown):
            raise Fault(
                "No core decides, and the one that answers has an older state than this console has shown",
                where=f"core {leased.core.address}",
                advice="Pages are shown again when a core decides, or has the newer state.",
            )
        is_past = latest is not None and self._connection.newest.is_past(latest.term)
        if leased.core.one_of_several and is_past:
            self._connection.retire(leased)
            raise DeposedFault(
                "The core that answered no longer decides",
                where=f"core {leased.core.address}",
                advice="Pages are shown again when the core that decides answers.",
            )
        notices += [
            f"The cores {name} cannot be reached. They are missing on this page."
            for name in missing
        ]
        return Found(value, tuple(notices))

    def _at_follower(
        self, leased: Opened, asked: Core, token: str, view: Callable[[Core], Read]
    ) -> Found[Read]:
        """Read at a follower.

        If the follower cannot answer, or no longer follows closely, read at the core that decides.
        """
        notices: list[str] = []
        pictures = Pictures(notices.append, self._noting(), names_follower=False)
        presence = self._presence.begin(self._as_visitor(leased.core, token))
        try:
            value = view(replace(asked, pictures=pictures))
        except Fault as fault:
            status = status_of(fault)
            if status in _OF_A_VIEW:
                found = self._at_deciding(leased, token, view)
                self._connection.leave_follower(leased)
                return found
            if status not in _OF_THE_FOLLOWER and reason(fault) not in _BEHIND:
                raise
            self._connection.leave_follower(leased)
            return self._at_deciding(leased, token, view)
        latest = pictures.latest
        if latest is None or is_close(latest):
            if latest is not None and not latest.follows:  # It decides by now.
                self._connection.renew(leased, token)
            return Found(value, (*notices, *presence()), _named(asked.address, latest))
        self._connection.leave_follower(leased)
        try:
            return self._at_deciding(leased, token, view)
        except Fault as fault:
            if status_of(fault) not in _AWAY:
                raise
            Pictures(notices.append).look_at(_Answer(latest))
            return Found(value, tuple(dict.fromkeys(notices)))

    def kinds(self, token: str, hold: Callable[[grpc.Call], None]) -> Iterator[frozenset[str]]:
        """Yield the kinds of events as they happen.

        The first yielded set is empty and says that the stream is open. ``hold`` gets the gRPC call, which another
        thread may cancel.

        Raises Fault if the core does not answer or refuses, and when the stream ends, at the latest after STREAM_S.
        """
        with self._connection.lease(token) as leased:
            # A stream from the follower reports an event only when the follower's answers show the event.
            follower = leased.core.follower if leased.reader is not None else None
            asked = self._as_visitor(follower or leased.core, token)
            calls: list[grpc.Call] = []

            def held(call: grpc.Call) -> None:
                calls.append(call)
                if follower is not None:
                    leased.streams.add(call)
                    if leased.reader is None:
                        call.cancel()
                hold(call)

            stub = watch_pb2_grpc.WatchServiceStub(asked.channel)
            request = watch_pb2.WatchEventsRequest(kinds_only=True)
            try:
                for one in asked.follow(stub.WatchEvents, request, STREAM_S, held):
                    yield frozenset(one.kinds) | {each.kind for each in one.events}
            finally:
                leased.streams.difference_update(calls)

    def _as_visitor(self, core: Core, token: str) -> Core:
        """Return the connection with the token of a visitor. Raises LogInFault if a visitor needs a token and has none."""
        if core.has_identity and not token and not self._shares_identity:
            raise LogInFault("This console shows nothing to visitors who have not logged in.")
        return replace(core, metadata=as_caller(core.metadata, token), silent=True)


@dataclass(frozen=True, slots=True)
class _Answer:
    """An object in place of an answer. It has only the field that `Pictures` reads: the state of the core."""

    picture: inspect_pb2.Picture


def _is_older(found: inspect_pb2.Picture, shown: tuple[int, str]) -> bool:
    """Return whether an answer is from an older state than `shown`, within the same term."""
    position, term = shown
    return found.term == term and found.position < position


def _named(address: str, latest: inspect_pb2.Picture | None) -> str:
    """Return a sentence that names a follower and its leader.

    If the answer lacks the leader's address, the sentence names no core. Answers to viewers lack this address.
    """
    if latest is None or not latest.follows:
        return ""
    if ":" not in latest.follows:
        return "Read at a core that follows the one that decides."
    return f"Read at {address}, which follows {latest.follows}."


def status_of(fault: Fault) -> grpc.StatusCode | None:
    """Return the status of the call that failed, or None if the fault has another cause than a call."""
    cause = fault.__cause__
    return cause.code() if isinstance(cause, grpc.RpcError) else None


def reason(fault: Fault) -> str:
    """Return the core's stable code for the reason of a failure, such as `FOLLOWER_BEHIND`, or "" if there is none."""
    cause = fault.__cause__
    return reason_of(cause) if isinstance(cause, grpc.RpcError) else ""


def unless_absent(read: Callable[[], Read]) -> Read | None:
    """Return the result of a read for a part of a view, or None if the core cannot answer or the caller may not see the result.

    Raises Fault if the core does not answer, or refuses for a reason other than these two.

    Examples of None are a core without a history, and a report that the role of the caller does not include.
    """
    absent = {grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.PERMISSION_DENIED}
    try:
        return read()
    except Fault as fault:
        if status_of(fault) in absent or reason(fault) == _NO_HISTORY:
            return None
        raise


def _missing_groups(core: Core) -> list[str]:
    """Return the names of the groups of cores that could not be reached. With a single core the list is empty."""
    channel = cast("object", core.channel)
    with suppress(AttributeError):
        return sorted(cast("SpreadChannel", channel).missing)
    return []
