"""The decision log: its chain, its files, and its behaviour on a full disk and after a run that ended badly."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from server.model.decisions import Decided
from server.record.canonical import digest
from server.record.chain import FORMAT, ORIGIN, Entry
from server.record.entries import Applied, Told, entry, started
from server.record.log import DecisionLog
from server.record.record_file import RecordError
from server.record.tail import pieces
from server.record.verify import Verified, files_of, verify
from tests.record.values import START, decided, moved, shrink

BIG = 1 << 30


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "decisions.jsonl"


class Disk:
    """A disk that takes ``space`` more bytes, and then none."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.space = BIG
        self._write = os.write
        monkeypatch.setattr(os, "write", self.write)

    def write(self, descriptor: int, data: memoryview) -> int:
        """Write as `os.write` does."""
        if self.space == 0:
            raise OSError(28, "No space left on device")
        written = self._write(descriptor, data[: self.space])
        self.space -= written
        return written


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def write(file: Path, *told: Told, **limits: Any) -> None:
    """Write the log of one run of a server."""
    log = DecisionLog(file, START, **limits)
    log.note(started(START, "1.2.3", "", FORMAT))
    for number, one in enumerate(told):
        log.add(entry(one, START + number))
        log.flush()
    log.close()


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_bytes().splitlines()]


def kinds(file: Path) -> list[str]:
    return [line["kind"] for line in lines(file)]


def verified(file: Path) -> Verified:
    return verify(files_of(file))


def test_a_line_says_what_was_decided(file: Path) -> None:
    write(
        file,
        Applied("apply queues.yaml", "ab12", 7, "ada"),
        decided(1),
        moved(1),
        Decided("rm", shrink(2)),
    )
    beginning, applied, claim, move, run = lines(file)
    assert beginning["facts"] == {"format": 2, "version": "1.2.3", "configuration": ""}
    assert applied["facts"] == {
        "source": "apply queues.yaml",
        "digest": "ab12",
        "revision": 7,
        "by": "ada",
    }
    assert claim["at"] == START + 1
    assert claim["facts"]["rm_id"] == "rm"
    assert claim["facts"]["record"]["state"] == "planned"
    assert claim["facts"]["record"]["victims"][0]["resource"] == {"memory": 1 << 30, "vcore": 500}
    assert claim["facts"]["record"]["levels"][0]["max"] is None
    assert move["facts"]["state"] == "confirmed"
    assert run["facts"]["record"]["shrink"]["missing"] == {"vcore": 400}


def test_each_line_names_the_one_before_it(file: Path) -> None:
    write(file, decided(1), moved(1))
    written = file.read_bytes().splitlines(keepends=True)
    read = lines(file)
    assert [one["number"] for one in read] == [1, 2, 3]
    assert [one["previous"] for one in read] == [ORIGIN, digest(written[0]), digest(written[1])]
    found = verified(file)
    assert found.whole
    assert (found.number, found.digest) == (3, digest(written[2]))


def test_lines_are_canonical(file: Path) -> None:
    write(file, decided(1))
    for line in file.read_text().splitlines():
        again = json.dumps(json.loads(line), sort_keys=True, separators=(",", ":"))
        assert again == line


def test_the_chain_goes_on_over_restarts(file: Path) -> None:
    write(file, decided(1))
    write(file, decided(2))
    assert kinds(file) == ["started", "decided", "started", "decided"]
    assert verified(file).whole


def test_a_changed_line_is_found(file: Path) -> None:
    write(file, decided(1), decided(2), decided(3))
    text = file.read_text()
    file.write_text(text.replace("ask-2 takes", "ask-2 took"))
    found = verified(file)
    assert [one.where for one in found.remarks if one.wrong] == [f"{file}:4"]


def test_a_missing_line_is_found(file: Path) -> None:
    write(file, decided(1), decided(2), decided(3))
    written = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*written[:2], *written[3:]]))
    assert [one.where for one in verified(file).remarks if one.wrong] == [f"{file}:3"]


def test_garbage_is_found(file: Path) -> None:
    write(file, decided(1), decided(2))
    written = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([written[0], b"garbage\n", *written[1:]]))
    wrong = [one.where for one in verified(file).remarks if one.wrong]
    assert wrong == [f"{file}:2", f"{file}:3"]


def test_a_torn_last_line_is_cut_off_and_said(file: Path) -> None:
    write(file, decided(1), decided(2))
    whole = file.read_bytes()
    cut = whole[:-40]
    file.write_bytes(cut)
    assert verified(file).fits
    write(file, decided(3))
    assert kinds(file) == ["started", "decided", "torn", "gap", "started", "decided"]
    last = cut[cut.rfind(b"\n") + 1 :]
    assert lines(file)[2]["facts"] == {"bytes": len(last), "digest": digest(last)}
    assert verified(file).fits
    assert not verified(file).whole


def test_a_log_of_nothing_but_a_torn_line(file: Path) -> None:
    file.write_bytes(b'{"at":17000')
    write(file)
    assert kinds(file) == ["torn", "started"]
    assert verified(file).whole


