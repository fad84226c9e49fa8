"""What is known of a run from outside: all that the judge judges by."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from server.record.verify import Verified
from tests.faults.journal import Line


class Window(NamedTuple):
    """A time in which a fault was in force, until the core was back."""

    kind: str
    from_ms: int
    to_ms: int


class Replay(NamedTuple):
    """How the replay of one run's trace ended."""

    trace: str
    code: int
    said: str


@dataclass
class Evidence:
    """All of it. `pauses_ms`: for how long the driver itself did not run when it should have."""

    journal: list[Line] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)
    pauses_ms: int = 0
    settled: bool = True
    settling_ms: int = 0
    verified: Verified = field(default_factory=Verified)
    decided: set[str] = field(default_factory=set)
    durable: bool = False
    replays: list[Replay] = field(default_factory=list)
    exits: list[tuple[str, int]] = field(default_factory=list)
    resident_mib: list[tuple[int, int]] = field(default_factory=list)
    """Samples: the instant, and how much memory the core had resident."""
    core_said: str = ""
    others_said: str = ""
    codes: list[str] = field(default_factory=list)
    doctor: tuple[int, str] = (0, "")


def decided_in(lines: Iterable[bytes]) -> set[str]:
    """Return the decisions that stand in the lines of a decision log."""
    entries = [json.loads(line) for line in lines if line.endswith(b"\n")]
    return {
        entry["facts"]["record"]["decision_id"] for entry in entries if entry["kind"] == "decided"
    }
