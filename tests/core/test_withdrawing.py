"""What it costs in each tick to know which marked victims may stay (J11)."""

import pytest

from server.books.partition import Partition
from server.config import load
from server.core import withdrawing
from server.core.core import Core
from server.model.events import ManagerRegistered
from tests.stories.words import MANAGER, START, Known, events

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


def test_what_the_victims_of_a_job_wait_for_is_looked_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of its victims goes for all members: looked at for each victim that would be the square of them."""
    configuration, _ = load(SOFTLY, "test")
    assert configuration is not None
    core, known = Core(configuration), Known()
    core.handle(ManagerRegistered(MANAGER), START)
    for line in HAPPENS:
        for event in events(line, known):
            core.handle(event, START)
    for now in (START, START + 60_000):  # ordered, and expired and planned anew
        while core.tick(now).more:
            pass
    partition = core.state.partitions["default"]
    assert len(partition.marked) == MEMBERS
    looks: list[str] = []
    look = withdrawing._is_planned_anew

    def counted(partition: Partition, key: str) -> bool:
        looks.append(key)
        return look(partition, key)

    monkeypatch.setattr(withdrawing, "_is_planned_anew", counted)
    core.tick(START + 60_001)
    assert sorted(looks) == sorted(f"g{number}" for number in range(MEMBERS))
