"""A core in a separate process, and programs of other projects that use it."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from scripts.real.provision import program
from scripts.real.toolchain import find_go
from tests.real.needs import absent

PATIENCE_S = 60.0
ADDRESS = re.compile(rb"127\.0\.0\.1:\d+")


@asynccontextmanager
async def core_process() -> AsyncIterator[str]:
    """Hold `evenhand serve` on a free port, yield its address, and end it with SIGTERM."""
    evenhand = Path(sys.executable).with_name("evenhand")
    process = await asyncio.create_subprocess_exec(
        *(str(evenhand), "serve", "--listen", "127.0.0.1:0"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    try:
        address = await asyncio.wait_for(_address(process.stdout), PATIENCE_S)
        draining = asyncio.create_task(process.stdout.read())
        yield address
    finally:
        if process.returncode is None:
            process.terminate()
        await asyncio.wait_for(process.wait(), PATIENCE_S)
    await draining
    assert process.returncode == 0, "a core that is told to end ends well"


async def _address(output: asyncio.StreamReader) -> str:
    """Return the address that the core prints."""
    said = b""
    while line := await output.readline():
        said += line
        if found := ADDRESS.search(line):
            return found[0].decode()
    raise AssertionError(f"the core ended before it listened:\n{said.decode()}")


@pytest.fixture
async def core() -> AsyncIterator[str]:
    """Provide the address of a new core without a configuration."""
    async with core_process() as address:
        yield address


@pytest.fixture(scope="session")
def go() -> str:
    """Provide the path of the Go program."""
    return find_go() or absent("Go is not here")


@pytest.fixture(scope="session")
def grpcurl() -> Path:
    """Provide the path of grpcurl."""
    return program("grpcurl") or absent("grpcurl is not built (`make real` builds it)")
