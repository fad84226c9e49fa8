"""The application and queue to which a pod belongs, and the tags of its namespace."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from shim_client.quantity import AMOUNT_MAX, counted, milli_units, whole_units
from shim_client.translate import labels
from shim_client.translate.fields import (
    BadObjectError,
    Fields,
    mapping,
    parsed,
    quantity,
    text,
    texts,
)
from shim_client.translate.jobs import job_key

APP_ID_LENGTH_MAX = 63
_NAMESPACE_CUT = 26
_UNIQUE_ENDING = "-uniqueautogen"
DEFAULT_USER = "nobody"
"""User of a pod that names no user."""
GROUPS_MAX = 1000


@dataclass(frozen=True, slots=True)
class Membership:
    """The application, queue and user of one pod."""

    application: str
    queue: str
    user: str
    groups: tuple[str, ...]


class Marked(NamedTuple):
    """The fields of a pod's metadata that determine its application, queue and user."""

    namespace: str
    uid: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    group: str = ""
    """The PodGroup that the pod's spec names."""


@dataclass(frozen=True, slots=True)
class NamespaceFacts:
    """The application tags of a namespace, and the problems of its annotations."""

    name: str
    tags: Mapping[str, str]
    labels: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = field(default=(), compare=False)


def membership(marked: Marked, problems: list[str], *, unique: bool) -> Membership:
    """Return application, queue and user of the pod; contradictions and bad user texts are added to `problems`.

    With `unique`, a pod that names no application gets a separate application.
    """
    marks, notes = marked.labels, marked.annotations
    application = _written_id(marked, problems)
    queue = _first(
        "queue", (marks.get(labels.QUEUE), notes.get(labels.QUEUE), marks.get(labels.QUEUE_OLD)),
        problems,
    )  # fmt: skip
    user, groups = _user(notes.get(labels.USER_INFO), problems)
    return Membership(_application_id(application, marked, unique=unique), queue, user, groups)


def is_by_uid(marked: Marked, *, unique: bool) -> bool:
    """Return whether the pod's uid is a part of its application's id."""
    written = _written_id(marked, [])
    return not _job_key(marked) and (written.endswith(_UNIQUE_ENDING) or (unique and not written))


def _written_id(marked: Marked, problems: list[str]) -> str:
    marks = marked.labels
    return _first(
        "application id",
        (
            marks.get(labels.APP_ID),
            marked.annotations.get(labels.APP_ID),
            marks.get(labels.APP_ID_OLD),
            marks.get(labels.APP_ID_SPARK),
        ),
        problems,
    )


def _first(what: str, values: tuple[str | None, ...], problems: list[str]) -> str:
    given = dict.fromkeys(value for value in values if value)
    if len(given) > 1:
        problems.append(f"the pod names several {what}s {[*given]!r:.200}; the first one counts")
    return next(iter(given), "")


def _application_id(written: str, marked: Marked, *, unique: bool) -> str:
    """Return the id of the pod's application; all members of a job share one application (J1)."""
    namespace, ending = marked.namespace, _job_key(marked) or marked.uid
    if written.endswith(_UNIQUE_ENDING):
        return f"{written.removesuffix(_UNIQUE_ENDING)}-{ending}"
    if written:
        return written
    if unique:
        return f"{namespace[:_NAMESPACE_CUT]}-{ending}"[:APP_ID_LENGTH_MAX]
    return f"yunikorn-{namespace}-autogen"[:APP_ID_LENGTH_MAX]


def _job_key(marked: Marked) -> str:
    """Return the key of the pod's job, "" if there is none. `job_marks` reports labels that contradict each other."""
    return job_key(marked.labels, []) or marked.group


def _user(written: str | None, problems: list[str]) -> tuple[str, tuple[str, ...]]:
    if not written:
        return DEFAULT_USER, ()
    info = _json_object(written) or {}
    user, groups = info.get("user"), _group_names(info.get("groups", []))
    if not isinstance(user, str) or not user or groups is None:
        problems.append(
            f"annotation {labels.USER_INFO} is not "
            f'{{"user": "..", "groups": ["..", ..]}}; the user is {DEFAULT_USER}'
        )
        return DEFAULT_USER, ()
    return user, groups


def _group_names(groups: object) -> tuple[str, ...] | None:
    if not isinstance(groups, list) or len(groups) > GROUPS_MAX:
        return None
    return tuple(groups) if all(isinstance(group, str) for group in groups) else None


def _json_object(written: str) -> dict[str, Any] | None:
    try:
        value = parsed(written)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def read_namespace(item: Fields) -> NamespaceFacts:
    """Return the tags that a namespace gives its applications."""
    metadata = mapping(item, "metadata")
    notes = texts(metadata, "annotations", "metadata.")
    name = text(metadata, "name", "metadata.")
    problems: list[str] = []
    tags = {labels.TAG_NAMESPACE: name}
    quota = _limits(notes, labels.NAMESPACE_QUOTA, problems) or _old_limits(notes, problems)
    guaranteed = _limits(notes, labels.NAMESPACE_GUARANTEED, problems)
    plain = {
        labels.TAG_QUOTA: quota,
        labels.TAG_GUARANTEED: guaranteed,
        labels.TAG_MAX_APPS: _count(notes, problems),
        labels.TAG_PARENT_QUEUE: notes.get(labels.PARENT_QUEUE, ""),
    }
    tags.update({tag: value for tag, value in plain.items() if value})
    marks = texts(metadata, "labels", "metadata.")
    return NamespaceFacts(name, tags, marks, tuple(problems))


def _limits(notes: Mapping[str, str], key: str, problems: list[str]) -> str:
    """Return the tag for an annotation that is a JSON map of quantities.

    Return "" when the annotation is absent or bad.
    """
    if key not in notes:
        return ""
    listed = _json_object(notes[key])
    if listed is None:
        problems.append(f"annotation {key} is not a JSON map of quantities; it does not count")
        return ""
    return _resource_text(listed, key, problems)


def _old_limits(notes: Mapping[str, str], problems: list[str]) -> str:
    old = {"cpu": labels.NAMESPACE_MAX_CPU, "memory": labels.NAMESPACE_MAX_MEMORY}
    listed = {kind: notes[key] for kind, key in old.items() if key in notes}
    return _resource_text(listed, "yunikorn.apache.org/namespace.max", problems) if listed else ""


def _resource_text(listed: dict[str, Any], key: str, problems: list[str]) -> str:
    """Return quantities as the JSON of a Resource message of the published interface."""
    found: dict[str, dict[str, int]] = {}
    try:
        for kind in sorted(listed):
            if kind == "cpu":
                found["vcore"] = {"value": quantity(listed, kind, milli_units)}
            else:
                found[kind] = {"value": quantity(listed, kind, whole_units)}
    except BadObjectError as bad:
        problems.append(f"annotation {key}: {bad}; it does not count")
        return ""
    return json.dumps({"resources": found}, separators=(",", ":"))


def _count(notes: Mapping[str, str], problems: list[str]) -> str:
    written = notes.get(labels.NAMESPACE_MAX_APPS, "")
    if written and counted(written, (0, AMOUNT_MAX)) is None:
        problems.append(
            f"annotation {labels.NAMESPACE_MAX_APPS}: {written[:40]!r} is not a whole number; "
            "it does not count"
        )
        return ""
    return written
