"""The transport of the queue configuration to the core.

The newest text is sent once in each session, and after each change. The request names the resource manager, so that the
core recognises a text that this manager has sent before. The core does not apply such a text again, because a second
application would undo a later `evenhand config apply`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc
from grpc.aio import AioRpcError, Channel, Metadata

from evenhand.v1 import config_pb2
from evenhand.v1.config_pb2_grpc import ConfigurationServiceStub
from shim_client.core_client.causes import is_too_large, status_text
from shim_client.core_client.streams import SessionLostError, Sink
from shim_client.messages import ConfigurationAnswer, ConfigurationReport

if TYPE_CHECKING:
    from evenhand.v1.config_pb2_grpc import ConfigurationServiceAsyncStub

APPLY_SECONDS_MAX = 30.0
_REFUSED = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.FAILED_PRECONDITION,
    }
)
"""Status codes of failures that a retry would repeat."""


class ConfigurationPost:
    """A sender of the latest configuration text.

    The core's answers are passed to the sink, the function that receives decisions.
    """

    def __init__(self, metadata: Metadata, rm_id: str) -> None:
        self.metadata = metadata
        """The metadata that every call carries."""
        self._rm_id = rm_id
        self._wanted: ConfigurationReport | None = None
        self._changed = asyncio.Event()

    def want(self, report: ConfigurationReport) -> None:
        """Set the text to send."""
        self._wanted = report
        self._changed.set()

    def repeat(self) -> None:
        """Let `follow` send the text again, because the text possibly has not arrived."""
        self._changed.set()

    async def deliver(self, channel: Channel, sink: Sink) -> None:
        """Send the text to the core, if a text was set.

        The core's answer goes to `sink`, even if the core refuses the text. Raises SessionLostError if the call fails.
        """
        self._changed.clear()
        if self._wanted is None:
            return
        stub: ConfigurationServiceAsyncStub = ConfigurationServiceStub(channel)
        await sink([await self._apply(stub, self._wanted)])

    async def follow(self, channel: Channel, sink: Sink) -> None:
        """Send every new text until cancelled. Raises SessionLostError if a call fails."""
        while True:
            await self._changed.wait()
            await self.deliver(channel, sink)

    async def _apply(
        self, stub: ConfigurationServiceAsyncStub, report: ConfigurationReport
    ) -> ConfigurationAnswer:
        request = config_pb2.ApplyRequest(yaml=report.text, source=report.source, rm_id=self._rm_id)
        try:
            answer = await stub.Apply(request, metadata=self.metadata, timeout=APPLY_SECONDS_MAX)
        except AioRpcError as error:
            said = status_text(error)
            if error.code() not in _REFUSED and not is_too_large(error):
                raise SessionLostError(f"the core did not take the queues: {said}") from error
            return ConfigurationAnswer(report.text, applied=False, problems=(said,))
        problems = tuple(_line(problem) for problem in answer.problems)
        return ConfigurationAnswer(report.text, answer.applied, problems)


def _line(problem: config_pb2.ConfigProblem) -> str:
    """Return a problem as one line: its place in the configuration, what is wrong, and the consequence."""
    place = ": ".join(
        part for part in (f"line {problem.line}" if problem.line else "", problem.path) if part
    )
    what = f"{place}: {problem.message}" if place else problem.message
    return f"{what} ({problem.consequence})" if problem.consequence else what
