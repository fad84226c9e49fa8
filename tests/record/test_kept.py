"""The file with the configuration in force: it is read whole or refused, and a failed write leaves the old file."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from server.model.revisions import Revision
from server.record.kept import Kept, kept_file, read_kept, write_kept
from server.record.record_file import RecordError

KEPT = Kept(
    Revision(7, "d" * 64, "apply q.yaml", "ada", 1_700_000_000_000, standing=False),
    "partitions: \u00fc\n",
    {"rm": "a" * 64},
    "f" * 64,
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "configuration.json"


def change(path: Path, /, **facts: Any) -> None:
    """Change facts of a file; the checksum changes only if it is among them."""
    held = {**json.loads(path.read_text()), **facts}
    path.write_text(json.dumps(held, sort_keys=True, separators=(",", ":")) + "\n")


def test_what_is_written_is_read(file: Path) -> None:
    assert read_kept(file) is None
    for kept in (KEPT, KEPT._replace(text="other", given={})):
        write_kept(file, kept)
        assert read_kept(file) == kept
    assert stat.S_IMODE(file.stat().st_mode) & ~0o640 == 0
    assert [one.name for one in file.parent.iterdir()] == [file.name]


def test_it_is_in_the_folder_or_beside_the_log() -> None:
    folder, log = Path("/var/lib/evenhand"), Path("/var/log/decisions")
    assert kept_file(folder, log) == folder / "configuration.json"
    assert kept_file(None, log) == Path("/var/log/decisions.configuration.json")
    assert kept_file(None, None) is None


@pytest.mark.parametrize("cut", [0, 1, 100, -1])
def test_a_torn_file_is_refused(file: Path, cut: int) -> None:
    write_kept(file, KEPT)
    file.write_bytes(file.read_bytes()[:cut][:-1])
    with pytest.raises(RecordError, match="move it away"):
        read_kept(file)


def test_every_changed_byte_is_found(file: Path) -> None:
    write_kept(file, KEPT)
    written = file.read_bytes()
    for at in range(len(written) - 1):
        file.write_bytes(written[:at] + bytes([written[at] ^ 1]) + written[at + 1 :])
        with pytest.raises(RecordError):
            read_kept(file)


@pytest.mark.parametrize(
    "facts", [{"text": "partitions: 7"}, {"file": ""}, {"given": {}}, {"checksum": ""}, {"more": 1}]
)
def test_a_changed_file_is_refused(file: Path, facts: dict[str, Any]) -> None:
    write_kept(file, KEPT)
    change(file, **facts)
    with pytest.raises(RecordError, match="its checksum is that of another text"):
        read_kept(file)


def test_another_format_is_refused(file: Path) -> None:
    write_kept(file, KEPT)
    change(file, format=2)
    with pytest.raises(RecordError, match="its format is 2, this version reads 1"):
        read_kept(file)


def test_another_file_is_refused(file: Path) -> None:
    file.write_text("partitions:\n")
    with pytest.raises(RecordError, match="it is not JSON"):
        read_kept(file)


def test_a_symbolic_link_is_not_followed(file: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    write_kept(target, KEPT)
    before = target.read_bytes()
    file.symlink_to(target)
    with pytest.raises(RecordError, match="is a symbolic link"):
        read_kept(file)
    (tmp_path / "configuration.json.new").symlink_to(target)
    write_kept(file, KEPT._replace(text="other"))
    assert target.read_bytes() == before
    assert not file.is_symlink()
    assert read_kept(file) == KEPT._replace(text="other")


def test_what_is_no_file_is_refused(file: Path) -> None:
    os.mkfifo(file)
    with pytest.raises(RecordError, match="is no regular file"):
        read_kept(file)


def test_a_file_that_everybody_may_change_is_refused(file: Path) -> None:
    write_kept(file, KEPT)
    file.chmod(0o666)
    with pytest.raises(RecordError, match="chmod o-w"):
        read_kept(file)


@pytest.mark.parametrize("fails", ["fsync", "replace"])
def test_where_a_new_one_cannot_be_written_the_old_one_stays(
    file: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    write_kept(file, KEPT)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    where = os if fails == "fsync" else Path
    monkeypatch.setattr(where, fails, full)
    with pytest.raises(OSError, match="No space"):
        write_kept(file, KEPT._replace(text="other"))
    monkeypatch.undo()
    assert read_kept(file) == KEPT
    assert [one.name for one in file.parent.iterdir()] == [file.name]


def test_a_missing_folder_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_kept(tmp_path / "none" / "configuration.json", KEPT)
    assert read_kept(tmp_path / "none" / "configuration.json") is None
