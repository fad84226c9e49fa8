"""A fault that a person can act on: what was wrong, where, and what to do next.

Commands raise it; `app` prints it on the error stream and ends with its code. The user sees nothing else of an
error: a traceback means a defect of Evenhand.
"""

import enum


class ExitCode(enum.IntEnum):
    """The exit code of a command; stable, for scripts."""

    OK = 0
    PROBLEM = 1
    """The command did its work and found errors, or was given something that it cannot use."""
    USAGE = 2
    """The command line itself is wrong."""
    UNREACHABLE = 3
    """The core could not be asked: no connection, no permission, no answer in time."""


class Fault(Exception):
    """A problem for the user: what was wrong, where, and what to do; each in one or more whole lines."""

    def __init__(
        self, what: str, *, where: str = "", advice: str = "", code: ExitCode = ExitCode.PROBLEM
    ) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.advice = advice
        self.code = code
