"""Clients in Go use the core: those of the published interface's own module, old and new, and the bridge of the examples."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CLIENTS = ROOT / "tests/go"
BRIDGE = ROOT / "examples/clients/yunikorn-bridge"
PATIENCE_S = 300.0


@pytest.mark.parametrize("generation", ["allocations", "asks"])
async def test_a_published_client_works_on_the_wire(core: str, go: str, generation: str) -> None:
    await all_pass(go, CLIENTS / generation, EVENHAND_CORE=core)


async def test_the_bridge_connects_a_manager_of_the_published_interface(go: str) -> None:
    await all_pass(go, BRIDGE, EVENHAND=str(Path(sys.executable).with_name("evenhand")))


async def all_pass(go: str, module: Path, **variables: str) -> None:
    """Run all tests of a Go module; none may be skipped."""
    process = await asyncio.create_subprocess_exec(
        *(go, "test", "-count=1", "-v", "./..."),
        cwd=module,
        env=os.environ | variables | {"GOTOOLCHAIN": "local"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    said = output.decode()
    assert process.returncode == 0, said
    assert "--- PASS" in said
    assert "--- SKIP" not in said