def test_a_broken_chain_is_named_and_goes_on(file: Path) -> None:
    write(file, decided(1), decided(2), decided(3))
    file.write_text(file.read_text().replace("ask-2 takes", "ask-2 took"))
    write(file, decided(4))
    assert kinds(file)[-3:] == ["broken", "started", "decided"]
    assert lines(file)[-3]["facts"]["line"] == 4
    # What was broken stays so; what was written since fits.
    assert [one.where for one in verified(file).remarks if one.wrong] == [f"{file}:4"]


def test_an_unreadable_end_is_named_and_goes_on(file: Path) -> None:
    write(file, decided(1))
    with file.open("ab") as end:
        end.write(b"garbage\n")
    write(file, decided(2))
    assert [line["kind"] for line in lines_but(file, 2)] == [
        "started", "decided", "broken", "started", "decided",
    ]  # fmt: skip
    assert [line["number"] for line in lines_but(file, 2)] == [1, 2, 4, 5, 6]


def lines_but(file: Path, place: int) -> list[dict[str, Any]]:
    found = file.read_bytes().splitlines()
    return [json.loads(line) for line in [*found[:place], *found[place + 1 :]]]


@pytest.mark.parametrize("text", ["partitions:\n  - name: default\n", "{}\n", "x", '{"at":1}\n'])
def test_another_file_is_left_alone(file: Path, text: str) -> None:
    file.write_text(text)
    with pytest.raises(RecordError):
        DecisionLog(file, START)
    assert file.read_text() == text


def test_two_servers_do_not_share_a_log(file: Path) -> None:
    first = DecisionLog(file, START)
    with pytest.raises(RecordError):
        DecisionLog(file, START)
    first.close()
    DecisionLog(file, START).close()


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    for wrong in (tmp_path, tmp_path / "none" / "log", Path("/dev/null")):
        with pytest.raises(RecordError):
            DecisionLog(wrong, START)


def test_full_files_are_put_aside_and_the_chain_goes_on(file: Path) -> None:
    told = [decided(number) for number in range(20)]
    write(file, *told, file_max=5_000)
    full = pieces(file)
    assert len(full) > 2
    assert all(5_000 <= one.stat().st_size < 8_000 for one in full)
    assert full[0].name == "decisions.jsonl.0000000001"
    found = verified(file)
    assert found.whole
    assert found.lines == 21
    write(file, decided(20), file_max=5_000)
    assert verified(file).whole
    assert verified(file).lines == 23


def test_files_and_one_file_hold_the_same_bytes(file: Path, tmp_path: Path) -> None:
    told = [decided(number) for number in range(20)]
    write(file, *told, file_max=5_000)
    write(tmp_path / "one", *told)
    whole = b"".join(one.read_bytes() for one in files_of(file))
    assert whole == (tmp_path / "one").read_bytes()


def test_a_server_that_ended_between_two_files(file: Path) -> None:
    write(file, *(decided(number) for number in range(5)), file_max=1)
    file.unlink()
    write(file, decided(6))
    assert verified(file).whole
    assert lines(file)[0]["number"] == 7


def test_a_full_disk_loses_nothing_while_memory_allows(file: Path, disk: Disk) -> None:
    log = DecisionLog(file, START)
    log.add(entry(decided(1), START))
    log.flush()
    disk.space = 100
    for number in range(2, 5):
        log.add(entry(decided(number), START))
        log.flush()
    assert log.failing == "no space left on device"
    assert log.lost == 0
    disk.space = BIG
    log.sync()
    assert log.failing == ""
    log.close()
    assert kinds(file) == ["decided"] * 4
    assert verified(file).whole


def test_what_a_full_disk_loses_is_said(file: Path, disk: Disk) -> None:
    log = DecisionLog(file, START, pending_max=1_500)
    log.add(entry(decided(0), START))
    log.flush()
    disk.space = 0
    for number in range(1, 6):
        log.add(entry(decided(number), START + number))
        log.flush()
    disk.space = BIG
    log.sync()
    log.add(entry(decided(6), START + 6))
    log.close()
    assert kinds(file) == ["decided", "decided", "gap", "decided"]
    assert lines(file)[2]["facts"] == {"lines": 4, "from": START + 2, "to": START + 5}
    assert (log.lost, log.gaps) == (4, 1)
    found = verified(file)
    assert found.fits
    assert (found.missing, found.more, found.whole) == (4, False, False)


def test_entries_that_nobody_could_make_are_said(file: Path) -> None:
    log = DecisionLog(file, START)
    log.miss(START)
    log.miss(START + 2)
    log.add(Entry(START + 3, "decided", {}))
    log.close()
    assert kinds(file) == ["gap", "decided"]
    assert lines(file)[0]["facts"]["lines"] == 2
    assert log.gaps == 1


def test_each_row_of_lost_lines_is_a_gap(file: Path) -> None:
    log = DecisionLog(file, START)
    for number in range(3):
        log.miss(START)
        log.miss(START)
        log.add(entry(decided(number), START))
        log.flush()
    log.close()
    assert kinds(file) == ["gap", "decided"] * 3
    assert (log.lost, log.gaps) == (6, 3)
