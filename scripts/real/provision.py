"""Builds the programs of others that the tests run against, once, outside the checkout.

`make real` runs it, and the tests take the programs from the same place. All of them are built
with the Go that is here from the one module in `tools/`, whose digest names their folder: another
version of anything stands elsewhere. Each moves into place when it is built, so that a build that
was stopped goes on where it was, and two at once do not harm each other.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

PROGRAMS = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kwok": "sigs.k8s.io/kwok/cmd/kwok",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
    "grpcurl": "github.com/fullstorydev/grpcurl/cmd/grpcurl",
}
TOOLS = Path(__file__).with_name("tools")
GO_MIN = (1, 26)
NO_GO = """Go {}.{} or later is not here (no such `go` on the PATH), so the programs that the tests of
tests/real and tests/kubernetes run against cannot be built. Install it, then say `make real` again;
without it these tests are skipped, unless KUBECONFIG names a cluster for the latter.""".format(
    *GO_MIN
)


def find_go() -> str | None:
    """The go program, if it is young enough: on the PATH, or where its own archive puts it."""
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        return None
    said = subprocess.run(  # noqa: S603 -- our words.
        [go, "env", "GOVERSION"], capture_output=True, text=True, check=False, env=_surroundings()
    ).stdout
    version = re.match(r"go(\d+)\.(\d+)", said)
    return go if version and (int(version[1]), int(version[2])) >= GO_MIN else None


def folder() -> Path:
    """Where the programs stand once they are built."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    module = (TOOLS / "go.mod").read_bytes() + (TOOLS / "go.sum").read_bytes()
    return Path(home) / "evenhand" / hashlib.sha256(module).hexdigest()[:16] / "bin"


def program(name: str) -> Path | None:
    """Where the program of this name stands, if it is built."""
    path = folder() / name
    return path if path.exists() else None


def missing(names: Iterable[str] = PROGRAMS) -> list[str]:
    """Those of the programs that are not built."""
    return [name for name in names if program(name) is None]


def build(go: str, name: str) -> Path:
    """Builds a program unless it is there; raises CalledProcessError with what go said."""
    path = folder() / name
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        half = path.with_name(f".{name}.{os.getpid()}")
        flags = ["-mod=readonly", "-trimpath", "-ldflags", _link_flags(go), "-o", str(half)]
        _go([go, "build", *flags, PROGRAMS[name]])
        half.replace(path)
    return path


def _link_flags(go: str) -> str:
    """No debugging tables, and the version that Kubernetes' own build would write into it."""
    version = _go([go, "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes"]).strip()
    major, minor = version.removeprefix("v").split(".")[:2]
    facts = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    told = (f"-X k8s.io/component-base/version.{name}={value}" for name, value in facts.items())
    return " ".join(("-s", "-w", *told))


def _go(command: list[str]) -> str:
    return subprocess.run(  # noqa: S603 -- our words.
        command, cwd=TOOLS, env=_surroundings(), check=True, text=True, stdout=subprocess.PIPE
    ).stdout


def _surroundings() -> dict[str, str]:
    """Go of this machine, never one that it would fetch; no C compiler needed."""
    return os.environ | {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"}


def main() -> None:
    """Builds what is missing, unless there is nothing, and says where all is."""
    wanted = missing()
    go = find_go() if wanted else None
    if wanted and go is None:
        raise SystemExit(NO_GO)
    for name in wanted:
        assert go is not None
        sys.stdout.write(f"building {name} (once; all of them take about four minutes) ...\n")
        sys.stdout.flush()
        build(go, name)
    sys.stdout.write(f"{', '.join(PROGRAMS)}: {folder()}\n")


if __name__ == "__main__":
    main()
