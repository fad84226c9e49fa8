"""`make real`: it fetches what tests in Go need, and when it is stopped, no build and no incomplete program is left."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.kubernetes.kube import until

ROOT = Path(__file__).parents[2]
GO = """#!/bin/sh
case $1 in
env) echo go1.99.0 ;;
list) echo v1.36.3 ;;
build)
  for word; do
    test "$before" = -o && echo half > "$word"
    before=$word
  done
  sleep 600 &
  echo $$ > {told}.new
  echo $! >> {told}.new
  mv {told}.new {told}
  wait
esac
"""
"""A replacement of go with the commands that the script uses; its build has a child, as a compiler is."""


FETCHING_GO = """#!/bin/sh
case $1 in
env) echo go1.99.0 ;;
list) echo v1.36.3 ;;
mod) echo "$PWD $*" >> {told} ;;
build)
  for word; do
    test "$before" = -o && echo whole > "$word"
    before=$word
  done
esac
"""


def test_the_modules_of_the_tests_in_go_are_downloaded(tmp_path: Path) -> None:
    told, go, cache = (tmp_path / name for name in ("told", "go", "cache"))
    go.write_text(FETCHING_GO.format(told=told))
    go.chmod(0o755)
    paths = os.pathsep.join((str(tmp_path), os.environ["PATH"]))
    for _ in range(2):  # also when all programs are built
        told.unlink(missing_ok=True)
        subprocess.run(
            [sys.executable, "-m", "scripts.real.provision"],
            cwd=ROOT,
            env=os.environ | {"PATH": paths, "XDG_CACHE_HOME": str(cache)},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        modules = {
            path.parent
            for top in ("tests/go", "examples/clients")
            for path in ROOT.glob(f"{top}/*/go.mod")
        }
        assert len(modules) > 2
        assert set(told.read_text().splitlines()) == {
            f"{module} mod download" for module in modules
        }


def test_a_stopped_build_leaves_no_process_and_no_half_of_a_file(tmp_path: Path) -> None:
    told, go, cache = (tmp_path / name for name in ("told", "go", "cache"))
    go.write_text(GO.format(told=told))
    go.chmod(0o755)
    paths = os.pathsep.join((str(tmp_path), os.environ["PATH"]))
    process = subprocess.Popen(
        [sys.executable, "-m", "scripts.real.provision"],
        cwd=ROOT,
        env=os.environ | {"PATH": paths, "XDG_CACHE_HOME": str(cache)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until(told.exists)
    pids = [int(line) for line in told.read_text().split()]
    process.terminate()
    assert process.wait(30) == 128 + signal.SIGTERM
    until(lambda: not any(is_running(pid) for pid in pids), 10)
    assert not [file for file in cache.rglob("*") if file.is_file()]


def is_running(pid: int) -> bool:
    """Return whether a process exists and is not a zombie that waits to be reaped."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
