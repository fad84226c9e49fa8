"""A script: the messages of one run over gRPC, prepared as bytes, and the answers to wait for.

The client that plays it (`tests/bench/go`, or `tests.bench.client` without Go) composes no message and parses none.
It only counts objects by their field, so that it costs little beside the core, and both clients send equal messages.
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
    """Messages for one method; the step ends when a number of objects is counted in the answers, while earlier steps continue.

    `counted`, `refused` and `confirmed` name fields of the answer: the objects that count, the objects that end the
    run, and the releases that are confirmed as soon as they arrive. A counted object must contain `only`.
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
    """Steps in their order; the measurement begins with the step `measured`."""

    steps: Sequence[Step]
    measured: int
    epoch: int = 0
    """The epoch of an elected shim, which its streams name; 0 for a shim that elects nobody."""

    def as_json(self, pid: int) -> bytes:
        """Return the script as JSON for a client, which reads the CPU time of the core's process ``pid``."""
        steps = [_as_mapping(one) for one in self.steps]
        held = {"pid": pid, "measured": self.measured, "steps": steps, "epoch": self.epoch}
        return json.dumps(held).encode()


@dataclass(frozen=True, slots=True)
class Played:
    """The result from a client: its start in Unix seconds, seconds of real time, and CPU seconds of client and core.

    `waits_ms` has one value for each paced message.
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
