"""Running the command line in this process, and its output."""

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from evenhand_cli.app import app


class Ended:
    """The end of a command: exit code, output, error stream."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    def value(self) -> Any:
        """Return the output as JSON."""
        return json.loads(self.out)

    def words(self, line_with: str) -> list[str]:
        """Return the words of the first line of the output that contains `line_with`."""
        return next(line for line in self.out.splitlines() if line_with in line).split()


def evenhand(
    *arguments: str, width: int = 140, given: str | None = None, **environment: str
) -> Ended:
    """Run `evenhand` with these arguments and standard input; an unexpected exception is raised."""
    own = {
        "EVENHAND_CORE": None,
        "EVENHAND_CONTEXT": None,
        "EVENHAND_CONFIG": "/nowhere/config.yaml",
        "XDG_STATE_HOME": "/dev/null/state",
    }
    env = {"COLUMNS": str(width), "NO_COLOR": "1"} | own | environment
    result = CliRunner().invoke(app, list(arguments), env=env, input=given)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Ended(result.exit_code, result.stdout, result.stderr)


def check_replay(log: Path, trace: Path) -> None:
    """Check that a copy of the trace of a core that still runs gives the decisions of a copy of its log."""
    copies = []
    for file in (log, trace):  # The trace is the longer one.
        copies.append(copied := file.with_name(f"copy-{file.name}"))
        copied.write_bytes(file.read_bytes().rpartition(b"\n")[0] + b"\n")
    replayed = evenhand("replay", str(copies[1]), "--compare", str(copies[0]))
    assert replayed.code == 0, replayed.out + replayed.err
    assert "the same decisions, byte for byte" in replayed.out
