"""Each import contract fails when code violates it, which shows that the contract checks something."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("server", "shim_client", "evenhand_cli", "evenhand_console", "gen/si", "gen/evenhand")
SETTINGS = ("pyproject.toml", ".ci/cycles.toml")
# (contract, a file added to the tree, its line)
VIOLATIONS = [
    ("processes", "server/rpc/added.py", "import shim_client"),
    ("processes", "shim_client/added.py", "import server.model"),
    ("processes", "server/rpc/added.py", "import evenhand_cli"),
    ("inwards", "server/model/added.py", "import server.kernels"),
    ("inwards", "server/kernels/added.py", "import server.snapshot"),
    ("inwards", "server/snapshot/added.py", "import server.preemption"),
    ("inwards", "server/preemption/claims/added.py", "import server.state"),
    ("inwards", "server/state/added.py", "import server.scheduling"),
    ("inwards", "server/scheduling/added.py", "import server.core"),
    ("inwards", "server/core/events/added.py", "import server.config"),
    ("inwards", "server/config/added.py", "import server.rpc"),
    ("inwards", "server/config/added.py", "import server.record"),
    ("inwards", "server/record/added.py", "import server.history"),
    ("inwards", "server/history/added.py", "import server.rpc"),
    ("inwards", "server/rpc/added.py", "import server.bootstrap"),
    ("inwards", "server/added.py", ""),
    ("pure", "server/core/events/added.py", "import asyncio"),
    ("pure", "server/scheduling/added.py", "import time"),
    ("pure", "server/state/added.py", "from google.protobuf import message"),
    ("pure", "server/preemption/added.py", "import random"),
    ("pure", "server/snapshot/added.py", "import grpc"),
    ("pure", "server/kernels/added.py", "import os.path"),
    ("pure", "server/model/added.py", "from datetime import datetime"),
    ("state", "server/state/added.py", "import server.preemption"),
    (
        "policies",
        "server/preemption/claims/guarantee.py",
        "import server.preemption.nodes.required_node",
    ),
    ("core", "server/core/state.py", "import server.core.preemption.rounds"),
    ("core", "server/core/preemption/added.py", "import server.core.wait_reasons.obstacles"),
    ("core", "server/core/wait_reasons/added.py", "import server.core.shadow.turn"),
    ("core", "server/core/shadow/added.py", "import server.core.events.asks"),
    ("core", "server/core/events/added.py", "import server.core.core"),
    ("core", "server/core/core.py", "import server.core.queries.inspect"),
    ("core", "server/core/added.py", ""),
    ("planning", "server/preemption/quota/added.py", "import server.preemption.claims.search"),
    ("planning", "server/preemption/claims/added.py", "import server.preemption.gangs.search"),
    ("planning", "server/preemption/gangs/added.py", "import server.preemption.nodes.reservation"),
    ("planning", "server/preemption/nodes/added.py", "import server.preemption.rules.gate"),
    ("planning", "server/preemption/trial.py", "import server.preemption.victim_order"),
    ("planning", "server/preemption/added.py", ""),
    ("arrays", "server/core/events/added.py", "import numpy"),
    ("arrays", "server/scheduling/added.py", "from numpy import typing"),
    ("arrays", "server/record/added.py", "import numpy"),
    ("arrays", "shim_client/added.py", "import numpy"),
    ("wire", "server/config/added.py", "from si.v1 import si_pb2"),
    ("wire", "server/observe/added.py", "from evenhand.v1 import inspect_pb2"),
    ("wire", "server/record/added.py", "from si.v1 import si_pb2"),
    ("wire", "shim_client/added.py", "from si.v1 import si_pb2"),
    ("shim", "shim_client/translate/added.py", "import shim_client.state_machine"),
    ("shim", "shim_client/state_machine/added.py", "import shim_client.core_client"),
    ("shim", "shim_client/core_client/added.py", "import shim_client.embedded"),
    ("shim", "shim_client/added.py", ""),
    ("shim", "shim_client/core_client/added.py", "import shim_client.kubernetes"),
    ("kubernetes", "shim_client/bootstrap.py", "import shim_client.kubernetes"),
    ("kubernetes", "server/rpc/added.py", "import lightkube"),
    ("machine", "shim_client/state_machine/added.py", "import time"),
    ("machine", "shim_client/translate/added.py", "import asyncio"),
    ("processes", "evenhand_cli/added.py", "import evenhand_console"),
    ("arrays", "evenhand_console/added.py", "import numpy"),
    ("console", "evenhand_console/added.py", "import evenhand_cli.commands.serve"),
    ("shared", "evenhand_console/added.py", "import evenhand_cli.commands.queues"),
    ("shared", "evenhand_console/views/added.py", "import shim_client.cluster"),
    ("shared", "evenhand_console/views/added.py", "import server.model"),
    ("web", "evenhand_cli/added.py", "import starlette"),
    ("values", "evenhand_console/views/added.py", "import time"),
    ("engine", "server/replication/added.py", "import nats"),
    ("engine", "server/rpc/added.py", "from nats.aio.msg import Msg"),
    ("cycles", "server/model/added.py", "import server.model.resources"),
    ("cycles", "server/model/resources.py", "import server.model.added_0"),
]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide a copy of the packages and their contracts."""
    copy = tmp_path_factory.mktemp("tree")
    for package in PACKAGES:
        skip = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, copy / Path(package).name, ignore=skip)
    for settings in SETTINGS:
        shutil.copy(ROOT / settings, copy)
    return copy


