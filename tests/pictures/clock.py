"""`evenhand` on a clock of its own: `python -m tests.pictures.clock serve ...`.

The clock begins at a fixed instant and is fast, so that pictures of every run show the same day, with an hour behind it.
At the end of that time it becomes as slow as other clocks, and the pictures are taken.
The variable BEGAN has the instant of the machine's monotonic clock, in seconds, at which that day began.
"""

import os
import time
from typing import Any, Final

import server.bootstrap
import shim_client.bootstrap
from evenhand_cli.app import main

BEGAN: Final = "EVENHAND_PICTURES_BEGAN"
START_S: Final = 1_795_770_000
"""2026-11-27 09:00:00 UTC."""
SPEED: Final = 60
"""Seconds of the clock in one second."""
FAST_S: Final = 5400
"""Seconds of the clock for which it is fast."""


def passed_s(seconds: float) -> float:
    """Return the seconds of the clock that pass in this many seconds."""
    fast = min(seconds, FAST_S / SPEED)
    return fast * SPEED + (seconds - fast)


class FastTime:
    """The module `time`, on which the clock begins at `START_S` and is `SPEED` times as fast."""

    def __init__(self, began: float) -> None:
        self._began = began

    def time(self) -> float:
        """Return the seconds since 1970."""
        return START_S + passed_s(time.monotonic() - self._began)

    def monotonic(self) -> float:
        """Return seconds that run as fast as those of `time`."""
        return self.time()

    def time_ns(self) -> int:
        """Return the nanoseconds since 1970."""
        return int(self.time() * 1e9)

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


if __name__ == "__main__":
    for module in (server.bootstrap, shim_client.bootstrap):
        vars(module)["time"] = FastTime(float(os.environ[BEGAN]))
    main()
