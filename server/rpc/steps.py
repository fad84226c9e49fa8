"""Work of the event loop that may take long, as a generator. It yields between two steps, and returns the result at the end."""

import asyncio
from collections.abc import Generator
from typing import TypeAlias, TypeVar

_Made = TypeVar("_Made")
Steps: TypeAlias = Generator[None, None, _Made]


def at_once(steps: Steps[_Made]) -> _Made:
    """Run all steps and return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            made: _Made = done.value
            return made


async def in_turns(steps: Steps[_Made]) -> _Made:
    """Run all steps, yield to the event loop between two of them, and return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            made: _Made = done.value
            return made
        await asyncio.sleep(0)
