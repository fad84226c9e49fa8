"""`evenhand log verify`: what a user reads about a log with missing lines."""

from pathlib import Path

import pytest

from server.record.mark import mark_of
from tests.cli.run import evenhand
from tests.record.killing import killed_with_lines_unwritten
from tests.record.test_ending import start_again


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Provide the log of a run that was killed with three of its five lines unwritten."""
    file = tmp_path / "decisions.jsonl"
    killed_with_lines_unwritten(file)
    return file


def test_missing_lines_are_named_before_the_next_run_and_after_it(file: Path) -> None:
    for place in (f"{file}: ", f"{file}:5: "):
        ended = evenhand("log", "verify", str(file), width=200)
        assert ended.code == 1
        assert f"{place}error: 3 lines are missing: the process was killed (" in ended.out
        assert "every line fits the one before it, but 3 lines are missing" in ended.out
        start_again(file)


def test_the_output_for_scripts_has_all_of_it(file: Path) -> None:
    start_again(file)
    ended = evenhand("log", "verify", str(file), "-o", "json")
    assert ended.code == 1
    value = ended.value()
    told = {name: value[name] for name in ("whole", "fits", "missing", "more_missing")}
    assert told == {"whole": False, "fits": True, "missing": 3, "more_missing": False}
    missing = [one["missing"] for one in value["remarks"] if one["missing"]]
    assert missing[0]["lines"] == 3
    assert missing[0]["why"] == "the process was killed"


def test_an_unknown_number_is_said_to_be_unknown(file: Path) -> None:
    mark_of(file).unlink()
    assert evenhand("log", "verify", str(file)).code == 0
    start_again(file)
    ended = evenhand("log", "verify", str(file))
    assert ended.code == 1
    assert "but lines may be missing" in ended.out
    value = evenhand("log", "verify", str(file), "-o", "json").value()
    assert (value["missing"], value["more_missing"]) == (0, True)
