"""Calls that must leave nothing in the memory of a core in a separate process, and the measurement of that memory."""

import asyncio
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc

from evenhand.v1 import decisions_pb2
from server.rpc.limits import (
    CALLER_READS_MAX,
    CALLER_SIMULATIONS_MAX,
    CALLER_WATCHES_MAX,
    OBJECTS_MAX,
)
from server.rpc.memory import MIB
from si.v1 import si_pb2 as si
from tests.bench.processes import children_of, resident_bytes
from tests.cli.processes import address_of, running
from tests.rpc.test_access import files

OPERATORS: Final = 16
"""Number of callers; each has its own limit of simultaneous calls."""
_OPERATOR_TOKENS: Final = [f"operator-{at}-0123456789" for at in range(OPERATORS)]
TOKENS: Final = "\n".join(
    (
        "tokens:",
        *(
            f"  - {{token: {token}, role: operator, name: olga-{at}}}"
            for at, token in enumerate(_OPERATOR_TOKENS)
        ),
        "  - {token: viewer-0123456789abc, role: viewer, queue: root.a}",
        "  - {token: shim-0123456789abcde, role: shim, name: shim}",
    )
)
Metadata = tuple[tuple[str, str], ...]
AT_ONCE: Final = 25


def _bearer(token: str) -> Metadata:
    return (("authorization", f"Bearer {token}"),)


NOBODY: Final[Metadata] = ()
ALL_OPERATORS: Final = tuple(map(_bearer, _OPERATOR_TOKENS))
OPERATOR: Final = ALL_OPERATORS[0]
VIEWER: Final = _bearer("viewer-0123456789abc")
SHIM: Final = _bearer("shim-0123456789abcde")


@dataclass(frozen=True)
class Kind:
    """Calls that end with one status; each of `callers` has several open at the same time.

    Calls that end with the status `also` are accepted too, and do not count. A `watch` is a stream of answers that
    its caller ends.
    """

    method: str
    code: grpc.StatusCode
    callers: tuple[Metadata, ...] = (OPERATOR,)
    data: bytes = b""
    at_once: int = AT_ONCE
    also: grpc.StatusCode | None = None
    watch_s: float = 0.0
    costly: int = 1
    """The cost of a call as a multiple of a plain refusal; the short test divides the number of calls by it."""

    @property
    def streams(self) -> bool:
        """Return whether the method takes a stream of messages."""
        return self.method.startswith("/si.v1.Scheduler/Update")


_NODES: Final = "/evenhand.v1.InspectService/ListNodes"
_BAD_TEXT: Final = "partitions: [{name: x, quueues: []}]"


def _wide() -> bytes:
    request = si.AllocationRequest(rmID="rm")
    for at in range(OBJECTS_MAX + 1):
        request.allocations.add(allocationKey=f"{at}")
    return request.SerializeToString()


_LARGE: Final = b"\xff" * 4_000_000

REFUSED: Final = {
    "without a token": Kind(_NODES, grpc.StatusCode.UNAUTHENTICATED, (NOBODY,)),
    "with a wrong token": Kind(_NODES, grpc.StatusCode.UNAUTHENTICATED, (_bearer("x" * 20),)),
    "with too small a role": Kind(_NODES, grpc.StatusCode.PERMISSION_DENIED, (VIEWER,)),
    "of no method": Kind(_NODES + "X", grpc.StatusCode.UNIMPLEMENTED),
    "of malformed bytes": Kind(_NODES, grpc.StatusCode.INVALID_ARGUMENT, data=b"\xff" * 100),
    "of an unknown decision": Kind(
        "/evenhand.v1.DecisionService/GetDecision",
        grpc.StatusCode.NOT_FOUND,
        data=decisions_pb2.GetDecisionRequest(decision_id="x" * 1_000).SerializeToString(),
        costly=10,
    ),
    "of nothing: reads that are answered": Kind(_NODES, grpc.StatusCode.OK, costly=10),
    "of a bad registration": Kind(
        "/si.v1.Scheduler/RegisterResourceManager",
        grpc.StatusCode.INVALID_ARGUMENT,
        (SHIM,),
        si.RegisterResourceManagerRequest(rmID="rm", config=_BAD_TEXT).SerializeToString(),
    ),
    "on a stream of nobody": Kind(
        "/si.v1.Scheduler/UpdateNode", grpc.StatusCode.UNAUTHENTICATED, (NOBODY,)
    ),
    "on a stream, malformed": Kind(
        "/si.v1.Scheduler/UpdateNode", grpc.StatusCode.INVALID_ARGUMENT, (SHIM,), b"\xff" * 100
    ),
    "on a stream, too many objects": Kind(
        "/si.v1.Scheduler/UpdateAllocation",
        grpc.StatusCode.INVALID_ARGUMENT,
        (SHIM,),
        _wide(),
        costly=50,
    ),
    "of 4 MB without a token": Kind(
        _NODES, grpc.StatusCode.UNAUTHENTICATED, (NOBODY,), _LARGE, at_once=1, costly=100
    ),
    "of 4 MB, malformed": Kind(
        _NODES, grpc.StatusCode.INVALID_ARGUMENT, data=_LARGE, at_once=1, costly=100
    ),
    "of more than 4 MiB": Kind(
        _NODES, grpc.StatusCode.RESOURCE_EXHAUSTED, data=b"\xff" * 4_300_000, at_once=1, costly=500
    ),
}
"""Kinds of refused calls, and kinds of queries."""

