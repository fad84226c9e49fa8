"""A core process whose disk stops answering ends after SIGTERM within the documented time."""

import signal
import time
from pathlib import Path

import pytest

from server.record.writer import STUCK_S
from tests.cli.processes import finished
from tests.faults.children import Core, Files, control, until

NEVER_MS = 3_600_000
SLACK_S = 8.0
"""The time that Python on a machine under load takes to end a process."""
NEW = """\
partitions:
  - name: default
    queues:
      - {name: root, submitacl: "*", queues: [{name: other}]}
"""


@pytest.mark.parametrize(("durable", "applied"), [(False, True), (True, False)])
def test_sigterm_ends_a_core_whose_disk_hangs(
    tmp_path: Path, *, durable: bool, applied: bool
) -> None:
    """The decision log may take 5 s; where a configuration waits for the disk too, that takes 5 s more."""
    files = Files(tmp_path)
    files.make()
    core = Core(files, durable)
    assert core.start(), files.core_said.read_text()
    process = core.process
    assert process is not None
    control(files.disk_control, {"write_ms": NEVER_MS})
    try:
        if applied:
            apply(core, tmp_path)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert until(lambda: process.poll() is not None, 60), "it did not end"
        took_s = time.monotonic() - began
    finally:
        process.kill()
        process.wait()
    assert STUCK_S <= took_s < 2 * STUCK_S + SLACK_S
    assert process.returncode == 0


def apply(core: Core, folder: Path) -> None:
    """Apply a configuration that the core keeps; the answer says that the disk has not taken it."""
    (folder / "new.yaml").write_text(NEW)
    (folder / "token").write_text("operator-0123456789abcdef")
    (folder / "token").chmod(0o600)
    done = finished("config", "apply", str(folder / "new.yaml"), "--core", f"127.0.0.1:{core.port}")
    assert "its disk takes longer than 5 s" in " ".join(done.stdout.split()), done
