"""promtool, which checks and tests alert rules: the machine's own, or the one of Debian's package prometheus in the cache.

The package is unpacked and not installed, so that no root is needed and no server starts. It is 19 MB.
"""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

from scripts import children
from scripts.real.toolchain import cache

PACKAGE: Final = "prometheus"
NO_PROMTOOL: Final = """promtool is not here, and apt-get could not download the package prometheus:
{}
Install promtool, then say `make real` again; without it the tests of the alert rules are skipped."""


class NoPromtoolError(Exception):
    """There is no promtool, and it cannot be downloaded. The message says why."""


def find() -> Path | None:
    """Return the path of promtool. Return None when there is none."""
    own = shutil.which("promtool")
    return Path(own) if own else _fetched() if _fetched().exists() else None


def provide() -> Path:
    """Return the path of promtool, which is downloaded unless it is there. Raises NoPromtoolError."""
    return find() or _fetch()


def _fetched() -> Path:
    return cache() / "promtool" / "promtool"


def _fetch() -> Path:
    _fetched().parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_fetched().parent) as folder:
        place = Path(folder)
        _download(place)
        _run("dpkg-deb", "-x", str(next(place.glob("*.deb"))), str(place / "unpacked"))
        (place / "unpacked" / "usr" / "bin" / "promtool").replace(_fetched())
    return _fetched()


def _download(folder: Path) -> None:
    """Download the package into a folder. If apt knows no packages yet, its lists are fetched first, which needs root."""
    command = ("sh", "-c", 'cd "$1" && apt-get -qq download "$2"', "sh", str(folder), PACKAGE)
    try:
        _run(*command)
    except NoPromtoolError:
        if os.geteuid() != 0:
            raise
        _run("apt-get", "-qq", "update")
        _run(*command)


def _run(*command: str) -> None:
    try:
        done = children.run(command)
    except FileNotFoundError as error:
        raise NoPromtoolError(NO_PROMTOOL.format(error)) from error
    if done.returncode != 0:
        raise NoPromtoolError(NO_PROMTOOL.format(done.stdout.strip()))
