"""The commands `replication` and `follow`.

The commands show which core decides, and whether another version of Evenhand would make the same decisions.
"""

import enum
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib import metadata
from typing import Annotated, Any

import grpc
import typer
from rich.console import Group
from rich.text import Text

from evenhand.v1 import replication_pb2 as pb
from evenhand.v1 import replication_pb2_grpc
from evenhand_cli import terminal
from evenhand_cli.combinations import refuse_without
from evenhand_cli.connect import Core, asks_core
from evenhand_cli.durations import milliseconds
from evenhand_cli.faults import ExitCode, Fault
from evenhand_cli.output import Form, Output, plain, show
from evenhand_cli.render.amounts import span
from evenhand_cli.render.words import plural
from evenhand_cli.spread_channel import SpreadChannel
from server.core.core import Core as Deciding
from server.replication import checkpoint
from server.replication.applying import Applied, Applier, LostError
from server.replication.feed import Feed
from server.rpc.following import slice_of
from server.state.pickled import BadCheckpointError

PROGRESS = 2_000
"""Number of received messages between two lines about the progress."""


class Action(enum.StrEnum):
    """The action of the command `replication`."""

    SHOW = "show"
    HAND_OVER = "hand-over"


@asks_core
def replication(
    core: Core,
    action: Annotated[
        Action,
        typer.Argument(
            metavar="[show|hand-over]",
            help="`show` the state of cores, or `hand-over` from the core that decides to a follower.",
        ),
    ] = Action.SHOW,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="NAME",
            help="Follower to hand over to, by the name that `replication` shows; the first that is level when not given.",
        ),
    ] = "",
    output: Output = Form.TABLE,
) -> None:
    """Show whether a core decides or follows another one, and which cores follow it; or hand over to a follower.

    A hand-over loses nothing: the core that decides stops, a follower gets the rest of its input, and the resource
    managers continue there. If no follower has all input of that core, the hand-over is refused, and nothing changes.

    Examples:
        evenhand replication
        evenhand replication --core 127.0.0.1:50052 --output json
        evenhand replication --cores cores.yaml
        evenhand replication hand-over --core 127.0.0.1:50051,127.0.0.1:50052

    """
    if action is Action.HAND_OVER:
        _hand_over(core, to, output)
        return
    refuse_without("hand-over", to=to)
    _show(core, output)


def _hand_over(core: Core, to: str, output: Form) -> None:
    """Let the core that decides hand over to a follower, and show the name of this follower.

    Raises Fault for a connection to several groups of cores, or if the core does not answer or refuses.
    """
    spread: object = core.channel
    if isinstance(spread, SpreadChannel):
        raise Fault(
            "a hand-over is about one group of cores",
            where="--cores",
            advice="name the cores of the group: evenhand replication hand-over --core HOST:PORT,HOST:PORT",
            code=ExitCode.USAGE,
        )
    stub = replication_pb2_grpc.ReplicationServiceStub(core.channel)
    answer = core.ask(stub.HandOver, pb.HandOverRequest(to=to))
    told = f"handed over to {answer.follower} at position {answer.position}@{answer.term}"
    show(output, plain(answer), lambda _: Text(f"{told}, in {answer.stopped_ms} ms", style="good"))


def _show(core: Core, output: Form) -> None:
    """Show the state of each core.

    Raises Fault if the only core does not answer. Raises typer.Exit if one of several cores does not answer, or if a
    follower made another decision than its leader.
    """
    found: dict[str, pb.GetReplicationResponse] = {}
    away: list[Text] = []
    for group, one in _each_core(core):
        try:
            found[group] = _answer(one)
        except Fault as fault:
            if not group or fault.code is not ExitCode.UNREACHABLE:
                raise
            away.append(Text(f"cores {group}: {fault.what} ({fault.where})", style="bad"))
    values = {group: plain(answer) for group, answer in found.items()}
    value = values.get("", {"cores": values})
    show(output, value, lambda _: Group(*_pictures(found), *away))
    if away:
        raise typer.Exit(ExitCode.UNREACHABLE)
    if any(one.difference for one in found.values()):
        raise typer.Exit(ExitCode.PROBLEM)


def _each_core(core: Core) -> Iterator[tuple[str, Core]]:
    """Yield the name of each group, with the core of the group to which requests are sent.

    Without a table of cores, yield an empty name with the only core.
    """
    spread: object = core.channel
    if not isinstance(spread, SpreadChannel):
        yield "", core
        return
    for group in spread.table.groups:
        address, channel = spread.reached(group)
        yield group.name, replace(core, address=address, channel=channel)


def _answer(core: Core) -> pb.GetReplicationResponse:
    stub = replication_pb2_grpc.ReplicationServiceStub(core.channel)
    return core.ask(stub.GetReplication, pb.GetReplicationRequest())


def _pictures(found: Mapping[str, pb.GetReplicationResponse]) -> Iterator[Text]:
    """Yield the lines about each core, under the name of its group if there are groups."""
    for group, answer in found.items():
        if group:
            yield Text(f"cores {group}:", style="heading")
        yield from _lines(answer)


def _lines(answer: pb.GetReplicationResponse) -> list[Text]:
    lines = [Text(_headline(answer), style="bad" if answer.difference else "good")]
    if answer.term:
        lines.append(Text(f"  position {answer.position}@{answer.term}"))
    if answer.difference:
        lines.append(Text(f"it decided otherwise {answer.difference}"))
    for one in answer.followers:
        behind = answer.position - one.sent_position
        lag = f"{behind:,} events and ticks behind" if behind > 0 else "level"
        lines.append(Text(f"  follower {one.name}: {lag}"))
    if answer.HasField("log"):
        lines.append(Text(_log_line(answer), style="bad" if answer.log.away_since_ms else ""))
    elif answer.state == "leader" and not answer.followers:
        lines.append(Text("  no core follows it: `evenhand serve --follow` starts one"))
    return lines


