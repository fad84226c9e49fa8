"""Runs of one seed, each in its own process; EVENHAND_SEED sets the first seed, and EVENHAND_FAULTS_MINUTES the length of a soak test."""

import os
import subprocess
import sys
from pathlib import Path

from tests.cli.processes import ROOT, environment

SEED = int(os.environ.get("EVENHAND_SEED", "1"))
RUN_MINUTES = 3
"""Minutes for one seed in a soak test; then the next seed begins, with a new log."""
SOAK_MINUTES = float(os.environ.get("EVENHAND_FAULTS_MINUTES", "60"))
SOAK_SEEDS = range(SEED + 1, SEED + 1 + int(SOAK_MINUTES / RUN_MINUTES))


def run(module: str, seed: int, minutes: float, folder: Path, *only: str) -> None:
    """Run one seed for some minutes; an error's message says what was wrong."""
    report_of(
        module, seed, folder, "--minutes", f"{minutes:g}", *(["--only", *only] if only else [])
    )


def report_of(module: str, seed: int, folder: Path, *options: str) -> str:
    """Run one seed with further options and return its report; an error's message says what was wrong."""
    command = [sys.executable, "-m", module, "--seed", str(seed), "--folder", str(folder), *options]
    said = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stdout + said.stderr
    return said.stdout
