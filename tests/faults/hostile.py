"""A hostile client as a process, which runs until it is ended.

    python -m tests.faults.hostile KIND PORT SEED CODES COUNTS

The file CODES gets the status codes of the answers, one `CODE details` per line; INTERNAL and UNKNOWN are always
errors. The file COUNTS gets the number of calls, streams and connections that reached the core.
"""

import random
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

import grpc

from evenhand.v1 import config_pb2
from tests.faults.cluster import OPERATOR_TOKEN, QUEUES, metadata
from tests.faults.counts import Counts
from tests.faults.effects import AT_ONCE

METHODS: Final = (
    "/evenhand.v1.InspectService/ListNodes",
    "/evenhand.v1.InspectService/ListAllocations",
    "/evenhand.v1.InspectService/CheckConsistency",
    "/evenhand.v1.DecisionService/GetDecision",
    "/evenhand.v1.DecisionService/ListDecisions",
    "/evenhand.v1.ConfigurationService/Validate",
    "/si.v1.Scheduler/RegisterResourceManager",
)
READS: Final = METHODS[:3]
WATCH_QUEUES: Final = "/evenhand.v1.WatchService/WatchQueues"
STREAMS: Final = (WATCH_QUEUES, "/evenhand.v1.WatchService/WatchEvents")
CALL_S: Final = 3.0
UNANSWERED: Final = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
}
"""Codes that the client's own library sets when no answer arrives."""


class Caller:
    """A caller without a stub, which can send any bytes and records the codes of failed calls."""

    def __init__(self, channel: grpc.Channel, codes: Path, counts: Counts) -> None:
        self._channel = channel
        self._counts = counts
        self._codes = codes.open("a", buffering=1)

    def calls(self, method: str, bodies: list[bytes], token: str) -> None:
        """Make several calls at the same time and wait for all of them."""
        call: Any = self._channel.unary_unary(method)
        given = metadata(token) if token else ()
        futures = [call.future(body, metadata=given, timeout=CALL_S) for body in bodies]
        for future in futures:
            try:
                future.result()
                self._counts.add("calls answered")
            except grpc.RpcError as error:
                self.note(error)

    def deaf(self, method: str) -> Any:
        """Open a stream and never read from it."""
        call: Any = self._channel.unary_stream(method)
        stream = call(b"", metadata=metadata(OPERATOR_TOKEN))
        if (
            method == WATCH_QUEUES
        ):  # The first answer of this stream comes at once, together with its headers.
            stream.initial_metadata()
            self._counts.add("streams opened", stream.is_active())
        return stream

    def note(self, error: Any) -> None:
        """Record how a call failed."""
        details = " ".join((error.details() or "").split())[:300]
        self._codes.write(f"{error.code().name} {details}\n")
        self._counts.add("calls answered", error.code() not in UNANSWERED)


def send_bytes(caller: Caller, dice: random.Random) -> Iterator[None]:
    """Send malformed messages with the operator's role."""
    while True:
        bodies = [dice.randbytes(dice.choice((1, 30, 3_000))) for _ in range(AT_ONCE)]
        caller.calls(dice.choice(METHODS), bodies, OPERATOR_TOKEN)
        yield


def send_refused(caller: Caller, dice: random.Random) -> Iterator[None]:
    """Call without a token and with wrong tokens, using large messages."""
    while True:
        token = dice.choice(("", "not-a-token-of-this-core"))
        caller.calls(dice.choice(METHODS), [b"\xff" * 1_000_000] * AT_ONCE, token)
        yield


def read_in_a_loop(caller: Caller, dice: random.Random) -> Iterator[None]:
    """Let the core list and check everything, again and again."""
    while True:
        caller.calls(dice.choice(READS), [b""] * AT_ONCE, OPERATOR_TOKEN)
        yield


def never_read(caller: Caller, dice: random.Random) -> Iterator[None]:
    """Open streams and never read from them."""
    streams = []
    while True:
        streams.append(caller.deaf(dice.choice(STREAMS)))
        if len(streams) > 2 * AT_ONCE:
            streams.pop(0).cancel()
        yield


def send_configurations(caller: Caller, dice: random.Random) -> Iterator[None]:
    """Send configurations that take long to read: thousands of queues, thousands of unknown keys."""
    while True:
        number = dice.randrange(1_000, 4_000)
        many = "".join(f"          - {{name: q{one}}}\n" for one in range(number))
        wrong = "".join(f"k{one}: 1\n" for one in range(number))
        text = dice.choice((QUEUES + many, wrong))
        body = config_pb2.ValidateRequest(yaml=text).SerializeToString()
        caller.calls("/evenhand.v1.ConfigurationService/Validate", [body], OPERATOR_TOKEN)
        yield


CALLING: Final[Mapping[str, Callable[[Caller, random.Random], Iterator[None]]]] = {
    "bytes": send_bytes,
    "refused": send_refused,
    "reads": read_in_a_loop,
    "deaf": never_read,
    "configurations": send_configurations,
}


def speak_no_http(port: int, dice: random.Random, counts: Counts) -> None:
    """Open connections that send random bytes, nothing, or half of a protocol greeting."""
    held: list[socket.socket] = []
    while True:
        with suppress(OSError):
            one = socket.create_connection(("127.0.0.1", port), CALL_S)
            held.append(one)
            counts.add("connections taken")
            greeting = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
            one.sendall(dice.choice((b"", greeting[:9], greeting, dice.randbytes(500))))
        while len(held) > 50:
            held.pop(0).close()


def main(kind: str, port: int, seed: int, codes: Path, counts: Counts) -> None:
    """Attack until the process is ended, even while no core runs."""
    dice = random.Random(seed)
    if kind == "raw":
        speak_no_http(port, dice, counts)
    options = [("grpc.max_reconnect_backoff_ms", 500), ("grpc.use_local_subchannel_pool", 1)]
    while True:
        with closing(grpc.insecure_channel(f"127.0.0.1:{port}", options=options)) as channel:
            attack = CALLING[kind](Caller(channel, codes, counts), dice)
            for _ in range(dice.randint(20, 200)):
                next(attack)


if __name__ == "__main__":
    main(
        sys.argv[1],
        int(sys.argv[2]),
        int(sys.argv[3]),
        Path(sys.argv[4]),
        Counts(Path(sys.argv[5])),
    )
