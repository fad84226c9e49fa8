"""The process that reads configurations for a server.

The process receives texts on its input and writes the results to its output.

A message consists of its length in eight bytes, and a pickle. An empty message says that the process is ready. The process ends
when its input ends. The process also ends when it works on one text for longer than the server waits for the result.
"""

import pickle
import resource
import signal
import sys
from collections.abc import Callable
from typing import BinaryIO, Final

from server.config.reader import examine

LENGTH_BYTES: Final = 8
SECONDS_MAX: Final = 30
"""The largest number of seconds that one text may take."""
BYTES_MAX: Final = 1 << 30
"""The largest memory of the process in bytes. A text that needs more memory ends the process."""
_LATE_S: Final = 5
"""The seconds beyond SECONDS_MAX after which a process that still reads the same text ends itself.

Usually the server ends the process earlier. This limit is needed only if the server is gone.
"""


def main() -> None:
    """Read and answer texts until the input of the process ends."""
    resource.setrlimit(resource.RLIMIT_AS, (BYTES_MAX, BYTES_MAX))
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # End quietly if the server was killed.
    sys.stdout.buffer.write(bytes(LENGTH_BYTES))
    sys.stdout.buffer.flush()
    serve(sys.stdin.buffer, sys.stdout.buffer, signal.alarm)


def serve(texts: BinaryIO, answers: BinaryIO, limit: Callable[[int], object]) -> None:
    """Read texts, each with the name of its source, and write for each the result of `examine`.

    ``limit`` sets the seconds that the process may still run, 0 for no limit.
    """
    while len(head := texts.read(LENGTH_BYTES)) == LENGTH_BYTES:
        text, source = pickle.loads(texts.read(int.from_bytes(head)))  # noqa: S301 - from the server
        limit(SECONDS_MAX + _LATE_S)
        answers.write(packed(examine(text, source)))
        answers.flush()
        limit(0)


def packed(value: object) -> bytes:
    """Return the bytes of a message with this value."""
    data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    return len(data).to_bytes(LENGTH_BYTES) + data
