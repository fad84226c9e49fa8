"""The clients in examples/clients: the commands of each README build and run one, and the core confirms what it prints."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from evenhand.v1 import inspect_pb2, inspect_pb2_grpc
from scripts.real.toolchain import find_go
from si.v1 import si_pb2, si_pb2_grpc
from tests.real.needs import absent

ROOT = Path(__file__).parents[2]
CLIENTS = ROOT / "examples" / "clients"
PROGRAMS = {
    "python": "client.py",
    "go": "main.go",
    "typescript": "client.ts",
    "java": "src/main/java/example/Client.java",
}
LINES = 150
"""A program has fewer lines."""
CORE = "127.0.0.1:50051"
"""The core's address in each README."""
ELSEWHERE = "evenhand serve"
"""The command of a README that tests run in their own way."""
MADE = ("gen", "build", "target", "node_modules", "client", "__pycache__")
ENTER = "press Enter to leave"
BUILD_S = 420.0
PATIENCE_S = 60.0


@dataclass(frozen=True)
class Built:
    """A client that was built: the folder of its copy, the command that runs it, and the environment for it."""

    folder: Path
    command: str
    environment: dict[str, str]


def commands(readme: Path) -> list[str]:
    """Return the commands that a README tells its reader to type."""
    lines = readme.read_text().splitlines()
    return [line.strip() for line in lines if line.startswith("    ")]


def expected() -> list[str]:
    """Return the lines that every client prints, as the page of the clients shows them."""
    return commands(CLIENTS / "README.md")


def version(program: str, *flags: str) -> tuple[int, ...]:
    """Return the version that a program prints; (0,) without the program."""
    found = shutil.which(program)
    if found is None:
        return (0,)
    done = subprocess.run([found, *flags], capture_output=True, text=True, check=False)
    number = re.search(r"\d+(\.\d+)*", re.sub(r"\x1b\[\d*m", "", done.stdout + done.stderr))
    return tuple(map(int, number[0].split("."))) if number else (0,)


def python_tools() -> str:
    """Return the folder of this Python, whose environment has the packages of the example."""
    return str(Path(sys.executable).parent)


def go_tools() -> str:
    """Return the folder of Go, which `make real` provides."""
    return str(Path(find_go() or absent("Go is not here")).parent)


def node_tools() -> str:
    """Return no folder: Node.js is on the path. Skips the test without it."""
    if version("node", "--version") < (20,) or version("npm", "--version") == (0,):
        pytest.skip("Node.js 20 or later with npm is not here")
    return ""


def java_tools() -> str:
    """Return no folder: Java and Maven are on the path. Skips the test without them."""
    if version("javac", "-version") < (17,) or version("mvn", "--version") < (3, 8):
        pytest.skip("Java 17 or later with Maven 3.8 or later is not here")
    return ""


TOOLS: dict[str, Callable[[], str]] = {
    "python": python_tools,
    "go": go_tools,
    "typescript": node_tools,
    "java": java_tools,
}


@pytest.fixture(scope="session", params=PROGRAMS)
def built(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Built]:
    """Provide a client that was built in a copy of its folder, as its README says."""
    language = request.param
    paths = [TOOLS[language](), python_tools(), os.environ["PATH"]]
    environment = os.environ | {
        "PATH": os.pathsep.join(filter(None, paths)),
        "GOTOOLCHAIN": "local",
        "npm_config_prefer_offline": "true",
    }
    checkout = tmp_path_factory.mktemp(language)
    folder = checkout / "examples" / "clients" / language
    shutil.copytree(CLIENTS / language, folder, ignore=shutil.ignore_patterns(*MADE))
    shutil.copytree(ROOT / "proto", checkout / "proto")
    shutil.copy(ROOT / "buf.yaml", checkout)
    *building, running = commands(folder / "README.md")
    for command in building:
        if command != ELSEWHERE:
            build(command, folder, environment)
    yield Built(folder, running, environment)
    shutil.rmtree(checkout)


