"""A server's process that writes records and is killed, as `kill -9` does it: nothing is ended, memory of files stays."""

import os
import signal
from collections.abc import Callable


def killed(run: Callable[[], object]) -> None:
    """Runs it in a process of its own that kills itself behind it, and waits for that."""
    process = os.fork()
    if process == 0:
        try:
            run()
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
