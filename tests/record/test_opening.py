"""Files of records: which are opened and which refused; a refused file stays unchanged."""

import contextlib
import os
from pathlib import Path

import pytest

from server.record.log import DecisionLog
from server.record.record_file import RecordError, opened


def test_a_symbolic_link_is_not_followed(tmp_path: Path) -> None:
    link, target = tmp_path / "log", tmp_path / "target"
    link.symlink_to(target)
    with pytest.raises(RecordError, match="is a symbolic link"):
        opened(link)
    assert not target.exists()


def test_a_file_that_everybody_may_write_to_is_no_record(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    log.chmod(0o666)
    with pytest.raises(
        RecordError,
        match=r"everybody may write to it \(mode 0666\); look what it says, then run chmod o-w",
    ):
        opened(log)
    assert log.stat().st_size == 0


def test_a_folder_is_no_record(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="name a file"):
        opened(tmp_path)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_copy_of_the_process_keeps_no_log_from_the_next_server(tmp_path: Path) -> None:
    """Copies answer reads: they close what they inherit, and may live a little longer than the server."""
    log = DecisionLog(tmp_path / "log", 1)
    (waits, ends), (ready, says) = os.pipe(), os.pipe()
    copy = os.fork()
    if copy == 0:
        for descriptor in {*range(3, 256)} - {waits, says}:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        os.write(says, b".")
        os.read(waits, 1)
        os._exit(0)
    try:
        os.read(ready, 1)
        log.close()
        DecisionLog(tmp_path / "log", 2).close()
    finally:
        os.close(ends)
        os.waitpid(copy, 0)
        for descriptor in (waits, ready, says):
            os.close(descriptor)
