"""A core that follows a leader and answers reads (design 7.3). When a manager registers with this core, the core leads.

The cores do not elect a leader. The resource manager chooses a core and registers there, which makes that core the leader. A core
without leaders to follow leads from its start.
"""

import asyncio
import enum
from collections import deque
from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple, NoReturn, Protocol

import grpc
import structlog
from google.protobuf.message import Message

from evenhand.v1 import replication_pb2 as pb
from server.core.state import Manager
from server.model.reports import Finding
from server.replication import checkpoint
from server.replication.applying import Applier, LostError
from server.replication.feed import Feed, Slice
from server.replication.log import Access, Address, BadAddressError
from server.replication.log import address as log_address
from server.rpc.access import BadOptionError, address, read_private
from server.rpc.acknowledging import Acknowledging
from server.rpc.errors import CallError
from server.rpc.incoming import Incoming, next_response
from server.rpc.limits import ALIVE_S, LEVEL_S, MESSAGE_BYTES_MAX
from server.rpc.pump import Pump
from server.rpc.sessions import Sessions
from server.state.pickled import BadCheckpointError

_log = structlog.get_logger(__name__)

FOLLOW: Final = "/evenhand.v1.ReplicationService/Follow"
REPLICATION: Final = "/evenhand.v1.ReplicationService/GetReplication"
WATCH_S: Final = 2.0
"""The seconds after which a leader checks again whether another core leads as well."""
RETRY_S: Final = 0.5
"""The seconds between two attempts to join a leader."""
SILENT_S: Final = 5 * ALIVE_S
"""The seconds without a message after which a leader counts as lost."""
CHECKPOINT_S: Final = 60.0
"""The seconds that a leader may take for the first part of its checkpoint."""
_ADVICE: Final = "See that NATS runs and has room in its store; scheduling goes on, but other cores do not get what is decided."
CANCEL_S: Final = 0.5
"""The seconds after which a task that was cancelled and has not ended is cancelled again."""
INSTALL: Final = "pip install 'evenhand[ha]'"
_CLIENT: Final = "nats"
"""The module of the client of NATS, which the extra `ha` installs."""
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", 4 * MESSAGE_BYTES_MAX),
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)

LEADING: Final = frozenset(
    {
        "/si.v1.Scheduler/UpdateAllocation",
        "/si.v1.Scheduler/UpdateApplication",
        "/si.v1.Scheduler/UpdateNode",
        "/evenhand.v1.ConfigurationService/Apply",
    }
)
"""The calls that only a leader accepts. A follower also accepts a registration, which makes it the leader."""


class State(enum.StrEnum):
    """The role of a core among several cores.

    LEADER: the core decides. FOLLOWER: the core follows a leader. JOINING: the core tries to join a leader and has no state yet.
    RESTORED: the core has the state of an earlier run, and waits for a manager to register.
    """

    LEADER = "leader"
    FOLLOWER = "follower"
    JOINING = "joining"
    RESTORED = "restored"


class Opened(NamedTuple):
    """The values with which a follower calls its leader: the leaders' addresses, and the follower's own name and credentials."""

    leaders: Sequence[str]
    name: str
    credentials: grpc.ChannelCredentials | None
    metadata: tuple[tuple[str, str], ...]
    renew: Callable[[], "Opened"]
    """The function that reads the credentials' files again. The function raises BadOptionError if a file cannot be used."""
    log: Access | None = None
    """The log through which the input reaches followers, in place of calls."""