LIMITED: Final = {
    "of more reads than one caller may have": Kind(
        _NODES,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        at_once=8 * CALLER_READS_MAX,
        also=grpc.StatusCode.OK,
    ),
    "of more simulations than one caller may have": Kind(
        "/evenhand.v1.SimulateService/SimulateAsks",
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        at_once=16 * CALLER_SIMULATIONS_MAX,
        also=grpc.StatusCode.INVALID_ARGUMENT,
    ),
    "of more watches than one caller may have": Kind(
        "/evenhand.v1.WatchService/WatchQueues",
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        at_once=8 * CALLER_WATCHES_MAX,
        also=grpc.StatusCode.DEADLINE_EXCEEDED,
        watch_s=1.0,
    ),
}
"""Calls up to a limit; those within the limit are answered."""


class Process:
    """A core in a separate process, over TLS."""

    def __init__(
        self, process: "subprocess.Popen[str]", where: str, certificate: bytes | None
    ) -> None:
        self.pid = process.pid
        self.where = where
        self._certificate = certificate

    @property
    def mib(self) -> float:
        """Return the resident memory of the core in MiB."""
        return resident_bytes(self.pid) / MIB

    @property
    def children_mib(self) -> float:
        """Return the resident memory, in MiB, of the copies of the core and of the process that reads configurations; 0 without these."""
        total = 0
        for child in children_of(self.pid):
            try:
                total += resident_bytes(child)
            except (FileNotFoundError, ProcessLookupError):
                continue  # The process has ended meanwhile.
        return total / MIB

    def channel(self) -> grpc.aio.Channel:
        """Return a new connection."""
        options = (("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1))
        if self._certificate is None:
            return grpc.aio.insecure_channel(self.where, options)
        credentials = grpc.ssl_channel_credentials(self._certificate)
        return grpc.aio.secure_channel(self.where, credentials, options)


@contextmanager
def core(folder: Path, *options: str, certificate: bytes | None = None) -> Iterator[Process]:
    """Run a core."""
    log = folder / "serve.log"
    with running(["serve", "--listen", "127.0.0.1:0", *options], log) as process:
        where = address_of(process, log)
        yield Process(process, where, certificate)


@contextmanager
def guarded(folder: Path) -> Iterator[Process]:
    """Run a core with TLS and tokens."""
    access, authority = files(folder, clients=False, tokens=True)
    tokens = folder / "tokens"
    tokens.write_text(TOKENS)
    options = ["--tls-cert", str(access.tls_cert), "--tls-key", str(access.tls_key)]
    certificate = authority.cert_pem.bytes()
    with core(folder, *options, "--tokens", str(tokens), certificate=certificate) as process:
        yield process


async def make(process: Process, kind: Kind, many: int) -> None:
    """Make at least this number of calls on one connection; each must end with a status of their kind."""
    codes: Counter[grpc.StatusCode] = Counter()
    async with process.channel() as channel:
        if kind.streams:
            method: Any = channel.stream_stream(kind.method)
        else:
            method = (channel.unary_stream if kind.watch_s else channel.unary_unary)(kind.method)
        callers = [one for one in kind.callers for _ in range(kind.at_once)]
        while codes[kind.code] < many:
            codes.update(await asyncio.gather(*(_code(method, kind, one) for one in callers)))
            assert set(codes) <= {kind.code, kind.also}, codes


async def _code(method: Any, kind: Kind, caller: Metadata) -> grpc.StatusCode:
    try:
        if kind.streams:
            async for _ in method(_once(kind.data), metadata=caller):
                pass
        elif kind.watch_s:
            async for _ in method(kind.data, metadata=caller, timeout=kind.watch_s):
                pass
        else:
            await method(kind.data, metadata=caller)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


async def _once(data: bytes) -> AsyncIterator[bytes]:
    """Yield the message, or nothing when it is empty, because gRPC's client reports INTERNAL for a refusal before its first write."""
    if data:
        yield data
