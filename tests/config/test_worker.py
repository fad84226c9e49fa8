"""The process that reads configurations, after its server has ended."""

import signal
import subprocess
import sys
from typing import Any

from server.config.worker import packed
from tests.cli.processes import ROOT, environment


def test_a_reader_ends_silently_when_its_server_was_killed() -> None:
    command = [sys.executable, "-c", "from server.config.worker import main; main()"]
    pipes: dict[str, Any] = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
    }
    with subprocess.Popen(command, cwd=ROOT, env=environment(), **pipes) as reader:
        assert reader.stdin
        assert reader.stdout
        assert reader.stderr
        reader.stdout.close()
        reader.stdin.write(packed(("partitions:\n", "queues.yaml")))
        reader.stdin.close()
        assert reader.stderr.read() == b""
    assert reader.returncode == -signal.SIGPIPE
