"""Resident memory of a core: what refused calls leave behind (D2), and the budget of docs/overload.md."""

import asyncio
import os
import re
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
import pytest

from evenhand.v1 import decisions_pb2
from si.v1 import si_pb2 as si
from si.v1 import si_pb2_grpc
from tests.bench.processes import resident_bytes
from tests.cli.processes import address_of, running, until
from tests.rpc.test_access import files

MIB: Final = 1 << 20
CALLS: Final = int(os.environ.get("EVENHAND_REFUSED_CALLS", "") or 20_000)
"""Refused calls of each kind that cost the core little."""
READS: Final = CALLS // 10
"""Those that a copy of the core answers: it takes ten times as long."""
AT_ONCE: Final = 25
LEFT_MIB: Final = 40
"""What a core may keep of the calls of one kind: what Python and gRPC have got ready for the next ones."""
MORE_MIB: Final = 10
"""What it may keep of as many again."""

BASE_MIB: Final = 128
NODE_KIB: Final = 8
POD_KIB: Final = 2
STREAM_KIB: Final = 128
"""The budget, as docs/overload.md states it."""

TOKENS: Final = """
tokens:
  - {token: operator-0123456789, role: operator, name: olga}
  - {token: viewer-0123456789abc, role: viewer, queue: root.a}
  - {token: shim-0123456789abcde, role: shim, name: shim}
"""


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),)


NOBODY: Final = ()
OPERATOR: Final = bearer("operator-0123456789")
VIEWER: Final = bearer("viewer-0123456789abc")
SHIM: Final = bearer("shim-0123456789abcde")


@dataclass(frozen=True)
class Refused:
    """Calls that end with one status."""

    method: str
    code: grpc.StatusCode
    metadata: tuple[tuple[str, str], ...] = OPERATOR
    data: bytes = b""
    many: int = CALLS


_NODES = "/evenhand.v1.InspectService/ListNodes"
_BAD_TEXT = "partitions: [{name: x, quueues: []}]"
_WIDE = si.AllocationRequest(rmID="rm")
for _at in range(10_001):
    _WIDE.allocations.add(allocationKey=f"{_at}")

KINDS: Final = {
    "without a token": Refused(_NODES, grpc.StatusCode.UNAUTHENTICATED, NOBODY),
    "with a wrong token": Refused(_NODES, grpc.StatusCode.UNAUTHENTICATED, bearer("x" * 20)),
    "with too small a role": Refused(_NODES, grpc.StatusCode.PERMISSION_DENIED, VIEWER),
    "of no method": Refused(_NODES + "X", grpc.StatusCode.UNIMPLEMENTED),
    "of malformed bytes": Refused(_NODES, grpc.StatusCode.INVALID_ARGUMENT, data=b"\xff" * 100),
    "of an unknown decision": Refused(
        "/evenhand.v1.DecisionService/GetDecision",
        grpc.StatusCode.NOT_FOUND,
        data=decisions_pb2.GetDecisionRequest(decision_id="x" * 1_000).SerializeToString(),
        many=READS,
    ),
    "of nothing: reads that are answered": Refused(_NODES, grpc.StatusCode.OK, many=READS),
    "of a bad registration": Refused(
        "/si.v1.Scheduler/RegisterResourceManager",
        grpc.StatusCode.INVALID_ARGUMENT,
        SHIM,
        si.RegisterResourceManagerRequest(rmID="rm", config=_BAD_TEXT).SerializeToString(),
    ),
    "on a stream of nobody": Refused(
        "/si.v1.Scheduler/UpdateNode", grpc.StatusCode.UNAUTHENTICATED, NOBODY
    ),
    "on a stream, malformed": Refused(
        "/si.v1.Scheduler/UpdateNode", grpc.StatusCode.INVALID_ARGUMENT, SHIM, b"\xff" * 100
    ),
    "on a stream, too many objects": Refused(
        "/si.v1.Scheduler/UpdateAllocation",
        grpc.StatusCode.INVALID_ARGUMENT,
        SHIM,
        _WIDE.SerializeToString(),
        many=CALLS // 50,
    ),
    "of 4 MB without a token": Refused(
        _NODES, grpc.StatusCode.UNAUTHENTICATED, NOBODY, b"\xff" * 4_000_000, many=CALLS // 100
    ),
    "of 4 MB, malformed": Refused(
        _NODES, grpc.StatusCode.INVALID_ARGUMENT, data=b"\xff" * 4_000_000, many=CALLS // 100
    ),
    "of more than 4 MiB": Refused(
        _NODES, grpc.StatusCode.RESOURCE_EXHAUSTED, data=b"\xff" * 4_300_000, many=CALLS // 500
    ),
}
"""Kinds of refused calls, and reads beside them; the first ones are as many as the issue asks for, those that take long are fewer."""


