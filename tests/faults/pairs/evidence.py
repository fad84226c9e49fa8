"""The evidence of a run with two cores and two shims, from which the judge decides."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from server.record.verify import Verified
from tests.faults.evidence import Evidence, LogPart
from tests.faults.journal import Line


@dataclass
class PairsEvidence:
    """The journal of the API server and of the run, the messages that the shims received, and the state at the end."""

    journal: list[Line] = field(default_factory=list)
    heard: list[Line] = field(default_factory=list)
    """The journal of the shims: their sessions with cores, and the decisions in them."""
    pauses_ms: int = 0
    """Milliseconds in which the run itself, and with it the API server, was not running as planned."""
    settled: bool = True
    settling_ms: int = 0
    durable: bool = False
    verified: dict[str, Verified] = field(default_factory=dict)
    log: dict[str, list[LogPart]] = field(default_factory=dict)
    """The decision log of each core, by run."""
    exits: list[tuple[str, str, int]] = field(default_factory=list)
    api_says: dict[str, str] = field(default_factory=dict)
    """The node of each pod by uid at the end."""
    cores_say: dict[str, dict[str, str]] = field(default_factory=dict)
    """The node of each pod by uid at the end, as each of the two cores has it."""
    terms: list[str] = field(default_factory=list)
    """The term of each message that is in the log of NATS at the end, in the order of the log."""
    complaints: list[str] = field(default_factory=list)
    """The problems that `evenhand doctor` and `evenhand history` found at the end."""
    said: dict[str, str] = field(default_factory=dict)
    """The output of each process."""

    @property
    def run(self) -> Evidence:
        """Return the part that runs of every kind have."""
        return Evidence(journal=self.journal, pauses_ms=self.pauses_ms)

    def of(self, *kinds: str) -> Iterator[Line]:
        """Yield the lines of the journal of these kinds, in their order."""
        return (line for line in self.journal if line["kind"] in kinds)
