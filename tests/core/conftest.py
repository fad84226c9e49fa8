"""Random worlds print their seed; with `EVENHAND_SEED` they are the same again."""

import os
import random

import pytest


@pytest.fixture(scope="module")
def seed() -> int:
    """Of the first of a module's worlds; `run` prints each."""
    return int(os.environ.get("EVENHAND_SEED", "") or random.randrange(2**32))
