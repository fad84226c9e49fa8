"""A script: the messages of one run over gRPC, prepared as bytes, and what is waited for.

The client that plays it (`tests/bench/go`, or `tests.bench.client` where there is no Go) makes no message and reads
none, it only counts objects by their field; so it costs little beside the core, and what is sent is said once, here.
"""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import Message

from si.v1 import si_pb2 as si

SERVICE = "/si.v1.Scheduler/"
ANSWERS: dict[str, type[Message]] = {
    "UpdateNode": si.NodeResponse,
    "UpdateApplication": si.ApplicationResponse,
    "UpdateAllocation": si.AllocationResponse,
}


@dataclass(frozen=True, slots=True)
class Step:
    """Messages for one method, until so many objects were counted in its answers; those of the former step go on.

    ``counted``, ``refused`` and ``confirmed`` name fields of the answer: what counts, what ends the run, and which
    releases are confirmed as soon as they come. ``only`` is what a counted object must contain.
    """

    method: str
    messages: Sequence[bytes]
    counted: str = ""
    until: int = 0
    refused: str = ""
    after: Sequence[int] | None = None
    """The count that must be reached before each message is sent; None: all are sent at once."""
    only: bytes = b""
    confirmed: str = ""
    manager: bytes = b""
    """The fields of a confirmation that name the resource manager."""

    @property
    def unary(self) -> bool:
        """Return whether each message is a call of its own."""
        return not self.counted


@dataclass(frozen=True, slots=True)
class Script:
    """Steps in their order; what is measured begins with the step ``measured``."""

    steps: Sequence[Step]
    measured: int

    def as_json(self, pid: int) -> bytes:
        """Return the script as JSON for a client, which reads the CPU time of the core's process ``pid``."""
        steps = [_as_mapping(one) for one in self.steps]
        return json.dumps({"pid": pid, "measured": self.measured, "steps": steps}).encode()


@dataclass(frozen=True, slots=True)
class Played:
    """The answer of a client: its start in Unix seconds, seconds of wall, and of CPU on either side.

    ``waits_ms`` has one for each paced message.
    """

    begun: float
    seconds: float
    client_cpu: float
    server_cpu: float
    waits_ms: list[float] = field(default_factory=list)


def _as_mapping(step: Step) -> dict[str, Any]:
    return {
        "method": step.method if step.unary else SERVICE + step.method,
        "unary": step.unary,
        "messages": [_text(one) for one in step.messages],
        "counted": _number(step, step.counted),
        "refused": _number(step, step.refused),
        "until": step.until,
        "after": None if step.after is None else list(step.after),
        "only": _text(step.only),
        "confirmed": _number(step, step.confirmed),
        "manager": _text(step.manager),
    }


def _text(message: bytes) -> str:
    return base64.b64encode(message).decode()


def _number(step: Step, name: str) -> int:
    return ANSWERS[step.method].DESCRIPTOR.fields_by_name[name].number if name else 0
