"""`make real`: programs of several versions of Kubernetes, the modules of tests in Go, and a build that is stopped."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.real import promtool, provision
from tests.kubernetes.kube import until

ROOT = Path(__file__).parents[2]
GO = """#!/bin/sh
case $1 in
env) echo go1.99.0 ;;
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
mod) echo "$PWD $*" >> {told} ;;
build)
  for word; do
    test "$before" = -o && echo "$PWD $*" > "$word"
    before=$word
  done
esac
"""
"""A replacement of go that writes into each program where and how it was built."""
DEFAULT, *OTHERS = provision.releases()


def make_real(tmp_path: Path, kubernetes: str) -> subprocess.CompletedProcess[str]:
    """Provide the programs for a version of Kubernetes in a cache of the test, with a replacement of go."""
    told, go, cache = (tmp_path / name for name in ("told", "go", "cache"))
    told.unlink(missing_ok=True)
    go.write_text(FETCHING_GO.format(told=told))
    for program in (go, tmp_path / "promtool"):
        program.touch()
        program.chmod(0o755)
    changed = {
        "PATH": os.pathsep.join((str(tmp_path), os.environ["PATH"])),
        "XDG_CACHE_HOME": str(cache),
        "KUBERNETES": kubernetes,
    }
    return subprocess.run(
        [sys.executable, "-m", "scripts.real.provision"],
        cwd=ROOT,
        env=os.environ | changed,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provide a folder in which `make_real` builds and `provision` looks."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize("other", OTHERS)
def test_programs_of_two_versions_are_side_by_side(
    built: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    found: dict[str, dict[str, str]] = {}
    for version in (DEFAULT, other, DEFAULT):
        assert make_real(built, version).returncode == 0
        monkeypatch.setenv("KUBERNETES", version)
        assert provision.missing() == []
        paths = {name: provision.program(name) for name in provision.PROGRAMS}
        found[version] = {name: path.read_text() for name, path in paths.items() if path}
    chosen = {name for name, how in found[other].items() if how != found[DEFAULT][name]}
    assert chosen == {"kube-apiserver", "kubectl"}
    release = provision.releases()[other]
    for name in chosen:
        assert found[other][name].startswith(f"{provision.TOOLS / other} build ")
        assert f"version.gitVersion=v{release}" in found[other][name]
    for name in provision.APART:
        assert found[DEFAULT].pop(name).startswith(f"{provision.TOOLS / name} build ")
    for how in found[DEFAULT].values():
        assert how.startswith(f"{provision.TOOLS} build ")
        assert f"version.gitVersion=v{provision.releases()[DEFAULT]}" in how


@pytest.mark.parametrize("misspelt", ["1.2", f"v{DEFAULT}", provision.releases()[DEFAULT]])
def test_an_unknown_version_is_refused_with_those_that_are_known(
    built: Path, misspelt: str
) -> None:
    done = make_real(built, misspelt)
    assert done.returncode == 1
    assert f"KUBERNETES={misspelt}: write one of {', '.join((DEFAULT, *OTHERS))}" in done.stderr
    assert not [file for file in (built / "cache").rglob("*") if file.is_file()]


def test_the_modules_of_the_tests_in_go_are_downloaded(tmp_path: Path) -> None:
    modules = {
        path.parent
        for top in ("tests/go", "examples/clients")
        for path in ROOT.glob(f"{top}/*/go.mod")
    }
    assert len(modules) > 2
    for _ in range(2):  # also when all programs are built
        assert make_real(tmp_path, DEFAULT).returncode == 0
        said = (tmp_path / "told").read_text().splitlines()
        assert set(said) == {f"{module} mod download" for module in modules}


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
    until(lambda: not any(is_running(pid) for pid in pids))
    assert not [file for file in cache.rglob("*") if file.is_file()]


def is_running(pid: int) -> bool:
    """Return whether a process exists and is not a zombie that waits to be reaped."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


APT = """#!/bin/sh
case $0 in
*apt-get) echo call >> {told}; test -e {gone} && exit 100; touch prometheus.deb ;;
*dpkg-deb) mkdir -p "$3/usr/bin" && echo tool > "$3/usr/bin/promtool" ;;
esac
"""
"""A replacement of apt-get and dpkg-deb, which downloads and unpacks nothing."""


@pytest.fixture
def apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("apt-get", "dpkg-deb"):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(APT.format(told=tmp_path / "told", gone=tmp_path / "gone"))
        program.chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join((str(tmp_path / "bin"), "/usr/bin", "/bin")))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("shutil.which", lambda _name: None)
    return tmp_path


def test_promtool_is_unpacked_once(apt: Path) -> None:
    assert promtool.find() is None
    found = promtool.provide()
    assert found.read_text() == "tool\n"
    assert promtool.provide() == promtool.find() == found
    assert (apt / "told").read_text() == "call\n"
    assert [file for file in found.parent.rglob("*") if file != found] == []


def test_promtool_that_cannot_be_downloaded_leaves_nothing(apt: Path) -> None:
    (apt / "gone").touch()
    with pytest.raises(promtool.NoPromtoolError, match="make real"):
        promtool.provide()
    assert promtool.find() is None
    assert not [file for file in (apt / "cache").rglob("*") if file.is_file()]
