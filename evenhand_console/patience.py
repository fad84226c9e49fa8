"""The time limits of the server: connections that send no request, or read no answer, are closed."""

import asyncio
from typing import Final, cast

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

CLIENTS_MAX: Final = 2000
"""The largest number of connections of browsers. Requests on further connections are answered with 503."""
CONNECTIONS_MAX: Final = 2 * CLIENTS_MAX
"""The largest number of connections. Further connections are closed at once."""
WAIT_S: Final = 20.0
"""The seconds between two checks of a connection.

A connection without progress between two checks is closed. Such a connection is therefore closed at the latest after twice this
time.
"""


class Impatient(H11Protocol):
    """A connection that is checked every WAIT_S seconds.

    The web server itself has no time limit for the head of a first request, and none for a client that does not read
    its answer.
    """

    address_max = 0
    """Largest number of connections from one address; further connections are closed at once. 0 means no limit."""
    _look_again: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to check the connection."""
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS_MAX or self._has_too_many():
            transport.abort()
        else:
            self._look_again = self.loop.call_later(WAIT_S, self._look, None, 0)

    def _has_too_many(self) -> bool:
        """Return whether the address of the client has more connections than it may have."""
        if not self.address_max or self.client is None:
            return False
        address = self.client[0]
        known = (cast("H11Protocol", one).client for one in self.connections)
        return sum(one is not None and one[0] == address for one in known) > self.address_max

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop checking the connection."""
        super().connection_lost(exc)
        if self._look_again is not None:
            self._look_again.cancel()

    def _look(self, seen: RequestResponseCycle | None, unsent: int) -> None:
        """Close the connection if it made no progress since the last check.

        No progress means that no request came, or that the client has read none of the bytes that waited to be sent.

        ``seen`` is the latest request at the last check, or None if the answer to that request was not complete then.
        ``unsent`` is the number of bytes that waited at the last check.
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


def impatient(address_max: int) -> type[Impatient]:
    """Return the class of the connections of a server.

    ``address_max`` limits the connections from one address; 0 means no limit.
    """
    return type("Impatient", (Impatient,), {"address_max": address_max})
