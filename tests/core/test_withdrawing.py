"""The cost per tick of finding the marked victims that may stay (J11)."""

from collections.abc import Sequence

import pytest

from evenhand_cli.story.words import MANAGER, START, Known, events
from server.config import load
from server.core.core import Core
from server.core.preemption import decision_records, withdrawal
from server.model.events import ManagerRegistered
from server.model.records import DecisionRecord
from server.state.applications import Ask
from server.state.partition import Partition

MEMBERS = 12
SOFTLY = """
partitions:
  - name: default
    preemption: {policies: [required-node, guaranteed, job], delivery: soft, expiry: 60s}
    queues:
      - name: root
        submitacl: "*"
        queues:
          - {name: a, resources: {guaranteed: {vcore: 100}}}
          - {name: b}
"""
HAPPENS = (
    *(f"node n{number} vcore=4000" for number in range(MEMBERS)),
    "app x root.a",
    "app y root.b",
    *(f"existing y{number} y n{number} vcore=4000" for number in range(MEMBERS)),
    *(f"ask g{number} x vcore=4000 job=g/{MEMBERS}" for number in range(MEMBERS)),
)


def marked() -> tuple[Core, Known]:
    """Return a core with a gang for whose members as many victims are marked."""
    configuration, _ = load(SOFTLY, "test")
    assert configuration is not None
    core, known = Core(configuration), Known()
    core.handle(ManagerRegistered(MANAGER), START)
    for line in HAPPENS:
        for event in events(line, known):
            core.handle(event, START)
    quiet(core, START)
    return core, known


def quiet(core: Core, now: int) -> None:
    """Ticks until none asks for more."""
    while core.tick(now).more:
        pass


def test_what_the_victims_of_a_job_wait_for_is_looked_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each victim is evicted for all members: looking at them for each victim would take the square of them."""
    core, _ = marked()
    quiet(core, START + 60_000)  # expired and replanned
    partition = core.state.partitions["default"]
    assert len(partition.decisions.marked) == MEMBERS
    looks: list[str] = []
    look = withdrawal._waits_without_decision

    def counted(partition: Partition, key: str) -> bool:
        looks.append(key)
        return look(partition, key)

    monkeypatch.setattr(withdrawal, "_waits_without_decision", counted)
    core.tick(START + 60_001)
    assert sorted(looks) == sorted(f"g{number}" for number in range(MEMBERS))


def test_all_who_stay_of_one_decision_are_written_to_its_record_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Written one by one the record would be copied for each of them: the square of them."""
    core, known = marked()
    writes: list[int] = []
    write = decision_records.withdrawn

    def counted(record: DecisionRecord, keys: Sequence[str]) -> DecisionRecord:
        writes.append(len(keys))
        return write(record, keys)

    monkeypatch.setattr(decision_records, "withdrawn", counted)
    for event in events("release g0", known):
        core.handle(event, START)
    quiet(core, START)
    assert writes == [MEMBERS]
    (record,) = core.state.partitions["default"].decisions.records.values()
    assert sorted(record.withdrawn) == sorted(f"y{number}" for number in range(MEMBERS))


def test_whom_an_open_decision_needs_is_looked_at_when_capacity_was_freed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The victims may be marked for long, and until then nothing of that changes."""
    core, known = marked()
    looks: list[int] = []
    look = withdrawal._is_needed

    def counted(needs: withdrawal._Needs, together: list[Ask]) -> bool:
        looks.append(len(together))
        return look(needs, together)

    monkeypatch.setattr(withdrawal, "_is_needed", counted)
    quiet(core, START)
    looks.clear()
    quiet(core, START + 1_000)
    assert not looks
    for event in events("node n99 vcore=1000", known):
        core.handle(event, START + 2_000)
    quiet(core, START + 2_000)
    assert len(looks) == MEMBERS
