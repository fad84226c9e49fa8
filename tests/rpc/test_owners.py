"""The callers that may act for a manager: roles for managers and partitions, freed registrations, limits on streams."""

from collections.abc import Sequence
from typing import Any

import grpc
import pytest

from evenhand.v1 import config_pb2, config_pb2_grpc, inspect_pb2, inspect_pb2_grpc
from server.rpc import callers, limits
from server.rpc.callers import OpenCalls, kind_of
from server.rpc.errors import CallError
from server.rpc.identity import Identities, digest, roles, tokens
from server.rpc.roles import LOCAL_OPERATOR, OPEN, TABLE, Caller, Role
from server.rpc.sessions import Kind
from si.v1 import si_pb2 as si
from tests.rpc.harness import (
    Served,
    Stream,
    asks,
    node,
    refusal,
    serving,
    until,
    with_identities,
)

DENIED = (grpc.StatusCode.PERMISSION_DENIED, "NOT_YOURS")
ONE = "partitions:\n- {name: default, queues: [{name: root}]}\n"
TWO = ONE + "- {name: gpu, queues: [{name: root}]}\n"
OTHER_DEFAULT = TWO.replace("{name: root}", "{name: root, queues: [{name: a}]}", 1)
OTHER_GPU = TWO.replace(
    "gpu, queues: [{name: root}", "gpu, queues: [{name: root, queues: [{name: a}]}"
)

CALLERS = {
    "free": Caller("free", Role.SHIM),
    "rival": Caller("rival", Role.SHIM),
    "bound": Caller("bound", Role.SHIM, manager="c1"),
    "gpu": Caller("gpu", Role.SHIM, manager="c2", partitions=frozenset({"gpu"})),
    "olga": Caller("olga", Role.OPERATOR),
}
KNOWN = with_identities(
    Identities(open_to_all=False, tokens={digest(name): one for name, one in CALLERS.items()})
)


def known(name: str) -> Sequence[tuple[str, str]]:
    return (("authorization", f"Bearer {name}"),)


def register(served: Served, name: str, rm_id: str, config: str = "") -> Any:
    request = si.RegisterResourceManagerRequest(rmID=rm_id, config=config)
    return served.stub.RegisterResourceManager(request, metadata=known(name))


def stream(served: Served, name: str, method: str = "UpdateAllocation") -> Stream:
    opened = Stream(getattr(served.stub, method)(metadata=known(name)))
    served.streams.append(opened)
    return opened


def apply(served: Served, name: str, text: str) -> Any:
    stub = config_pb2_grpc.ConfigurationServiceStub(served.channel)
    return stub.Apply(config_pb2.ApplyRequest(yaml=text), metadata=known(name))


async def test_another_caller_may_not_register_a_manager_that_is_taken() -> None:
    async with serving(KNOWN) as served:
        await register(served, "free", "c1")
        own = stream(served, "free", "UpdateNode")
        await own.send(si.NodeRequest(rmID="c1", nodes=[node("n")]))
        assert (await own.read(si.NodeResponse)).accepted
        assert (await refusal(register(served, "rival", "c1")))[:2] == DENIED
        assert "c1" in served.core.state.managers
        assert not own.call.done(), "its streams live on"
        await register(served, "free", "c1")
        await register(served, "rival", "c3")


async def test_a_refusal_says_what_to_do() -> None:
    async with serving(KNOWN) as served:
        await register(served, "free", "c1")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await register(served, "rival", "c1")
        assert "ask an operator for `manager: c1`" in str(refused.value.details())


async def test_another_caller_may_not_speak_for_a_manager() -> None:
    async with serving(KNOWN) as served:
        await register(served, "free", "c1")
        rival = stream(served, "rival")
        await rival.send(asks("a", rm_id="c1"))
        assert await rival.end() == DENIED


async def test_a_stream_that_spoke_before_the_registration_hears_nothing_of_it() -> None:
    async with serving(KNOWN) as served:
        early = stream(served, "rival")
        await early.send(si.AllocationRequest(rmID="c1"))
        await until(lambda: bool(served.endpoint.sessions.open_kinds("c1")))
        await register(served, "free", "c1")
        assert await early.end() == (grpc.StatusCode.ABORTED, "REGISTERED_AGAIN")


