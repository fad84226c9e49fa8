"""Equal events at equal instants give equal decisions, byte for byte (design 1.3 and 6.13)."""

import os
import subprocess
import sys
from pathlib import Path

from tests.effort import cases

ROOT = Path(__file__).parents[2]
SEEDS = ("300000", str(300_000 + cases(60, 6)))


def _traced(hash_seed: str) -> subprocess.Popen[bytes]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "gen")])
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path}
    command = [sys.executable, "-m", "tests.simulation.trace", *SEEDS]
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE)


def test_two_hash_seeds_give_the_same_bytes() -> None:
    runs = [_traced("1"), _traced("4242")]
    texts = [run.communicate(timeout=120)[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0]
    assert b"Placed(" in texts[0]
    for one, other in zip(texts[0].splitlines(), texts[1].splitlines(), strict=True):
        assert one == other
