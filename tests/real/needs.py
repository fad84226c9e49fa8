"""The requirements of tests that use real programs, and what happens when one is missing."""

import os
from typing import NoReturn

import pytest


def absent(what: str) -> NoReturn:
    """Skip a test with the reason, or fail it when REQUIRE_REAL=1 forbids skipping."""
    if os.environ.get("REQUIRE_REAL") == "1":
        pytest.fail(f"REQUIRE_REAL=1, but {what}", pytrace=False)
    pytest.skip(what)
