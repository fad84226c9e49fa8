"""What the core tells the shim: small values that `translate.wire` reads from the streams."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from shim_client.reports import TerminationType


class Waiting(IntEnum):
    """Why an ask is not placed; the numbers are the published interface's."""

    SKIPPED = 1
    FAILED = 4


@dataclass(frozen=True, slots=True)
class Placed:
    """An ask got a node."""

    key: str
    node: str
    application: str = ""
    partition: str = ""


@dataclass(frozen=True, slots=True)
class Released:
    """An allocation or ask has to go, or its end is confirmed."""

    key: str
    termination: TerminationType
    application: str = ""
    partition: str = ""
    message: str = ""
    decision: str = ""
    beneficiary: str = ""
    nodes: tuple[str, ...] = ()
    delivery: str = ""
    """How a victim goes: "delete" (also when empty), "evict" or "soft"."""


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """A victim of a soft eviction stays after all: nobody needs it gone any more (J11)."""

    key: str
    decision: str
    reason: str = ""
    partition: str = ""


@dataclass(frozen=True, slots=True)
class PodRefused:
    """An ask or allocation that the core did not take."""

    key: str
    reason: str


@dataclass(frozen=True, slots=True)
class ApplicationAnswer:
    """The core's answer to a new application; `reason` is empty when it was accepted."""

    application: str
    accepted: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ApplicationState:
    """An application changed its state in the core."""

    application: str
    state: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """The core's answer to a new node; `reason` is empty when it was accepted."""

    node: str
    accepted: bool
    reason: str = ""
    is_owned: bool = False
    """Refused because its partition belongs to another resource manager."""


@dataclass(frozen=True, slots=True)
class StillWaiting:
    """Why an ask waits; comes only when the reason changes."""

    key: str
    state: Waiting
    reason: str


@dataclass(frozen=True, slots=True)
class ConfigurationAnswer:
    """Whether a queue configuration is in force now, and what is to be said of it, a line each."""

    text: str
    applied: bool
    problems: tuple[str, ...] = ()


Decision = (
    Placed
    | Released
    | Withdrawn
    | PodRefused
    | ApplicationAnswer
    | ApplicationState
    | NodeAnswer
    | StillWaiting
    | ConfigurationAnswer
)
