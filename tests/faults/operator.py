"""The operator of a run, who applies queue configurations and reads the one in force with the command line."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tests.cli.processes import environment
from tests.faults.children import ROOT, Files, now_ms, until
from tests.faults.cluster import changed_queues
from tests.faults.evidence import Revision

ANSWER_S: Final = 20.0
"""Maximum number of seconds for an operator's command."""
UNKNOWN: Final = 0
"""The number of a revision that a core did not name."""


class Operator:
    """The operator of a run, with the revisions that were applied and those that were in force."""

    def __init__(self, files: Files, port: int) -> None:
        self._files = files
        self._port = port
        self._texts = 0
        self.applied: list[Revision] = []
        self.in_force: list[Revision] = []

    @contextmanager
    def applying(self) -> Iterator[None]:
        """Apply a configuration while the block runs; then record the answer, if there is one."""
        self._texts += 1
        text = self._files.folder / "changed.yaml"
        text.write_text(changed_queues(self._texts))
        with self._command("apply", str(text)) as command:
            yield
            revision = _answer(command)
        if revision.number != UNKNOWN:
            self.applied.append(revision)

    def look(self) -> None:
        """Record which configuration is in force."""
        with self._command("show") as command:
            self.in_force.append(_answer(command))

    @contextmanager
    def _command(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """Run `evenhand config` with JSON output, and kill the command at the end of the block."""
        where = f"127.0.0.1:{self._port}", "--token-file", str(self._files.operator_token)
        with subprocess.Popen(
            [
                sys.executable,
                "-m",
                "evenhand_cli",
                "config",
                *words,
                "--output",
                "json",
                "--core",
                *where,
            ],
            cwd=ROOT,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as command:
            try:
                yield command
            finally:
                command.kill()


def _answer(command: subprocess.Popen[str]) -> Revision:
    """Return the revision that a command printed; an unknown revision when it failed or took too long."""
    until(lambda: command.poll() is not None, ANSWER_S)
    if command.poll() != 0 or command.stdout is None:
        return Revision(now_ms(), UNKNOWN, "", kept=False)
    answer = json.loads(command.stdout.read())
    return Revision(now_ms(), answer["revision"], answer["digest"], kept=not answer["not_kept"])
