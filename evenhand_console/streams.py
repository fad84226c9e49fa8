"""Server-sent events: one fragment for each change of a page.

Each event has an id, with which a client resumes after a lost connection.
"""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from starlette.responses import StreamingResponse

from evenhand_console.sharing import Fragment, TooManyError

ALIVE_S: Final = 15.0
"""Seconds without a change after which a comment is sent, so that no proxy closes the stream as idle."""
RETRY_MS: Final = 1000
"""Milliseconds after which a client connects again."""
_LINE_ENDS: Final = re.compile(r"\r\n|\r|\n")


def event(fragment: Fragment) -> bytes:
    """Return a fragment as one event."""
    data = "".join(f"data: {line}\n" for line in _LINE_ENDS.split(fragment.html))
    return f"id: {fragment.id}\n{data}\n".encode()


def stream_of(fragments: AsyncGenerator[Fragment, None]) -> StreamingResponse:
    """Return the HTTP answer that sends each fragment."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_sent(fragments), headers=headers, media_type="text/event-stream")


async def _sent(fragments: AsyncGenerator[Fragment, None]) -> AsyncGenerator[bytes, None]:
    yield f"retry: {RETRY_MS}\n\n".encode()
    async with aclosing(_or_alive(fragments)) as parts:
        try:
            async for part in parts:
                yield part
        except TooManyError:
            return


async def _or_alive(fragments: AsyncGenerator[Fragment, None]) -> AsyncGenerator[bytes, None]:
    """Yield an event for each fragment, and a comment after each ALIVE_S seconds without a fragment."""
    following = asyncio.ensure_future(anext(fragments))
    try:
        while True:
            done, _ = await asyncio.wait({following}, timeout=ALIVE_S)
            if not done:
                yield b": alive\n\n"
                continue
            yield event(following.result())
            following = asyncio.ensure_future(anext(fragments))
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await fragments.aclose()
