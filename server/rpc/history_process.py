"""The main program of the process that writes the history: `python -m server.rpc.history_process`, started by a core.

The arguments are a JSON object on the first line of the input, since a URL may hold a password, which other users could read in
a list of processes. Frames of `server.history.rows` follow.
"""

import json
import os
import signal
import sys
from typing import Final

from server.history.address import HistoryError, address
from server.history.settings import Settings, Status
from server.history.writing import serve
from server.rpc.pod_names import pod_name

_PRIORITY: Final = 10
"""The nice value of the process, added to that of the core, which comes first where processors are scarce."""


def main() -> int:
    """Write the history until the core ends. Return the exit code."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # The core ends it after the last write.
    os.nice(_PRIORITY)
    given = json.loads(sys.stdin.buffer.readline())
    try:
        place = address(given["place"])
    except HistoryError as error:
        sys.stdout.write(json.dumps(Status(fatal=str(error))._asdict()) + "\n")
        return 1
    settings = Settings(*given["settings"])
    return serve(sys.stdin.buffer, sys.stdout, place, settings, pod_name)


if __name__ == "__main__":
    sys.exit(main())
