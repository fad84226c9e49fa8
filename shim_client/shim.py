"""The running shim: it takes inputs from cluster and core one at a time, and sends reports and actions.

The state machine makes all decisions. This module only transports messages, so that no decision depends on the order in
which tasks run.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from structlog.typing import FilteringBoundLogger

from shim_client.cluster import (
    Action,
    Cluster,
    ClusterError,
    FencedError,
    Listing,
    MissingError,
    ObjectRef,
    WatchEvent,
)
from shim_client.core_client.causes import START_ADVICE
from shim_client.core_client.connection import Connection
from shim_client.core_client.errors import CoreRefusedError, EpochOldError, PartitionsMovedError
from shim_client.core_client.refusals import Move
from shim_client.election.elector import LeaseLostError, Term
from shim_client.executor import Applier
from shim_client.informers import follow
from shim_client.messages import ConfigurationAnswer, Decision, NodeAnswer
from shim_client.state_machine import session
from shim_client.state_machine.machine import (
    Beat,
    Input,
    Link,
    Mirror,
    Outcome,
    PartitionMoved,
    Tally,
)
from shim_client.state_machine.objects.configuration import QueuesChanged

INBOX_MAX = 10_000
"""Maximum number of inputs that wait.

When the maximum is reached, cluster and core have to wait before they send further inputs.
"""
BEAT_SECONDS = 1.0
"""Seconds between ticks.

At each tick, waiting pods are checked again (the published `service.schedulingInterval`).
"""
BATCH_MAX = 2_000
"""Maximum number of inputs that are processed before their outputs are sent."""
REFUSED_ADVICE = {
    True: "renew the shim's token or certificate, which that core does not know: the shim reads its files again at each attempt;"
    " or start the other cores",
    False: "correct what that core names, or start the other cores",
}
"""The advice if a core refuses this shim and no other core answers.

The key is true if the core does not know the shim.
"""
REFUSED_PAUSE_SECONDS = 5.0
"""Seconds after which the shim registers again at a group of cores that refused it, if there are several groups."""
EPOCH_PAUSE_SECONDS = 0.5
"""Seconds after which an elected shim registers again at a core to which an earlier process is still connected."""


@dataclass(frozen=True, slots=True)
class ShimProgress:
    """Counts that show the progress of the shim's work."""

    tally: Tally
    actions_waiting: int
    news_waiting: int
    sessions: int
    """Number of times that the shim registered at the core."""

    @property
    def is_settled(self) -> bool:
        """Return whether all work is done: all bindings and evictions have ended, and the core has given a reason for each ask.

        Two kinds of pods are ignored: pods that are not asks yet, and victims that another operator deletes.
        """
        tally = self.tally
        under_way = tally.binding + tally.leaving + tally.waiting
        return tally.live and not (under_way or self.actions_waiting or self.news_waiting)


@dataclass(frozen=True, slots=True)
class _News:
    """An input, and the group of cores from which the input comes.

    `taken` is set when the state machine has processed the input.
    """

    content: Input
    taken: asyncio.Event | None = None
    group: str = ""


class PartitionOwnedError(Exception):
    """The error when a core refuses all nodes, because their partition belongs to another resource manager."""


class Leadership(Protocol):
    """The election of one of several shims, of which only the elected one acts (design 7.2)."""

    async def acquired(self) -> Term:
        """Wait until this shim may act in a new term, and return the term."""
        ...

    async def lost(self, term: Term) -> None:
        """Wait until the term has ended."""
        ...

    async def raised(self, term: Term, above: int) -> Term:
        """Raise the epoch of a term above the given one. Raises LeaseLostError if the lease is lost before that."""
        ...