@dataclass(frozen=True, slots=True)
class Joining:
    """The options of a core that follows: the addresses of its possible leaders, and the TLS and token files for calling them."""

    leaders: tuple[str, ...] = ()
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    token_file: Path | None = None
    log: str = ""
    """The address of the input log, which is used in place of leaders. The address is "" without a log."""
    log_credentials: Path | None = None
    log_tls_ca: Path | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The addresses of the cores that may lead, or the address of the log."""
        return (str(self._address()),) if self.log else self.leaders

    def check(self, *, traced: bool) -> None:
        """Raise BadOptionError for options that cannot be used. With ``traced``, this core writes an input trace."""
        self._check_log()
        for leader in self.leaders:
            address("--follow", leader)
        if self.names and traced:
            raise BadOptionError(
                "--trace: a core that follows another one begins with that one's state, which a trace does not hold; "
                "give --trace to a core without --follow and --log"
            )
        if not self.leaders and (self.tls_ca or self.tls_cert or self.tls_key or self.token_file):
            raise BadOptionError("--follow-...: there is no core to follow; add --follow HOST:PORT")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise BadOptionError("--follow-tls-cert and --follow-tls-key need each other")

    def _check_log(self) -> None:
        """Raise BadOptionError for options of the log that cannot be used."""
        if not self.log:
            if self.log_credentials or self.log_tls_ca:
                raise BadOptionError("--log-...: there is no log; add --log nats://HOST:PORT")
            return
        if self.leaders:
            raise BadOptionError("--log and --follow exclude each other: a core has one way")
        self._address()
        if find_spec(_CLIENT) is None:
            raise BadOptionError(f"--log: the client of NATS is not installed: {INSTALL}")

    def _address(self) -> Address:
        try:
            return log_address(self.log)
        except BadAddressError as error:
            raise BadOptionError(f"--log: {error}") from error

    def opened(self, name: str) -> Opened:
        """Read the TLS and token files, and return the values for calls to leaders. Raise BadOptionError for an unusable file."""
        token = read_private(self.token_file).decode(errors="replace") if self.token_file else ""
        token = token.strip()
        if not (token.isascii() and token.isprintable()):
            raise BadOptionError(f"{self.token_file}: a token is one line of printable ASCII")
        metadata = (("authorization", f"Bearer {token}"),) if token else ()
        renew = partial(self.opened, name)
        return Opened(self.leaders, name, self._credentials(), metadata, renew, self._log())

    def _log(self) -> Access | None:
        if not self.log:
            return None
        credentials, authority = (
            "" if one is None else read_private(one).decode(errors="replace")
            for one in (self.log_credentials, self.log_tls_ca)
        )
        return Access(self._address(), credentials, authority)

    def _credentials(self) -> grpc.ChannelCredentials | None:
        if self.tls_ca is None and self.tls_cert is None:
            return None
        ca, key, certificate = (
            None if one is None else read_private(one)
            for one in (self.tls_ca, self.tls_key, self.tls_cert)
        )
        return grpc.ssl_channel_credentials(ca, key, certificate)


@dataclass(slots=True)
class LogState:
    """The status of the input log of a core. A ``sequence`` is the number of a message. Times are in Unix milliseconds."""

    address: str
    connected: bool = False
    leader: str = ""
    """The name of the core that writes the log, according to the messages that this core has read."""
    sequence: int = 0
    """The number of the last message that this core has read or written."""
    last_sequence: int = 0
    """The number of the last message that is known to be in the log."""
    position: int = 0
    """The number of events and ticks of this core that the log has, if this core leads."""
    away_since_ms: int = 0
    """The time since which the engine of the log has been unavailable, or 0 if the engine is available."""
    why: str = ""
    checkpoint_sequence: int = 0
    """The number of the message after which a reader of this core's last checkpoint continues, or 0 without a checkpoint."""
    checkpoint_ms: int = 0
    gaps: int = 0
    """The number of times that this core had to begin with a checkpoint, because the log lacked some of its input."""

    def findings(self) -> Iterable[Finding]:
        """Return the doctor's finding about a log that cannot be used."""
        if self.away_since_ms:
            yield Finding("warning", "log", "log-away", f"{self.address}: {self.why}", _ADVICE)


