"""A log says how many lines a killed run lost, and never fewer than are missing."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.record import ending, mark
from server.record.chain import GAP
from server.record.entries import entry, started
from server.record.log import DecisionLog
from server.record.mark import MAGIC, PAGE_BYTES, mark_of, read_mark
from server.record.record_file import RecordError
from server.record.verify import Verified, files_of, verify
from tests.effort import cases
from tests.record.killing import Run, killed, killed_with_lines_unwritten
from tests.record.test_log import BIG, Disk, kinds, lines
from tests.record.values import START, decided


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "decisions.jsonl"


def start_again(file: Path) -> None:
    """Start the next run, and end it in order."""
    Run(file).end()


def verified(file: Path) -> Verified:
    return verify(files_of(file))


def gaps(file: Path) -> list[dict[str, Any]]:
    return [one["facts"] for one in lines(file) if one["kind"] == GAP]


def test_a_run_that_ended_leaves_nothing_to_say(file: Path) -> None:
    run = Run(file)
    run.decide(1, 2)
    run.end()
    start_again(file)
    assert kinds(file) == ["started", "decided", "decided", "ended", "started", "ended"]
    assert verified(file).whole
    assert verified(file).remarks == []


def test_a_killed_run_of_which_nothing_is_missing(file: Path) -> None:
    def live(_disk: Disk) -> Run:
        run = Run(file)
        run.decide(1, 2)
        run.write()
        return run

    killed(live)
    assert [one.what for one in verified(file).remarks] == ["the last run was killed"]
    start_again(file)
    assert kinds(file) == ["started", "decided", "decided", "killed", "started", "ended"]
    assert verified(file).whole
    assert [one.what for one in verified(file).remarks] == ["the run before this line was killed"]


def test_lines_that_a_killed_run_did_not_write_are_counted(file: Path) -> None:
    killed_with_lines_unwritten(file)
    before = verified(file)
    assert (before.fits, before.missing, before.more, before.whole) == (True, 3, False, False)
    start_again(file)
    assert kinds(file)[-4:] == ["killed", "gap", "started", "ended"]
    assert gaps(file) == [
        {"lines": 3, "from": START + 2, "to": START + 5, "why": ending.KILLED_WHY},
    ]
    after = verified(file)
    assert (after.fits, after.missing, after.more, after.whole) == (True, 3, False, False)


def test_lines_that_waited_for_a_full_disk_are_counted(file: Path) -> None:
    def live(disk: Disk) -> Run:
        run = Run(file, pending_max=3_000)
        disk.space = 500
        for number in range(1, 31):
            run.decide(number)
            run.write()
        return run

    killed(live)
    start_again(file)
    assert kinds(file) == ["started", "torn", "killed", "gap", "started", "ended"]
    assert [one["lines"] for one in gaps(file)] == [30]


def test_gaps_of_the_run_itself_are_not_counted_twice(file: Path) -> None:
    def live(disk: Disk) -> Run:
        run = Run(file, pending_max=3_000)
        disk.space = 0
        for number in range(1, 11):
            run.decide(number)
            run.write()
        disk.space = BIG
        run.decide(11)
        run.write()
        run.decide(12)
        return run

    killed(live)
    start_again(file)
    written = kinds(file).count("decided")
    assert sum(one["lines"] for one in gaps(file)) + written == 12
    assert verified(file).missing == 12 - written


def test_a_disk_that_is_full_to_the_end(file: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        disk = Disk(patch)
        run = Run(file)
        disk.space = 0
        run.decide(1, 2)
        run.end()
    start_again(file)
    assert kinds(file) == ["started", "gap", "started", "ended"]
    assert [(one["lines"], one["why"]) for one in gaps(file)] == [(2, ending.FULL_WHY)]


def test_what_is_missing_is_carried_over_runs_that_could_not_say_so(file: Path) -> None:
    """Three runs on a full disk, each killed; the last one has space."""

    def live(disk: Disk) -> Run:
        disk.space = 0 if file.exists() else BIG
        run = Run(file)
        disk.space = 0
        run.decide(1, 2)
        run.write()
        return run

    for _ in range(3):
        killed(live)
    start_again(file)
    assert kinds(file) == ["started", "killed", "gap", "started", "ended"]
    assert [one["lines"] for one in gaps(file)] == [6]
    start_again(file)
    assert len(gaps(file)) == 1


def test_another_boot_leaves_the_number_open(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def live(_disk: Disk) -> Run:
        run = Run(file)
        run.decide(1)
        run.write()
        return run

    monkeypatch.setattr("server.record.mark.boot_id", lambda: "an earlier boot")
    killed(live)
    monkeypatch.undo()
    assert (verified(file).missing, verified(file).more) == (0, True)
    start_again(file)
    assert gaps(file) == [
        {"lines": 0, "more": True, "from": START + 1, "to": START + 1, "why": ending.RESTARTED_WHY}
    ]
    assert not verified(file).whole


def test_an_orderly_end_before_another_boot_is_whole(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.record.mark.boot_id", lambda: "an earlier boot")
    start_again(file)
    monkeypatch.undo()
    start_again(file)
    assert kinds(file) == ["started", "ended"] * 2
    assert verified(file).whole


def test_a_killed_run_without_a_mark_leaves_the_number_open(file: Path) -> None:
    def live(_disk: Disk) -> Run:
        run = Run(file)
        run.decide(1)
        run.write()
        return run

    killed(live)
    mark_of(file).unlink()
    found = verified(file)
    assert found.whole
    assert "has no end" in found.remarks[0].what
    start_again(file)
    assert kinds(file)[2:4] == ["killed", "gap"]
    assert (gaps(file)[0]["lines"], gaps(file)[0]["more"]) == (0, True)


def test_an_old_log_is_not_guilty(file: Path) -> None:
    """A log of a version that wrote neither a mark nor an end."""
    log = DecisionLog(file, START)
    log.note(started(START, "0.1", "", 1))
    log.add(entry(decided(1), START + 1))
    log.close()
    mark_of(file).unlink()
    assert verified(file).whole
    assert verified(file).remarks == []
    start_again(file)
    assert kinds(file) == ["started", "decided", "started", "ended"]
    assert verified(file).whole


def test_a_new_log_in_the_place_of_a_whole_one(file: Path) -> None:
    start_again(file)
    file.unlink()
    start_again(file)
    assert kinds(file) == ["started", "ended"]


def test_the_end_of_a_whole_log_was_cut_off(file: Path) -> None:
    run = Run(file)
    run.decide(1, 2, 3)
    run.end()
    whole = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(whole[:2]))
    found = verified(file)
    assert found.fits
    assert (found.missing, found.more) == (3, True)
    start_again(file)
    assert gaps(file)[0]["why"] == ending.CUT_WHY


def test_a_log_that_is_written_is_not_judged(file: Path) -> None:
    run = Run(file)
    run.decide(1)
    found = verified(file)
    assert found.whole
    assert "is writing" in found.remarks[0].what
    run.end()


def test_files_that_were_put_aside_count(file: Path) -> None:
    def live(_disk: Disk) -> Run:
        run = Run(file, file_max=2_000)
        for number in range(1, 8):
            run.decide(number)
            run.write()
        run.decide(8, 9)
        return run

    killed(live)
    start_again(file)
    assert verified(file).fits
    assert verified(file).missing == 2


@pytest.mark.parametrize("text", ["decisions", "{}\n"])
def test_another_file_is_no_mark(file: Path, text: str) -> None:
    mark_of(file).write_text(text)
    with pytest.raises(RecordError):
        DecisionLog(file, START)
    assert mark_of(file).read_text() == text
    mark_of(file).unlink()
    start_again(file)


def test_a_mark_that_cannot_be_had_stops_nothing(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int, _start: int, _size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    run = Run(file)
    run.decide(1)
    assert "no space left" in run.log.uncounted
    run.end()
    assert kinds(file) == ["started", "decided", "ended"]
    assert verified(file).whole


def test_a_mark_has_its_place_on_the_disk_from_the_start(file: Path) -> None:
    start_again(file)
    found = mark_of(file).stat()
    assert found.st_size == PAGE_BYTES
    assert found.st_blocks * 512 >= PAGE_BYTES
    assert found.st_mode & 0o007 == 0


STEPS = st.lists(st.sampled_from(("decide", "write", "full", "space", "again")), max_size=24)
CUT_LOG = st.floats(0, 1)
HURT_MARK = st.none() | st.tuples(
    st.sampled_from(("cut", "zero", "flip")), st.integers(0, PAGE_BYTES - 1)
)


@settings(max_examples=cases(150), deadline=None)
@given(STEPS, st.none() | CUT_LOG, HURT_MARK)
def test_never_fewer_than_are_missing(
    steps: list[str], cut: float | None, hurt: tuple[str, int] | None
) -> None:
    """Runs that are killed anywhere, on disks that are full or not, and whose files are hurt afterwards."""
    folder = Path(tempfile.mkdtemp())
    try:
        file = folder / "log"
        given_away = _live(steps, file)
        _hurt(file, cut, hurt)
        before = verified(file)
        if not before.lines and read_mark(file) is None:
            return  # Nothing is left that could say anything.
        start_again(file)
        after = verified(file)
        stand = after.kinds["decided"]
        assert after.fits
        assert after.more or stand + after.missing >= given_away
        if cut is None and hurt is None:
            assert (stand + after.missing, after.more) == (given_away, False)
        if hurt is None:
            assert (before.missing, before.more) == (after.missing, after.more)
        start_again(file)
        assert verified(file).missing == after.missing
    finally:
        shutil.rmtree(folder)


def _live(steps: list[str], file: Path) -> int:
    """Run the steps in processes that are killed, and return how many lines were handed over."""
    runs = " ".join(steps).split("again")
    number = 0
    for run in runs:
        killed(_one_run(file, run.split(), number))
        number += run.count("decide")
    return number


def _one_run(file: Path, steps: list[str], number: int) -> Callable[[Disk], Run]:
    def live(disk: Disk) -> Run:
        disk.space = 700 if steps[:1] == ["full"] else BIG
        run, count = Run(file, pending_max=1_500, file_max=4_000), number
        for step in steps:
            if step == "decide":
                count += 1
                run.decide(count)
            elif step == "write":
                run.write()
            else:
                disk.space = 700 if step == "full" else BIG
        return run

    return live


def _hurt(file: Path, cut: float | None, hurt: tuple[str, int] | None) -> None:
    if cut is not None:
        whole = file.read_bytes()
        file.write_bytes(whole[: int(len(whole) * cut)])
    if hurt is not None:
        how, place = hurt
        text = bytearray(mark_of(file).read_bytes())
        if how == "cut":
            del text[place:]
        elif how == "zero":
            text[place:] = bytes(len(text) - place)
        elif place >= len(MAGIC):
            text[place] ^= 0xFF
        mark_of(file).write_bytes(text)


def test_a_mark_is_read_by_all_who_may(file: Path) -> None:
    assert read_mark(file) is None
    start_again(file)
    found = read_mark(file)
    assert found is not None
    assert (found.ended, found.durable, found.damaged) == (True, False, False)
    assert found.boot == mark.boot_id()