class Process:
    """A core as a process of its own, over TLS."""

    def __init__(
        self, process: "subprocess.Popen[str]", where: str, certificate: bytes | None
    ) -> None:
        self.pid = process.pid
        self.where = where
        self._certificate = certificate

    @property
    def mib(self) -> float:
        """Resident memory."""
        return resident_bytes(self.pid) / MIB

    def channel(self) -> grpc.aio.Channel:
        """A connection of its own."""
        options = (("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1))
        if self._certificate is None:
            return grpc.aio.insecure_channel(self.where, options)
        credentials = grpc.ssl_channel_credentials(self._certificate)
        return grpc.aio.secure_channel(self.where, credentials, options)


@contextmanager
def core(folder: Path, *options: str, certificate: bytes | None = None) -> Iterator[Process]:
    log = folder / "serve.log"
    with running(["serve", "--listen", "127.0.0.1:0", *options], log) as process:
        where = address_of(process, log)
        yield Process(process, where, certificate)


@contextmanager
def guarded(folder: Path) -> Iterator[Process]:
    access, authority = files(folder, clients=False, tokens=True)
    tokens = folder / "tokens"
    tokens.write_text(TOKENS)
    options = ["--tls-cert", str(access.tls_cert), "--tls-key", str(access.tls_key)]
    certificate = authority.cert_pem.bytes()
    with core(folder, *options, "--tokens", str(tokens), certificate=certificate) as process:
        yield process


async def refused(process: Process, kind: Refused, many: int) -> None:
    """Make so many calls on one connection; all end with the status of their kind."""
    codes: Counter[grpc.StatusCode] = Counter()
    async with process.channel() as channel:
        stream = kind.method.startswith("/si.v1.Scheduler/Update")
        make = channel.stream_stream if stream else channel.unary_unary
        method: Any = make(kind.method)
        at_once = 1 if len(kind.data) > MIB else AT_ONCE
        for _ in range(0, many, at_once):
            calls = (_code(method, kind, stream=stream) for _ in range(at_once))
            codes.update(await asyncio.gather(*calls))
    assert set(codes) == {kind.code}, codes


async def _code(method: Any, kind: Refused, *, stream: bool) -> grpc.StatusCode:
    try:
        if stream:
            async for _ in method(_once(kind.data), metadata=kind.metadata):
                pass
        else:
            await method(kind.data, metadata=kind.metadata)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


async def _once(data: bytes) -> AsyncIterator[bytes]:
    """Give the message; none where it is empty, for gRPC's client calls a refusal before its first write INTERNAL."""
    if data:
        yield data


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_refused_calls_leave_nothing_behind(tmp_path: Path, kind: Refused) -> None:
    with guarded(tmp_path) as process:
        idle = process.mib
        asyncio.run(refused(process, kind, kind.many // 2))
        until(lambda: process.mib < idle + LEFT_MIB)
        first = process.mib
        asyncio.run(refused(process, kind, kind.many // 2))
        until(lambda: process.mib < first + MORE_MIB)


# The budget -----------------------------------------------------------------------------------------------------------


def budget_mib(nodes: int, pods: int, streams: int) -> float:
    return BASE_MIB + (nodes * NODE_KIB + pods * POD_KIB + streams * STREAM_KIB) / 1_024


def test_a_core_keeps_to_its_budget(tmp_path: Path) -> None:
    nodes, pods, managers = 2_000, 20_000, 20
    with core(tmp_path) as process:
        with grpc.insecure_channel(process.where) as channel:
            stub = si_pb2_grpc.SchedulerStub(channel)
            stub.RegisterResourceManager(si.RegisterResourceManagerRequest(rmID="rm"))
            _send(stub.UpdateNode, _nodes(nodes))
            _send(stub.UpdateApplication, _applications(pods // 100))
            assert _send(stub.UpdateAllocation, _pods(pods)) >= pods
            asyncio.run(_streams(process, managers, nodes, pods))
        until(lambda: process.mib < budget_mib(nodes, pods, 3))


async def _streams(process: Process, managers: int, nodes: int, pods: int) -> None:
    """Open the streams of so many managers, and look while they are open."""
    budget = budget_mib(nodes, pods, 3 * managers)
    async with process.channel() as channel:
        stub: Any = si_pb2_grpc.SchedulerStub(channel)
        calls = []
        for at in range(managers):
            await stub.RegisterResourceManager(si.RegisterResourceManagerRequest(rmID=f"rm{at}"))
            for call, message in (
                (stub.UpdateNode(), si.NodeRequest),
                (stub.UpdateApplication(), si.ApplicationRequest),
                (stub.UpdateAllocation(), si.AllocationRequest),
            ):
                await call.write(message(rmID=f"rm{at}"))
                calls.append(call)
        assert process.mib < budget
        for call in calls:
            call.cancel()


def _send(call: Callable[[Iterator[Any]], Iterator[Any]], messages: list[Any]) -> int:
    """Send these on one stream; return how many were placed, or messages came back."""
    return sum(max(1, len(getattr(one, "new", ()))) for one in call(iter(messages)))


def _parts(count: int) -> Iterator[range]:
    return (range(at, min(count, at + 500)) for at in range(0, count, 500))


def _nodes(count: int) -> list[si.NodeRequest]:
    """Make nodes with the twenty labels that cloud providers put there."""
    messages = []
    for part in _parts(count):
        message = si.NodeRequest(rmID="rm")
        for at in part:
            one = message.nodes.add(nodeID=f"node-{at:05}.cluster.example", action=1)
            quantities = {"vcore": 64_000, "memory": 1 << 38, "pods": 110}
            for name, value in quantities.items():
                one.schedulableResource.resources[name].value = value
            labels = {f"label.example.com/key{k}": f"value-{k}-{at % 13}" for k in range(19)}
            one.labels.update(labels | {"kubernetes.io/hostname": one.nodeID})
        messages.append(message)
    return messages


def _applications(count: int) -> list[si.ApplicationRequest]:
    new = [
        si.AddApplicationRequest(applicationID=f"app{at}", queueName=f"root.q{at % 100}")
        for at in range(count)
    ]
    return [si.ApplicationRequest(rmID="rm", new=new)]


def _pods(count: int) -> list[si.AllocationRequest]:
    """Make pods with names, namespaces and the times of their creation, as a shim sends them."""
    messages = []
    for part in _parts(count):
        message = si.AllocationRequest(rmID="rm")
        for at in part:
            one = message.allocations.add(
                allocationKey=f"{at:08x}-0000-4000-8000-{at:012x}",
                applicationID=f"app{at % (count // 100)}",
            )
            one.resourcePerAlloc.resources["vcore"].value = 100 + at % 20
            one.resourcePerAlloc.resources["memory"].value = MIB
            tags = {
                "kubernetes.io/meta/namespace": f"team{at % 100}",
                "kubernetes.io/meta/podName": f"worker-{at:08}-abcde",
                "creationTime": "1700000000",
            }
            one.allocationTags.update(tags)
        messages.append(message)
    return messages


ROOT: Final = Path(__file__).parents[2]


def test_the_page_states_this_budget() -> None:
    page = (ROOT / "docs" / "overload.md").read_text()
    stated = (
        f"{BASE_MIB} MiB + {NODE_KIB} KiB a node + {POD_KIB} KiB a pod + {STREAM_KIB} KiB a stream"
    )
    assert stated in page


def test_the_manifest_has_room_for_the_cluster_that_the_page_names() -> None:
    page = (ROOT / "docs" / "overload.md").read_text()
    found = re.search(r"fits ([\d,]+) nodes and ([\d,]+) pods", page)
    assert found is not None
    nodes, pods = (int(number.replace(",", "")) for number in found.groups())
    manifest = (ROOT / "deploy" / "core.yaml").read_text()
    limit = re.search(r"limits: \{memory: (\d+)Gi\}", manifest)
    assert limit is not None
    # As much again is left for copies that answer reads, and for answers that wait.
    assert 2 * budget_mib(nodes, pods, 9) <= 1_024 * int(limit[1])
