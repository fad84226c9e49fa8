"""Placement in random worlds of a hundred asks at most: asks of any number that came together are placed together."""

import pytest

from server.scheduling import batch_fast


@pytest.fixture(autouse=True)
def bursts_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two are a burst, and one."""
    monkeypatch.setattr(batch_fast, "LEAST", 1)
