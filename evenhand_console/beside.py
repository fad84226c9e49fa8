"""The main program of a console that a core starts: `python -m evenhand_console.beside` (`evenhand serve --console`).

The arguments are a JSON object on the first line of the standard input. The process ends when the standard input
ends.
"""

import json
import os
import socket
import sys
from typing import Final

from evenhand_cli.connect import DEFAULT_TIMEOUT_S, connected_core
from evenhand_cli.console_process import address_of
from evenhand_cli.contexts import Context
from evenhand_console.bootstrap import ConsoleSettings, end_with_parent, run

_PRIORITY: Final = 5
"""The number that is added to the nice value inherited from the core.

With the higher nice value of the console, the core gets scarce processors first.
"""


def main() -> None:
    """Serve the console of the core that started this process."""
    os.nice(_PRIORITY)
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    given = json.loads(sys.stdin.buffer.readline())
    end_with_parent()
    core = Context(core=given["core"])
    with socket.socket(fileno=given["socket"]) as sock:
        opener = lambda _token: connected_core(core, "", DEFAULT_TIMEOUT_S)  # noqa: E731 -- a closure is shortest
        run(opener, sock, ConsoleSettings(address_of(sock)))


if __name__ == "__main__":
    main()
