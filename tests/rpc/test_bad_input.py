"""Damaged messages: the server answers INVALID_ARGUMENT or rejects objects, and its state stays unchanged."""

import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.message import DecodeError

from evenhand.v1 import explain_pb2, inspect_pb2
from server.core.core import Core
from server.model.parts import whole
from server.rpc.translate.allocations import Batch, Reader
from server.rpc.translate.allocations_fast import AllocationCodec, MalformedError
from server.rpc.translate.applications import application_batch, registration
from server.rpc.translate.nodes import node_batching
from si.v1 import si_pb2 as si
from tests.effort import cases
from tests.rpc.harness import RM, Served, Stream, ask, node, resource, serving
from tests.rpc.messages import bent, broken, shaken

SEED = 20_261_121
IN_PROCESS = cases(100_000)
ON_THE_WIRE = cases(5_000)
NOW = 1_700_000_000_000


def allocation_message(chance: random.Random) -> bytes:
    """Return a mostly valid message: asks of both generations, running and foreign ones, releases, vetoes."""
    keys = [f"k{chance.randrange(40)}" for _ in range(chance.randrange(1, 4))]
    message = si.AllocationRequest(rmID=RM)
    for key in keys:
        kind = chance.randrange(6)
        if kind == 0:
            message.asks.add(allocationKey=key, applicationID="app", resourceAsk=resource(vcore=1))
        elif kind == 1:
            message.allocations.append(ask(key, nodeID="n0", startedAt=5))
        elif kind == 2:
            message.allocations.append(
                ask(key, applicationID="", nodeID="n1", allocationTags={"foreign": "default"})
            )
        else:
            message.allocations.append(
                ask(
                    key,
                    applicationID=chance.choice(["app", "side", "nobody"]),
                    allocationTags={"creationTime": "1700000000", "a": "b"},
                    constraints=si.NodeConstraints(nodeSelector={"zone": "a"}),
                )
            )
    if chance.random() < 0.3:
        message.releases.allocationsToRelease.add(
            applicationID="app", allocationKey=chance.choice(keys), terminationType=si.STOPPED_BY_RM
        )
    if chance.random() < 0.1:
        message.vetoes.add(decisionID="d", allocationKey=chance.choice(keys))
    return message.SerializeToString()


def node_message(chance: random.Random) -> bytes:
    """Return a message of nodes that are created, changed and removed."""
    node_id = f"n{chance.randrange(5)}"
    found = node(node_id, action=chance.randrange(7), labels={"zone": "a"}, attributes={"x": "y"})
    message = si.NodeRequest(rmID=RM, nodes=[found])
    if chance.random() < 0.1:
        message.syncComplete.nodes = chance.randrange(3)
    return message.SerializeToString()


def application_message(chance: random.Random) -> bytes:
    """Return a message of applications that are added, changed and removed."""
    name = chance.choice(["app", "side", "third"])
    message = si.ApplicationRequest(rmID=RM)
    if chance.random() < 0.2:
        quota = chance.choice(['{"vcore":5}', '{"vcore":-5}', "many", ""])
        message.updates.add(applicationID=name, tags={"namespace.resourcequota": quota})
    elif chance.random() < 0.75:
        queue = chance.choice(["root.a", "root.b.c", "a", ""])
        message.new.add(applicationID=name, queueName=queue, tags={"namespace": "ns"})
    else:
        message.remove.add(applicationID=name)
    return message.SerializeToString()


Make = Callable[[random.Random], bytes]
MAKERS: list[tuple[str, Make, float]] = [
    ("UpdateAllocation", allocation_message, 0.6),
    ("UpdateNode", node_message, 0.2),
    ("UpdateApplication", application_message, 0.2),
]


