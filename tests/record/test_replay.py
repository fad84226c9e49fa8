"""A replay writes the log of the recorded run again, byte for byte; otherwise it says where the two differ."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from server.core.core import Core
from server.model.events import Event
from server.record.canonical import line
from server.record.chain import Chain, Entry, read_link
from tests.cli.run import Ended, evenhand
from tests.record.stories import Deciding, record, with_decisions
from tests.record.test_log import lines
from tests.simulation.worlds import make_world

ROOT = Path(__file__).parents[2]
SEED = 300_007


@pytest.fixture(autouse=True)
def deciding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make replays decide on the same events as the recorded core does."""
    monkeypatch.setattr("server.record.replay.Core", Deciding)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Provide the folder of a recorded run with three decisions."""
    world = with_decisions(make_world(SEED), (1, 2, 3))
    record(world, tmp_path, Deciding(world.configuration))
    return tmp_path


def replay(folder: Path, *more: str) -> Ended:
    return evenhand("replay", str(folder / "trace"), *more, "-o", "json")


def compared(folder: Path) -> tuple[int, Any]:
    ended = replay(folder, "--compare", str(folder / "log"))
    return ended.code, ended.value()["comparison"]


def test_the_same_log_comes_of_it(folder: Path) -> None:
    ended = replay(folder, "--log", str(folder / "again"))
    assert ended.code == 0
    assert (folder / "again").read_bytes() == (folder / "log").read_bytes()
    assert (folder / "log").read_bytes().count(b'"kind":"decided"') == 3
    value = ended.value()
    assert value["same"] is True
    assert value["preemption"] == {"guaranteed": 3}
    assert value["victims"] == 6
    assert value["ended"] == "the server ended"


def test_the_summary_counts(folder: Path) -> None:
    value = replay(folder).value()
    trace = (folder / "trace").read_text().splitlines()
    kinds = [json.loads(one)["kind"] for one in trace]
    assert value["ticks"] == kinds.count("tick")
    assert value["events"]["ask-added"] == kinds.count("ask-added")
    assert value["decisions"] == json.loads(trace[-1])["decided"]
    assert value["placements"] > 0
    shown = evenhand("replay", str(folder / "trace")).out
    assert "3 guaranteed" in shown
    assert "victims" in shown


def test_a_second_run_in_the_same_log_gives_its_own_lines(folder: Path) -> None:
    world = with_decisions(make_world(SEED + 1), (4,))
    record(world, folder, Deciding(world.configuration))
    assert compared(folder)[0] == 0
    replay(folder, "--log", str(folder / "again"))
    again = (folder / "again").read_bytes()
    assert (folder / "log").read_bytes().endswith(again)
    assert b'"kind":"started"' in again
    # The run before it, which has another one behind it.
    (folder / "trace.previous").rename(folder / "trace")
    assert compared(folder) == (
        0,
        {"same_lines": lines_of_run(folder), "missed_lines": 0, "difference": None},
    )


def lines_of_run(folder: Path) -> int:
    """Return the number of lines of the first run."""
    kinds = [one["kind"] for one in lines(folder / "log")]
    return kinds.index("started", 1)


def test_a_log_in_several_files(folder: Path) -> None:
    written = (folder / "log").read_bytes().splitlines(keepends=True)
    (folder / "log.0000000001").write_bytes(b"".join(written[:3]))
    (folder / "log").write_bytes(b"".join(written[3:]))
    code, found = compared(folder)
    assert (code, found["same_lines"]) == (0, len(written))


def change(file: Path, number: int, old: bytes, new: bytes) -> None:
    """Replace some bytes in one line of a file."""
    written = file.read_bytes().splitlines(keepends=True)
    assert old in written[number - 1]
    written[number - 1] = written[number - 1].replace(old, new)
    file.write_bytes(b"".join(written))


def place_of(folder: Path, kind: str) -> int:
    """Return the line number of the first entry of a kind."""
    return 1 + [one["kind"] for one in lines(folder / "log")].index(kind)


def test_the_first_line_that_differs_is_shown_with_what_differs(folder: Path) -> None:
    place = place_of(folder, "decided") + 1
    change(folder / "log", place, b'"pod-1"', b'"pod-7"')
    code, found = compared(folder)
    assert code == 1
    difference = found["difference"]
    assert difference["where"] == f"{folder / 'log'}:{place}"
    assert difference["parts"] == [
        {"path": "entry.facts.record.victims[1].key", "logged": "pod-7", "replayed": "pod-1"}
    ]
    assert [one["number"] for one in difference["before"]] == [place - 2, place - 1]
    assert found["same_lines"] == place - 1
    shown = evenhand("replay", str(folder / "trace"), "--compare", str(folder / "log"))
    assert shown.code == 1
    assert "victims[1].key" in shown.out


def test_a_log_that_ends_too_early(folder: Path) -> None:
    written = (folder / "log").read_bytes().splitlines(keepends=True)
    (folder / "log").write_bytes(b"".join(written[:-2]))
    code, found = compared(folder)
    assert code == 1
    assert found["difference"]["what"] == "the log ends, the replay goes on"


def test_a_log_that_goes_on(folder: Path) -> None:
    written = (folder / "log").read_bytes().splitlines(keepends=True)
    (folder / "log").write_bytes(b"".join([*written, written[-1]]))
    code, found = compared(folder)
    assert code == 1
    assert found["difference"]["what"] == "the log goes on, the replay ends"


def test_a_gap_in_the_log_is_no_difference(folder: Path) -> None:
    """A run is replayed whose disk took nothing for a while."""
    written = (folder / "log").read_bytes().splitlines(keepends=True)
    place = place_of(folder, "decided")
    chain, told = Chain(), []
    entries = [read_link(one).entry for one in written]
    entries[place : place + 2] = [
        Entry(entries[place].at_ms, "gap", {"lines": 2, "from": 0, "to": 1})
    ]
    for entry in entries:
        told.append(chain.line(entry))
        chain.passed(told[-1])
    (folder / "log").write_bytes(b"".join(told))
    code, found = compared(folder)
    assert (code, found["missed_lines"], found["difference"]) == (0, 2, None)


def test_a_log_of_something_else(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    record(make_world(SEED + 3), other)
    change(other / "log", 1, b'"at":1', b'"at":2')
    ended = replay(folder, "--compare", str(other / "log"))
    assert ended.code == 1
    assert "holds no run" in ended.err
    assert replay(folder, "--compare", str(folder / "none")).code == 1


def test_a_log_that_exists_is_not_touched(folder: Path) -> None:
    before = (folder / "log").read_bytes()
    ended = replay(folder, "--log", str(folder / "log"))
    assert ended.code == 1
    assert (folder / "log").read_bytes() == before


def test_until_an_instant(folder: Path) -> None:
    trace = [json.loads(one) for one in (folder / "trace").read_text().splitlines()]
    ticks = [one["now"] for one in trace if one["kind"] == "tick"]
    middle = ticks[len(ticks) // 2]
    ended = replay(folder, "--until", str(middle), "--compare", str(folder / "log"))
    assert ended.code == 0
    assert ended.value()["to_ms"] == middle
    assert ended.value()["ticks"] == sum(one <= middle for one in ticks)


def test_a_key_is_explained_at_the_end(folder: Path) -> None:
    trace = (folder / "trace").read_text().splitlines()
    added = [one["event"] for one in map(json.loads, trace) if one["kind"] == "application-added"]
    application = str(added[-1]["application_id"])
    told = replay(folder, "--explain", "n1", "--explain", application).value()["explained"]
    assert [one["kind"] for one in told] == ["node", "application"]
    assert "n1" in evenhand("replay", str(folder / "trace"), "--explain", "n1").out


def test_a_core_that_decides_otherwise_is_noticed_without_a_log(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.record.replay.Core", Core)
    ended = replay(folder)
    assert ended.code == 1
    parted = ended.value()["parted"]
    assert parted["recorded"] == parted["replayed"] + 3
    assert evenhand("replay", str(folder / "trace")).code == 1


def test_a_core_that_fails_is_a_finding(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Core):
        def handle(self, event: Event, now: int) -> Any:
            if type(event).__name__ == "AskAdded":
                raise AssertionError("an invariant is broken")
            return super().handle(event, now)

    monkeypatch.setattr("server.record.replay.Core", Broken)
    ended = evenhand("replay", str(folder / "trace"), "--compare", str(folder / "log"))
    assert ended.code == 1
    assert "an invariant is broken" in ended.out
    assert replay(folder).value()["failed_at_line"] > 1


# Bad input ------------------------------------------------------------------------------------------------------


def fault(folder: Path, *more: str) -> Ended:
    ended = replay(folder, *more)
    assert ended.code == 1
    assert ended.out == ""
    return ended


def test_a_trace_that_is_cut_off(folder: Path) -> None:
    whole = (folder / "trace").read_bytes()
    (folder / "trace").write_bytes(whole[:-200])
    ended = fault(folder)
    line_ = whole[:-200].count(b"\n") + 1
    assert f"trace:{line_}" in ended.err
    until = ended.err.split("--until ")[1].split()[0]
    assert replay(folder, "--until", until).code == 0


def test_a_trace_without_an_end_is_replayed(folder: Path) -> None:
    written = (folder / "trace").read_bytes().splitlines(keepends=True)
    (folder / "trace").write_bytes(b"".join(written[:-1]))
    ended = replay(folder)
    assert ended.code == 0
    assert ended.value()["ended"] is None


@pytest.mark.parametrize(
    ("number", "old", "new", "said"),
    [
        (1, b'"format":1', b'"format":9', "Evenhand 1.2.3"),
        (1, b'"kind":"trace"', b'"kind":"log"', "no trace"),
        (1, b'"version":"1.2.3"', b'"wersion":"1.2.3"', "no field 'wersion'"),
        (1, b"{", b"[", "not JSON"),
        (2, b'"kind":"manager-registered"', b'"kind":"manager-hired"', "manager-hired"),
        (2, b'"rm_id":"rm"', b'"rm_id":7', "rm_id"),
        (2, b'"rm_id":"rm"', b'"rm_id":1.5', "no whole number"),
        (2, b'"n":2', b'"n":3', "out of order"),
        (2, b'"explicit_sync":', b'"explicit":', "explicit"),
        (2, b'"at":17', b'"at":37', "before"),
        (2, b'"at":1', b'"att":1', "instant"),
        (2, b'"event":{', b'"event":[{', "not JSON"),
    ],
)
def test_a_trace_with_a_bad_line(
    folder: Path, number: int, old: bytes, new: bytes, said: str
) -> None:
    change(folder / "trace", number, old, new)
    ended = fault(folder)
    assert f"{folder / 'trace'}:{number if said != 'before' else number + 1}" in ended.err
    assert said in ended.err
    assert "do:" in ended.err


def test_lines_that_are_exchanged_or_missing(folder: Path) -> None:
    written = (folder / "trace").read_bytes().splitlines(keepends=True)
    (folder / "trace").write_bytes(b"".join([*written[:3], written[4], written[3], *written[5:]]))
    assert "trace:4" in fault(folder).err
    (folder / "trace").write_bytes(b"".join([*written[:3], *written[4:]]))
    assert "trace:4" in fault(folder).err


def test_a_template_that_was_never_written(folder: Path) -> None:
    written = (folder / "trace").read_bytes().splitlines(keepends=True)
    place = next(n for n, one in enumerate(written, 1) if b'"kind":"ask-added"' in one)
    value = json.loads(written[place - 1])
    value["event"]["spec"] = 1
    written[place - 1] = line(value)
    (folder / "trace").write_bytes(b"".join(written))
    assert "line 1 holds no template" in fault(folder).err


def test_a_line_behind_the_end(folder: Path) -> None:
    written = (folder / "trace").read_bytes().splitlines(keepends=True)
    last = json.loads(written[-1])
    last["n"] += 1
    (folder / "trace").write_bytes(b"".join([*written, line(last)]))
    assert "behind the end" in fault(folder).err


@pytest.mark.parametrize("text", ["", "x", "partitions:\n", "[" * 100_000 + "\n", '"a"\n', "{}\n"])
def test_no_trace_at_all(tmp_path: Path, text: str) -> None:
    (tmp_path / "trace").write_text(text)
    assert "evenhand serve --trace" in fault(tmp_path).err


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert "cannot read" in fault(tmp_path).err


# Determinism ----------------------------------------------------------------------------------------------------


def test_other_processes_with_other_hash_seeds_give_the_same_bytes(tmp_path: Path) -> None:
    """A world without made-up decisions, for these run in processes of their own."""
    record(make_world(SEED), tmp_path)
    again = []
    for seed in ("1", "4242"):
        out = tmp_path / f"log-{seed}"
        environment = {
            **os.environ,
            "PYTHONHASHSEED": seed,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "gen")]),
        }
        command = [sys.executable, "-m", "evenhand_cli", "replay", str(tmp_path / "trace")]
        more = ["--log", str(out), "--compare", str(tmp_path / "log")]
        done = subprocess.run(
            [*command, *more], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        again.append(out.read_bytes())
    assert again == [(tmp_path / "log").read_bytes()] * 2


# The log on disk ------------------------------------------------------------------------------------------------


def test_log_verify(folder: Path) -> None:
    ended = evenhand("log", "verify", str(folder / "log"), "-o", "json")
    assert ended.code == 0
    assert ended.value()["whole"] is True
    assert ended.value()["kinds"]["decided"] == 3
    change(folder / "log", place_of(folder, "decided"), b'"pod-1"', b'"pod-7"')
    ended = evenhand("log", "verify", str(folder / "log"))
    assert ended.code == 1
    assert f"{folder / 'log'}:{place_of(folder, 'decided') + 1}" in ended.out
    assert evenhand("log", "verify", str(folder / "none")).code == 1