def _log_line(answer: pb.GetReplicationResponse) -> str:
    """Return the state of a core's input log, in one line."""
    log = answer.log
    if log.away_since_ms:
        away = span(max(0, answer.now_ms - log.away_since_ms))
        return f"  log {log.address}: cannot be used for {away}: {log.why}"
    if answer.state == "leader":
        behind, unit = answer.position - log.position, "events and ticks"
    else:
        behind, unit = log.last_sequence - log.sequence, "messages"
    lag = f"{behind:,} {unit} behind" if behind > 0 else "level"
    writer = f"; {log.leader} writes it" if log.leader and answer.state != "leader" else ""
    return f"  log {log.address}: {lag} at message {log.sequence:,}{writer}"


def _headline(answer: pb.GetReplicationResponse) -> str:
    if answer.state == "leader":
        return f"this core decides; {answer.position:,} events and ticks so far"
    if answer.state == "restored":
        return "this core has the state of an earlier run, and waits for a resource manager"
    if answer.state == "joining":
        return f"this core has no state yet; it tries to follow {answer.leader}"
    if not answer.heard_ms:
        return f"this core is to follow {answer.leader}, and has not joined it yet"
    behind = answer.leader_position - answer.position
    lag = f"{behind:,} events and ticks behind" if behind > 0 else "level"
    heard = span(max(0, answer.now_ms - answer.heard_ms))
    return f"this core follows {answer.leader}: {lag}, heard {heard} ago"


@asks_core
def follow(
    core: Core,
    for_: Annotated[
        str,
        typer.Option(
            "--for",
            metavar="DURATION",
            help="How long to follow, such as 10m; until Ctrl-C when not given.",
        ),
    ] = "",
    output: Output = Form.TABLE,
) -> None:
    """Follow a running core with this version of Evenhand, and say whether it would decide the same.

    The running core is not affected. The decisions of this command are only compared, and not sent to anybody. Exit
    code 1 means that a decision differed; the first one is named. Run this command with a new version before you
    upgrade.

    Examples:
        evenhand follow --for 10m
        evenhand follow --core 127.0.0.1:50051 --for 1h --output json

    """
    seconds = milliseconds(for_) / 1000 if for_ else None
    watch = _Watch()
    stub = replication_pb2_grpc.ReplicationServiceStub(core.channel)
    request = pb.FollowRequest(
        name="evenhand follow", version=watch.feed.version, layout=checkpoint.layout()
    )
    try:
        for response in core.follow(stub.Follow, request, seconds):
            watch.take(response)
            if watch.difference:
                break
    except Fault as fault:
        if not _is_time_up(fault, seconds):
            raise
    except KeyboardInterrupt:
        terminal.say("stopped")
    except (BadCheckpointError, LostError) as error:
        what = f"the input of {core.address} cannot be followed: {error}"
        raise Fault(what, advice="start it again; it then begins with a new checkpoint") from error
    show(
        output,
        watch.value(),
        lambda _: Text(watch.text(), style="bad" if watch.difference else "good"),
    )
    if watch.difference:
        raise typer.Exit(ExitCode.PROBLEM)


def _is_time_up(fault: Fault, seconds: float | None) -> bool:
    """Return whether a stream ended because the time that the user gave was over."""
    cause = fault.__cause__
    return (
        seconds is not None
        and isinstance(cause, grpc.RpcError)
        and cause.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    )


class _Watch:
    """A core in this process that gets the input of another core, and the totals of the comparison of their decisions."""

    def __init__(self) -> None:
        self.feed = Feed(Deciding(), metadata.version("evenhand"))
        self._applier = Applier(self.feed, self.feed)
        self._parts: list[bytes] = []
        self._responses = self._slices = self._events = self._decisions = 0

    @property
    def difference(self) -> str:
        """The first difference between the decisions of the two cores; empty if there is no difference yet."""
        return self._applier.difference

    def take(self, response: pb.FollowResponse) -> None:
        """Take one message of the stream. Raises BadCheckpointError and LostError."""
        if response.HasField("checkpoint"):
            self._join(response.checkpoint)
        elif response.HasField("slice"):
            self._count(self._applier.apply(slice_of(response.slice)))
        self._responses += 1
        if self._responses % PROGRESS == 0:
            terminal.say(
                f"{plural(self._events, 'event')}, {plural(self._decisions, 'decision')}, all the same"
            )

    def _join(self, part: bytes) -> None:
        if part:
            self._parts.append(part)
            return
        header = self._applier.begin(b"".join(self._parts))
        self._parts.clear()
        terminal.say(f"follows version {header.version} from input {header.position:,} on")

    def _count(self, applied: Applied | None) -> None:
        if applied is not None:
            self._slices += 1
            self._events += applied.events
            self._decisions += len(applied.decisions)

    def value(self) -> dict[str, Any]:
        """Return the totals as plain values."""
        return {
            "version": self.feed.version,
            "position": self.feed.position,
            "slices": self._slices,
            "events": self._events,
            "decisions": self._decisions,
            "difference": self.difference,
        }

    def text(self) -> str:
        """Return the result in a sentence."""
        if self.difference:
            return f"this version decides otherwise {self.difference}"
        if not self._slices:
            return "the core was given nothing meanwhile, so there was nothing to compare"
        return (
            f"this version decided the same: {self._decisions:,} decisions and replies "
            f"for {plural(self._events, 'event')}"
        )
