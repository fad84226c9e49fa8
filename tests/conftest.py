"""What every test leaves behind as it found it."""

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def unconfigured_log() -> Iterator[None]:
    """A command that ran in this process set the log to its own error stream, which is closed by now."""
    yield
    structlog.reset_defaults()
