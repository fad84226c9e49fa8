"""A fault: an error for the user, which says what is wrong, where, and what to do next.

Commands raise faults. `app` prints the fault on the error stream and ends with its exit code. Users see no other form
of an error: a traceback means that Evenhand itself has a bug.
"""

import enum


class ExitCode(enum.IntEnum):
    """The exit code of a command; stable, for scripts."""

    OK = 0
    PROBLEM = 1
    """The command did its work and found errors, or it got input that it cannot use."""
    USAGE = 2
    """The command line itself is wrong."""
    UNREACHABLE = 3
    """The core did not answer in time, could not be reached, or refused permission."""


class Fault(Exception):
    """An error for the user: what is wrong, where, and what to do.

    Each of the texts `what`, `where` and `advice` is one or more complete lines.
    """

    def __init__(
        self, what: str, *, where: str = "", advice: str = "", code: ExitCode = ExitCode.PROBLEM
    ) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.advice = advice
        self.code = code
