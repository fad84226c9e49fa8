"""The main program of the process that writes the history: `python -m server.rpc.history_process`, started by a core.

The arguments are a JSON object on the first line of the input. They are not on the command line, because a URL may hold a
password, and other users can read command lines. After this line, the input has frames: encoded groups of rows (`server.history.rows`).
"""

import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from server.history.address import HistoryError, address
from server.history.settings import Settings, Status
from server.history.writing import Pipes, serve
from server.rpc.pod_names import pod_name

_PRIORITY: Final = 10
"""The amount by which the nice value of this process is higher than that of the core. If processors are scarce, the core thus runs first."""
_SESSION: Final = Path("/proc/self/autogroup")
"""The file with the nice value of the Unix session of this process. Some kernels do not have this file."""


def main() -> int:
    """Write the history until the core ends. Return the exit code."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # The core ends this process after the last write.
    given = json.loads(sys.stdin.buffer.readline())
    try:
        place = address(given["place"])
    except HistoryError as error:
        sys.stdout.write(json.dumps(Status(fatal=str(error))._asdict()) + "\n")
        return 1
    settings = Settings(*given["settings"])
    return serve(Pipes(sys.stdin.buffer, sys.stdout), place, settings, pod_name, _yield)


def _yield() -> None:
    """Lower the priority of this process.

    Linux may first divide the processors among Unix sessions (`sched_autogroup_enabled`), and compare the nice values of
    processes within one session only. This process has a Unix session of its own, which therefore gets the nice value, too.
    """
    os.nice(_PRIORITY)
    if os.getsid(0) == os.getpid():
        with suppress(OSError):
            _SESSION.write_text(str(_PRIORITY))


if __name__ == "__main__":
    sys.exit(main())