def lint(tree: Path, contract: str) -> str:
    """Return the output of import-linter for one contract of the tree."""
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()"]
    settings = "cycles.toml" if contract == "cycles" else "pyproject.toml"
    done = subprocess.run(
        [*command, "--contract", contract, "--config", settings],
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(tree), "COLUMNS": "200", "NO_COLOR": "1"},
    )
    return done.stdout + done.stderr


def contract_ids() -> list[str]:
    texts = [tomllib.loads((ROOT / name).read_text()) for name in SETTINGS]
    linters = [text["tool"]["importlinter"] for text in texts]
    return [contract["id"] for linter in linters for contract in linter["contracts"]]


def test_every_contract_is_broken_here_on_purpose() -> None:
    assert sorted({contract for contract, _, _ in VIOLATIONS}) == sorted(contract_ids())


def violations(contract: str) -> list[tuple[str, str]]:
    """Return a file and its line for each violation of a contract; an added file has a name of its own."""
    mine = [(place, line) for of, place, line in VIOLATIONS if of == contract]
    return [
        (place.replace("added.py", f"added_{number}.py"), line)
        for number, (place, line) in enumerate(mine)
    ]


@pytest.mark.parametrize("contract", contract_ids())
def test_each_forbidden_import_breaks_its_contract(tree: Path, contract: str) -> None:
    """All violations are there together, because each run builds the graph of all imports."""
    changed = violations(contract)
    restored = [_append(tree, place, line) for place, line in changed]
    try:
        report = lint(tree, contract)
    finally:
        for path, text in reversed(restored):
            _restore(path, text)
    assert "0 kept, 1 broken" in report
    unnoticed = [one for one in changed if not re.search(_wanted(*one), report)]
    assert not unnoticed, report


def _wanted(place: str, line: str) -> str:
    """Return the pattern of a violation: the name of an added module, or the import that is added to an existing one."""
    module = Path(place).stem
    if module.startswith("added_"):
        return rf"\b{module}\b"
    return rf"\b{module} -> \S*\b{line.rpartition('.')[2]}\b"


def _append(tree: Path, place: str, line: str) -> tuple[Path, str | None]:
    """Add a line at the end of a file, new or not; return the file and its former text."""
    path = tree / place
    before = path.read_text() if path.exists() else None
    path.write_text(f"{before or ''}\n{line}\n")
    return path, before


def _restore(path: Path, before: str | None) -> None:
    if before is None:
        path.unlink()
    else:
        path.write_text(before)
