"""The last decisions of one stream of a session, encoded, so that the session can be resumed (design 7.5).

A follower keeps these decisions as its leader does, because it makes the same decisions.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

from server.rpc.limits import KEPT_BYTES_MAX, KEPT_OBJECTS_MAX

_FIRST: Final = 0


class Kept:
    """The last pieces (encoded decisions) of a stream.

    Pieces are numbered from 1 since the session began. ``last`` is the number of the last piece.
    """

    def __init__(self, session: str, last: int = _FIRST) -> None:
        self.session = session
        """The name of the session."""
        self.last = last
        self._runs: deque[list[bytes]] = deque()
        self._objects = self._bytes = 0

    def add(self, pieces: list[bytes]) -> None:
        """Add pieces. If there are too many pieces, drop the oldest pieces. The list must not change afterwards."""
        self._runs.append(pieces)
        self.last += len(pieces)
        self._objects += len(pieces)
        self._bytes += sum(map(len, pieces))
        while self._objects > KEPT_OBJECTS_MAX or self._bytes > KEPT_BYTES_MAX:
            dropped = self._runs.popleft()
            self._objects -= len(dropped)
            self._bytes -= sum(map(len, dropped))

    def after(self, number: int) -> Sequence[bytes] | None:
        """Return the pieces after the piece with this number. Return None if some of these pieces were dropped, or were never made."""
        wanted = self.last - number
        if not 0 <= wanted <= self._objects:
            return None
        pieces = [piece for run in self._runs for piece in run]
        return pieces[len(pieces) - wanted :]
