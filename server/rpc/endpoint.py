"""The endpoint: all services, health, reflection and the interceptor on one gRPC server, and how it starts and stops."""

import asyncio
import enum
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from grpc_reflection.v1alpha import reflection

from evenhand.v1 import (
    config_pb2,
    decisions_pb2,
    explain_pb2,
    history_pb2,
    inspect_pb2,
    replication_pb2,
    reports_pb2,
    simulate_pb2,
    watch_pb2,
)
from server.core.core import Core
from server.core.decider import Decider
from server.history.address import Address
from server.model.events import LeadershipTaken
from server.record.keeper import NotKept
from server.replication.applying import Applier
from server.replication.feed import Feed
from server.rpc.acknowledged import Acknowledged
from server.rpc.acknowledging import Acknowledgements
from server.rpc.configuration_reading import Readings
from server.rpc.errors import unexpected
from server.rpc.evenhand.configuration_service import ConfigurationService, Keeping
from server.rpc.evenhand.decision_log import DecisionLog
from server.rpc.evenhand.decision_service import DecisionService
from server.rpc.evenhand.explain_service import ExplainService
from server.rpc.evenhand.inspect_service import About, InspectService
from server.rpc.evenhand.late_history import LateHistory
from server.rpc.evenhand.no_history import NoHistory
from server.rpc.evenhand.picture import Pictures
from server.rpc.evenhand.replication_service import ReplicationService
from server.rpc.evenhand.report_service import ReportService
from server.rpc.evenhand.simulate_service import SimulateService
from server.rpc.evenhand.watch_service import WatchService
from server.rpc.evenhand.watchers import Watchers
from server.rpc.event_buffer import History
from server.rpc.following import Followed, Following, Leaders, Opened, Replica, State, Way
from server.rpc.grpc_types import Called, Handlers, unheard
from server.rpc.handing_over import HandingOver
from server.rpc.handlers import handlers
from server.rpc.identity import Identities
from server.rpc.interceptor import Guard
from server.rpc.level import Gauge
from server.rpc.level import services as standing
from server.rpc.limits import MESSAGE_BYTES_MAX
from server.rpc.min_position import MinPosition
from server.rpc.moving import Moving
from server.rpc.probes import SERVICE_NAME as HEALTH
from server.rpc.probes import Health
from server.rpc.pump import Observer, Pump, Time
from server.rpc.reads import Answers, InPlace, Reads
from server.rpc.servicer import Received, Scheduler
from server.rpc.sessions import Sessions
from si.v1 import si_pb2

OPTIONS: Final[Sequence[tuple[str, int]]] = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", 4 * MESSAGE_BYTES_MAX),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # A shim with several cores checks twice a second whether its core can be reached.
    ("grpc.http2.min_ping_interval_without_data_ms", 200),
    # Two cores on one port would silently divide its clients between them.
    ("grpc.so_reuseport", 0),
)

LAST_WORDS_S: Final = 0.5
"""The number of seconds that open calls, such as health watches and listings, may take to finish when the server stops."""

_SERVICES: Final[Sequence[ServiceDescriptor]] = (
    si_pb2.DESCRIPTOR.services_by_name["Scheduler"],
    inspect_pb2.DESCRIPTOR.services_by_name["InspectService"],
    explain_pb2.DESCRIPTOR.services_by_name["ExplainService"],
    config_pb2.DESCRIPTOR.services_by_name["ConfigurationService"],
    watch_pb2.DESCRIPTOR.services_by_name["WatchService"],
    decisions_pb2.DESCRIPTOR.services_by_name["DecisionService"],
    simulate_pb2.DESCRIPTOR.services_by_name["SimulateService"],
    reports_pb2.DESCRIPTOR.services_by_name["ReportService"],
    replication_pb2.DESCRIPTOR.services_by_name["ReplicationService"],
    history_pb2.DESCRIPTOR.services_by_name["HistoryService"],
)
SERVICE_NAMES: Final = tuple(str(service.full_name) for service in _SERVICES)


