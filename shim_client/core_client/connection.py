"""The connection to the core: it registers, holds a session, and starts again when the session is lost.

When a core does not answer, the gRPC channel waits longer after each attempt. When a core answers and then drops every
session, this module waits longer after each attempt.

If there are several cores, the shim registers at the first one in its list that is healthy and accepts the shim. Cores
that already lead, for example because another shim registered there, come first. When the session with a core is lost,
the shim goes to the next core. The shim has at most one session. Before the shim registers at the next core, the
streams of the old session are closed, and the state machine has handled the end of this session (design 7.2).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Protocol

import grpc
from grpc.aio import AioRpcError, Channel, Metadata

from shim_client.core_client.address import CoreAddress
from shim_client.core_client.candidates import (
    SERVICE,
    Core,
    leaders_first,
    successor_first,
)
from shim_client.core_client.causes import cause, is_too_large, status_text
from shim_client.core_client.configuration import ConfigurationPost
from shim_client.core_client.errors import (
    CallerUnknownError,
    CoreRefusedError,
    EpochOldError,
    NoCoreError,
    PartitionsMovedError,
)
from shim_client.core_client.refusals import ANOTHER_LEADS, EPOCH_OLD, OTHER_TABLE, refusal_of
from shim_client.core_client.resuming import Progress
from shim_client.core_client.streams import Session, SessionLostError, Sink
from shim_client.messages import ConfigurationAnswer, ConfigurationReport, Decision, Report
from si.v1 import si_pb2

REGISTER_SECONDS_MAX = 20.0
"""Longest wait, in seconds, for the answer to one registration, including the time until the core can be reached."""
PAUSE_SECONDS_FIRST = 0.1
PAUSE_SECONDS_MAX = 5.0
PAUSE_SECONDS_MAX_OF_SEVERAL = 0.5
"""The longest pause of a shim with several cores.

This pause is short, because the failure of one core is no reason to wait before trying another core.
"""

RESUME_ROUNDS_MAX = 5
"""The number of rounds after which a session that broke off counts as lost. In a round, the shim tries each core once."""

RENEWAL_PAUSE_SECONDS = 5.0
RENEWAL_ATTEMPTS_MAX = 60
"""Maximum number of further registrations after a core no longer knows the token or certificate of a shim.

