"""The keeper of the configuration: changes are written; a failed write is reported and tried again."""

from collections.abc import Callable
from pathlib import Path

import pytest

from server.model.revisions import Revision
from server.record import keeper as module
from server.record.keeper import NAME, NO_PLACE, Keeper, NotKept, locked
from server.record.kept import Kept, read_kept
from server.record.record_file import RecordError
from server.record.recording import Job, at_once


class Held:
    """A configuration in force, and the keeper of it."""

    def __init__(self, path: Path, run: Callable[[Job], None] = at_once) -> None:
        self.path = path
        self.revision = Revision(1, "1" * 64)
        self.given: dict[str, str] = {}
        self.text = "one"
        self.keeper = Keeper(path, lambda: (self.revision, self.given), self.kept, run)

    def kept(self) -> Kept | None:
        return Kept(self.revision, self.text, self.given) if self.text else None

    def change(self, text: str) -> None:
        self.revision = Revision(self.revision.number + 1)
        self.text = text

    def slice(self) -> None:
        self.keeper.sliced(0, 0, 0)

    def on_disk(self) -> str:
        found = read_kept(self.path)
        return "" if found is None else found.text


def full(*_: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.fixture
def held(tmp_path: Path) -> Held:
    return Held(tmp_path / "configuration.json")


def test_it_writes_what_has_changed_and_nothing_else(held: Held) -> None:
    held.slice()
    assert held.on_disk() == "one"
    held.text = "not in force"
    held.slice()
    assert held.on_disk() == "one"
    held.change("two")
    held.slice()
    assert held.on_disk() == "two"
    held.given = {"rm": "2" * 64}
    held.slice()
    found = read_kept(held.path)
    assert found is not None
    assert found.given == held.given


def test_the_built_in_configuration_is_not_kept(held: Held) -> None:
    held.text = ""
    held.slice()
    assert not held.path.exists()
    assert held.keeper.why_not_kept() == ""


async def test_what_cannot_be_written_is_said_and_tried_again(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    held.slice()
    monkeypatch.setattr(module, "write_kept", full)
    held.change("two")
    held.slice()
    assert await held.keeper.settled() == f"{held.path}: no space left on device"
    assert held.keeper.health()[NAME].failing == "no space left on device"
    (finding,) = held.keeper.findings()
    assert "would be lost in a crash" in finding.message
    held.keeper.retry()
    assert held.on_disk() == "one"
    monkeypatch.undo()
    held.keeper.retry()
    assert held.on_disk() == "two"
    assert await held.keeper.settled() == ""
    assert not list(held.keeper.findings())


def test_of_many_changes_one_waits_for_a_slow_disk(tmp_path: Path) -> None:
    jobs: list[Job] = []
    held = Held(tmp_path / "configuration.json", jobs.append)
    for number in range(100):
        held.change(f"text {number}")
        held.slice()
    (job,) = jobs
    job()
    assert held.on_disk() == "text 99"
    held.change("last")
    held.slice()
    assert len(jobs) == 2
    jobs[-1]()
    assert held.on_disk() == "last"


def test_a_retry_never_overtakes_a_later_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[Job] = []
    held = Held(tmp_path / "configuration.json", jobs.append)
    monkeypatch.setattr(module, "write_kept", full)
    held.slice()
    jobs.pop()()
    monkeypatch.undo()
    held.change("two")
    held.slice()
    held.keeper.retry()
    (job,) = jobs
    job()
    assert held.on_disk() == "two"
    held.keeper.retry()
    assert len(jobs) == 1


async def test_a_disk_that_does_not_answer_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WAIT_S", 0.0)
    jobs: list[Job] = []
    held = Held(tmp_path / "configuration.json", jobs.append)
    held.slice()
    assert "its disk takes longer than" in await held.keeper.settled()


async def test_without_a_place_it_says_so() -> None:
    assert NotKept().why_not_kept() == await NotKept().settled() == NO_PLACE


def test_a_folder_is_for_one_server(tmp_path: Path) -> None:
    locked(tmp_path)
    with pytest.raises(RecordError, match="another process"):
        locked(tmp_path)
    with pytest.raises(RecordError, match="name a folder that exists"):
        locked(tmp_path / "none")
