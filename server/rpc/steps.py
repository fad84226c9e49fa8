"""Work in parts (`model/parts`) on the event loop, which runs other tasks between two parts."""

import asyncio
from typing import TypeVar

from server.model.parts import Parts

_Made = TypeVar("_Made")


async def in_turns(parts: Parts[_Made]) -> _Made:
    """Run all parts of the work, yield to the event loop between two parts, and return the result of the work."""
    while True:
        try:
            next(parts)
        except StopIteration as done:
            made: _Made = done.value
            return made
        await asyncio.sleep(0)