def damaged(count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """Yield the method and the bytes of ``count`` damaged messages."""
    chance = random.Random(seed)
    for _ in range(count):
        method, make, _ = chance.choices(MAKERS, [weight for *_, weight in MAKERS])[0]
        data = make(chance)
        if chance.random() < 0.1:
            data = shaken(data, chance)
        yield method, chance.choice((bent, broken))(data, chance)


class Receiver:
    """The receiver behind a stream, without the stream."""

    def __init__(self) -> None:
        reader = Reader()
        codec = AllocationCodec(reader)
        self.core = Core()
        self._decode: dict[str, Callable[[bytes], Batch]] = {
            "UpdateAllocation": lambda data: whole(codec.decoding(data)),
            "UpdateNode": lambda data: whole(
                node_batching(si.NodeRequest.FromString(data), reader)
            ),
            "UpdateApplication": lambda data: application_batch(
                si.ApplicationRequest.FromString(data)
            ),
        }

    def take(self, method: str, data: bytes) -> str:
        """Decode a message, handle its events, and return the outcome."""
        try:
            batch = self._decode[method](data)
        except (MalformedError, DecodeError):
            return "malformed"
        for event in batch.events:
            self.core.handle(event, NOW)
        if not batch.events:
            return "refused"
        return "taken"


def start(receiver: Receiver) -> None:
    """Set up a small cluster."""
    register = si.RegisterResourceManagerRequest(rmID=RM)
    receiver.core.handle(registration(register, None, ""), NOW)
    chance = random.Random(SEED)
    for _ in range(20):
        receiver.take("UpdateNode", node_message(chance))
        receiver.take("UpdateApplication", application_message(chance))


def test_damaged_messages() -> None:
    receiver = Receiver()
    start(receiver)
    fates: Counter[str] = Counter()
    for number, (method, data) in enumerate(damaged(IN_PROCESS, SEED)):
        watched = number % 100 == 0
        before = receiver.core.digest() if watched else ""
        fate = receiver.take(method, data)
        fates[fate] += 1
        if watched and fate != "taken":
            assert receiver.core.digest() == before, (SEED, number)
        if number % 50 == 0:
            receiver.core.tick(NOW, 1_000)
        if number % 5_000 == 0:
            receiver.core.validate()
    receiver.core.validate()
    assert min(fates.values()) > IN_PROCESS // 100, fates


async def test_damaged_messages_on_the_wire() -> None:
    codes: Counter[grpc.StatusCode] = Counter()
    async with serving() as served:
        await served.ready(nodes=2)
        for number, (method, data) in enumerate(damaged(ON_THE_WIRE, SEED + 1)):
            wanted = unary(served, data, number) if number % 3 == 0 else sent(served, method, data)
            codes[await wanted] += 1
        served.core.validate()
    assert codes.keys() <= ANSWERS, (SEED, codes)
    assert codes[grpc.StatusCode.INVALID_ARGUMENT] > ON_THE_WIRE // 10


ANSWERS = {
    grpc.StatusCode.OK,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.FAILED_PRECONDITION,
}
"""Never UNKNOWN, never INTERNAL."""
UNARY = (
    "/si.v1.Scheduler/RegisterResourceManager",
    "/evenhand.v1.InspectService/ListAllocations",
    "/evenhand.v1.ExplainService/Explain",
    "/evenhand.v1.ConfigurationService/Validate",
    "/grpc.health.v1.Health/Check",
)
REQUESTS = (
    si.RegisterResourceManagerRequest(rmID="other", config="partitions: []", version="1"),
    inspect_pb2.ListAllocationsRequest(partition="default", queue="root.a", page_token="7"),  # noqa: S106
    explain_pb2.ExplainRequest(key="k1", partition="default"),
    si.RegisterResourceManagerRequest(rmID="partitions: [{name: default}]", version="x"),
    explain_pb2.ExplainRequest(partition="si.v1.Scheduler"),
)


async def unary(served: Served, data: bytes, number: int) -> grpc.StatusCode:
    """Return the code of a unary call with damaged bytes."""
    place = number // 3 % len(UNARY)
    damage = broken(REQUESTS[place].SerializeToString(), random.Random(number))
    raw: Any = served.channel.unary_unary(UNARY[place])
    call = raw(damage if number % 2 else data)
    code: grpc.StatusCode = await call.code()
    return code


def raw_stream(served: Served, method: str) -> Stream:
    """Return a stream that sends bytes without encoding them."""
    raw: Any = served.channel.stream_stream(f"/si.v1.Scheduler/{method}")
    return Stream(raw())


async def sent(served: Served, method: str, data: bytes) -> grpc.StatusCode:
    """Return how a stream ends that carries these bytes alone."""

    async def requests() -> AsyncIterator[bytes]:
        yield data

    raw: Any = served.channel.stream_stream(f"/si.v1.Scheduler/{method}")
    return (await Stream(raw(requests())).end())[0]


@pytest.mark.parametrize("method", [method for method, *_ in MAKERS])
async def test_an_unbroken_message_goes_through(method: str) -> None:
    make = next(make for name, make, _ in MAKERS if name == method)
    async with serving() as served:
        await served.ready(nodes=2)
        stream = raw_stream(served, method)
        await stream.call.write(make(random.Random(SEED)))
        await stream.call.done_writing()
        assert (await stream.end())[0] is grpc.StatusCode.OK


HOSTILE = ("\x1b[2J", "a\nb", "a\x7f", "\x9bm", "a\u202eb", "a\u2066b")


@pytest.mark.parametrize("name", HOSTILE)
def test_names_with_control_characters_are_refused(name: str) -> None:
    nodes = whole(node_batching(si.NodeRequest(rmID=RM, nodes=[node(name)]), Reader()))
    queue = si.AddApplicationRequest(applicationID="app", queueName=f"root.{name}")
    user = si.AddApplicationRequest(applicationID="app", ugi=si.UserGroupInformation(user=name))
    own = si.AddApplicationRequest(applicationID=name)
    applications = application_batch(si.ApplicationRequest(rmID=RM, new=[queue, user, own]))
    codec = AllocationCodec(Reader())
    message = si.AllocationRequest(rmID=RM, allocations=[ask("plain"), ask(name)])
    asked = whole(codec.decoding(message.SerializeToString()))
    again = whole(codec.decoding(message.SerializeToString()))
    assert not nodes.events
    assert not applications.events
    assert len(asked.events) == len(again.events) == 1
    for refusal in (*nodes.refusals, *applications.refusals, *asked.refusals, *again.refusals):
        assert "is a control character (U+" in str(refusal)
    with pytest.raises(ValueError, match="rmID: character"):
        registration(si.RegisterResourceManagerRequest(rmID=name), None, "")


def test_names_of_other_scripts_are_taken() -> None:
    request = si.NodeRequest(rmID=RM, nodes=[node("nœud-漢\u00a0é")])
    batch = whole(node_batching(request, Reader()))
    assert len(batch.events) == 1
