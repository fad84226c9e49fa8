"""The requirements of runs with faults on the machine."""

import subprocess

import pytest

from tests.faults.__main__ import namespace
from tests.real.needs import absent


@pytest.fixture(scope="session")
def namespaces() -> None:
    """Require namespaces of mounts and processes for each run."""
    said = subprocess.run([*namespace(), "true"], capture_output=True, text=True, check=False)
    if said.returncode:
        absent(f"a mount namespace cannot be made: {said.stderr.strip()}")
