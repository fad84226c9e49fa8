"""Long reads in another thread, a part at a time, so that the core and the call can stop in between (design 6.12)."""

import asyncio
from collections.abc import Iterator
from itertools import islice
from typing import TypeVar

from server.rpc.failures import draining
from server.rpc.pump import Pump

_Answer = TypeVar("_Answer")


async def beside(pump: Pump, answers: Iterator[_Answer], step: int) -> list[_Answer]:
    """All answers, ``step`` of them at a time; raises CallError when the server ends meanwhile."""
    found: list[_Answer] = []
    while some := await asyncio.to_thread(lambda: list(islice(answers, step))):
        found += some
        if pump.stopping:
            raise draining()
    return found
