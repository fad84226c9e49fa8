"""Clients generated from the published interface's own Go module, old and new, use the core."""

import asyncio
import os
from pathlib import Path

import pytest

CLIENTS = Path(__file__).parents[1] / "go"
PATIENCE_S = 300.0


@pytest.mark.parametrize("generation", ["allocations", "asks"])
async def test_a_published_client_works_on_the_wire(core: str, go: str, generation: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *(go, "test", "-count=1", "-v", "./..."),
        cwd=CLIENTS / generation,
        env=os.environ | {"EVENHAND_CORE": core, "GOTOOLCHAIN": "local"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    said = output.decode()
    assert process.returncode == 0, said
    assert "--- PASS" in said
    assert "--- SKIP" not in said
