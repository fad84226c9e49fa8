"""Seeds of random worlds: each is printed, and `EVENHAND_SEED` sets one to repeat a run."""

import os
import random

import pytest


@pytest.fixture(scope="module")
def seed() -> int:
    """Return the seed of the first world of a module; `run` prints the seed of each world."""
    return int(os.environ.get("EVENHAND_SEED", "") or random.randrange(2**32))
