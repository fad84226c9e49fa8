"""Messages of the core to the shim, as small values that `translate.wire` reads from the streams."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from shim_client.reports import TerminationType


class Waiting(IntEnum):
    """The reason why an ask is not placed; the numbers are the published interface's."""

    SKIPPED = 1
    FAILED = 4


@dataclass(frozen=True, slots=True)
class Placed:
    """The placement of an ask on a node."""

    key: str
    node: str
    application: str = ""
    partition: str = ""


@dataclass(frozen=True, slots=True)
class Released:
    """An order to end an allocation or ask, or the confirmation of its end."""

    key: str
    termination: TerminationType
    application: str = ""
    partition: str = ""
    message: str = ""
    decision: str = ""
    beneficiary: str = ""
    nodes: tuple[str, ...] = ()
    delivery: str = ""
    """The way in which a victim is evicted: "delete" (also when empty), "evict" or "soft"."""


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """A soft eviction that is withdrawn: its victim stays, because its capacity is no longer needed (J11)."""

    key: str
    decision: str
    reason: str = ""
    partition: str = ""


@dataclass(frozen=True, slots=True)
class PodRefused:
    """An ask or allocation that the core refused."""

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
    """A change of an application's state in the core."""

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
    """The node was refused because its partition belongs to another resource manager."""


@dataclass(frozen=True, slots=True)
class StillWaiting:
    """The reason why an ask waits; sent only when it changes."""

    key: str
    state: Waiting
    reason: str


@dataclass(frozen=True, slots=True)
class ConfigurationAnswer:
    """The core's answer to a queue configuration: whether it is in force, and what there is to report, a line each."""

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
