"""Configurations are read in the order of their calls, outside the loop, within limits; a lost process is replaced."""

import asyncio
import sys
from functools import partial

import grpc
import pytest

from evenhand.v1 import config_pb2, config_pb2_grpc
from server.config import examine
from server.rpc import limits
from server.rpc.configuration_reading import Readings, check_length
from server.rpc.errors import CallError
from server.rpc.roles import CALLER, LOCAL_OPERATOR, Caller, Role
from si.v1 import si_pb2 as si
from tests.rpc.harness import RM, asks, node, serving, until

QUEUES = 300


@pytest.fixture(autouse=True)
def caller() -> None:
    """Read for the caller of an open port."""
    CALLER.set(LOCAL_OPERATOR)


def configuration(queues: int = QUEUES, first: str = "a") -> str:
    """Return a text that is too long to be read on the loop when it has many queues."""
    names = [first, *(f"q{number}" for number in range(queues))]
    lines = "".join(f"    - {{name: {name}, submitacl: '*'}}\n" for name in names)
    return f"partitions:\n- name: default\n  queues:\n  - name: root\n    queues:\n{lines}"


def long_text() -> str:
    """Return a text that the process reads."""
    text = configuration()
    assert len(text) > limits.SHORT_CONFIGURATION_CHARACTERS
    return text


def worker(deed: str) -> list[str]:
    """Return the command of a process that does a deed in place of reading a text whose source is called bad."""
    program = f"""
import os, signal, sys
sys.path[:] = sys.argv[1:]
from server.config import worker
examine = worker.examine
worker.examine = lambda text, source: {deed} if source in ("bad", "config") else examine(text, source)
worker.main()
"""
    return [sys.executable, "-c", program]


def waiting(readings: Readings) -> int:
    """Return the number of readings that are in progress or wait for their turn."""
    return len(readings._callers)


def processes(readings: Readings) -> list[asyncio.subprocess.Process]:
    """Return the processes that are running."""
    both = (readings._first.process, readings._second.process)
    return [one for one in both if one is not None]


async def test_the_process_reads_the_same_as_the_loop() -> None:
    """What comes back equals what `examine` returns, with every problem."""
    readings = Readings()
    text = long_text() + "surprise: 1\n"
    try:
        assert await readings.read(long_text(), "s") == examine(long_text(), "s")
        assert await readings.read(text, "s") == examine(text, "s")
    finally:
        await readings.close()


async def test_a_short_reading_does_not_overtake_a_long_one_of_its_order() -> None:
    """Readings of one order return in the order in which they were asked for; others do not wait."""
    readings, ended = Readings(), list[str]()

    async def read(text: str, name: str, order: str) -> None:
        await readings.read(text, name, order=order)
        ended.append(name)

    try:
        await asyncio.gather(
            read(long_text(), "long", "apply a"),
            read(configuration(1), "short", "apply a"),
            read(configuration(1), "other", "apply b"),
        )
    finally:
        await readings.close()
    assert ended == ["other", "long", "short"]


async def test_a_text_that_takes_long_holds_up_no_other() -> None:
    """While the second process reads the slow text, the first one reads those that came after it."""
    readings = Readings(worker("signal.pause()"))
    slow = asyncio.create_task(readings.read(long_text(), "bad"))
    await until(lambda: waiting(readings) == 1)
    try:
        for _ in range(2):
            assert (await readings.read(long_text(), "good")).configuration is not None
        assert not slow.done()
        await until(lambda: len(processes(readings)) == 2)
    finally:
        slow.cancel()
        await asyncio.gather(slow, return_exceptions=True)
        await readings.close()
    assert not processes(readings)


async def test_a_text_that_takes_long_is_read_in_the_end() -> None:
    """A text that the first process has no time for equals what `examine` returns, and the second process ends."""
    readings = Readings(first_seconds=0.0)
    assert await readings.read(long_text(), "s") == examine(long_text(), "s")
    assert not processes(readings)


async def test_a_text_that_ends_two_processes_is_refused_as_a_bad_configuration() -> None:
    """The error is INVALID_ARGUMENT, so that a shim does not send the text for ever; others are read on."""
    readings = Readings(worker("os._exit(1)"))
    try:
        with pytest.raises(CallError) as told:
            await readings.read(long_text(), "bad")
        assert told.value.reason == "CONFIGURATION_ENDS_READER"
        assert told.value.code is grpc.StatusCode.INVALID_ARGUMENT
        assert (await readings.read(long_text(), "good")).configuration is not None
    finally:
        await readings.close()


async def test_a_process_that_is_ended_once_is_replaced() -> None:
    """The end of one process may have another reason than the text: the text is read again."""
    readings = Readings()
    try:
        await readings.read(long_text(), "s")
        (process,) = processes(readings)
        process.kill()
        await process.wait()
        assert (await readings.read(long_text(), "s")).configuration is not None
    finally:
        await readings.close()