class Holding(Protocol):
    """The object that holds decisions back until they may be sent.

    ``tell`` is called when decisions have been held back for long, and when they may be sent again.
    """

    tell: Callable[[bool], object]

    async def before_leaving(self) -> None:
        """Wait until all decisions made so far may be sent to clients."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The settings of an endpoint, made by bootstrap. ``configured`` says that a file, not registrations, configures the core.

    If inputs are recorded, ``decider`` gets them first, and passes them on to ``feed``. If ``holding`` is given, decisions are
    not sent before its method `before_leaving` has returned. ``reads`` answers read calls. ``keeping`` says whether the
    configuration in force is on disk.
    """

    identities: Identities
    about: About
    received: Received
    configured: bool = False
    called: Called = unheard
    decider: Decider | None = None
    holding: Holding | None = None
    reads: Reads = field(default_factory=InPlace)
    keeping: Keeping = field(default_factory=NotKept)
    feed: Feed | None = None
    """The object that gives the core's input to followers. If it is None, the endpoint makes such an object."""
    replica: Replica = field(default_factory=Replica)
    history: Address | None = None
    """The address of the history's database, None if the core keeps no history."""
    acknowledged_s: float = 0.0
    """The seconds that decisions wait until a follower has them, or 0 if decisions do not wait."""


class End(enum.Enum):
    """The way in which the work of a core ended.

    FORCED: the work did not end by itself. It was cancelled, perhaps in the middle of a change of the state. A core that still works
    has this value, too, so that a stop at this moment counts as forced.
    """

    ORDERLY = "orderly"
    FORCED = "forced"
    FAILED = "failed"


