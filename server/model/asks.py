"""The values of an ask: the values that all pods of one template share, and the values that differ from pod to pod."""

import enum
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Final

from server.model.policies import JOB
from server.model.quota import PreemptionSettings
from server.model.resources import Resource

PRIORITY_MIN: Final = -(1 << 31)
PRIORITY_MAX: Final = (1 << 31) - 1
AVOIDED_NODES_MAX: Final = 32
"""The largest number of nodes that one ask avoids after SCHEDULING_FAILED_ON_RM (design 1.8).

If an ask avoids more nodes, the node that was added first is dropped.
"""


class Protection(enum.IntEnum):
    """The levels of protection (V3)."""

    NORMAL = 0
    PREFER_NOT = 1
    FIRM = 2
    UNTOUCHABLE = 3


class Generation(enum.IntEnum):
    """The form of the published interface that a client uses (design 1.1).

    The core answers in the form in which the client sent the key of the ask or allocation.
    """

    ALLOCATION = 0
    ASK = 1


class Operator(enum.StrEnum):
    """The operators of a node selector requirement, spelled as Kubernetes spells them."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


@dataclass(frozen=True, slots=True)
class Requirement:
    """A node selector requirement on a label.

    In ``match_fields``, the requirement applies to ``metadata.name`` instead of a label.
    """

    key: str
    operator: Operator
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Term:
    """Requirements that must all hold. A constraint with several terms holds if at least one term holds."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration of taints. An empty key with the operator Exists tolerates all taints. An empty effect tolerates all effects.

    ``operator`` is Exists, Equal, Gt or Lt. Gt and Lt compare the taint's value with ``value`` as whole numbers.
    """

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True, order=True)
class Taint:
    """A taint of a node. Only the effects NoSchedule and NoExecute repel pods."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class HostPort:
    """A host port of a pod, which no other pod on the same node may use at the same address.

    An address that is empty, `0.0.0.0` or `::` means all addresses of the node.
    """

    port: int
    protocol: str = "TCP"
    host_ip: str = ""


