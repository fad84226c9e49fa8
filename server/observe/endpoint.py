"""The metrics endpoint: GET /metrics over plain HTTP or HTTPS, answered in the event loop between two ticks.

It is no web server: one request a connection, nothing but this path, and small limits.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST

HEAD_BYTES_MAX: Final = 8_192
HEAD_SECONDS_MAX: Final = 5.0

_TEXT: Final = "text/plain; charset=utf-8"


async def start(
    host: str, port: int, text: Callable[[], bytes], tls: ssl.SSLContext | None
) -> asyncio.Server:
    """Listens; raises OSError when it cannot."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HEAD_SECONDS_MAX)
            writer.write(_answer(head, text))
            await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            # The other side sent no request, or is gone: there is nobody to answer.
            pass
        finally:
            writer.close()

    return await asyncio.start_server(serve, host, port, limit=HEAD_BYTES_MAX, ssl=tls)


def _answer(head: bytes, text: Callable[[], bytes]) -> bytes:
    """The whole response to a request's head."""
    parts = head.split(b"\r\n", 1)[0].split(b" ")
    method, target = parts[0], parts[1] if len(parts) > 1 else b""
    if target.split(b"?", 1)[0] != b"/metrics":
        return _response("404 Not Found", _TEXT, b"only /metrics is here\n")
    if method not in (b"GET", b"HEAD"):
        return _response("405 Method Not Allowed", _TEXT, b"only GET\n")
    body = text()
    return _response("200 OK", CONTENT_TYPE_LATEST, body if method == b"GET" else b"")


def _response(status: str, kind: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body
