"""The settings of a queue with their origin, and the queues that its fences let it claim from, as values for reports."""

import enum
from dataclasses import dataclass


class Origin(enum.StrEnum):
    """The origin of the value of a setting."""

    HERE = "here"
    INHERITED = "inherited"
    DEFAULT = "default"
    TEMPLATE = "template"
    TAG = "tag"
    """A tag of an application, such as the annotation of its namespace."""


@dataclass(frozen=True, slots=True)
class SettingReport:
    """A setting in force. ``queue`` is the queue from which it is inherited, or whose template set it.

    ``value`` is written as in `queues.yaml`. For an amount of a resource, its type and exact amount are given as well. ``note``
    says what keeps the value from having an effect.
    """

    name: str
    value: str
    origin: Origin
    queue: str = ""
    note: str = ""
    resource_type: str = ""
    amount: int = 0


@dataclass(frozen=True, slots=True)
class ReachReport:
    """The queues that a queue's asks may claim pods from, and the queues that may claim its own pods (G2, G3, G5).

    If a queue and all queues below it belong to a list, the list names only the queue at the top. ``scope`` is the scope root
    of the queue. ``fences`` are the fences on its path up, nearest first. ``disabled`` says that its asks claim nothing, and
    that nobody claims its pods. ``claims`` says that some of its leaves can be below a guarantee, or that shares go by weight.
    ``claims_inside`` says that queues below it may claim from each other. ``unguaranteed`` says that fences let other queues
    claim its pods, but that none of these queues has a guarantee.
    """

    scope: str
    fences: tuple[str, ...]
    disabled: bool
    may_claim_from: tuple[str, ...]
    may_be_claimed_by: tuple[str, ...]
    claims: bool = True
    claims_inside: bool = False
    unguaranteed: bool = False


@dataclass(frozen=True, slots=True)
class SettingsReport:
    """A queue with all settings that are in force for it."""

    path: str
    leaf: bool
    managed: bool
    settings: tuple[SettingReport, ...]