class Endpoint:
    """The gRPC endpoint of a core."""

    def __init__(
        self,
        core: Core,
        sessions: Sessions,
        time: Time,
        setting: Setting,
        observers: Sequence[Observer] = (),
    ) -> None:
        self.sessions = sessions
        self.end = End.FORCED
        self._history = History()
        self._decisions = DecisionLog(core)
        observing: list[Observer] = [self._history, self._decisions, *observers]
        feed = setting.feed or Feed(core, setting.about.version)
        self.feed, self.replica = feed, setting.replica
        self.replica.streams = lambda: len(self.sessions)
        self._decider = setting.decider or feed
        self._following: Following | None = None
        steady = Time(
            lambda: max(time.now(), feed.now), time.seconds
        )  # a leader's clock may be ahead
        self.pump = Pump(self._decider, sessions, steady, observing, setting.reads)
        if setting.holding is not None:
            self.pump.before_leaving = setting.holding.before_leaving
            setting.holding.tell = self._hold
        self.handing = HandingOver(
            setting.replica, feed, self.pump, sessions, Acknowledgements(feed)
        )
        self._acknowledged = self._waiting(setting.acknowledged_s)
        self.reads = setting.reads
        """The reads of this core, which run in copies of the process if the process can be forked."""
        self._guard = Guard(setting.identities, setting.called, self.pump.now)
        self._probes_guard = Guard(setting.identities, setting.called, self.pump.now)
        """The guard of the health port.

        This guard counts its calls separately, so that calls to the other port never use up the limit for probes.
        """
        self.pump.checks = lambda: self._guard.checks() + self._probes_guard.checks()
        self._guard.refusal = setting.replica.refusal
        self._guard.ready = MinPosition(feed, setting.replica, self.pump.changed).wait
        self._health = Health()
        self.readings = Readings()
        self._server = grpc.aio.server(interceptors=[self._guard], options=OPTIONS)
        self._probed: grpc.aio.Server | None = None
        self._add_services(core, feed, setting)

    def _waiting(self, seconds: float) -> Acknowledged | None:
        """Make decisions wait for a follower for at most `seconds`, and return the object that waits.

        With 0 seconds decisions do not wait, and the result is None.
        """
        if not seconds:
            return None
        wait = Acknowledged(self.feed, self.handing.acknowledgements, seconds)
        self.pump.before_leaving = _in_turn(self.pump.before_leaving, wait.before_leaving)
        return wait

    def follow(self, joining: Opened) -> None:
        """Make `run` begin by following a leader, unless this core already leads.

        A core that follows decides nothing until a manager registers with it.
        """
        if self.replica.state is not State.LEADER:
            applier = Applier(self.feed, self._decider)
            followed = Followed(
                self.replica, applier, self.pump, self.sessions, lambda: self.feed.managers
            )
            way = _way(followed, self.feed, self.reads, joining)
            self._following = Following(self.replica, self.feed, self.pump, way)
            self.handing.may_follow = True
            self._servicer.lead = self._following.stop
            self._servicer.reach = followed.reach

    async def run(self) -> None:
        """Run the core until it is stopped. A core that is to follow another core decides nothing until it leads.

        An exception that the core raises ends the run, and is raised again.
        """
        self.end = End.FORCED
        try:
            await self._decide()
        except Exception:
            self.end = End.FAILED
            raise
        self.end = End.ORDERLY

    async def _decide(self) -> None:
        following = self._following
        if following is None:
            self.feed.begin_term(self.replica.process)
            self.replica.leads.set()
            await self.pump.run()
            return
        # The table is read now, because the feed has the leader's table as soon as this core follows a leader.
        beginning = LeadershipTaken(assignment=self.feed.assignment)
        while not self.pump.stopping:
            await following.run()
            if not self.pump.stopping:
                self.feed.begin_term(self.replica.process)
                self._decider.take([beginning], self.pump.now())
                self.replica.leads.set()
                following.watch(self.sessions.fail)
            await self.pump.run()
            while await self.handing.leads_on():
                await self.pump.run()
            if (failure := self.replica.not_leader("do that")) is not None:
                self.pump.refuse(failure)
            await following.unwatch()
            self.sessions.presence.forget_all()
            if not self.pump.stopping:
                self.replica.rested()

    def _add_services(self, core: Core, feed: Feed, setting: Setting) -> None:
        self._servicer = scheduler = Scheduler(
            core,
            self.pump,
            self.sessions,
            setting.received,
            None if setting.configured else self.readings,
        )
        scheduler.leads = setting.replica.leads
        watchers = Watchers(self.pump)
        pictures = Pictures(core, feed, setting.replica, self.sessions.presence, self.pump.now)
        answers = Answers(self.reads, pictures.complete)
        services: list[Any] = [
            InspectService(core, self.pump, self.sessions, self._history, setting.about),
            ExplainService(core, self.pump, self._decisions),
            ConfigurationService(
                core, self.pump, self.sessions.owners, self.readings, setting.keeping
            ),
            WatchService(core, self._history, watchers, self._decisions, answers),
            DecisionService(core, self.pump, self._decisions, watchers),
            SimulateService(core, self.pump, self._decisions),
            ReportService(core, self.pump, self._decisions, setting.about.started_ms),
            ReplicationService(
                feed,
                self.pump,
                self.reads,
                self.handing,
                Moving(core, self.pump, self.reads, setting.replica, self.sessions),
            ),
            _history(self.pump, setting.history),
        ]
        found = [
            scheduler.handlers(),
            *(
                handlers(service, implementation, answers)
                for service, implementation in zip(_SERVICES[1:], services, strict=True)
            ),
        ]
        for name, methods in zip(SERVICE_NAMES, found, strict=True):
            _serve(self._server, name, methods)
        _serve(self._server, HEALTH, self._health.handlers())
        names = (*SERVICE_NAMES, HEALTH, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._server)

    async def start(self, address: str, credentials: grpc.ServerCredentials | None) -> int:
        """Start to serve on the address and return the port. Raise OSError if the address is not available."""
        port = _listen(self._server, address, credentials)
        await self._server.start()
        self._health.serve(("", *SERVICE_NAMES))
        self._health.compute(standing(self.replica, self.pump.now))
        return port

    async def start_health(self, address: str) -> int:
        """Serve health alone on another address, in plain text and to every caller, and return the port.

        This port is for Kubernetes' gRPC probes, which cannot present a certificate. Raise OSError if the address is not
        available.
        """
        self._probed = grpc.aio.server(interceptors=[self._probes_guard], options=OPTIONS)
        _serve(self._probed, HEALTH, self._health.handlers())
        port = _listen(self._probed, address, None)
        await self._probed.start()
        return port

    @property
    def identities(self) -> Identities:
        """The identities in force."""
        return self._guard.identities

    def renew(self, identities: Identities) -> int:
        """Bring these identities into force, and return how many open calls end because of the change."""
        return self._guard.renew(identities)

    def gauges(self) -> Iterable[Gauge]:
        """Return the metrics of decisions that wait for followers. If decisions do not wait, there are no such metrics."""
        return () if self._acknowledged is None else self._acknowledged.gauges()

    def _hold(self, held: bool) -> None:  # noqa: FBT001
        """Report to probes whether decisions are sent. A core that holds decisions back serves no shim, but it still answers reads."""
        if not self._guard.draining:
            self._health.mark(SERVICE_NAMES[0], serving=not held)

    async def drain(self, pump: asyncio.Task[None], grace: float) -> None:
        """Stop gracefully: accept no new calls, let the pump empty its inbox, and send the outboxes' contents to clients that still read.

        The pump and the clients have at most ``grace`` seconds each.
        """
        self._health.finish()
        self._guard.draining = True
        with self.handing.acknowledgements.asking():  # This keeps the streams of followers open.
            self.pump.stop()
            if self._following is not None:
                self._following.stop()
            await asyncio.wait({pump}, timeout=grace)
            if not pump.done():
                # The pump may wait for something that never comes, such as a full disk. Its pending decisions are then not
                # sent.
                pump.cancel()
                await asyncio.wait({pump})
            farewell = await self.handing.last_words()
        self.sessions.finish(farewell)
        with suppress(TimeoutError):
            await asyncio.wait_for(self.sessions.gone.wait(), grace)
        await self.stop()

    async def crash(self) -> None:
        """Stop after a defect in the core: clients get an error and resync with the next process."""
        self._health.finish()
        self._guard.draining = True
        self.sessions.fail(unexpected())
        await self.stop()

    async def stop(self) -> None:
        """Close the ports.

        If they stayed open, gRPC's server would log a warning about the closed event loop when Python frees the server.
        """
        if self._acknowledged is not None:
            self._acknowledged.close()
        await self._server.stop(LAST_WORDS_S)
        self.reads.close()
        await self.readings.close()
        if self._probed is not None:
            await self._probed.stop(0)


def _in_turn(
    first: Callable[[], Awaitable[None]] | None, second: Callable[[], Awaitable[None]]
) -> Callable[[], Awaitable[None]]:
    """Return a function that awaits ``first``, if it is given, and then ``second``."""

    async def wait() -> None:
        if first is not None:
            await first()
        await second()

    return wait


def _way(followed: Followed, feed: Feed, reads: Reads, joining: Opened) -> Way:
    """Return the transport of the input: calls, or the input log. The client of NATS is loaded only if the input log is used."""
    if joining.log is None:
        return Leaders(followed, feed, joining)
    from server.rpc.log_way import LogWay  # noqa: PLC0415

    return LogWay(joining.log, followed, feed, reads, joining.name)


def _history(pump: Pump, place: Address | None) -> object:
    """Return the implementation of the HistoryService, which depends on whether the core keeps a history."""
    return NoHistory() if place is None else LateHistory(pump, place)


def _serve(server: grpc.aio.Server, name: str, methods: Handlers) -> None:
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, methods),))


def _listen(
    server: grpc.aio.Server, address: str, credentials: grpc.ServerCredentials | None
) -> int:
    try:
        if credentials is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise OSError(f"cannot listen on {address}") from error