async def test_a_bound_role_speaks_for_its_manager_alone_and_takes_it_back() -> None:
    async with serving(KNOWN) as served:
        assert (await refusal(register(served, "bound", "c9")))[:2] == DENIED
        other = stream(served, "bound")
        await other.send(asks("a", rm_id="c9"))
        assert await other.end() == DENIED
        await register(served, "rival", "c1")
        await register(served, "bound", "c1")
        assert (await refusal(register(served, "rival", "c1")))[:2] == DENIED
        await register(served, "olga", "c1")


async def test_a_shim_changes_its_own_partitions_only() -> None:
    async with serving(KNOWN) as served:
        assert (await apply(served, "olga", TWO)).applied
        assert (await refusal(apply(served, "gpu", OTHER_DEFAULT)))[:2] == DENIED
        assert (await refusal(apply(served, "gpu", ONE.replace("default", "gpu"))))[:2] == DENIED
        assert (await apply(served, "gpu", OTHER_GPU)).applied
        assert (await apply(served, "olga", TWO)).applied


async def test_an_unbound_shim_leaves_partitions_of_others_alone() -> None:
    async with serving(KNOWN) as served:
        await apply(served, "olga", TWO)
        await register(served, "free", "c1")
        nodes = stream(served, "free", "UpdateNode")
        await nodes.send(si.NodeRequest(rmID="c1", nodes=[node("n")]))
        await nodes.read(si.NodeResponse)
        assert (await refusal(apply(served, "rival", OTHER_DEFAULT)))[:2] == DENIED
        assert (await apply(served, "rival", OTHER_GPU)).applied
        assert (await apply(served, "free", OTHER_DEFAULT)).applied


async def test_a_text_with_some_of_the_partitions_is_told_which_it_lacks() -> None:
    """The refusal spoke of a change of `default`, which the text does not mention."""
    async with serving(KNOWN) as served:
        assert (await apply(served, "olga", TWO)).applied
        only = ONE.replace("default", "gpu")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await apply(served, "gpu", only)
        said = str(refused.value.details())
        assert "lacks partition 'default', which your role (gpu) may not remove" in said
        assert "ask an operator for what `evenhand config show` prints" in said


async def test_an_empty_partition_of_nobody_may_be_left_out() -> None:
    async with serving(KNOWN) as served:
        assert (await apply(served, "olga", TWO)).applied
        assert (await apply(served, "rival", ONE)).applied
        assert set(served.core.state.partitions) == {"default"}


async def test_a_registration_is_bound_like_an_apply() -> None:
    async with serving(KNOWN) as served:
        refused = await refusal(register(served, "gpu", "c2", OTHER_DEFAULT))
        assert refused[:2] == DENIED
        assert "c2" not in served.core.state.managers


async def test_a_bound_shim_brings_nodes_to_its_partitions_only() -> None:
    async with serving(KNOWN) as served:
        await apply(served, "olga", TWO)
        await register(served, "gpu", "c2")
        nodes = stream(served, "gpu", "UpdateNode")
        right = node("n", attributes={"evenhand.io/partition": "gpu"})
        await nodes.send(si.NodeRequest(rmID="c2", nodes=[right]))
        assert (await nodes.read(si.NodeResponse)).accepted
        await nodes.send(si.NodeRequest(rmID="c2", nodes=[node("n2")]))
        assert await nodes.end() == DENIED


def test_roles_are_bound_in_the_files() -> None:
    (bound,) = tokens(
        "tokens: [{token: 0123456789abcdef, role: shim, name: s, manager: c1, partitions: [GPU]}]"
    ).values()
    assert (bound.manager, bound.partitions) == ("c1", frozenset({"gpu"}))
    found = roles("certificates: [{name: s, role: shim, manager: c1}]").callers
    assert found["s"].manager == "c1"
    with pytest.raises(ValueError, match="are for the role shim"):
        tokens("tokens: [{token: 0123456789abcdef, role: viewer, manager: c1}]")


