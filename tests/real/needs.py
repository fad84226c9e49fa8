"""The requirements of tests against real programs, and the consequence of their absence."""

import os
from typing import NoReturn

import pytest


def absent(what: str) -> NoReturn:
    """Skip a test with the reason, or fail it where REQUIRE_REAL=1 forbids to skip any."""
    if os.environ.get("REQUIRE_REAL") == "1":
        pytest.fail(f"REQUIRE_REAL=1, but {what}", pytrace=False)
    pytest.skip(what)
