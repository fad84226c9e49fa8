"""An ask to simulate, with what a person calls it and what has to be said about it."""

from dataclasses import dataclass

from evenhand.v1 import simulate_pb2

ASKS_MAX = 1_000
"""Asks in one simulation; the core takes no more."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says for all asks of a file."""

    queue: str = ""
    namespace: str = "default"
    priority: int | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """One ask. `notes` say what of its manifest the simulation does not follow."""

    message: simulate_pb2.SimulatedAsk
    partition: str
    notes: tuple[str, ...] = ()
    assumed: tuple[simulate_pb2.Assumption, ...] = ()
    """What the file does not say and the answer rests on."""

    @property
    def name(self) -> str:
        """What people call it."""
        return self.message.ask.allocationKey
