"""The metrics endpoint: GET /metrics over plain HTTP or HTTPS.

The endpoint is not a full web server. The endpoint answers one request per connection, serves only this path, and has small
limits.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST

HEAD_BYTES_MAX: Final = 8_192
HEAD_SECONDS_MAX: Final = 5.0

_TEXT: Final = "text/plain; charset=utf-8"


class BusyError(Exception):
    """The error of metrics that cannot be computed now. The message says why."""


Text = Callable[[], Awaitable[bytes]]
"""The function that computes the metrics. It raises BusyError if the metrics cannot be computed now."""
Refused = Callable[[ssl.SSLObject | None, str], tuple[int, str] | None]
"""The check of a request, given the connection's TLS object (None for plain HTTP) and the Authorization header.

The result is the HTTP status and the reason of a refusal. None admits the request.
"""


async def start(
    host: str,
    port: int,
    text: Text,
    tls: ssl.SSLContext | None,
    refused: Refused,
) -> asyncio.Server:
    """Listen on the address, and return the server. Raise OSError if the address is not available."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HEAD_SECONDS_MAX)
            peer = writer.get_extra_info("ssl_object")
            writer.write(await _answer(head, text, lambda header: refused(peer, header)))
            await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            # The client sent no request, or has disconnected. There is no answer to send.
            pass
        finally:
            writer.close()

    return await asyncio.start_server(serve, host, port, limit=HEAD_BYTES_MAX, ssl=tls)


async def _answer(
    head: bytes, text: Text, refused: Callable[[str], tuple[int, str] | None]
) -> bytes:
    """Return the whole response to the head of a request."""
    lines = head.split(b"\r\n")
    parts = lines[0].split(b" ")
    method, target = parts[0], parts[1] if len(parts) > 1 else b""
    if target.split(b"?", 1)[0] != b"/metrics":
        return _response("404 Not Found", _TEXT, b"only /metrics is here\n")
    if method not in (b"GET", b"HEAD"):
        return _response("405 Method Not Allowed", _TEXT, b"only GET\n")
    if refusal := refused(_authorization(lines[1:])):
        status, reason = refusal
        return _response(_REFUSALS[status], _TEXT, f"{reason}\n".encode())
    try:
        body = await text()
    except BusyError as error:
        return _response("503 Service Unavailable", _TEXT, f"{error}\n".encode())
    return _response("200 OK", CONTENT_TYPE_LATEST, body if method == b"GET" else b"")


_REFUSALS: Final = {
    401: "401 Unauthorized\r\nWWW-Authenticate: Bearer",
    403: "403 Forbidden",
}


def _authorization(lines: list[bytes]) -> str:
    """Return the value of the Authorization header, or "" if the request has no such header."""
    for line in lines:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"authorization":
            return value.strip().decode("latin-1")
    return ""


def _response(status: str, kind: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body
