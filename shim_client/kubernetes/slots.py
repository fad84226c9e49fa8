"""The pools of HTTP connections: each request in flight uses a separate pool, which has a single connection.

A pool of the HTTP client checks all of its connections and their sockets when a request begins and when a request ends.
When forty requests in flight shared one pool, these checks took a quarter of the time of a binding.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import httpx2


class Slots(httpx2.AsyncBaseTransport):
    """A stack of transports, one for each request in flight; the transport that became idle last is used next."""

    def __init__(self, make: Callable[[], httpx2.AsyncBaseTransport]) -> None:
        self._make = make
        self._made: list[httpx2.AsyncBaseTransport] = []
        self._idle: list[httpx2.AsyncBaseTransport] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request through an idle transport.

        The transport is busy until the answer is closed.
        """
        transport = self._idle.pop() if self._idle else self._new()
        try:
            response = await transport.handle_async_request(request)
        except BaseException:
            self._idle.append(transport)
            raise
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        return httpx2.Response(
            response.status_code,
            headers=response.headers,
            stream=_Lent(response.stream, lambda: self._idle.append(transport)),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        """Close all connections."""
        for transport in self._made:
            await transport.aclose()

    def _new(self) -> httpx2.AsyncBaseTransport:
        made = self._make()
        self._made.append(made)
        return made


class _Lent(httpx2.AsyncByteStream):
    """The body of an answer.

    When the body is closed for the first time, its transport becomes idle again.
    """

    def __init__(self, stream: httpx2.AsyncByteStream, give_back: Callable[[], None]) -> None:
        self._stream = stream
        self._give_back: Callable[[], None] | None = give_back

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._stream:
            yield part

    async def aclose(self) -> None:
        give_back, self._give_back = self._give_back, None
        try:
            await self._stream.aclose()
        finally:
            if give_back is not None:
                give_back()
