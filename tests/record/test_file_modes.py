"""Modes of files and folders: which ones make a core refuse to start, and which ones cause a warning."""

import os
from pathlib import Path

import pytest

from server.record.file_modes import findings, refused_folder, refused_owner, warned_mount
from tests.cli.processes import finished

READABLE = "everybody may read it (mode 0644); run chmod o-r"
WRITABLE = "its group may write to it (mode 0660); run chmod g-w"


@pytest.mark.parametrize(
    ("mode", "private", "public"),
    [
        (0o600, "", ""),
        (0o440, "", ""),
        (0o640, "", ""),
        (0o644, READABLE, ""),
        (0o660, WRITABLE, WRITABLE),
    ],
)
def test_what_others_can_do_with_a_file_warns(
    tmp_path: Path, mode: int, private: str, public: str
) -> None:
    file = tmp_path / "file"
    file.touch()
    file.chmod(mode)
    for expected, found in ((private, findings([file], [])), (public, findings([], [file]))):
        assert [one.message.removesuffix(f" {file}") for one in found] == (
            [f"{file}: {expected}"] if expected else []
        )


def test_the_link_of_a_mounted_secret_is_followed(tmp_path: Path) -> None:
    (tmp_path / "..data").mkdir()
    secret = tmp_path / "..data" / "tokens.yaml"
    secret.touch()
    link = tmp_path / "tokens.yaml"
    link.symlink_to(secret)
    secret.chmod(0o440)
    assert not list(findings([link], []))
    secret.chmod(0o644)
    [found] = findings([link], [])
    assert found.code == "file-open-to-others"
    assert "`defaultMode: 0440`" in found.advice


@pytest.mark.parametrize("open_one", ["above", "state"])
def test_a_folder_where_everybody_may_put_files_is_refused(tmp_path: Path, open_one: str) -> None:
    state = tmp_path / "above" / "state"
    state.mkdir(parents=True)
    assert not refused_folder(state)
    folder = tmp_path / "above" if open_one == "above" else state
    folder.chmod(0o777)
    assert refused_folder(state).endswith(f"(mode 0777); run chmod o-w {folder}")
    folder.chmod(0o1777)
    assert not refused_folder(state)


def test_a_mounted_volume_warns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kubernetes makes an emptyDir with mode 0777, which only the containers of its pod reach."""
    tmp_path.chmod(0o777)
    assert not warned_mount(tmp_path)
    monkeypatch.setattr("server.record.file_modes.os.path.ismount", lambda path: path == tmp_path)
    assert not refused_folder(tmp_path)
    assert "mount it into this container alone" in warned_mount(tmp_path)
    tmp_path.chmod(0o700)
    assert not warned_mount(tmp_path)


def test_in_a_shared_folder_the_file_of_another_user_is_refused() -> None:
    def found(mode: int, uid: int) -> os.stat_result:
        return os.stat_result((mode, 0, 0, 1, uid, 0, 0, 0, 0, 0))

    file, shared, own = found(0o640, 7), found(0o1777, 0), found(0o700, 0)
    assert "another user (uid 7)" in refused_owner(Path("log"), file, shared, 8)
    assert not refused_owner(Path("log"), file, shared, 7)
    assert not refused_owner(Path("log"), file, own, 8)


@pytest.mark.parametrize("option", ["--state-dir", "--decision-log"])
def test_serve_refuses_such_a_folder(tmp_path: Path, option: str) -> None:
    place = tmp_path if option == "--state-dir" else tmp_path / "log"
    tmp_path.chmod(0o777)
    done = finished("serve", "--listen", "127.0.0.1:0", option, str(place))
    assert done.returncode == 2
    assert f"{option}: {tmp_path}: everybody may write to it (mode 0777)" in done.stderr