def test_tokens_without_a_name_are_told_apart() -> None:
    text = "tokens: [{token: 0123456789abcdef, role: shim}, {token: 0123456789abcdeg, role: shim}]"
    names = {one.name for one in tokens(text).values()}
    assert len(names) == 2
    assert all(len(one) == len("token 12345678") for one in names)


async def test_a_manager_that_is_gone_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.rpc.sessions.MANAGERS_MAX", 2)
    full = (grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_REACHED")
    async with serving() as served:
        await served.register("holds")
        nodes = await served.open("UpdateNode", si.NodeRequest(rmID="holds", nodes=[node("n")]))
        await nodes.read(si.NodeResponse)
        await served.register("invented")
        third = si.RegisterResourceManagerRequest(rmID="third")
        assert (await refusal(served.stub.RegisterResourceManager(third)))[:2] == full
        nodes.call.cancel()
        await until(lambda: not len(served.endpoint.sessions))
        served.clock.ms += limits.MANAGER_GONE_MS
        await served.register("third")
        assert list(served.core.state.managers) == ["holds", "third"]
        fourth = si.RegisterResourceManagerRequest(rmID="fourth")
        assert (await refusal(served.stub.RegisterResourceManager(fourth)))[:2] == full


async def test_one_role_leaves_capacity_for_managers_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """D8: invented ids of one caller kept every other manager out."""
    monkeypatch.setattr("server.rpc.sessions.CALLER_MANAGERS_MAX", 2)
    full = (grpc.StatusCode.RESOURCE_EXHAUSTED, "CALLER_LIMIT_REACHED")
    async with serving(KNOWN) as served:
        await register(served, "free", "m1")
        await register(served, "free", "m2")
        assert (await refusal(register(served, "free", "m3")))[:2] == full
        await register(served, "free", "m2")
        await register(served, "rival", "m3")
        await register(served, "bound", "c1")
        for at in range(3):
            await register(served, "olga", f"o{at}")
        served.clock.ms += limits.MANAGER_GONE_MS
        await register(served, "free", "m4")


async def test_a_caller_without_a_manager_has_a_place_whatever_others_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """D8: two roles took all places for ten minutes, and with streams for ever."""
    for name, most in (("CALLER_MANAGERS_MAX", 2), ("MANAGERS_MAX", 4), ("STREAMS_MAX", 4)):
        monkeypatch.setattr(f"server.rpc.sessions.{name}", most)
    full = (grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_REACHED")
    async with serving(KNOWN) as served:
        for at, name in enumerate(("free", "free", "rival", "rival")):
            await register(served, name, f"m{at}")
            await stream(served, name).send(si.AllocationRequest(rmID=f"m{at}"))
        await until(lambda: len(served.endpoint.sessions) == 4)
        await register(served, "bound", "c1")
        for kind in ("Allocation", "Application", "Node"):
            opened = stream(served, "bound", f"Update{kind}")
            await opened.send(getattr(si, f"{kind}Request")(rmID="c1"))
        await until(lambda: len(list(served.endpoint.sessions.open_kinds("c1"))) == len(Kind))
        assert (await stream(served, "bound").end()) == full
        await register(served, "olga", "o1")
        assert (await refusal(register(served, "olga", "o2")))[:2] == full


async def test_as_many_managers_as_are_allowed_have_their_three_streams() -> None:
    async with serving() as served:
        for at in range(limits.MANAGERS_MAX):
            rm_id = f"m{at}"
            await served.register(rm_id)
            for method, message in (
                ("UpdateNode", si.NodeRequest(rmID=rm_id)),
                ("UpdateApplication", si.ApplicationRequest(rmID=rm_id)),
                ("UpdateAllocation", si.AllocationRequest(rmID=rm_id)),
            ):
                await served.open(method, message)
        sessions = served.endpoint.sessions
        every = [f"m{at}" for at in range(limits.MANAGERS_MAX)]
        await until(lambda: all(len(list(sessions.open_kinds(one))) == 3 for one in every))


async def test_silent_streams_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.rpc.sessions.STREAMS_MAX", 3)
    async with serving() as served:
        speaking = await served.open("UpdateNode", si.NodeRequest(rmID="rm", nodes=[node("n")]))
        await speaking.read(si.NodeResponse)
        silent = [await served.open("UpdateNode") for _ in range(2)]
        await until(lambda: len(served.endpoint.sessions) == 3)
        refused = await served.open("UpdateAllocation")
        assert await refused.end() == (grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_REACHED")
        served.clock.ms += limits.FIRST_MESSAGE_MS
        await served.register()
        late = await served.ready(rm_id="rm")
        await late.send(asks("a"))
        assert (await late.read(si.AllocationResponse)).new
        for one in silent:
            assert await one.end() == (grpc.StatusCode.DEADLINE_EXCEEDED, "NO_FIRST_MESSAGE")


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        ("/si.v1.Scheduler/UpdateNode", callers.STREAMS),
        ("/si.v1.Scheduler/RegisterResourceManager", callers.REGISTRATIONS),
        ("/evenhand.v1.WatchService/WatchEvents", callers.WATCHES),
        ("/evenhand.v1.SimulateService/SimulateAsks", callers.SIMULATIONS),
        ("/evenhand.v1.ExplainService/Explain", callers.READS),
        (
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
            callers.REFLECTIONS,
        ),
    ],
)
def test_each_kind_of_call_has_a_limit_for_each_caller(method: str, kind: str) -> None:
    assert kind_of(method) == kind
    calls, caller = OpenCalls(), CALLERS["free"]
    held = [calls.counted(method, caller) for _ in range(callers.MOST[kind])]
    for one in held:
        one.__enter__()
    with pytest.raises(CallError, match=f"{callers.MOST[kind]} {kind} open already"):
        calls.counted(method, caller).__enter__()
    with calls.counted(method, CALLERS["rival"]), calls.counted(method, LOCAL_OPERATOR):
        pass
    held[0].__exit__(None, None, None)
    with calls.counted(method, caller):
        pass


@pytest.mark.parametrize("method", sorted([*TABLE, *OPEN]))
def test_each_call_has_a_limit_in_all(method: str) -> None:
    """The limit of all counts also where callers are not told apart, as on an open port."""
    kind, calls = kind_of(method), OpenCalls()
    assert (kind in callers.MOST) == (method not in OPEN)
    held = [calls.counted(method, LOCAL_OPERATOR) for _ in range(callers.MOST_IN_ALL[kind])]
    for one in held:
        one.__enter__()
    if kind in {callers.STREAMS, callers.WATCHES, callers.HEALTH_WATCHES}:
        return  # counted where others give way to them, and tested there
    with pytest.raises(CallError, match=f"there are {len(held)} {kind} already"):
        calls.counted(method, LOCAL_OPERATOR).__enter__()
    held[0].__exit__(None, None, None)
    with calls.counted(method, LOCAL_OPERATOR):
        pass


async def test_a_call_without_its_request_loses_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.rpc.interceptor.REQUEST_S", 0.2)
    async with serving() as served:
        for method in ("/grpc.health.v1.Health/Check", "/evenhand.v1.InspectService/ListNodes"):
            raw = served.channel.stream_stream(method)()  # type: ignore[var-annotated]
            ended = await Stream(raw).end()
            assert ended == (grpc.StatusCode.DEADLINE_EXCEEDED, "NO_REQUEST")


async def test_a_caller_hears_that_its_limit_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callers, "MOST", {**callers.MOST, callers.STREAMS: 1})
    async with serving(KNOWN) as served:
        first = stream(served, "free", "UpdateNode")
        await first.send(si.NodeRequest(rmID="c1", nodes=[node("n")]))
        second = stream(served, "free", "UpdateNode")
        assert await second.end() == (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "CALLER_LIMIT_REACHED",
        )
        third = stream(served, "rival", "UpdateNode")
        await third.send(si.NodeRequest(rmID="c3", nodes=[node("m")]))
        await third.read(si.NodeResponse)
        stub = inspect_pb2_grpc.InspectServiceStub(served.channel)
        await stub.ServerInfo(inspect_pb2.ServerInfoRequest(), metadata=known("free"))
