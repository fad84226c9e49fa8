"""The installation of Debian packages by apt-get, which only root may do."""

import os
from typing import Final

from scripts import children

INSTALL_S: Final = 300.0
"""Seconds to wait for an installation that is asked to stop.

A half-installed package would be worse than a delay.
"""


class InstallError(Exception):
    """The error of a package that apt-get could not install. The message has the command and its output."""


def install(*packages: str) -> None:
    """Install packages and what they need, without recommended ones. Raise InstallError if apt-get fails."""
    for words in (("update",), ("install", "--no-install-recommends", *packages)):
        command = ["apt-get", "-qq", "-y", *words]
        quietly = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        done = children.run(command, env=quietly, end_s=INSTALL_S)
        if done.returncode != 0:
            raise InstallError(f"failed: {' '.join(command)}\n{done.stdout.strip()}")
