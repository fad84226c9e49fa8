"""An ask to simulate: its message for the core, its name for users, and notes about ignored parts of its manifest."""

from dataclasses import dataclass

from evenhand.v1 import simulate_pb2

ASKS_MAX = 1_000
"""Maximum number of asks in one simulation, which is also the core's limit."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the command line that concern all asks of a file."""

    queue: str = ""
    namespace: str = "default"
    priority: int | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """An ask to simulate. `notes` name the parts of its manifest that the simulation ignores."""

    message: simulate_pb2.SimulatedAsk
    partition: str
    notes: tuple[str, ...] = ()
    assumed: tuple[simulate_pb2.Assumption, ...] = ()
    """Values that the file does not give, and on which the answer depends."""

    @property
    def name(self) -> str:
        """The ask's name as users see it."""
        return self.message.ask.allocationKey