class Replica:
    """The role of a core among several cores: whether it leads, and otherwise which leader it follows, at which position."""

    def __init__(
        self, leaders: Sequence[str] = (), *, restored: bool = False, process: str = ""
    ) -> None:
        self.process = process
        """The unique name of this process. With this name, a core recognizes itself among the cores that it is to follow."""
        self.state = State.JOINING if leaders else State.LEADER
        if restored:
            self.state = State.RESTORED
        self.leader = leaders[0] if leaders else ""
        """The address of the leader that this core follows, or followed last."""
        self.leader_position = 0
        self.heard_ms = 0
        """The instant of the leader's last message in Unix milliseconds, or 0 if there was none."""
        self.level_ms = 0
        """The instant at which this core last had all input that its leader had sent, in Unix milliseconds."""
        self.joined = 0
        """The number of checkpoints that were taken over."""
        self.taken_over = asyncio.Event()
        """The event that is set when a checkpoint was taken over. `Saving` clears this event."""
        self.differences = 0
        """The number of slices in which this core's decisions differed from those of its leader."""
        self.difference = ""
        """The first difference between the decisions of this core and those of a leader."""
        self.leads = asyncio.Event()
        """The event that is set while this core leads. Before the event is set, the state of the core records that the core leads."""
        self.streams: Callable[[], int] = lambda: 0
        """The function that returns how many streams managers have open to this core."""
        self.rested: Callable[[], None] = lambda: None
        """The function to call when this core no longer leads and follows another core."""
        self.log: LogState | None = None
        """The state of the input log, if the input reaches followers through one."""

    @property
    def is_free(self) -> bool:
        """Whether no manager has a stream to this core."""
        return not self.streams()

    def follows(self, other: str) -> None:
        """Record that this core no longer leads, and follows another core."""
        self.leads.clear()
        self.state, self.leader = State.FOLLOWER, other
        self.heard_ms = self.leader_position = 0

    def heard(self, leader_position: int, position: int, now: int) -> None:
        """Record a message of the leader with its position, the position of this core, and the instant in Unix milliseconds."""
        self.leader_position, self.heard_ms = leader_position, now
        if position >= leader_position:
            self.level_ms = now

    def behind(self, position: int) -> int:
        """Return by how many events and ticks a core with this position is known to be behind its leader, or 0 for a leader."""
        return 0 if self.state is State.LEADER else max(0, self.leader_position - position)

    def findings(self) -> Iterable[Finding]:
        """Return the doctor's findings about the input log, if there is one."""
        return () if self.log is None else self.log.findings()

    def refusal(self, method: str) -> CallError | None:
        """Return the error of a call that only a leader accepts. Return None if this core leads or accepts the call."""
        return self.not_leader("do that") if method in LEADING else None

    def not_leader(self, what: str) -> CallError | None:
        """Return the error of a call that only a leader accepts. Return None if this core leads."""
        if self.state is State.LEADER:
            return None
        if self.leader:
            message = f"this core follows {self.leader}: {what} there, or register here to make this core the leader"
        else:
            message = "this core has the state of its last run and waits for a manager to register"
        return CallError(grpc.StatusCode.FAILED_PRECONDITION, "NOT_LEADER", message)


class Way(Protocol):
    """The transport by which this core gets the input of its leader, and by which followers get the input of this core."""

    async def follow(self) -> None:
        """Pass the state and the input of a leader to this core, until cancelled. Raise an exception that the core raises."""

    async def take_over(self) -> None:
        """Get the missing input before this core leads. Return within a short time, even if no other process answers."""

    async def lead(self) -> str:
        """Pass on the input of this core while it leads. Return the name of the new leader once another core leads."""

    async def finish(self) -> None:
        """End `lead`. Before `lead` ends, pass on the input that still waits, within a short time."""


