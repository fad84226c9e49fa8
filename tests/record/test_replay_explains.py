"""`evenhand replay --explain POD` for a pod that was evicted in a real record: the answer has its decision."""

from pathlib import Path
from typing import Any

import pytest

from server.core.core import Core
from server.core.queries import known_decisions
from server.model.records import DecisionRecord
from server.record.recording import Recording
from server.record.start import Start, begin
from tests.cli.run import evenhand
from tests.record.preempting import Driver, configuration
from tests.record.values import START

STEPS = 60
SEED = 5


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[DecisionRecord]]:
    """Provide the trace of a full cluster with claims, and the decisions that the recorded core still knows."""
    folder = tmp_path_factory.mktemp("record")
    core = Core(configuration(30))
    recording = Recording(core, lambda: core.state.revision)
    begin(recording, Start(START, "1.2.3", configuration(30)), folder / "log", folder / "trace")
    Driver(SEED, recording).live(STEPS)
    recording.close()
    return folder / "trace", known_decisions.decisions(core)


def explained(trace: Path, *keys: str) -> list[dict[str, Any]]:
    wanted = [word for key in keys for word in ("--explain", key)]
    ended = evenhand("replay", str(trace), *wanted, "-o", "json")
    assert ended.code == 0, ended.err
    return list(ended.value()["explained"])


def last_of(records: list[DecisionRecord]) -> dict[str, DecisionRecord]:
    """By key of a victim that is gone the last decision that evicted it."""
    return {key: one for one in records for key in one.confirmed}


def test_an_evicted_pod_is_told_its_decision(recorded: tuple[Path, list[DecisionRecord]]) -> None:
    trace, records = recorded
    evicted = last_of(records)
    claims = [key for key, one in evicted.items() if one.policy == "guaranteed"]
    assert len(claims) >= 3, "hardly anybody was evicted"
    for key, told in zip(claims, explained(trace, *claims), strict=True):
        record = evicted[key]
        assert (told["kind"], told["key"]) == ("decision", record.decision_id)
        assert told["evicted"]["allocation_key"] == key
        victim = next(one for one in record.victims if one.key == key)
        claimant = record.beneficiaries[0]
        answer = told["lines"][0]
        assert answer.startswith(
            f"It was evicted from queue {victim.queue} on node {victim.node_id}"
        )
        assert f"by decision {record.decision_id} (policy guaranteed): {victim.because}" in answer
        assert f"queue {victim.queue} held " in answer
        assert [one["allocation_key"] for one in told["decision"]["beneficiaries"]] == [
            claimant.key
        ]
        assert f"{key} was number " in told["decision"]["why_these"][0]


def test_every_evicted_pod_is_known(recorded: tuple[Path, list[DecisionRecord]]) -> None:
    trace, records = recorded
    evicted = last_of(records)
    policies = {one.policy for one in evicted.values()}
    assert policies >= {"guaranteed", "quota"}, policies
    told = explained(trace, *evicted)
    assert {one["kind"] for one in told} == {"decision"}
    for key, one in zip(evicted, told, strict=True):
        assert one["key"] == evicted[key].decision_id


def test_people_read_rule_claimant_and_numbers(recorded: tuple[Path, list[DecisionRecord]]) -> None:
    trace, records = recorded
    key, record = next(
        (key, one) for key, one in last_of(records).items() if one.policy == "guaranteed"
    )
    out = " ".join(evenhand("replay", str(trace), "--explain", key, width=80).out.split())
    assert f"It was evicted from queue {record.victims[0].queue}" in out
    assert f"for {record.beneficiaries[0].key} of root." in out
    assert "cores guaranteed (deciding)" in out
    assert "its queue is over its guarantee" in out
    assert "order" in out
    assert "unknown" not in out
