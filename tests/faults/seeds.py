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
    """Run one seed; an error's message says what was wrong."""
    command = [sys.executable, "-m", module, "--seed", str(seed)]
    command += ["--minutes", f"{minutes:g}", "--folder", str(folder)]
    command += ["--only", *only] if only else []
    said = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stdout + said.stderr