The core must have accepted this shim before. The core may read a new Secret minutes before the shim does, because a
kubelet renews the files of a Secret about once a minute.
"""

TABLE_KEY = "evenhand-table-revision"
"""The key in the metadata of registrations under which the revision of a group of cores is sent (design 7.6)."""
_PASSING = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.CANCELLED,
    }
)


@dataclass(frozen=True, slots=True)
class Registration:
    """The values by which the shim identifies itself when it registers."""

    rm_id: str
    version: str
    policy_group: str
    queues: str
    instance: str = ""
    """Name of this process; the name stays the same after a restart.

    If several processes of one shim register, the core accepts the newest process.
    """
    forget: bool = False
    """Whether the core removes the objects that the shim reported before.

    Otherwise the core compares these objects with the new reports. This setting applies to the first session only.
    """
    table_revision: int = 0
    """The revision of the group of cores in the table of cores; 0 without such a table (design 7.6)."""

    def message(
        self, epoch: int = 0, session: str = "", resume: si_pb2.SessionResume | None = None
    ) -> si_pb2.RegisterResourceManagerRequest:
        """Return the registration message; `explicitSync` tells the core to place nothing before the sync is complete.

        `session` is the name of the session that begins, unless the session in `resume` continues.
        """
        return si_pb2.RegisterResourceManagerRequest(
            rmID=self.rm_id,
            version=self.version,
            policyGroup=self.policy_group,
            config=self.queues,
            explicitSync=True,
            forget=self.forget,
            buildInfo={"instance": self.instance} if self.instance else {},
            epoch=epoch,
            sessionID=session,
            resume=resume,
        )


class Listener(Protocol):
    """A receiver of the connection's events and of the core's decisions."""

    async def registered(self, core: str) -> None:
        """Receive the news that a session with a core has begun, so that all objects have to be reported."""
        ...

    async def resumed(self, core: str, why: str) -> None:
        """Receive the news that the session continues at another core, so that no object has to be reported again.

        `why` is the reason why the session broke off.
        """
        ...

    async def unreachable(self, why: str) -> None:
        """Receive the news that no core answers; the connection retries until one does."""
        ...

    async def skipped(self, core: str, why: str) -> None:
        """Receive the news that one of several cores does not accept this shim now, so that the shim tries the next core."""
        ...

    async def refused(self, why: str, *, is_unknown: bool) -> None:
        """Receive the news that cores refuse this shim and that no other core answers.

        A person has to act; the connection retries meanwhile. `is_unknown` says whether a core does not know the token
        or certificate of this shim.
        """
        ...

    async def unknown(self, why: str, seconds: float) -> None:
        """Receive the news that a core no longer knows this shim.

        The shim waits for a new token or certificate, for at most `seconds`.
        """
        ...

    async def lost(self, why: str) -> None:
        """Receive the news that the session has ended, or could not begin; the connection retries."""
        ...

    async def decided(self, decisions: list[Decision]) -> None:
        """Receive decisions of the core."""
        ...


Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _Ended:
    """The end of an attempt to hold a session: its reason, its error, and how far the session came."""

    why: str
    began: bool = False
    heard: bool = False
    error: Exception | None = None
    may_resume: bool = False
    """Whether a core may continue the session that broke off, so that the session does not count as lost yet."""
    successor: str = ""
    """The process name of the core to which the last core handed over its state; "" if the last core named none."""
    is_own_end: bool = False
    """Whether this shim ended the session itself. The next session is then with the same core."""


class Connection:
    """The connection to the core: a session, which begins again when it is lost.

    Without `wait`, `run` fails if no core answers the first attempt.
    """

    def __init__(
        self,
        addresses: Sequence[CoreAddress],
        registration: Registration,
        sleep: Sleep = asyncio.sleep,
        *,
        wait: bool = True,
        session_name: Callable[[], str] = str,
    ) -> None:
        """Make a connection to one of the cores. The credentials of the first core are used for all cores.

        `session_name` returns a name that no session had before, or "" for a session that no other core can continue.
        `session_name` is not called if there is only one core.
        """
        self._addresses = tuple(addresses)
        self._registration = registration
        self._sleep = sleep
        self._wait = wait
        self._session_name = session_name if len(addresses) > 1 else str
        self._epoch = 0
        self._tables = 0
        self._session: Session | None = None
        self._broken = ""
        """The reason why the last session broke off. The text is empty if no core may resume that session any more."""
        self._rounds = 0
        """The number of times that the shim has tried all cores since the session broke off."""
        self._renewals_left = 0
        """How many more times the shim registers after a core has refused the shim's credentials.

        The number is 0 before a core has accepted the shim.
        """
        self._configuration = ConfigurationPost(addresses[0].metadata(), registration.rm_id)

    @property
    def target(self) -> str:
        """The address of the core, or all addresses if there are several cores."""
        return ", ".join(one.target for one in self._addresses)

    @property
    def table_revision(self) -> int:
        """The revision of the table of cores with which this shim registers."""
        return self._registration.table_revision

    def send(self, reports: Iterable[Report]) -> None:
        """Send reports to the core.

        If there is no session, drop the reports, but keep the newest configuration to send it later.
        """
        state = []
        for report in reports:
            if isinstance(report, ConfigurationReport):
                self._configuration.want(report)
            else:
                state.append(report)
        if self._session is not None:
            self._session.send(state)

    def use_table(self, revision: int = 0) -> None:
        """End the session, if there is one.

        The next registration carries the given revision of the table of cores, unless the revision is 0.

        A session that broke off is not continued at another core, and a registration in flight is repeated.
        """
        self._tables += 1
        if revision:
            self._registration = replace(self._registration, table_revision=revision)
        if self._session is not None:
            self._session.end("a partition moves from or to these cores")

    async def run(self, listener: Listener, epoch: int = 0) -> None:
        """Hold sessions until cancelled.

        `epoch` is sent with each registration; it is 0 for a shim without election (design 7.2). Errors:
        CoreRefusedError, NoCoreError, SupersededError, EpochOldError, PartitionsMovedError. CallerUnknownError is
        raised only if no core has accepted the shim yet, or if the shim waited in vain for new credentials.
        """
        self._epoch = epoch
        pause = PAUSE_SECONDS_FIRST
        async with AsyncExitStack() as stack:
            is_quick = len(self._addresses) > 1
            cores = [Core(one.renewed(), quick=is_quick) for one in self._addresses]
            for core in cores:
                stack.push_async_callback(core.close)
            if is_quick:
                cores = await leaders_first(cores)
            while True:
                ended = await self._one_round_or_renewal(cores, listener)
                if not ended.may_resume:
                    await self._lose(listener, ended.why)
                if is_quick and ended.successor:
                    cores = await successor_first(cores, ended.successor)
                longest = PAUSE_SECONDS_MAX_OF_SEVERAL if is_quick else PAUSE_SECONDS_MAX
                pause = PAUSE_SECONDS_FIRST if ended.heard else min(2 * pause, longest)
                if not (ended.is_own_end or (is_quick and ended.heard)):
                    await self._sleep(pause)

    async def _one_round_or_renewal(self, cores: list[Core], listener: Listener) -> _Ended:
        """Hold one session as `_one_round` does, and return how it ended.

        If a core no longer knows the credentials of this shim, wait, so that the next round reads new files. Do not
        wait, but raise CallerUnknownError, if no core has accepted this shim before, or if the credentials of this shim
        were refused for some minutes.
        """
        while True:
            try:
                return await self._one_round(cores, listener)
            except Exception as error:
                await self._give_up(listener, str(error))
                if not (isinstance(error, CallerUnknownError) and self._renewals_left):
                    raise
                if self._renewals_left == RENEWAL_ATTEMPTS_MAX:
                    seconds = RENEWAL_ATTEMPTS_MAX * RENEWAL_PAUSE_SECONDS
                    await listener.unknown(str(error), seconds)
            self._renewals_left -= 1
            await self._sleep(RENEWAL_PAUSE_SECONDS)

    async def _one_round(self, cores: list[Core], listener: Listener) -> _Ended:
        """Hold one session with the first core that accepts the shim, and return how it ended.

        A core whose session was lost becomes the last core of the list.
        """
        for core in cores:
            await core.renew()
        self._configuration.metadata = cores[0].address.metadata()
        if len(cores) == 1:
            return await self._one_session(cores[0], listener)
        failed: list[_Ended] = []
        for core in list(cores):
            ended = await self._attempt(core, listener)
            if ended.is_own_end:
                return ended
            if ended.began:
                cores.remove(core)
                cores.append(core)
                return ended
            failed.append(ended)
            await listener.skipped(core.address.target, ended.why)
        self._end_if_hopeless(failed)
        await _report_refusal(failed, listener)
        self._rounds += 1
        may_resume = self._resumable() is not None and self._rounds < RESUME_ROUNDS_MAX
        return _Ended("; ".join(one.why for one in failed), may_resume=may_resume)

    def _resumable(self) -> Session | None:
        """Return the session that broke off, if a core may continue it.

        No core may continue a session that the shim itself has ended, or whose reports were dropped because too many
        waited.
        """
        session = self._session if self._broken else None
        return session if session is not None and session.may_resume else None

    async def _attempt(self, core: Core, listener: Listener) -> _Ended:
        """Hold a session with one of several cores if the health service of this core reports that the core serves.

        Errors: EpochOldError, PartitionsMovedError, SupersededError.
        """
        try:
            await self._look_after(core)
            return await self._one_session(core, listener)
        except (EpochOldError, PartitionsMovedError):
            raise
        except NoCoreError as error:
            return _Ended(f"{core.address.target}: {cause(str(error))}", error=error)
        except (CoreRefusedError, SessionLostError) as error:
            return _Ended(str(error), error=error)

    def _end_if_hopeless(self, failed: list[_Ended]) -> None:
        """Raise an error if every core refuses the shim.

        Also raise an error if a core does not answer and the shim does not wait. If all cores refuse the shim, raise
        the first CallerUnknownError, because the shim may then wait for new credentials. Without a CallerUnknownError,
        raise the first refusal.
        """
        errors = [one.error for one in failed]
        if all(isinstance(one, CoreRefusedError) for one in errors):
            first = _first_refusal(failed)
            assert first is not None
            raise first
        for one in errors:
            if isinstance(one, NoCoreError) and not self._wait:
                raise one

    async def _look_after(self, core: Core) -> None:
        """Check whether one of several cores reports, by its health service, that it serves.

        Raises NoCoreError or SessionLostError.
        """
        where = f"the core at {core.address.target}"
        try:
            is_serving = await core.serves(SERVICE)
        except AioRpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                raise NoCoreError(error) from error
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                return  # A core without a health service can only be tried.
            what = status_text(error)
            raise SessionLostError(f"{where} does not say that it serves: {what}") from error
        if not is_serving:
            raise SessionLostError(f"{where} says that it does not serve now")

    async def _one_session(self, core: Core, listener: Listener) -> _Ended:
        """Run one session, or continue the session that broke off; return how this session ended."""
        tables = self._tables
        try:
            session = await self._introduce(core, listener)
        except SessionLostError as lost:
            return _Ended(str(lost), is_own_end=tables != self._tables)
        self._wait = True
        try:
            await self._hold(session, core.channel, listener)
        except SessionLostError as lost:
            return replace(self._break_off(session, str(lost)), successor=lost.successor)
        except BaseException:
            self._session = None
            raise
        return self._break_off(session, "the session ended")

    def _break_off(self, session: Session, why: str) -> _Ended:
        """Return how a session ended. Store the session if another core may continue it."""
        may_resume = session.may_resume
        self._session = session if may_resume else None
        self._broken, self._rounds = why if may_resume else "", 0
        return _Ended(
            why,
            began=True,
            heard=session.heard,
            may_resume=may_resume,
            is_own_end=session.is_over,
        )

    async def _lose(self, listener: Listener, why: str) -> None:
        """Tell the listener that there is no session any more.

        When this method has returned, nothing can be sent for the old session.
        """
        self._session, self._broken = None, ""
        await listener.lost(why)

    async def _give_up(self, listener: Listener, why: str) -> None:
        """If a session broke off, tell the listener that this session is lost."""
        if self._broken:
            await self._lose(listener, f"{self._broken}; {why}")

    async def _hold(self, session: Session, channel: Channel, listener: Listener) -> None:
        """Run the streams and send new configurations, until a stream or a call fails.

        When the session ends, the streams finish the responses that they process.
        """
        jobs = [
            asyncio.create_task(session.run()),
            asyncio.create_task(self._configuration.follow(channel, self._heard_by(listener))),
        ]
        try:
            done, _ = await asyncio.wait(jobs, return_when=asyncio.FIRST_COMPLETED)
            if jobs[0] not in done:
                session.break_off()
                await asyncio.wait(jobs[:1])
        finally:
            for job in jobs:
                job.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)
        for job in jobs:
            if job in done:
                job.result()

    def _heard_by(self, listener: Listener) -> Sink:
        """Return the function that receives the core's answers to configurations.

        If a configuration came into force, later registrations send it. A core that restarts without a state therefore
        does not begin with an older configuration.
        """

        async def heard(answers: list[Decision]) -> None:
            for one in answers:
                if (
                    isinstance(one, ConfigurationAnswer)
                    and one.applied
                    and self._registration.queues
                ):
                    self._registration = replace(self._registration, queues=one.text)
            await listener.decided(answers)

        return heard

    async def _introduce(self, core: Core, listener: Listener) -> Session:
        """Register the shim, and return the session that begins or continues.

        Errors: SessionLostError when a retry may succeed, NoCoreError, CoreRefusedError, EpochOldError.
        """
        fresh = Progress(self._session_name(), self._registration.rm_id)
        broken = self._resumable()
        offer = broken.progress.offer() if broken is not None else None
        tables = self._tables
        request = self._registration.message(self._epoch, fresh.name, offer)
        answer = await self._registered(core, request, listener)
        self._renewals_left = RENEWAL_ATTEMPTS_MAX
        self._check_table(tables)
        if broken is not self._resumable():
            raise SessionLostError("reports were dropped during the registration")
        if broken is not None and answer.HasField("resumed"):
            progress = broken.progress
            progress.resume(answer.resumed)
            self._session = session = self._session_at(core, progress, listener)
            self._configuration.repeat()
            why, self._broken = self._broken, ""
            await listener.resumed(core.address.target, why)
            return session
        await self._give_up(listener, f"the core at {core.address.target} cannot continue it")
        await self._configuration.deliver(core.channel, self._heard_by(listener))
        self._check_table(tables)
        self._session = session = self._session_at(core, fresh, listener)
        await listener.registered(core.address.target)
        return session

    def _check_table(self, tables: int) -> None:
        """Raise SessionLostError if the table of cores has changed since a registration began."""
        if tables != self._tables:
            raise SessionLostError("the table of cores has changed during the registration")

    def _session_at(self, core: Core, progress: Progress, listener: Listener) -> Session:
        metadata = core.address.metadata()
        return Session(core.stub, progress, metadata, listener.decided, self._epoch)

    async def _registered(
        self, core: Core, request: si_pb2.RegisterResourceManagerRequest, listener: Listener
    ) -> si_pb2.RegisterResourceManagerResponse:
        """Register the shim, and return the core's answer.

        The first attempt to register fails at once when no core listens, so that the user is informed. The second
        attempt waits for the core, if the shim has only one core.
        """
        where = f"the core at {core.address.target}"
        try:
            try:
                return await self._register(core, request, wait=False)
            except AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
                if not self._wait or len(self._addresses) > 1:
                    raise NoCoreError(error) from error
                await listener.unreachable(cause(error.details() or ""))
                return await self._register(core, request, wait=True)
        except AioRpcError as error:
            raise _refused(where, error) from error

    async def _register(
        self, core: Core, request: si_pb2.RegisterResourceManagerRequest, *, wait: bool
    ) -> si_pb2.RegisterResourceManagerResponse:
        metadata = core.address.metadata()
        if revision := self._registration.table_revision:
            metadata = Metadata(*metadata, (TABLE_KEY, str(revision)))
        answer = await core.stub.RegisterResourceManager(
            request,
            metadata=metadata,
            timeout=REGISTER_SECONDS_MAX,
            wait_for_ready=wait,
        )
        self._registration = replace(self._registration, forget=False)
        return answer


def _first_refusal(failed: Iterable[_Ended]) -> CoreRefusedError | None:
    """Return the first refusal by a core that does not know the shim, else the first refusal, else None."""
    refusals = [one.error for one in failed if isinstance(one.error, CoreRefusedError)]
    return min(refusals, key=lambda one: not isinstance(one, CallerUnknownError), default=None)


async def _report_refusal(failed: Iterable[_Ended], listener: Listener) -> None:
    """If a core refused this shim, report this to the listener.

    No core has accepted the shim in this round.
    """
    if (refusal := _first_refusal(failed)) is not None:
        is_unknown = isinstance(refusal, CallerUnknownError)
        await listener.refused(str(refusal), is_unknown=is_unknown)


def _refused(where: str, error: AioRpcError) -> Exception:
    """Return the error for a registration that failed: SessionLostError when a retry may succeed."""
    what = status_text(error)
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        what = f"no answer in {REGISTER_SECONDS_MAX:.0f} s"
    refusal = refusal_of(error)
    if refusal.reason == EPOCH_OLD:
        why = f"{where} refused the registration: {what}"
        return EpochOldError(why, refusal.epoch, is_connected=refusal.is_connected)
    if refusal.reason == OTHER_TABLE and refusal.moves:
        return PartitionsMovedError(f"{where} refused the registration: {what}", refusal.moves)
    if refusal.reason in ANOTHER_LEADS:
        return SessionLostError(f"{where} follows another core: {what}")
    if error.code() in _PASSING and not is_too_large(error):
        return SessionLostError(f"{where}: {what}")
    if error.code() is grpc.StatusCode.UNAUTHENTICATED:
        return CallerUnknownError(f"{where} refused the registration: {what}")
    return CoreRefusedError(f"{where} refused the registration: {what}")
