"""The inbox of the writing process: a thread reads the pipe, and the frames wait here until the process applies them.

The thread reads ahead, so that frames do not wait in the memory of the core. While the core sends much, frames stay in the inbox
for a while. The writing process therefore does not compete with the core for processors during a burst. The total work of the
process stays the same, but is done between the bursts. The inbox reads no clock: each frame has its instant.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from server.history.rows import Frame, Row, frames

HOLD_MS: Final = 5_000
"""The milliseconds that a frame waits at most while the core sends much."""
BUSY_BYTES: Final = 256 << 10
"""The excess above which a core counts as busy. The excess is the number of bytes that the core has sent beyond `RATE`."""
LEVEL_MAX: Final = 2 * BUSY_BYTES
"""The largest excess that is counted. The smaller this limit, the sooner a core counts as idle after a burst."""
RATE: Final = 512
"""The bytes in a millisecond that a core may send without an excess. This is the rate of some 1,600 pods a second."""
HELD_MAX: Final = 32 << 20
"""The bytes in the inbox at which frames wait no longer, and the thread stops reading."""


class Inbox:
    """The frames that were received and not applied yet. ``read(size)`` returns ``size`` bytes of the stream, or fewer at its end."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read
        self._held: deque[tuple[Frame, int]] = deque()
        self._changed = threading.Condition()
        self._bytes = self._excess = self._now = 0
        self._has_ended = False

    def start(self) -> None:
        """Start the thread that reads the pipe."""
        threading.Thread(target=self._fill, name="inbox", daemon=True).start()

    def frames(self) -> Iterator[Frame]:
        """Yield the frames in order, until the stream ends."""
        while True:
            with self._changed:
                self._changed.wait_for(self.is_due)
                if not self._held:
                    return
                frame, size = self._held.popleft()
                self._bytes -= size
                self._changed.notify_all()
            yield frame

    def put(self, frame: Frame, size: int) -> None:
        """Add a frame of ``size`` bytes. Wait while the inbox is full."""
        with self._changed:
            self._changed.wait_for(lambda: self._bytes < HELD_MAX)
            passed = max(frame.now - self._now, 0)
            self._now += passed
            left = max(self._excess - RATE * passed, 0)
            # A core that begins to follow gives up the database, for which another core may wait.
            is_urgent = frame.rows[0][0] == Row.FOLLOWS
            self._excess = 0 if is_urgent else min(left + size, LEVEL_MAX)
            self._held.append((frame, size))
            self._bytes += size
            self._changed.notify_all()

    def is_due(self) -> bool:
        """Return True if the oldest frame may be taken now, or if no more frames will arrive."""
        if self._has_ended:
            return True
        if not self._held:
            return False
        is_busy = self._excess > BUSY_BYTES and self._bytes < HELD_MAX
        return not is_busy or self._now - self._held[0][0].now >= HOLD_MS

    def end(self) -> None:
        """Release all frames that wait, because no more frames arrive."""
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    def _fill(self) -> None:
        try:
            for frame, size in frames(self._read):
                self.put(frame, size)
        finally:
            self.end()
