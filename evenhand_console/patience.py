"""The patience of the server: connections that send no request, or take no answer, are closed."""

import asyncio
from typing import Final

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

CLIENTS_MAX: Final = 2000
"""The largest number of connections of browsers. Requests on further connections are answered with 503."""
CONNECTIONS_MAX: Final = 2 * CLIENTS_MAX
"""The largest number of connections. Further connections are closed at once."""
WAIT_S: Final = 20.0
"""A connection without progress for this many seconds is closed, at the latest after twice as many seconds."""


class Impatient(H11Protocol):
    """A connection that is checked every WAIT_S seconds.

    The server itself waits without end for the head of a first request, and for a client that does not take its answer.
    """

    _look_again: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to check the connection."""
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS_MAX:
            transport.abort()
        else:
            self._look_again = self.loop.call_later(WAIT_S, self._look, None, 0)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop checking the connection."""
        super().connection_lost(exc)
        if self._look_again is not None:
            self._look_again.cancel()

    def _look(self, seen: RequestResponseCycle | None, unsent: int) -> None:
        """Close the connection if no request came since the last check, or if the client took none of the bytes that waited for it.

        ``seen`` is the request that was complete at the last check. ``unsent`` is the number of bytes that waited then.
        """
        waiting = self.transport.get_write_buffer_size()
        cycle: RequestResponseCycle | None = self.cycle
        is_busy = cycle is not None and not cycle.response_complete
        if waiting and waiting == unsent:
            self.transport.abort()
        elif not waiting and not is_busy and cycle is seen:
            self.transport.close()
        else:
            known = None if is_busy else cycle
            self._look_again = self.loop.call_later(WAIT_S, self._look, known, waiting)