class Shim:
    """The connection of one cluster with one core, or with the cores of several groups (design 7.6).

    With `leadership` the shim watches the cluster from the beginning, and registers and acts once it is elected. When
    the term of the shim ends, `run` ends. The next term needs another Shim object, because a Shim does not know the
    actions of other shims in the meantime.
    """

    def __init__(
        self,
        mirror: Mirror,
        cluster: Cluster,
        connections: Mapping[str, Connection],
        log: FilteringBoundLogger,
    ) -> None:
        """Make a shim with a connection for each group of cores, by the group's name."""
        self._mirror = mirror
        self._cluster = cluster
        self._connections = dict(connections)
        self._log = log
        settings = mirror.state.settings
        self._applier = Applier(cluster, self._acted, volumes_ms=settings.volume_bind_ms)
        self._inbox: asyncio.Queue[_News] = asyncio.Queue(INBOX_MAX)
        self.leadership: Leadership | None = None
        """The election that decides when this shim acts.

        None means that the shim acts from the beginning. Set this attribute before `run`.
        """
        self._may_act = False
        self._is_warm = False
        self._term: Term | None = None
        self._was_live = False
        self._sessions = 0
        self._foreign = ""
        """The core's reason for refusing a node of a partition that another manager owns.

        The text is empty when no node was refused for this reason.
        """
        self._untrusted: str | None = None
        """The last logged reason why the shim accepts no annotation that names a user; "" if it accepts some."""
        self._configured: ConfigurationAnswer | None = None
        """The last answer that was passed to `on_configured`: an answer of the core to a queue configuration."""
        self.on_configured: list[Callable[[ConfigurationAnswer], None]] = []
        """Functions that are called with the core's answer to a queue configuration, if it differs from the last answer."""
        self.on_live: list[Callable[[bool], None]] = []
        """Functions that are called with True when the core has confirmed all reports, and with False when a session ends."""
        self.on_warm: list[Callable[[], None]] = []
        """Functions that are called once, when every kind of object was listed."""

    async def run(self) -> None:
        """Work until cancelled.

        Errors: those of `Connection.run`, PartitionOwnedError and LeaseLostError, alone or in an exception group.
        """
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._pump())
            tasks.create_task(self._beat())
            tasks.create_task(follow(self._cluster, self._observed, missed=self._missed))
            tasks.create_task(self._act(tasks))

    async def finish(self, seconds: float) -> None:
        """Begin no further action on the cluster, and wait for the requests in flight; `run` still has to be cancelled."""
        await self._applier.finish(seconds)

    async def _act(self, tasks: asyncio.TaskGroup) -> None:
        """Wait until this shim is elected, if there is an election.

        After the election, hold sessions with the core and carry out its decisions.
        """
        if self.leadership is not None:
            self._term = await self.leadership.acquired()
            self._log.info("this shim leads", epoch=self._term.epoch)
            tasks.create_task(self._end_with(self.leadership, self._term))
        self._may_act = True
        tasks.create_task(self._applier.run())
        for name, connection in self._connections.items():
            tasks.create_task(self._hold(name, connection))

    async def _hold(self, group: str, connection: Connection) -> None:
        """Hold sessions with the cores of a group.

        If there are several groups, a refusal by one group does not end the sessions with the other groups.
        """
        log = self._log.bind(group=group) if group else self._log
        hearing = _Hearing(self, group, connection, log)
        while True:
            try:
                await connection.run(hearing, self._term.epoch if self._term else 0)
            except EpochOldError as old:
                if self.leadership is None or self._term is None:
                    raise
                self._term = await self._after(self.leadership, self._term, old)
            except CoreRefusedError as refused:
                if isinstance(refused, PartitionsMovedError) and self._knows(refused.moves):
                    await self._follow_moves(group, refused.moves)
                    continue
                if len(self._connections) == 1:
                    raise
                log.warning("the cores of a group refuse this shim", why=str(refused))
                await asyncio.sleep(REFUSED_PAUSE_SECONDS)

    def _knows(self, moves: Iterable[Move]) -> bool:
        """Return whether this shim has addresses for all groups to which partitions moved."""
        return all(one.group in self._connections for one in moves)

    async def _follow_moves(self, group: str, moves: Sequence[Move]) -> None:
        """Report moved partitions to their new groups of cores from now on. A core has named these moves (design 7.9).

        The sessions with the former and the new owner of each partition end, and begin again with the new revisions of
        the table. If a partition moved several times, only the last move counts. A move that another core has named
        before ends no session.
        """
        for one in {each.partition: each for each in moves}.values():
            former = self._mirror.owner(one.partition)
            known = self._connections[one.group].table_revision
            if former == one.group and known >= one.group_revision:
                continue
            self._log.warning(
                "a partition moved to other cores", partition=one.partition, group=one.group
            )
            taken = asyncio.Event()
            await self._inbox.put(_News(PartitionMoved(one.partition, one.group), taken))
            await taken.wait()
            self._connections[former].use_table()
            self._connections[one.group].use_table(one.group_revision)
        self._connections[group].use_table(moves[-1].revision)

    async def _end_with(self, leadership: Leadership, term: Term) -> None:
        """Raise LeaseLostError as soon as the term has ended."""
        await leadership.lost(term)
        raise LeaseLostError("the lease is not surely held any more")

    async def _after(self, leadership: Leadership, term: Term, old: EpochOldError) -> Term:
        """Return the term with which to register after a core refused the epoch of ``term``.

        The core knows a higher epoch, which comes from an earlier lease or from another lease. While the process with
        that epoch is connected, this shim waits. If no process with that epoch is connected, this shim raises its own
        epoch above the epoch that the core knows.
        """
        self._log.warning("the core knows another epoch", epoch=term.epoch, why=str(old))
        if term.epoch > old.known:
            return term  # The epoch was raised meanwhile, for the cores of another group.
        if old.is_connected:
            await asyncio.sleep(EPOCH_PAUSE_SECONDS)
            return term
        return await leadership.raised(term, old.known)

    def progress(self) -> ShimProgress:
        """Return counts of pods, actions and inputs."""
        return ShimProgress(
            tally=self._mirror.tally(),
            actions_waiting=self._applier.progress.waiting,
            news_waiting=self._inbox.qsize(),
            sessions=self._sessions,
        )

    async def configure(self, text: str, file: ObjectRef) -> None:
        """Send a changed queue configuration to the core; events about the configuration are recorded on `file`."""
        await self._inbox.put(_News(QueuesChanged(text, file)))

    async def begun(self, group: str) -> None:
        """Tell the state machine that a session with a core of a group began."""
        self._foreign = ""
        await self._inbox.put(_News(Link.REGISTERED, group=group))

    async def ended(self, group: str) -> None:
        """Tell the state machine that a session has ended.

        When this method returns, no report of the ended session can be sent any more.
        """
        taken = asyncio.Event()
        await self._inbox.put(_News(Link.LOST, taken, group))
        await taken.wait()

    async def decided(self, decisions: list[Decision], group: str) -> None:
        """Pass decisions of a core on to the state machine."""
        self._tell_refusals(decisions)
        for decision in decisions:
            await self._inbox.put(_News(decision, group=group))

    def next_session(self) -> int:
        """Return the number of the session that begins."""
        self._sessions += 1
        return self._sessions

    def _tell_refusals(self, decisions: list[Decision]) -> None:
        """Log the nodes that the core refused, because without nodes the core places no pod."""
        refused = [one for one in decisions if isinstance(one, NodeAnswer) and not one.accepted]
        self._foreign = next((one.reason for one in refused if one.is_owned), self._foreign)
        for why, count in Counter(one.reason for one in refused).items():
            first = next(one.node for one in refused if one.reason == why)
            self._log.warning("the core refused nodes", nodes=count, why=why, such_as=first)

    async def _observed(self, news: Listing | WatchEvent) -> None:
        await self._inbox.put(_News(news))

    def _missed(self, kind: str, error: ClusterError) -> None:
        self._log.warning("the cluster did not tell", kind=kind, why=str(error))

    async def _acted(self, action: Action, error: ClusterError | None) -> None:
        if isinstance(error, FencedError):
            return  # This shim ends, and the shim of the next term goes on from the state of the cluster.
        if error is not None and not isinstance(error, MissingError):
            self._log.warning("an action failed", action=repr(action), why=str(error))
        await self._inbox.put(_News(Outcome(action, error)))

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            await self._inbox.put(_News(Beat.SECOND))

    async def _pump(self) -> None:
        while True:
            self._take_in(await self._inbox.get())
            for _ in range(min(self._inbox.qsize(), BATCH_MAX)):
                self._take_in(self._inbox.get_nowait())
            self._send_out()

    def _take_in(self, news: _News) -> None:
        self._mirror.handle(news.content, news.group)
        if news.taken is not None:
            self._send_out()
            news.taken.set()

    def _send_out(self) -> None:
        reports, actions = self._mirror.take_by_group()
        for group, some in reports.items():
            self._connections[group].send(some)
        if self._may_act:
            self._applier.submit(actions)
        self._tell_when_warm()
        self._tell_when_live()
        self._tell_when_configured()
        self._tell_when_trusting()

    def _tell_when_configured(self) -> None:
        answer = self._mirror.configuration_said()
        if answer is not None and answer != self._configured:
            self._configured = answer
            for hear in self.on_configured:
                hear(answer)

    def _tell_when_trusting(self) -> None:
        """Log whether the shim accepts annotations that name users, when that has changed."""
        flaw = self._mirror.identity_said()
        if flaw == self._untrusted:
            return
        self._untrusted = flaw
        if flaw:
            self._log.warning("user.info does not count", why=flaw)
        else:
            self._log.info("user.info counts")

    def _tell_when_warm(self) -> None:
        if not self._is_warm and self._mirror.has_listed():
            self._is_warm = True
            for hear in self.on_warm:
                hear()

    def _tell_when_live(self) -> None:
        live = self._mirror.is_live()
        if live and not self._was_live:
            counts = session.counts(self._mirror.state)
            if self._foreign and not counts.nodes:
                raise PartitionOwnedError(self._foreign)
            self._log.info(
                "the core knows everything",
                nodes=counts.nodes,
                applications=counts.applications,
                allocations=counts.allocations,
                asks=counts.asks,
            )
        if live != self._was_live:
            self._was_live = live
            for hear in self.on_live:
                hear(live)


