"""Builds grpcurl with the Go that is here, once, outside the checkout.

`make real` runs it; the tests in tests/real take the same program from the same place.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

MODULE = "github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.3"
GO_MIN = (1, 25)
NO_GO = """Go 1.25 or later is not here (no such `go` on the PATH), so grpcurl cannot be built.
Install it, then say `make real` again; without it the tests of tests/real are skipped."""


def find_go() -> str | None:
    """The go program, if it is young enough: on the PATH, or where its own archive puts it."""
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        return None
    command = [go, "env", "GOVERSION"]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout  # noqa: S603
    version = re.match(r"go(\d+)\.(\d+)", said)
    return go if version and (int(version[1]), int(version[2])) >= GO_MIN else None


def place() -> Path:
    """Where the program stands once it is built; another version stands elsewhere."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    digest = hashlib.sha256(MODULE.encode()).hexdigest()[:16]
    return Path(home) / "evenhand" / digest / "bin" / "grpcurl"


def build(go: str) -> Path:
    """Builds it unless it is there; raises CalledProcessError with what go said."""
    program = place()
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        env = os.environ | {"GOBIN": str(program.parent), "GOTOOLCHAIN": "local"}
        subprocess.run([go, "install", MODULE], env=env, check=True)  # noqa: S603 -- our words.
    return program


def main() -> None:
    """Builds it and says where it is."""
    go = find_go()
    if go is None:
        raise SystemExit(NO_GO)
    sys.stdout.write(f"grpcurl: {build(go)}\n")


if __name__ == "__main__":
    main()
