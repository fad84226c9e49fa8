"""A channel to the cores of several groups, which the commands use like a channel to one core (design 7.6).

A request about one partition goes to the group that owns it. Any other request goes to all groups at once, and their
answers are combined into one. If a group cannot be reached, a notice names the group, and the answer comes from the
other groups.
"""

import json
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

import grpc

from evenhand.v1 import config_pb2
from evenhand_cli import terminal
from evenhand_cli.core_table import CoreGroup, CoreTable
from evenhand_cli.faults import ExitCode, Fault
from evenhand_cli.rpc_faults import fault_of
from evenhand_cli.spread_answers import join

EVERYWHERE: Final = frozenset(
    {
        *("ListDecisions", "WatchDecisions", "ListShadowDecisions", "Explain", "GetPodHistory"),
        *("GetPastLostWork", "ListPastDecisions", "CheckConsistency", "GetLostWork"),
    }
)
"""The methods for which a request without a partition means all partitions.

For all other methods, a request without a partition means the default partition.
"""
SAME: Final = frozenset({"Validate", "Get", "Diff", "GetConfiguration"})
"""The methods about the configuration. Because all groups have the same configuration, the first group that can be reached answers."""
NOT_SPREAD: Final = frozenset({"Follow"})
_ABSENT: Final = frozenset({grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION})
_GONE: Final = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})


class Reached(NamedTuple):
    """The core to which a group's requests are sent: its address, and the channel to it."""

    address: str
    channel: grpc.Channel


