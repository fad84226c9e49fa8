"""The values of reports on the settings of a queue: the settings with their origin, and the queues from which the queue may claim."""

import enum
from dataclasses import dataclass


class Origin(enum.StrEnum):
    """The source of the value of a setting."""

    HERE = "here"
    INHERITED = "inherited"
    DEFAULT = "default"
    TEMPLATE = "template"
    TAG = "tag"
    """A tag of an application, such as the annotation of its namespace."""


@dataclass(frozen=True, slots=True)
class SettingReport:
    """A setting in force. ``queue`` is the queue from which the value is inherited, or whose template set the value.

    ``value`` is written as in `queues.yaml`. If the value is an amount of a resource, ``resource_type`` and ``amount`` have the
    type and the exact amount. ``note`` says why the value has no effect.
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
    """The queues from which a queue's asks may claim pods, and the queues that may claim the queue's own pods (G2, G3, G5).

    If a list would contain a queue and all queues below it, the list names only the upper queue. ``scope`` is the nearest
    fence on the path of the queue, else the root: claims for asks of the queue find victims only inside it. ``fences`` has the
    fences on the path of the queue, from the nearest fence up. ``disabled`` says that the asks of the queue claim nothing, and
    that no queue claims its pods. ``claims`` says that queues are entitled to shares by weight, or that at least one leaf of
    the queue has a guarantee on its path up to ``scope``. ``claims_inside`` says that the queues below this queue may claim
    from each other. ``unguaranteed`` says that fences allow other queues to claim the pods of the queue, but that none of
    these other queues has a guarantee.
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
