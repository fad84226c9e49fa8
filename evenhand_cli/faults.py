"""A fault that a person can act on: what was wrong, where, and what to do next.

Commands raise it; `app` prints it on the error stream and ends with its code. Nothing else about an
error reaches the user: a traceback means a defect of ours.
"""

import enum


class ExitCode(enum.IntEnum):
    """How a command ends; stable, for scripts."""

    OK = 0
    PROBLEM = 1
    """The command did its work and found errors, or was given something it cannot use."""
    USAGE = 2
    """The command line itself is wrong."""
    UNREACHABLE = 3
    """The core could not be asked: no connection, no permission, no answer in time."""


class Fault(Exception):
    """What was wrong, where it was, what to do; each one or more whole lines."""

    def __init__(
        self, what: str, *, where: str = "", advice: str = "", code: ExitCode = ExitCode.PROBLEM
    ) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.advice = advice
        self.code = code
