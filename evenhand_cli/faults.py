"""A fault: an error for the user, with three texts: the problem, its place, and advice.

Commands raise faults. `app` prints the fault on the error stream and ends with the exit code of the fault. Users see errors in no
other form. A traceback means that Evenhand itself has a bug.
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
    """An error for the user: the problem, its place, and advice.

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
