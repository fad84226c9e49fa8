"""ConfigurationService: check, compare, apply."""

from collections.abc import Iterable, Sequence
from typing import Final

from evenhand.v1 import config_pb2 as pb
from server.config import Change, Problem, diff
from server.core.core import Core
from server.model.decisions import Decision, Noted
from server.model.events import ConfigurationApplied
from server.model.quota import Configuration
from server.model.reasons import Code
from server.rpc.owners import Owners, managers_of
from server.rpc.pump import Pump
from server.rpc.readings import Readings
from server.rpc.roles import CALLER

_SEVERITIES: Final = {
    "error": pb.PROBLEM_SEVERITY_ERROR,
    "warning": pb.PROBLEM_SEVERITY_WARNING,
}


class ConfigurationService:
    """Texts are `queues.yaml`; a text with an error changes nothing."""

    def __init__(self, core: Core, pump: Pump, owners: Owners, readings: Readings) -> None:
        self._core = core
        self._pump = pump
        self._owners = owners
        self._readings = readings

    async def validate(self, request: pb.ValidateRequest) -> pb.ValidateResponse:
        """Checks a text."""
        found, problems, silenced = await self._readings.read(request.yaml, request.source)
        return pb.ValidateResponse(
            problems=told(problems), valid=found is not None, silenced=told(silenced)
        )

    async def apply(self, request: pb.ApplyRequest) -> pb.ApplyResponse:
        """Puts a text in force, unless it has errors or this is a dry run; raises CallError for partitions of others."""
        found, problems, silenced = await self._readings.read(request.yaml, request.source)
        if found is None:
            return pb.ApplyResponse(problems=told(problems))
        state, caller = self._core.state, CALLER.get()
        self._owners.check_configuration(state.configuration, found, managers_of(state), caller)
        answer = pb.ApplyResponse(
            problems=told(problems),
            changes=self._changes(found),
            digest=found.digest,
            silenced=told(silenced),
        )
        if not request.dry_run:
            source = request.source or f"apply by {CALLER.get().name}"
            refusal = _refusal(await self._pump.ask(ConfigurationApplied(found, source)))
            answer.applied = refusal is None
            if refusal is not None:
                answer.problems.add(severity=pb.PROBLEM_SEVERITY_ERROR, message=refusal)
        return answer

    async def get(self, _request: pb.GetRequest) -> pb.GetResponse:
        """The text in force; the built-in configuration has none."""
        state = self._core.state
        return pb.GetResponse(
            yaml=state.configuration.text,
            source=state.source,
            digest=state.configuration.digest,
            applied_at_ms=state.applied_ms,
        )

    async def diff(self, request: pb.DiffRequest) -> pb.DiffResponse:
        """What a text would change."""
        found, problems, _ = await self._readings.read(request.yaml, request.source)
        changes = self._changes(found) if found is not None else []
        return pb.DiffResponse(problems=told(problems), changes=changes)

    def _changes(self, found: Configuration) -> list[pb.ConfigChange]:
        return [change(one) for one in diff(self._core.state.configuration, found)]


def _refusal(replies: Sequence[Decision]) -> str | None:
    """Why the core did not take a configuration; None when it did."""
    for reply in replies:
        if isinstance(reply, Noted) and reply.code is Code.CONFIGURATION_REFUSED:
            return reply.message
    return None


def told(problems: Iterable[Problem]) -> list[pb.ConfigProblem]:
    """Problems as messages."""
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
    """Return a difference as a message."""
    return pb.ConfigChange(
        kind=one.kind,
        subject=one.subject,
        field=one.field,
        before=one.before,
        after=one.after,
        consequence=one.consequence,
    )