@pytest.mark.parametrize("program", [sys.executable, "/nonexistent"])
async def test_a_process_that_cannot_be_started_is_no_fault_of_the_text(program: str) -> None:
    """The error is UNAVAILABLE: another try may be better."""
    readings = Readings([program, "-c", ""])
    with pytest.raises(CallError) as told:
        await readings.read(long_text(), "s")
    assert told.value.reason == "READING_FAILED"
    assert told.value.code is grpc.StatusCode.UNAVAILABLE
    assert not processes(readings)


async def test_a_reading_has_a_time_limit() -> None:
    """A process that never answers is ended."""
    readings = Readings(worker("signal.pause()"), seconds=0.01, first_seconds=0.01)
    with pytest.raises(CallError) as told:
        await readings.read(long_text(), "bad")
    assert told.value.reason == "CONFIGURATION_TAKES_TOO_LONG"
    assert not processes(readings)


async def test_readings_are_limited_by_caller_and_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second reading of one caller is refused, and the third of all when two are allowed."""
    monkeypatch.setattr("server.rpc.configuration_reading.READINGS_MAX", 2)
    readings = Readings(worker("signal.pause()"))
    tasks = []
    for name in ("ada", "bob"):
        CALLER.set(Caller(name, Role.SHIM))
        tasks.append(asyncio.create_task(readings.read(long_text(), "bad")))
    await until(lambda: waiting(readings) == len(tasks))
    for name, reason in (("ada", "CALLER_LIMIT_REACHED"), ("eve", "LIMIT_REACHED")):
        CALLER.set(Caller(name, Role.SHIM))
        with pytest.raises(CallError) as told:
            await readings.read(configuration(1), name)
        assert told.value.reason == reason
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert not processes(readings)


async def test_the_later_of_two_applies_is_in_force() -> None:
    """A long text, then a short one: the short one stays."""
    async with serving() as served:
        stub = config_pb2_grpc.ConfigurationServiceStub(served.channel)
        texts = [long_text(), configuration(1, "last")]
        first = asyncio.ensure_future(stub.Apply(config_pb2.ApplyRequest(yaml=texts[0])))
        await until(lambda: waiting(served.endpoint.readings) > 0)
        answers = [await stub.Apply(config_pb2.ApplyRequest(yaml=texts[1])), await first]
        assert all(answer.applied for answer in answers)
        assert (await stub.Get(config_pb2.GetRequest())).yaml == texts[1]


async def test_a_message_waits_for_the_registration_before_it() -> None:
    """A node that is sent while the registration is read is taken after it, not wiped by it."""
    async with serving() as served:
        request = si.RegisterResourceManagerRequest(rmID=RM, config=long_text())
        registering = asyncio.ensure_future(served.stub.RegisterResourceManager(request))
        await until(lambda: waiting(served.endpoint.readings) > 0)
        stream = await served.open("UpdateNode", si.NodeRequest(rmID=RM, nodes=[node("n")]))
        assert (await stream.read(si.NodeResponse)).accepted[0].nodeID == "n"
        await registering
        assert "n" in served.core.state.partitions["default"].index.nodes


async def test_a_registration_in_a_manager_s_name_holds_back_no_stream_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While a text in its name is read for long, a registered manager's streams go on, a new one after a bounded time."""
    monkeypatch.setattr("server.rpc.servicer.REGISTRATION_WAIT_S", 0.05)
    monkeypatch.setattr("server.rpc.endpoint.Readings", partial(Readings, worker("signal.pause()")))
    async with serving() as served:
        asking = await served.ready()
        readings = served.endpoint.readings
        request = si.RegisterResourceManagerRequest(rmID=RM, config=long_text())
        registering = asyncio.ensure_future(served.stub.RegisterResourceManager(request))
        await until(lambda: waiting(readings) > 0)
        await asking.send(asks("a"))
        assert (await asking.read(si.AllocationResponse)).new[0].allocationKey == "a"
        opened = await served.open("UpdateNode", si.NodeRequest(rmID=RM, nodes=[node("n")]))
        assert (await opened.read(si.NodeResponse)).accepted[0].nodeID == "n"
        assert not registering.done()
        registering.cancel()


async def test_a_registration_with_a_text_too_long_names_its_field() -> None:
    """The error says `config`, as the registration's field is called."""
    async with serving() as served:
        text = "#" * (limits.CONFIGURATION_BYTES_MAX + 1)
        with pytest.raises(grpc.aio.AioRpcError) as told:
            await served.register(config=text)
        assert (told.value.details() or "").startswith("config: is longer than")


async def test_the_limit_of_a_text_counts_bytes() -> None:
    """A character of a comment may have several bytes (docs/overload.md)."""
    characters = limits.CONFIGURATION_BYTES_MAX // len("漢".encode())
    check_length("#" + characters * "漢", "yaml")
    with pytest.raises(CallError) as told:
        check_length("#" + (characters + 1) * "漢", "yaml")
    assert told.value.message == "yaml: is longer than 2097152 bytes"