def build(command: str, folder: Path, environment: dict[str, str]) -> None:
    """Run one command of a build; a failure has the output of the command."""
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BUILD_S,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}"


@asynccontextmanager
async def started(client: Built, core: str) -> AsyncIterator[Process]:
    """Hold a client that runs against a core; a client that has not ended by then is killed."""
    assert CORE in client.command
    process = await asyncio.create_subprocess_exec(
        *("bash", "-c", f"exec env {client.command.replace(CORE, core)}"),
        cwd=client.folder,
        env=client.environment,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def read_until(process: Process, last: str) -> list[str]:
    """Return the lines of a client, up to this one or to the end of its output."""
    assert process.stdout is not None
    lines: list[str] = []
    while last not in lines and (line := await process.stdout.readline()):
        lines.append(line.decode().rstrip())
    return lines


async def placements(channel: grpc.aio.Channel) -> dict[str, str]:
    """Return the node of each allocation that the core has."""
    request = inspect_pb2.ListAllocationsRequest(include_asks=True)
    answer = await inspect_pb2_grpc.InspectServiceStub(channel).ListAllocations(request)
    return {one.allocation_key: one.node_id for one in answer.allocations}


def followed(lines: list[str]) -> dict[str, str]:
    """Return the node of each pod that runs, according to the output of a client."""
    nodes: dict[str, str] = {}
    for line in lines:
        match line.split():
            case [pod, "placed", "on", node]:
                nodes[pod] = node
            case [pod, "ended"]:
                del nodes[pod]
    return nodes


async def test_a_client_prints_what_the_core_has_decided(built: Built, core: str) -> None:
    async with grpc.aio.insecure_channel(core) as channel, started(built, core) as client:
        lines = await read_until(client, ENTER)
        assert lines[-1:] == [ENTER], await client.communicate()
        nodes = followed(lines)
        assert nodes.keys() == {"batch-1", "batch-3", "web-1"}
        assert await placements(channel) == nodes
        rest, errors = await client.communicate(b"\n")
        assert client.returncode == 0, errors.decode()
        assert [*lines, *rest.decode().splitlines()] == expected()
        assert await placements(channel) == {}
        left = await inspect_pb2_grpc.InspectServiceStub(channel).ListNodes(
            inspect_pb2.ListNodesRequest()
        )
        assert list(left.nodes) == []


async def test_a_refused_client_ends_with_the_words_of_the_core(built: Built, core: str) -> None:
    async with grpc.aio.insecure_channel(core) as channel, owning(channel, "owner"):
        async with started(built, core) as client:
            output, errors = await client.communicate()
        assert client.returncode == 1
        assert output.decode().splitlines() == expected()[:1]
        refusal = errors.decode().splitlines()[-1]
        assert refusal.startswith("refused: ")
        assert "'owner'" in refusal, "the core names the owner of the partition"


@asynccontextmanager
async def owning(channel: grpc.aio.Channel, name: str) -> AsyncIterator[None]:
    """Hold another manager, whose node makes it the owner of the partition."""
    core = si_pb2_grpc.SchedulerStub(channel)
    queues = "partitions: [{name: default, queues: [{name: root}]}]"
    registration = si_pb2.RegisterResourceManagerRequest(rmID=name, config=queues)
    await core.RegisterResourceManager(registration)
    stream = core.UpdateNode()
    node = si_pb2.NodeInfo(nodeID="n", action=si_pb2.NodeInfo.CREATE)
    await stream.write(si_pb2.NodeRequest(rmID=name, nodes=[node]))
    answer = await stream.read()
    assert isinstance(answer, si_pb2.NodeResponse)
    assert answer.accepted
    yield
    stream.cancel()


@pytest.mark.parametrize("language", PROGRAMS)
def test_a_client_is_short(language: str) -> None:
    assert len((CLIENTS / language / PROGRAMS[language]).read_text().splitlines()) < LINES


def test_the_page_lists_each_client() -> None:
    page = (CLIENTS / "README.md").read_text()
    assert all(f"`{language}/{program}`" in page for language, program in PROGRAMS.items())