class SpreadChannel:
    """The channels to the cores of all groups."""

    def __init__(
        self,
        table: CoreTable,
        reach: Callable[[str], Reached],
        metadata: Mapping[str, tuple[tuple[str, str], ...]] | None = None,
        *,
        secure: bool,
    ) -> None:
        """Make a channel to all groups of a table.

        ``reach`` opens the channel to the core that decides, given the addresses of a group. ``metadata`` has, by the
        name of a group, the metadata that only calls to this group get.
        """
        self.table = table
        self.secure = secure
        self._metadata = metadata or {}
        self._reach = reach
        self._reached: dict[str, Reached] = {}
        self._reaching = {one.name: threading.Lock() for one in table.groups}
        self.missing: set[str] = set()
        """The names of the groups that could not be reached."""

    def owner(self, partition: str) -> "SpreadChannel":
        """Return a channel only to the group that owns a partition.

        No requests are sent to other groups, so that no other group is reported as missing.
        """
        table = CoreTable((self.table.owner(partition),))
        made = SpreadChannel(table, self._reach, self._metadata, secure=self.secure)
        made._reached, made._reaching = self._reached, self._reaching
        made.missing = self.missing
        return made

    def options(self, group: CoreGroup, how: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of a call to a group, given the options that calls to all groups have."""
        own = self._metadata.get(group.name, ())
        return {**how, "metadata": (*how.get("metadata", ()), *own)} if own else {**how}

    def close(self) -> None:
        """Close all channels."""
        for one in self._reached.values():
            one.channel.close()

    def reached(self, group: CoreGroup) -> Reached:
        """Return the core of a group.

        Threads that need the core at the same time share one channel, and wait for no other group.
        """
        with self._reaching[group.name]:
            if group.name not in self._reached:
                self._reached[group.name] = self._reach(group.addresses)
            return self._reached[group.name]

    def unary_unary(self, method: str, *more: Any, **options: Any) -> "_Asking":  # noqa: ANN401
        """Return the callable of a method with one answer."""
        return _Asking(self, method, lambda one: one.unary_unary(method, *more, **options))

    def unary_stream(self, method: str, *more: Any, **options: Any) -> Callable[..., "_Streams"]:  # noqa: ANN401
        """Return the callable of a method with a stream of answers.

        The answers come from the owner, or from all groups as they arrive.
        """

        def watch(request: Any, **how: Any) -> _Streams:  # noqa: ANN401
            groups = self.groups_for(_name(method), request)
            calls = {}
            for one in groups:
                call = self.reached(one).channel.unary_stream(method, *more, **options)
                calls[one.name] = call(request, **self.options(one, how))
            return _Streams(self, groups, calls)

        return watch

    def stream_unary(self, *_: Any, **__: Any) -> None:  # noqa: ANN401
        """Do nothing: no command sends a stream, but a stub names all its methods."""

    def stream_stream(self, *_: Any, **__: Any) -> None:  # noqa: ANN401
        """Do nothing: no command sends a stream, but a stub names all its methods."""

    def groups_for(self, method: str, request: Any) -> list[CoreGroup]:  # noqa: ANN401
        """Return the groups to which a request is sent: the owner of its partition, or all groups.

        Raises Fault if only a single core can answer the method.
        """
        if method in NOT_SPREAD:
            raise Fault(
                "only one core can be followed",
                where="--cores",
                advice="name the core with --core HOST:PORT",
                code=ExitCode.USAGE,
            )
        partition = getattr(request, "partition", None)
        if partition or (partition is not None and method not in EVERYWHERE):
            return [self.table.owner(partition)]
        return list(self.table.groups)

    def fault(self, group: CoreGroup, error: grpc.RpcError) -> Fault:
        """Return the Fault for a group that did not answer."""
        found = fault_of(error, self.reached(group).address, self.secure)
        has = ", ".join(group.partitions) or "none that the table names"
        where = f"{found.where}; cores {group.name}, partitions: {has}"
        return Fault(found.what, where=where, advice=found.advice, code=found.code)

    def miss(self, group: CoreGroup, error: grpc.RpcError) -> None:
        """Print that the answer lacks the part of a group that could not be reached.

        For each group the notice is printed once.
        """
        if group.name not in self.missing:
            self.missing.add(group.name)
            fault = self.fault(group, error)
            terminal.say(
                f"cores {group.name} are missing in this answer: {fault.what} ({fault.where})"
            )


class _Asking:
    """The callable of a method with one answer."""

    def __init__(
        self, channel: SpreadChannel, method: str, of: Callable[[grpc.Channel], Any]
    ) -> None:
        self._channel = channel
        self._method = _name(method)
        self._of = of

    def __call__(self, request: Any, **how: Any) -> Any:  # noqa: ANN401
        """Return the answer of the owner, or one answer of all groups.

        Raises Fault if a group refuses, or if no group answers.
        """
        groups = self._channel.groups_for(self._method, request)
        if self._method == "Apply":
            return self._applied(groups, request, how)
        if self._method in SAME:
            return self._first(groups, request, how)
        tokens = _tokens(request) if len(groups) > 1 else {}
        asked = {
            one.name: self._ask(one, _page(request, tokens.get(one.name)), how)
            for one in groups
            if not tokens or one.name in tokens
        }
        answers = self._answers([one for one in groups if one.name in asked], asked)
        return _joined(answers) if len(groups) > 1 else answers[groups[0].name]

    def _ask(self, group: CoreGroup, request: Any, how: Mapping[str, Any]) -> Any:  # noqa: ANN401
        call = self._of(self._channel.reached(group).channel)
        return call.future(request, **self._channel.options(group, how))

    def _answers(self, groups: list[CoreGroup], asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answers by group. Raises Fault if a group refuses, or if no group answers."""
        answers: dict[str, Any] = {}
        errors: list[tuple[CoreGroup, grpc.RpcError]] = []
        for group in groups:
            try:
                answers[group.name] = asked[group.name].result()
            except grpc.RpcError as error:
                errors.append((group, error))
        gone = [one for one in errors if one[1].code() in _GONE]
        refused = [one for one in errors if one not in gone]
        worst = [one for one in refused if one[1].code() not in _ABSENT]
        for one in gone if answers or refused else ():
            self._channel.miss(*one)
        if worst or not answers:
            first = (worst or refused or gone)[0]
            raise self._channel.fault(*first) from first[1]
        return answers

    def _first(self, groups: list[CoreGroup], request: Any, how: Mapping[str, Any]) -> Any:  # noqa: ANN401
        last: tuple[CoreGroup, grpc.RpcError] | None = None
        for group in groups:
            try:
                return self._ask(group, request, how).result()
            except grpc.RpcError as error:
                if error.code() not in _GONE:
                    raise self._channel.fault(group, error) from error
                last = group, error
        assert last is not None
        raise self._channel.fault(*last) from last[1]

    def _applied(
        self, groups: list[CoreGroup], request: config_pb2.ApplyRequest, how: Mapping[str, Any]
    ) -> config_pb2.ApplyResponse:
        """Apply a configuration to all groups, if all groups would accept it.

        If a group then fails, the fault names the groups that have applied the configuration.
        """
        trial = config_pb2.ApplyRequest()
        trial.CopyFrom(request)
        trial.dry_run = True
        tried: list[config_pb2.ApplyResponse] = []
        for group in groups:
            answer = self._taken(group, trial, how, ())
            if any(one.severity == config_pb2.PROBLEM_SEVERITY_ERROR for one in answer.problems):
                return answer
            tried.append(answer)
        if request.dry_run:
            return tried[0]
        taken: dict[str, config_pb2.ApplyResponse] = {}
        for group in groups:
            taken[group.name] = self._taken(group, request, how, tuple(taken))
        revisions = ", ".join(f"{name}: revision {one.revision}" for name, one in taken.items())
        terminal.say(f"in force in the cores of all groups ({revisions})")
        return taken[groups[0].name]

    def _taken(
        self,
        group: CoreGroup,
        request: config_pb2.ApplyRequest,
        how: Mapping[str, Any],
        before: tuple[str, ...],
    ) -> config_pb2.ApplyResponse:
        try:
            answer: config_pb2.ApplyResponse = self._ask(group, request, how).result()
        except grpc.RpcError as error:
            found = self._channel.fault(group, error)
            if not before:
                raise found from error
            names = ", ".join(before)
            raise Fault(
                f"the configuration is in force in cores {names}, not in cores {group.name}: {found.what}",
                where=found.where,
                advice="when that is mended, apply it again with --force; cores that have it already keep their revision",
                code=found.code,
            ) from error
        return answer


class _Streams:
    """The answers to one request, from the streams of all groups that got it. The iteration ends when every stream has ended."""

    def __init__(
        self, channel: SpreadChannel, groups: list[CoreGroup], calls: Mapping[str, Any]
    ) -> None:
        self._channel = channel
        self._groups = groups
        self._calls = calls

    def cancel(self) -> None:
        """End all streams."""
        for call in self._calls.values():
            call.cancel()

    def __iter__(self) -> Iterator[Any]:
        """Yield the answers as they arrive. Raises Fault when all streams have failed."""
        heard: queue.SimpleQueue[tuple[CoreGroup, Any]] = queue.SimpleQueue()
        for group in self._groups:
            reading = (group, self._calls[group.name], heard)
            threading.Thread(target=_read, args=reading, daemon=True).start()
        left, failed = len(self._groups), list[tuple[CoreGroup, grpc.RpcError]]()
        while left:
            group, found = heard.get()
            if found is None:
                left -= 1
            elif isinstance(found, grpc.RpcError):
                left -= 1
                failed.append((group, found))
                if left:
                    self._channel.miss(group, found)
            else:
                yield found
        if len(failed) == len(self._groups):
            raise self._channel.fault(*failed[-1]) from failed[-1][1]
        for one in failed:
            self._channel.miss(*one)


def _read(group: CoreGroup, call: Any, heard: "queue.SimpleQueue[tuple[CoreGroup, Any]]") -> None:  # noqa: ANN401
    """Put the answers of a stream into a queue, followed by the error that ended the stream, or by None."""
    end: grpc.RpcError | None = None
    try:
        for answer in call:
            heard.put((group, answer))
    except grpc.RpcError as error:
        end = error
    heard.put((group, end))


def _name(method: str) -> str:
    """Return the name of a method, given its path."""
    return method.rpartition("/")[2]


def _tokens(request: Any) -> dict[str, str]:  # noqa: ANN401
    """Return the token of the next page for each group that has a next page.

    The result is empty for the first page and for requests without pages.
    """
    text = getattr(request, "page_token", "")
    with suppress(ValueError):
        found = json.loads(text) if text else {}
        if isinstance(found, dict):
            return found
    return {}


def _page(request: Any, token: str | None) -> Any:  # noqa: ANN401
    if token is None:
        return request
    page = type(request)()
    page.CopyFrom(request)
    page.page_token = token
    return page


def _joined(answers: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """Return one combined answer, with a token that names the groups with a further page."""
    whole = join(list(answers.values()))
    tokens = {name: getattr(one, "next_page_token", "") for name, one in answers.items()}
    more = {name: token for name, token in tokens.items() if token}
    if more:
        whole.next_page_token = json.dumps(more)
    return whole
