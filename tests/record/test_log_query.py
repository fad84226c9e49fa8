"""`evenhand log query` finds in a decision log what the core decided, in its latest state."""

from pathlib import Path

import pytest

from server.core.core import Core
from server.core.queries import known_decisions
from server.model.records import DecisionRecord
from server.record.query import Wanted, read_decisions
from server.record.recording import Recording
from server.record.start import Start, begin
from server.record.verify import files_of
from tests.cli.run import evenhand
from tests.effort import cases
from tests.record.preempting import Driver, configuration
from tests.record.values import START


def written(path: Path, seed: int) -> list[DecisionRecord]:
    """Write the log of a random story; return the decisions that the core has at its end."""
    core = Core(configuration(12))
    recording = Recording(core, lambda: core.state.revision)
    begin(recording, Start(START, "1", None, None), path, None, durable=False)
    Driver(seed, recording).live(40)
    recording.close()
    return list(known_decisions.decisions(core, "default", ""))


@pytest.mark.parametrize("seed", range(cases(20, least=3)))
def test_the_log_has_the_decisions_of_the_core(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    records = written(path, seed)
    found = read_decisions(files_of(path))
    assert found.unreadable == 0
    by_id = {one.decision_id: one for one in found.records}
    assert records
    for one in records:
        other = by_id[one.decision_id]
        assert (other.state, other.policy, other.ended_ms) == (one.state, one.policy, one.ended_ms)
        assert set(other.vetoed) == set(one.vetoed)


def test_filters_choose_decisions(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    written(path, 5)
    every = read_decisions(files_of(path)).records
    one = next(each for each in every if each.victims and each.beneficiaries)
    victim, gets = one.victims[0], one.beneficiaries[0]
    for wanted in (
        Wanted(victim=victim.key),
        Wanted(victim=victim.application_id),
        Wanted(beneficiary=gets.key),
        Wanted(queue=victim.queue),
        Wanted(queue="root"),
        Wanted(policy=one.policy, state=one.state.value),
        Wanted(since_ms=one.at_ms, until_ms=one.at_ms),
    ):
        found = read_decisions(files_of(path)).matching(wanted)
        assert one in found
        assert found == [each for each in every if wanted.matches(each)]
    for wanted in (
        Wanted(victim="nobody"),
        Wanted(beneficiary=victim.key),
        Wanted(queue="root.lo"),
        Wanted(until_ms=1),
        Wanted(since_ms=every[-1].at_ms + 1),
    ):
        assert read_decisions(files_of(path)).matching(wanted) == []


def test_the_command_lists_them(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    written(path, 5)
    every = read_decisions(files_of(path)).records
    value = evenhand("log", "query", str(path), "-o", "json").value()
    assert [each["decision_id"] for each in value["decisions"]] == [
        each.decision_id for each in every
    ]
    state = every[0].state.value
    table = evenhand("log", "query", str(path), "--state", state, width=80)
    assert table.code == 0
    assert every[0].decision_id in table.out
    assert max(map(len, table.out.splitlines())) <= 80
    none = evenhand("log", "query", str(path), "--queue", "root.nothing")
    assert (none.code, none.out.strip()) == (0, "no decision of the log matches")


def test_the_command_filters_by_everything_that_it_names(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    written(path, 5)
    every = read_decisions(files_of(path)).records
    one = next(each for each in every if each.victims and each.beneficiaries)
    filters = ["--policy", one.policy, "--victim", one.victims[0].key]
    more = ["--for", one.beneficiaries[0].key, "--since", str(one.at_ms)]
    asked = ["log", "query", str(path), *filters, *more, "--until", str(one.at_ms)]
    found = evenhand(*asked, "--no-headers", "--sort-by", "policy")
    assert one.decision_id in found.out
    value = evenhand(*asked, "--output", "json").value()
    assert one.decision_id in [each["decision_id"] for each in value["decisions"]]
    assert {each["policy"] for each in value["decisions"]} == {one.policy}


def test_a_damaged_line_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    written(path, 5)
    path.write_bytes(path.read_bytes() + b"{torn\n")
    ended = evenhand("log", "query", str(path), "-o", "json")
    assert ended.value()["unreadable"] == 1
    assert "1 line cannot be read" in ended.err


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--state", "gone"], "`gone` is none of planned, ordered"),
        (["--since", "soon"], "`soon` is no instant"),
    ],
)
def test_bad_filters_are_refused(options: list[str], why: str, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    written(path, 5)
    ended = evenhand("log", "query", str(path), *options)
    assert ended.code == 2
    assert why in " ".join(ended.err.split())


def test_a_missing_log_is_a_fault(tmp_path: Path) -> None:
    ended = evenhand("log", "query", str(tmp_path / "none"))
    assert ended.code == 1
    assert "there is no" in ended.err
