"""Placement in random clusters of at most a hundred asks: any number of asks that arrive together are placed together."""

import pytest

from server.scheduling import batch_fast


@pytest.fixture(autouse=True)
def bursts_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let two asks, or a single one, count as a batch."""
    monkeypatch.setattr(batch_fast, "LEAST", 1)
