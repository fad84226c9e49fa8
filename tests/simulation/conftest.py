"""Placement in random clusters of at most a hundred asks: any number of asks that arrive together are placed together."""

import pytest

from server.scheduling import batch_fast


@pytest.fixture(autouse=True)
def bursts_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let two asks count as a burst, and one ask too."""
    monkeypatch.setattr(batch_fast, "LEAST", 1)
