"""Determinism: equal traces of input give equal decision logs, byte for byte, in every process (invariant 16)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from server.core.core import Core
from server.record.recording import Recording
from server.record.start import Start, begin
from tests.record.preempting import Driver, configuration
from tests.record.test_log import lines
from tests.record.values import START

ROOT = Path(__file__).parents[2]
SEEDS = (1, 2)
STEPS = 60


@pytest.mark.parametrize("seed", SEEDS)
def test_a_story_with_preemption_in_other_processes(seed: int, tmp_path: Path) -> None:
    first = configuration(40)
    core = Core(first)
    recording = Recording(core, lambda: core.state.revision)
    begin(recording, Start(START, "1.2.3", first), tmp_path / "log", tmp_path / "trace")
    Driver(seed, recording).live(STEPS)
    recording.close()
    runs = [_replay(tmp_path, hash_seed) for hash_seed in ("1", "4242")]
    for run in runs:
        out, errors = run.communicate(timeout=120)
        assert run.returncode == 0, out + errors
    for hash_seed in ("1", "4242"):
        assert (tmp_path / f"log-{hash_seed}").read_bytes() == (tmp_path / "log").read_bytes()
    records = [
        one["facts"]["record"] for one in lines(tmp_path / "log") if one["kind"] == "decided"
    ]
    assert {"guaranteed", "required-node", "quota"} <= {one["policy"] for one in records}
    assert [one for one in lines(tmp_path / "log") if one["kind"] == "shadow"]


def _replay(folder: Path, hash_seed: str) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "gen")])
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path}
    command = [sys.executable, "-m", "evenhand_cli", "replay", str(folder / "trace")]
    more = ["--log", str(folder / f"log-{hash_seed}"), "--compare", str(folder / "log")]
    return subprocess.Popen(
        [*command, *more],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
