"""What the tests against real programs need, and what its absence means."""

import os
from typing import NoReturn

import pytest


def absent(what: str) -> NoReturn:
    """Leaves a test out by name, or fails it where REQUIRE_REAL=1 says that nothing may be left out."""
    if os.environ.get("REQUIRE_REAL") == "1":
        pytest.fail(f"REQUIRE_REAL=1, but {what}", pytrace=False)
    pytest.skip(what)
