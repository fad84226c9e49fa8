"""The core as a process under every kind of fault, judged from outside; EVENHAND_SEED sets the seed."""

import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cli.processes import ROOT, environment, until
from tests.effort import ONLY_WHERE_ALL_ARE_TRIED
from tests.faults.schedule import DISK
from tests.faults.seeds import RUN_MINUTES, SEED, SOAK_SEEDS, run

MODULE = "tests.faults"

pytestmark = pytest.mark.usefixtures("namespaces")


@ONLY_WHERE_ALL_ARE_TRIED
def test_every_kind_of_fault_once(tmp_path: Path) -> None:
    run(MODULE, SEED, 0.1, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("seed", SOAK_SEEDS)
def test_faults_for_an_hour(tmp_path: Path, seed: int) -> None:
    run(MODULE, seed, RUN_MINUTES, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("seed", [SEED, SEED + 1])
def test_disks_that_fail_under_cores_that_are_killed(tmp_path: Path, seed: int) -> None:
    run(MODULE, seed, RUN_MINUTES, tmp_path, *DISK, "core-killed")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_a_run_that_is_ended_early(tmp_path: Path, number: int) -> None:
    command = [sys.executable, "-m", MODULE, "--seed", "1", "--folder", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, env=environment()) as process:
        journal = tmp_path / "journal.jsonl"
        until(lambda: journal.exists() and journal.stat().st_size > 0)
        assert {"tests.faults.launcher", "tests.faults.proxy", "tests.faults.shim"} <= named(
            tmp_path
        )
        process.send_signal(number)
    until(lambda: not named(tmp_path))


def named(folder: Path) -> set[str]:
    """Return the modules of all processes whose command names a folder."""
    commands: list[list[str]] = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # It has ended meanwhile.
            commands.append(file.read_bytes().decode(errors="replace").split("\0"))
    return {
        command[command.index("-m") + 1]
        for command in commands
        if "-m" in command and any(str(folder) in word for word in command)
    }
