"""What lives at random comes by the hundred at most: asks of any number that came together are placed together here."""

import pytest

from server.scheduling import burst


@pytest.fixture(autouse=True)
def bursts_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two are a burst, and one."""
    monkeypatch.setattr(burst, "LEAST", 1)
