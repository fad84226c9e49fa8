"""The ConfigurationService: check, compare and apply texts of `queues.yaml`."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from evenhand.v1 import config_pb2 as pb
from server.config import Change, Problem, diff
from server.core.core import Core
from server.core.events.configuration import is_stale, past, would_refuse
from server.model.decisions import Decision, Noted
from server.model.events import ConfigurationApplied
from server.model.quota import Configuration
from server.model.reasons import Code
from server.model.revisions import Base
from server.rpc.configuration_reading import Readings
from server.rpc.errors import CallError, stale_configuration
from server.rpc.owners import Owners, managers_of
from server.rpc.preparing import prepared
from server.rpc.pump import Pump
from server.rpc.roles import CALLER, Role

_SEVERITIES: Final = {
    "error": pb.PROBLEM_SEVERITY_ERROR,
    "warning": pb.PROBLEM_SEVERITY_WARNING,
}

_REFUSALS: Final = frozenset({Code.CONFIGURATION_REFUSED, Code.CONFIGURATION_STALE})


class Keeping(Protocol):
    """The part of a `Keeper` that says whether the configuration in force would survive a crash."""

    def why_not_kept(self) -> str:
        """Return why the configuration in force would not survive a crash. Return "" if the configuration would survive."""

    async def settled(self) -> str:
        """Wait until the write of the configuration in force has succeeded or failed, then return the result of `why_not_kept`."""


class ConfigurationService:
    """The service that checks, compares and applies texts of `queues.yaml`. A text with an error changes nothing."""

    def __init__(
        self, core: Core, pump: Pump, owners: Owners, readings: Readings, keeping: Keeping
    ) -> None:
        self._core = core
        self._pump = pump
        self._owners = owners
        self._readings = readings
        self._keeping = keeping

    async def validate(self, request: pb.ValidateRequest) -> pb.ValidateResponse:
        """Return the problems of a text."""
        found, problems, silenced = await self._readings.read(request.yaml, request.source)
        return pb.ValidateResponse(
            problems=told(problems), valid=found is not None, silenced=told(silenced)
        )

    async def apply(self, request: pb.ApplyRequest) -> pb.ApplyResponse:
        """Put a text in force, unless it has errors, the core refuses it or this is a dry run. Return problems and changes.

        Raise CallError for a manager or partitions of other callers, and for a text made from a revision that is no longer in
        force.
        """
        caller = CALLER.get()
        if request.rm_id:
            self._owners.check(request.rm_id, caller)
        found, problems, silenced = await self._readings.read(
            request.yaml, request.source, order=f"apply {caller.name}"
        )
        if found is None:
            return pb.ApplyResponse(problems=told(problems))
        source = request.source or f"apply by {caller.name}"
        base = Base(request.base_revision, request.base_digest)
        event = ConfigurationApplied(
            found, source, request.rm_id, base, caller.name, one_by_one=True
        )
        answer = pb.ApplyResponse(
            problems=told(problems), digest=found.digest, silenced=told(silenced)
        )
        async with self._owners.changing:
            await self._change(event, answer, dry_run=request.dry_run)
        answer.not_kept = await self._keeping.settled()
        return answer

    async def _change(
        self, event: ConfigurationApplied, answer: pb.ApplyResponse, *, dry_run: bool
    ) -> None:
        """Compare the configuration, put it in force and complete the answer. No other change of the configuration can come in between."""
        state = self._core.state
        managers = managers_of(state)
        self._owners.check_configuration(
            state.configuration, event.configuration, managers, CALLER.get()
        )
        if is_stale(state, event):
            raise await self._stale(event.base)
        answer.changes.extend(await self._changes(event.configuration))
        answer.revision_before = state.revision.number
        if dry_run:
            refusal = _refusal(would_refuse(state, event))
        else:
            async with prepared(self._core, self._pump, event.configuration):
                refusal = _refusal(await self._pump.ask(event))
        answer.revision = state.revision.number
        answer.applied = not dry_run and refusal is None
        if refusal is not None:
            refused = pb.ConfigProblem(severity=pb.PROBLEM_SEVERITY_ERROR, message=refusal)
            answer.problems.insert(0, refused)

    async def _stale(self, base: Base) -> CallError:
        """Return the refusal of a text that was made from ``base``. Operators also get the changes since that revision."""
        state = self._core.state
        before = past(state, base)
        if CALLER.get().role is not Role.OPERATOR:
            return stale_configuration(state.revision, base, [], is_operator=False)
        changes = (
            None if before is None else await asyncio.to_thread(diff, before, state.configuration)
        )
        return stale_configuration(state.revision, base, changes)

    async def get(self, _request: pb.GetRequest) -> pb.GetResponse:
        """Return the text in force, empty for the built-in configuration, and its revision."""
        state = self._core.state
        revision = state.revision
        return pb.GetResponse(
            yaml=state.configuration.text,
            source=revision.source,
            digest=state.configuration.digest,
            applied_at_ms=revision.at_ms,
            revision=revision.number,
            applied_by=revision.by,
            not_kept=self._keeping.why_not_kept(),
        )

    async def diff(self, request: pb.DiffRequest) -> pb.DiffResponse:
        """Return the changes that a text would make, and the problems of the text. A text with errors makes no changes."""
        found, problems, _ = await self._readings.read(request.yaml, request.source)
        changes = await self._changes(found) if found is not None else []
        revision = self._core.state.revision
        return pb.DiffResponse(
            problems=told(problems),
            changes=changes,
            revision=revision.number,
            digest=revision.digest,
        )

    async def _changes(self, found: Configuration) -> list[pb.ConfigChange]:
        """Return the changes that a text would make.

        The changes are computed outside the event loop, because the comparison of 10,000 queues takes 0.2 s.
        """
        return await asyncio.to_thread(_compared, self._core.state.configuration, found)


def _compared(before: Configuration, after: Configuration) -> list[pb.ConfigChange]:
    return [change(one) for one in diff(before, after)]


def _refusal(replies: Sequence[Decision]) -> str | None:
    """Return the reason why the core refused a configuration. Return None if the core accepted the configuration."""
    for reply in replies:
        if isinstance(reply, Noted) and reply.code in _REFUSALS:
            return reply.message
    return None


def told(problems: Iterable[Problem]) -> list[pb.ConfigProblem]:
    """Return problems of a configuration as messages."""
    return [
        pb.ConfigProblem(
            severity=_SEVERITIES[one.severity],
            line=one.line,
            path=one.path,
            message=one.message,
            consequence=one.consequence,
            code=one.code,
            advice=one.advice,
        )
        for one in problems
    ]


def change(one: Change) -> pb.ConfigChange:
    """Return a difference between two configurations as a message."""
    return pb.ConfigChange(
        kind=one.kind,
        subject=one.subject,
        field=one.field,
        before=one.before,
        after=one.after,
        consequence=one.consequence,
    )
