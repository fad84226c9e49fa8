"""Random tests print their seed; `EVENHAND_SEED` sets one to repeat a run."""

import os
import random

import pytest


@pytest.fixture
def chance() -> random.Random:
    """Provide a test's random generator, and print its seed."""
    seed = int(os.environ.get("EVENHAND_SEED", "") or random.randrange(2**32))
    print(f"seed {seed}")  # noqa: T201
    return random.Random(seed)
