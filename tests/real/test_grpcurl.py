"""The examples of the README: grpcurl learns the services by reflection and calls them."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

PATIENCE_S = 30.0
README = Path(__file__).parents[2] / "README.md"
CALL = re.compile(
    r"    grpcurl -plaintext( -d ('(?P<data>.*)'|(?P<typed>@)))? 127\.0\.0\.1:50051 (?P<method>\S+)"
)
SERVICES = {
    "si.v1.Scheduler",
    "evenhand.v1.InspectService",
    "evenhand.v1.ExplainService",
    "evenhand.v1.ConfigurationService",
    "evenhand.v1.WatchService",
    "evenhand.v1.DecisionService",
    "evenhand.v1.SimulateService",
    "evenhand.v1.ReportService",
    "grpc.health.v1.Health",
}


class Caller:
    """Grpcurl against one core."""

    def __init__(self, program: Path, core: str) -> None:
        self._start = (str(program), "-plaintext")
        self._core = core

    async def call(self, *words: str, data: object = None) -> tuple[int, str]:
        """Make one call to its end, and return exit code and output."""
        given = () if data is None else ("-d", json.dumps(data))
        process = await asyncio.create_subprocess_exec(
            *(*self._start, *given, self._core, *words),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await asyncio.wait_for(process.communicate(), PATIENCE_S)
        assert process.returncode is not None
        return process.returncode, said.decode()

    @asynccontextmanager
    async def stream(self, method: str) -> AsyncIterator["Stream"]:
        """Hold an open stream; closing the client's side at the end ends the core's side too."""
        process = await asyncio.create_subprocess_exec(
            *(*self._start, "-d", "@", self._core, method),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            yield Stream(process)
            assert process.stdin is not None
            process.stdin.close()
            assert await asyncio.wait_for(process.wait(), PATIENCE_S) == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


class Stream:
    """Messages to and from one running grpcurl."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._input, self._output = process.stdin, process.stdout
        self._text = ""

    async def send(self, message: object) -> None:
        self._input.write(json.dumps(message).encode() + b"\n")
        await self._input.drain()

    async def until(self, field: str) -> list[dict[str, Any]]:
        """Return the field of the first answer that has it."""
        async with asyncio.timeout(PATIENCE_S):
            while not (found := (await self._next()).get(field)):
                pass
        assert isinstance(found, list)
        return found

    async def _next(self) -> dict[str, Any]:
        while True:
            try:
                message, end = json.JSONDecoder().raw_decode(self._text.lstrip())
            except json.JSONDecodeError:
                more = await self._output.read(4096)
                assert more, f"the stream ended: {self._text!r}"
                self._text += more.decode()
                continue
            self._text = self._text.lstrip()[end:]
            assert isinstance(message, dict)
            return message


@pytest.fixture
def caller(grpcurl: Path, core: str) -> Caller:
    return Caller(grpcurl, core)


async def test_reflection_lists_the_services(caller: Caller) -> None:
    code, said = await caller.call("list")
    assert code == 0, said
    assert set(said.split()) >= SERVICES


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ("si.v1.AllocationAsk", "string allocationKey = 1;"),
        ("evenhand.v1.Decision", "string decision_id = 1;"),
        ("evenhand.v1.SimulateAsksResponse", "repeated .evenhand.v1.AskSimulation asks = 1;"),
    ],
)
async def test_reflection_describes_a_message(caller: Caller, message: str, field: str) -> None:
    code, said = await caller.call("describe", message)
    assert code == 0, said
    assert field in said


async def test_a_decision_that_is_not_there_is_not_found(caller: Caller) -> None:
    method = "evenhand.v1.DecisionService/GetDecision"
    code, said = await caller.call(method, data={"decision_id": "g-1-1"})
    assert code != 0
    assert "NotFound" in said


async def test_the_core_says_that_it_serves(caller: Caller) -> None:
    code, said = await caller.call("grpc.health.v1.Health/Check")
    assert code == 0, said
    assert json.loads(said) == {"status": "SERVING"}


async def test_the_examples_of_the_readme_work(caller: Caller) -> None:
    said = [await _run(caller, given, words) for given, words in examples()]
    assert len(said) == 8
    _, health, _, nodes, applications, allocations, tree, explained = said
    assert "SERVING" in health
    assert json.loads(nodes)["accepted"] == [{"nodeID": "n1"}]
    assert json.loads(applications)["accepted"] == [{"applicationID": "app"}]
    [placed] = json.loads(allocations)
    assert (placed["allocationKey"], placed["nodeID"]) == ("pod-1", "n1")
    assert json.loads(tree)["tree"]["root"]["usage"] == {"vcore": "1000"}
    assert json.loads(explained)["kind"] == "SUBJECT_KIND_ALLOCATION"


def examples() -> list[tuple[str, str]]:
    """Return the README's calls of grpcurl: the message (or `@` and the line after it) and the method."""
    found: list[tuple[str, str]] = []
    lines = README.read_text().splitlines()
    for number, line in enumerate(lines):
        if call := CALL.fullmatch(line):
            typed = f"@{lines[number + 1].strip()}" if call["typed"] else ""
            found.append((call["data"] or typed, call["method"]))
    return found


async def _run(caller: Caller, given: str, method: str) -> str:
    if given.startswith("@"):
        async with caller.stream(method) as stream:
            await stream.send(json.loads(given[1:]))
            return json.dumps(await stream.until("new"))
    code, said = await caller.call(method, data=json.loads(given) if given else None)
    assert code == 0, said
    return said


async def test_a_fault_names_its_reason(caller: Caller) -> None:
    code, said = await caller.call(
        "evenhand.v1.InspectService/GetQueueTree", data={"partition": "x"}
    )
    assert code != 0
    assert "NotFound" in said
