"""The metrics as a read: a copy of this process computes them, so that a scrape delays a decision only by the fork."""

from server.observe.endpoint import BusyError, Text
from server.observe.metrics import Metrics
from server.rpc.errors import CallError
from server.rpc.reads import Question, Reads
from server.rpc.roles import Caller, Role

_QUESTION = Question("GET /metrics", b"", Caller("metrics", Role.METRICS))
"""The question of all scrapes. Callers are checked before the question is asked. Scrapes that wait at the same time get one answer."""


def scrapes(reads: Reads, metrics: Metrics) -> Text:
    """Return the function that computes the metrics through ``reads``.

    The function raises BusyError if the metrics cannot be computed now.
    """

    async def text() -> bytes:
        metrics.prepare()
        try:
            return await reads.answer(_QUESTION, metrics.text)
        except CallError as error:
            raise BusyError(error.message) from error

    return text
