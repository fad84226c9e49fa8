"""Reads of the core with the token of one caller, and the notices that come with the answers."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Generic, TypeVar, cast

import grpc

from evenhand.v1 import watch_pb2, watch_pb2_grpc
from evenhand_cli.connect import Core, authorization
from evenhand_cli.faults import Fault
from evenhand_cli.rpc_faults import reason_of
from evenhand_cli.spread_channel import SpreadChannel
from evenhand_cli.staleness import Pictures
from evenhand_console.at_once import extending
from evenhand_console.connection import RENEW_S, Connection

STREAM_S: Final = 60.0
"""Seconds for which a stream of events is open. The next stream is opened to the core that decides at that time."""
_AWAY: Final = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})
_NO_HISTORY: Final = "NO_HISTORY"

Read = TypeVar("Read")


@dataclass(frozen=True, slots=True)
class Found(Generic[Read]):
    """The result of a view's reads, and the notices about the core that answered."""

    value: Read
    notices: tuple[str, ...]


class LogInFault(Fault):
    """The fault for a visitor without a token, if the console does not share its own identity."""


class Source:
    """The source of the console's data: the core, which answers the reads of visitors."""

    def __init__(self, connection: Connection, *, shares_identity: bool = True) -> None:
        """Make a source. With ``shares_identity``, visitors without a token read with the console's token or certificate."""
        self._connection = connection
        self._shares_identity = shares_identity

    def read(self, token: str, view: Callable[[Core], Read]) -> Found[Read]:
        """Return the result of a view's reads with a token.

        Without a token, read with the console's identity, provided that the console shares its identity.

        Raises Fault if the core does not answer or refuses.
        """
        with (
            self._connection.lease() as leased,
            extending(partial(self._connection.extend, leased)),
        ):
            notices: list[str] = []
            pictures = Pictures(notices.append)
            asked = replace(self._as_visitor(leased.core, token), pictures=pictures)
            try:
                value = view(asked)
            except Fault as fault:
                if status_of(fault) in _AWAY:
                    self._connection.retire(leased)
                raise
            missing = _missing_groups(leased.core)
            follows = pictures.latest is not None and pictures.latest.follows
            if missing or follows:
                self._connection.retire(leased, RENEW_S)
            notices += [
                f"The cores {name} cannot be reached. They are missing on this page."
                for name in missing
            ]
            return Found(value, tuple(notices))

    def kinds(self, token: str, hold: Callable[[grpc.Call], None]) -> Iterator[frozenset[str]]:
        """Yield the kinds of events as they happen.

        The first yield, without kinds, says that the stream is open. ``hold`` gets the call, which another thread may
        cancel.

        Raises Fault if the core does not answer or refuses, and when the stream ends, at the latest after STREAM_S.
        """
        with self._connection.lease() as leased:
            asked = self._as_visitor(leased.core, token)
            stub = watch_pb2_grpc.WatchServiceStub(asked.channel)
            request = watch_pb2.WatchEventsRequest(kinds_only=True)
            for one in asked.follow(stub.WatchEvents, request, STREAM_S, hold):
                yield frozenset(one.kinds) | {each.kind for each in one.events}

    def _as_visitor(self, core: Core, token: str) -> Core:
        """Return the connection with the token of a visitor. Raises LogInFault if a visitor needs a token and has none."""
        if core.has_identity and not token and not self._shares_identity:
            raise LogInFault("This console shows nothing to visitors who have not logged in.")
        own = [one for one in core.metadata if not (token and one[0] == "authorization")]
        return replace(core, metadata=(*own, *authorization(token)), silent=True)


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
