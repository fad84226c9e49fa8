"""The browser of the console's tests: Debian's Chromium, which `make real` installs where there is none."""

import os
import shutil
import sys
from pathlib import Path
from typing import Final

from scripts import children
from scripts.packages import InstallError, install

PACKAGE: Final = "chromium"
NOT_HERE: Final = (
    f"install the package {PACKAGE} ({{}}). Until then the tests of tests/browser are skipped."
)


def find() -> Path | None:
    """Return the path of the browser, None without one."""
    found = shutil.which("chromium")
    return Path(found) if found else None


def provide() -> Path:
    """Return the path of the browser, and install it before if there is none; errors: SystemExit with what to do."""
    found = find()
    if found is not None:
        return found
    has_apt = shutil.which("apt-get") is not None
    if os.geteuid() != 0 or not has_apt:
        why = "only root may install it" if has_apt else "there is no apt-get"
        raise SystemExit(f"browser: {NOT_HERE.format(why)}")
    _say(f"installing {PACKAGE} (once; a minute) ...")
    try:
        install(PACKAGE)
    except InstallError as error:
        raise SystemExit(f"browser: {error}") from error
    found = find()
    assert found is not None, "the package has the program"
    return found


def main() -> None:
    """Install the browser if it is missing, and print its path."""
    children.listen()
    _say(f"browser: {provide()}")


def _say(words: str) -> None:
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