@dataclass(frozen=True, slots=True)
class Constraints:
    """The node constraints of an ask (design 1.8 and 6.10).

    If all fields are empty, the ask may run on every schedulable node that has no taint with the effect NoSchedule or
    NoExecute.
    """

    node_selector: tuple[tuple[str, str], ...] = ()
    required_terms: tuple[Term, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    node_name: str = ""
    host_ports: tuple[HostPort, ...] = ()
    allowed_nodes: tuple[str, ...] = ()
    excluded_nodes: tuple[str, ...] = ()
    required_node: str = ""


UNCONSTRAINED: Final = Constraints()


@dataclass(frozen=True, slots=True)
class PreferredTerm:
    """A term that adds its weight to the preference score of each node that satisfies it."""

    weight: int
    term: Term


@dataclass(frozen=True, slots=True)
class GroupPreference:
    """A preference to run near the pods of a group (positive weight) or apart from them (negative weight).

    The preference applies to allocations that have a preference with the same group and topology key. Each such allocation adds
    the weight to all nodes in its topology domain, which are the nodes with the same value of the label ``topology_key``.
    """

    group: str
    topology_key: str
    weight: int


@dataclass(frozen=True, slots=True)
class Preferences:
    """The preferences of an ask among the nodes that can take it (design 6.15)."""

    terms: tuple[PreferredTerm, ...] = ()
    groups: tuple[GroupPreference, ...] = ()


NO_PREFERENCES: Final = Preferences()

UNSIZED: Final = 1 << 30
"""The ``min_members`` of a gang without a declared size while more members are awaited.

The number is larger than the size of any gang, so that the gang does not count as complete (J1).
"""


@dataclass(frozen=True, slots=True, eq=False)
class AskSpec:
    """The values of an ask that all pods of one template share. Specs compare by identity, which is fast.

    The codec usually makes one object for equal specs. ``min_members`` is the size of the ask's gang. ``min_members`` is 0 if
    the ask is not a gang member (J1). ``counted`` says that the owner declared no size for the gang. The size is then the
    number of members that had arrived when the wait for members ended. ``lendable`` is the gang class that the owner declared:
    True for lendable, False for firm (J2). ``may_trigger`` says whether other pods may be evicted for the ask (J3). If
    ``lendable`` or ``may_trigger`` is None, the default of the partition applies. ``rm_check`` says that the manager of the ask
    checks a node before it binds the ask, and may refuse the node. ``plan_checks`` says that the manager also answers plan
    checks. If the manager answers plan checks, pods may be evicted for the ask (design 1.8).
    """

    resource: Resource
    priority: int = 0
    constraints: Constraints = UNCONSTRAINED
    originator: bool = False
    allow_preempt_self: bool = True
    allow_preempt_other: bool = True
    protection: Protection = Protection.NORMAL
    lendable: bool | None = None
    may_trigger: bool | None = None
    placeholder: bool = False
    task_group: str = ""
    gang_key: str = ""
    min_members: int = 0
    disruption_groups: tuple[str, ...] = ()
    rm_check: bool = False
    plan_checks: bool = False
    grace_ms: int = 0
    timeout_ms: int = 0
    counted: bool = False
    preferences: Preferences = NO_PREFERENCES

    @property
    def is_plain(self) -> bool:
        """Return whether the ask may be added on the fast path, which is for asks that affect only their queue.

        Such an ask names no gang and is not a placeholder. The ask has no timeout, and its priority is within the limits. The
        ask has no preference to run near a group or apart from a group.
        """
        special = (
            self.gang_key or self.placeholder or self.timeout_ms > 0 or self.preferences.groups
        )
        return not special and PRIORITY_MIN <= self.priority <= PRIORITY_MAX

    @property
    def may_fail_to_bind(self) -> bool:
        """Return whether the manager may refuse a node for the ask even after pods were evicted for the ask.

        For an ask that may fail to bind, no pod may be evicted (design 1.8).
        """
        return self.rm_check and not self.plan_checks

    @property
    def leads(self) -> bool:
        """Return whether the ask is its application's originator.

        A placeholder is never an originator, even if it is marked as one.
        """
        return self.originator and not self.placeholder

    @property
    def opted_out(self) -> bool:
        """Return whether the owner asked that other pods be evicted first.

        If other pods do not suffice, the pod is still evicted (V3, level 1).
        """
        return not self.allow_preempt_self or self.protection is Protection.PREFER_NOT


_ALL_VALUES: Final = attrgetter(*(field.name for field in fields(AskSpec)))


def values(spec: AskSpec) -> tuple[object, ...]:
    """Return all values of a spec.

    Specs themselves compare by identity. Code that looks for equal specs compares these values instead.
    """
    found: tuple[object, ...] = _ALL_VALUES(spec)
    return found


def is_same(one: AskSpec, other: AskSpec) -> bool:
    """Return whether two specs have equal values.

    Two specs with equal values may be two objects: for example in a follower, or in a core that was made from a checkpoint.
    """
    return one is other or _ALL_VALUES(one) == _ALL_VALUES(other)


def resized(spec: AskSpec, resource: Resource) -> AskSpec:
    """Return the spec with another resource. This function is faster than `dataclasses.replace`."""
    _, *others = _ALL_VALUES(spec)
    return AskSpec(resource, *others)


class GangClass(enum.StrEnum):
    """The gang class of a pod or ask (J2). Firm pods are evicted only if `firmbreak: true` is set (G11).

    Lendable pods may use the capacity that other queues do not use.
    """

    FIRM = "firm"
    LENDABLE = "lendable"


def has_classes(settings: PreemptionSettings) -> bool:
    """Return whether the settings give asks gang classes (firm or lendable, J4)."""
    return settings.lists(JOB)


def gang_class(spec: AskSpec, settings: PreemptionSettings) -> GangClass | None:
    """Return the gang class of an ask, which is firm or lendable (J2).

    An ask with the protection FIRM is firm. Other asks have the class that their owner declared, or the default class of the
    partition.

    Return None if the settings of the partition give asks no gang classes (J4).
    """
    if not has_classes(settings):
        return None
    if spec.protection is Protection.FIRM:
        return GangClass.FIRM
    lendable = settings.job_default_preemptible if spec.lendable is None else spec.lendable
    return GangClass.LENDABLE if lendable else GangClass.FIRM


@dataclass(frozen=True, slots=True)
class ReleaseMark:
    """The record of an ordered release that the shim found in the annotations of a victim pod after a restart (C8)."""

    termination: int
    decision_id: str
    released_for: str
    node_id: str
    delivery: str = ""
    """The way in which the pod ends: "soft" if another operator has to delete the pod, and "" if the shim did not report it."""


Tags = tuple[bytes, ...]
"""The encoded tag entries as they arrived, decoded only when a reader needs the tags (design 6.14)."""

NO_TAGS: Final[Tags] = ()
