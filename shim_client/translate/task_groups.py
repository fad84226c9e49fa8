"""Task groups: the pods for which an application wants capacity before it begins.

Task groups are written as JSON on the pod that creates the application. Each field that cannot be read is reported.
If a field cannot be read, no placeholders are created. Without placeholders, the pods are scheduled one by one, as if
the annotation were missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from shim_client.quantity import counted
from shim_client.translate import labels
from shim_client.translate.constraints import node_constraints
from shim_client.translate.fields import (
    LABEL_LENGTH_MAX,
    BadObjectError,
    Fields,
    is_label,
    items,
    mapping,
    parsed,
    text,
    texts,
)
from shim_client.translate.neighbours import demands
from shim_client.translate.phrases import count
from shim_client.translate.resources import Resource, amounts, interned, sum_of

SOFT = "Soft"
HARD = "Hard"
GROUPS_MAX = 1_000
MEMBERS_MAX = 10_000
"""Maximum number of placeholders of one application."""
TIMEOUT_SECONDS_MAX = 10**7
_TIMEOUT = "placeholderTimeoutInSeconds"
_STYLE = "gangSchedulingStyle"
_LEGACY_STYLE = {"soft": SOFT, "hard": HARD}
SPEC_FIELDS = ("nodeSelector", "tolerations", "affinity", "topologySpreadConstraints")
"""Fields of a task group that are copied unchanged into the spec of its placeholders."""
_FIELDS = frozenset({"name", "minMember", "minResource", "labels", "annotations", *SPEC_FIELDS})


@dataclass(frozen=True, slots=True)
class TaskGroup:
    """A task group: a number of pods of one size, with their common constraints on nodes and neighbours."""

    name: str
    members: int
    requests: Mapping[str, str]
    """The text of `minResource`."""
    resource: Resource
    """The amounts of `minResource` in the core's units, plus one of type pods."""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Gang:
    """The task groups of an application, and the consequence when their placeholders are not placed in time."""

    groups: tuple[TaskGroup, ...]
    style: str = SOFT
    timeout_seconds: int = 0
    """Seconds after which the placeholders time out. 0 means the core's default."""

    @property
    def members(self) -> int:
        """The number of placeholders of all groups."""
        return sum(group.members for group in self.groups)

    def resource(self) -> Resource:
        """Return the sum of the requests of all placeholders. Raises BadObjectError when a message cannot hold the amount."""
        return interned(sum_of((group.resource, group.members) for group in self.groups))


def read_gang(notes: Mapping[str, str], problems: list[str]) -> Gang | None:
    """Return the task groups that a pod's annotations declare.

    Return None when there are no readable task groups.
    """
    written = notes.get(labels.TASK_GROUPS)
    if written is None:
        return None
    gang, found = _gang(written, notes.get(labels.POLICY_PARAMETERS, ""))
    problems += found
    return gang


@lru_cache(maxsize=256)
def _gang(written: str, parameters: str) -> tuple[Gang | None, tuple[str, ...]]:
    """Return task groups and problems of the annotations; cached, because pods of one template have equal annotations."""
    problems: list[str] = []
    style, timeout = _parameters(parameters, problems)
    try:
        gang = Gang(_groups(written), style, timeout)
        gang.resource()
    except BadObjectError as bad:
        why = f"annotation {labels.TASK_GROUPS}: {bad}; no placeholders are made"
        return None, (*problems, why)
    return gang, tuple(problems)


def _parameters(written: str, problems: list[str]) -> tuple[str, int]:
    """Return style and time-out in seconds.

    Unknown and bad parameters are reported together and have no effect.
    """
    style, timeout = SOFT, 0
    strange: list[str] = []
    for word in written.split():
        key, _, value = word.partition("=")
        if key == _STYLE and value.lower() in _LEGACY_STYLE:
            style = _LEGACY_STYLE[value.lower()]
        elif key == _TIMEOUT and (seconds := counted(value, (1, TIMEOUT_SECONDS_MAX))) is not None:
            timeout = seconds
        else:
            strange.append(word)
    if strange:
        others = len(strange) - 1
        more = f", nor {'does' if others == 1 else 'do'} {count(others, 'other')}" if others else ""
        problems.append(
            f"annotation {labels.POLICY_PARAMETERS}: {strange[0][:80]!r} is neither {_TIMEOUT}=<1 to "
            f"{TIMEOUT_SECONDS_MAX}> nor {_STYLE}={SOFT}|{HARD}; it does not count{more}"
        )
    return style, timeout


def _groups(written: str) -> tuple[TaskGroup, ...]:
    try:
        listed = parsed(written)
    except ValueError as bad:
        raise BadObjectError("the text", f"is no JSON: {bad}"[:200]) from bad
    if not isinstance(listed, list) or not 1 <= len(listed) <= GROUPS_MAX:
        raise BadObjectError("the text", f"is not a list of 1 to {GROUPS_MAX} task groups")
    groups = tuple(_group(each, f"[{at}]") for at, each in enumerate(listed))
    names = [group.name for group in groups]
    for at, name in enumerate(names):
        if name in names[:at]:
            raise BadObjectError(f"[{at}].name", f"{name!r} stands twice")
    if sum(group.members for group in groups) > MEMBERS_MAX:
        raise BadObjectError("minMember", f"is more than {MEMBERS_MAX} in all")
    return groups


def _group(entry: object, path: str) -> TaskGroup:
    if not isinstance(entry, dict):
        raise BadObjectError(path, "is not an object")
    strange = sorted(key for key in entry if key not in _FIELDS)
    if strange:
        raise BadObjectError(
            f"{path}.{strange[0]!s:.80}", f"is none of {', '.join(sorted(_FIELDS))}"
        )
    where = f"{path}."
    return TaskGroup(
        name=_name(entry, where),
        members=_members(entry, where),
        requests=_requests(entry, where),
        resource=interned({**amounts(entry, "minResource", where), "pods": 1}),
        labels=dict(texts(entry, "labels", where)),
        annotations=dict(texts(entry, "annotations", where)),
        spec=_spec(entry, where),
    )


def _name(entry: Fields, path: str) -> str:
    name = text(entry, "name", path)
    if not is_label(name):
        raise BadObjectError(
            f"{path}name", f"{name[:80]!a} is not a name of 1 to {LABEL_LENGTH_MAX} letters"
        )
    return name


def _members(entry: Fields, path: str) -> int:
    members = entry.get("minMember")
    if type(members) is not int or not 1 <= members <= MEMBERS_MAX:
        raise BadObjectError(f"{path}minMember", f"is not a whole number of 1 to {MEMBERS_MAX}")
    return members


def _requests(entry: Fields, path: str) -> dict[str, str]:
    listed = mapping(entry, "minResource", path)
    if not listed:
        raise BadObjectError(f"{path}minResource", "is empty: a placeholder has to hold something")
    return {kind: str(amount) for kind, amount in listed.items()}


def _spec(entry: Fields, path: str) -> dict[str, Any]:
    """Return the fields of a task group for a pod's spec. Raises BadObjectError if a field is invalid.

    Each field is read once here, in the same way as it will be read from the placeholder. Reading the fields here
    finds mistakes before pods are created.
    """
    found = {key: entry[key] for key in SPEC_FIELDS if entry.get(key) is not None}
    try:
        node_constraints(found)
        items(found, "topologySpreadConstraints")
        demands(found, "default", {})
    except BadObjectError as bad:
        raise BadObjectError(path.rstrip("."), str(bad)) from bad
    return found