class _Hearing:
    """The listener of the connection to the cores of one group. The listener passes events and decisions to the shim."""

    def __init__(
        self, shim: Shim, group: str, connection: Connection, log: FilteringBoundLogger
    ) -> None:
        self._shim = shim
        self._group = group
        self._connection = connection
        self._log = log
        self._skipped: dict[str, str] = {}
        """For each core, the last logged reason why the core was skipped."""
        self._refused = ""
        """The last logged reason why a core refused this shim while no other core answered."""

    async def registered(self, core: str) -> None:
        """Tell the state machine that a session with a core began."""
        self._accepted()
        self._log.info("registered at the core", core=core, session=self._shim.next_session())
        await self._shim.begun(self._group)

    async def resumed(self, core: str, why: str) -> None:
        """Log that the session continues at another core.

        The state machine needs no input, because no object is reported again.
        """
        self._accepted()
        self._log.warning("the session continues at another core", core=core, why=why)

    async def unreachable(self, why: str) -> None:
        """Log that no core answers; the connection retries until one does."""
        self._log.warning(
            "cannot reach the core",
            core=self._connection.target,
            why=why,
            do=f"trying until one answers: {START_ADVICE}",
        )

    async def skipped(self, core: str, why: str) -> None:
        """Log that one of several cores is skipped, once for each reason."""
        if self._skipped.get(core) != why:
            self._skipped[core] = why
            self._log.warning("trying the next core", core=core, why=why)

    def _accepted(self) -> None:
        self._skipped.clear()
        self._refused = ""

    async def refused(self, why: str, *, is_unknown: bool) -> None:
        """Log that a core refuses this shim while no other core answers, and what to do. Log each reason once."""
        if self._refused != why:
            self._refused = why
            self._log.error(
                "a core refuses this shim, and no other core answers",
                core=self._connection.target,
                why=why,
                do=REFUSED_ADVICE[is_unknown],
            )

    async def unknown(self, why: str, seconds: float) -> None:
        """Log that a core no longer knows this shim."""
        self._log.error(
            "the core does not accept this shim any more",
            core=self._connection.target,
            why=why,
            do=f"renew the shim's token or certificate; the shim reads its files again for {seconds:.0f} s, then it ends",
        )

    async def lost(self, why: str) -> None:
        """Tell the state machine that the session has ended."""
        self._log.warning("no session with the core", why=why)
        await self._shim.ended(self._group)

    async def decided(self, decisions: list[Decision]) -> None:
        """Pass decisions on to the state machine."""
        await self._shim.decided(decisions, self._group)