class Followed:
    """The object that applies the state and input of a leader to this core, and records what is known about that leader."""

    def __init__(
        self,
        replica: Replica,
        applier: Applier,
        pump: Pump,
        sessions: Sessions,
        managers: Callable[[], Mapping[str, Manager]],
    ) -> None:
        """Make the state of a follower. ``managers`` returns the registered managers of its core."""
        self.replica = replica
        self._applier = applier
        self._pump = pump
        self._sessions = sessions
        self._managers = managers
        self._is_cut = True
        self._is_amid = False
        """Whether a slice has been applied only in part. The decisions of such a slice are counted, but not yet kept."""
        self._moved = asyncio.Event()

    def begin(self, leader: str, data: bytes, ahead: int = 0) -> None:
        """Take over the state of a checkpoint, and follow ``leader`` from now on. Raise BadCheckpointError if the checkpoint cannot be used.

        ``ahead`` is the number of events and ticks by which the leader is known to be ahead of the checkpoint.
        """
        header = self._applier.begin(data)
        self._sessions.kept.clear()
        self._sessions.follow(self._managers())
        self._is_cut = False
        self.replica.state, self.replica.leader = State.FOLLOWER, leader
        self.replica.joined += 1
        self.replica.taken_over.set()
        self.heard(header.position + ahead)
        self._pump.followed([], 0, 0.0, self._pump.now())  # Observers keep its configuration.
        self._pump.wake_watchers()
        _log.info("follows", leader=leader, position=header.position, bytes=len(data))

    async def apply(self, one: Slice, leader_position: int = 0) -> None:
        """Apply a slice, which the leader sent at ``leader_position``. Raise LostError if the decisions of both cores differ.

        Large slices are applied in parts, between which calls are answered.
        """
        self._is_amid = True
        try:
            applied, seconds = await self._pump.in_parts(self._applier.apply_in_parts(one))
            if applied is not None:
                self._pump.followed(applied.decisions, applied.events, seconds, applied.now)
                self._sessions.follow(self._managers())
        finally:
            self._is_amid = False
            self._moved.set()
        self.heard(max(one.position, leader_position))
        if self._applier.difference and not self.replica.difference:
            self.replica.difference = self._applier.difference
            _log.error("decides-otherwise", difference=self._applier.difference)
        if self._applier.difference:
            self.replica.differences += 1
            raise LostError(f"this core decides otherwise: {self._applier.difference}")

    def cut(self, *, is_cut: bool = True) -> None:
        """Record whether the leader's input has stopped. Pass False for ``is_cut`` when input arrives again."""
        self._is_cut = is_cut
        self._moved.set()

    async def reach(self, is_enough: Callable[[], bool]) -> None:
        """Wait until this core has received so much of its leader's input that ``is_enough`` returns True.

        Stop the wait after LEVEL_S, or when the leader's stream ends. Return only between two slices, unless LEVEL_S is over.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(LEVEL_S):
                while self.replica.state is State.FOLLOWER:
                    if not self._is_amid and (self._is_cut or is_enough()):
                        return
                    self._moved.clear()
                    await self._moved.wait()

    def now(self) -> int:
        """Return the time in Unix milliseconds."""
        return self._pump.now()

    def heard(self, position: int) -> None:
        """Record a message of the leader, whose core has this position."""
        self.replica.heard(position, self._applier.position, self._pump.now())


class Following:
    """The work of a core that does not lead from its start: `run` follows a leader until `stop` is called."""

    def __init__(self, replica: Replica, feed: Feed, pump: Pump, way: Way) -> None:
        self._replica = replica
        self._feed = feed
        self._pump = pump
        self._way = way
        self._ending = asyncio.Event()
        self._leading: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """End `run`. After that, the core leads, unless the server stops. Do nothing while the core leads."""
        if self._replica.state is not State.LEADER or self._pump.stopping:
            self._pump.accept()  # A registration queues its events before this core leads.
            self._ending.set()

    async def run(self) -> None:
        """Follow a leader until this core leads. Raise an exception that the core raises."""
        joining = asyncio.create_task(self._way.follow())
        leading = asyncio.create_task(self._ending.wait())
        try:
            await asyncio.wait({joining, leading}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leading.cancel()
            await ended(joining)
        if not joining.cancelled() and (error := joining.exception()) is not None:
            raise error
        if not self._pump.stopping:
            await self._way.take_over()
            self._replica.state = State.LEADER
            _log.info("leads", position=self._feed.position)
        self._ending.clear()

    def watch(self, end: Callable[[CallError], None]) -> None:
        """Let this core follow again once another core leads. ``end`` ends the streams of managers with an error."""
        self._leading = asyncio.create_task(self._lead(end))

    async def unwatch(self) -> None:
        """Stop the watch for another leader, which `watch` started."""
        if self._leading is not None:
            await ended(self._leading)
            self._leading = None
            await self._way.finish()

    async def _lead(self, end: Callable[[CallError], None]) -> None:
        other = await self._way.lead()
        self._replica.follows(other)
        _log.info("follows-again", leader=other)
        if (error := self._replica.not_leader("register")) is not None:
            end(error)
        self._pump.rest()


class Leaders:
    """The transport between cores that can reach each other by gRPC: a follower calls its leader, and the leader answers with its input."""

    def __init__(self, followed: Followed, feed: Feed, joining: Opened) -> None:
        self._followed = followed
        self._replica = followed.replica
        self._feed = feed
        self._joining = joining
        self._problem = ""
        """The reason why the files with the credentials cannot be read again, or "" if they can be read."""
        self._arrived: deque[pb.InputSlice] = deque()
        """The slices that had arrived, and had not been applied, when this core stopped following."""

    async def follow(self) -> None:
        """Try the leaders in turn, until cancelled. Once a leader can be joined, follow that leader until its stream ends."""
        told: dict[str, str] = {}
        while True:
            for leader in self._joining.leaders:
                joined = self._replica.joined
                why = await self._join(leader)
                if why != told.get(leader) or joined != self._replica.joined:
                    told[leader] = why
                    _log.warning("leader-lost", leader=leader, why=why)
            await asyncio.sleep(RETRY_S)

    async def take_over(self) -> None:
        """Apply the input that had arrived when this core stopped following. No slice begins later than LEVEL_S after the call."""
        until = self._followed.now() + 1_000 * LEVEL_S
        with suppress(LostError):
            while self._arrived and self._followed.now() < until:
                await self._followed.apply(slice_of(self._arrived.popleft()))
                await asyncio.sleep(0)
        self._arrived.clear()

    async def lead(self) -> str:
        """Wait until another core leads and its state is newer than that of this core. Return the address of that core.

        While a manager has a stream to this core, this core continues to lead. If no manager has a stream to either core,
        the core with less input follows. The core that served managers last therefore gets no older state.
        """
        replica = self._replica
        while True:
            await asyncio.sleep(WATCH_S)
            for other in self._joining.leaders:
                if replica.is_free and self._is_newer(await self._asked(other)) and replica.is_free:
                    return other

    def _is_newer(self, other: pb.GetReplicationResponse) -> bool:
        """Return whether another process leads, and either has a stream of a manager or has more input than this core."""
        if other.state != State.LEADER or other.process == self._replica.process:
            return False
        has_more = (other.position, other.process) > (self._feed.position, self._replica.process)
        return other.streams > 0 or has_more

    async def finish(self) -> None:
        """Do nothing, because followers call this core themselves to get its remaining input."""

    async def _asked(self, other: str) -> pb.GetReplicationResponse:
        """Return the report of another core about itself, or an empty report if that core does not answer."""
        async with self._channel(other) as channel:
            ask = channel.unary_unary(
                REPLICATION,
                request_serializer=pb.GetReplicationRequest.SerializeToString,
                response_deserializer=pb.GetReplicationResponse.FromString,
            )
            with suppress(grpc.aio.AioRpcError):
                metadata = self._joining.metadata
                return await ask(pb.GetReplicationRequest(), timeout=WATCH_S, metadata=metadata)
        return pb.GetReplicationResponse()

    async def _join(self, leader: str) -> str:
        """Follow one leader while it answers. Return why this core no longer follows the leader."""
        async with self._channel(leader) as channel:
            call = channel.unary_stream(
                FOLLOW,
                request_serializer=pb.FollowRequest.SerializeToString,
                response_deserializer=pb.FollowResponse.FromString,
            )(self._request(), metadata=self._joining.metadata)
            acks = Acknowledging(channel, self._joining.metadata, self._replica.process)
            sending = asyncio.create_task(acks.run())
            try:
                await self._follow(leader, call, acks)
            except grpc.aio.AioRpcError as error:
                return error.details() or str(error.code())
            except (BadCheckpointError, LostError) as error:
                return str(error)
            except TimeoutError:
                return f"no message for {SILENT_S:.0f} s"
            finally:
                sending.cancel()
                call.cancel()
                self._followed.cut()
        return "the stream ended"

    def _request(self) -> Message:
        return pb.FollowRequest(
            name=self._joining.name,
            version=self._feed.version,
            layout=checkpoint.layout(),
            process=self._replica.process,
        )

    def _channel(self, leader: str) -> grpc.aio.Channel:
        """Return a channel with the newest credentials that can be used: the files may have been replaced."""
        try:
            self._joining, self._problem = self._joining.renew(), ""
        except BadOptionError as error:
            if self._problem != (why := str(error)):
                _log.warning("credentials-not-renewed", why=why)
            self._problem = why
        credentials = self._joining.credentials
        if credentials is None:
            return grpc.aio.insecure_channel(leader, options=_OPTIONS)
        return grpc.aio.secure_channel(leader, credentials, options=_OPTIONS)

    async def _follow(
        self, leader: str, call: AsyncIterable[pb.FollowResponse], acks: Acknowledging
    ) -> None:
        responses = aiter(call)
        parts: list[bytes] = []
        while part := (await next_response(responses, CHECKPOINT_S)).checkpoint:
            parts.append(part)
        self._followed.begin(leader, b"".join(parts))
        parts.clear()
        async with Incoming(responses, SILENT_S, self._followed.heard) as incoming:
            try:
                await self._apply_all(incoming, acks)
            except asyncio.CancelledError:
                self._arrived.extend(incoming.rest())
                raise

    async def _apply_all(self, incoming: Incoming, acks: Acknowledging) -> NoReturn:
        """Apply slices until the stream of the leader ends."""
        while True:
            response = await incoming.next()
            if response.HasField("slice"):
                one = slice_of(response.slice)
                await self._followed.apply(one, incoming.leader_position)
                await asyncio.sleep(0)  # Other calls are answered between two slices.
            else:
                self._followed.heard(incoming.leader_position)
            if response.slice.acknowledge or response.alive.acknowledge:
                acks.got(self._feed.position)


async def ended(task: asyncio.Task[None]) -> None:
    """Cancel a task again and again until it has ended: `asyncio.wait_for` of Python 3.11 can lose a cancellation."""
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=CANCEL_S)


def slice_of(one: pb.InputSlice) -> Slice:
    """Return the slice that a message holds."""
    return Slice(one.position, one.decided, one.digest, one.input, one.begins)
