"""The limits of users and groups in a queue (`limits`), and the check that the limits on one path are consistent."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from server.config import shape
from server.config.problems import Path, Reporter
from server.config.tree import Draft, amounts
from server.model.quota import WILDCARD, UserLimit
from server.model.resources import limit
from server.model.spelling import quantity_text

LOWER = "lower it, or raise the other one"


@dataclass(frozen=True, slots=True)
class _Bound:
    """The limits that apply to one user or group in a queue.

    For each resource type, the limit is that of the nearest queue on the path that limits the type. ``owner`` is the lowest
    queue on the path with a limit of the user or group.
    """

    resources: Mapping[str, int]
    applications: int
    owner: str


@dataclass(slots=True)
class _Names:
    """The user names, or the group names, of one queue's `limits`. The object has the names that have been read so far."""

    kind: str
    seen: set[str] = field(default_factory=set)


Bounds = dict[tuple[str, str], _Bound]


def apply(root: Draft, partition: shape.Partition, where: Path, reporter: Reporter) -> None:
    """Read the limits of every queue into its draft, and report problems.

    If the partition itself has limits, they replace the limits of the root queue.
    """
    entries, entries_where = root.shape.limits, (*root.where, "limits")
    if partition.limits:
        partition_where = (*where, "limits")
        if entries and entries != partition.limits:
            reporter.error(
                partition_where,
                f"differs from the limits of root in line {reporter.line(entries_where)}",
            )
        entries, entries_where = partition.limits, partition_where
    _apply(root, entries, entries_where, reporter)
    for draft in root.walk():
        if draft is not root:
            _apply(draft, draft.shape.limits, (*draft.where, "limits"), reporter)
    _check_path(root, {}, reporter)


def _apply(draft: Draft, entries: list[shape.Limit], where: Path, reporter: Reporter) -> None:
    users, groups = _Names("user"), _Names("group")
    draft.limits_where = where
    for number, entry in enumerate(entries):
        at = (*where, number)
        _check_names(entry.users, users, (*at, "users"), reporter)
        _check_names(entry.groups, groups, (*at, "groups"), reporter)
        resources = amounts(entry.maxresources, (*at, "maxresources"), reporter)
        _check_entry(entry, resources, at, reporter)
        _check_queue(draft, entry, resources, at, reporter)
        draft.limits.append(
            UserLimit(
                tuple(entry.users), tuple(entry.groups), limit(resources), entry.maxapplications
            )
        )


def _check_names(listed: list[str], names: _Names, where: Path, reporter: Reporter) -> None:
    for number, name in enumerate(listed):
        at = (*where, number)
        if name in names.seen:
            reporter.error(at, f"the {names.kind} {name!r} has a limit in this queue already")
        elif WILDCARD in names.seen:
            reporter.error(
                at, f"the {names.kind} {name!r} comes after `*`, which must be the last one"
            )
        elif name == WILDCARD and names.kind == "group" and not names.seen:
            reporter.error(
                at,
                "a limit for all groups needs a limit for a named group before it; alone it is the queue's max",
            )
        names.seen.add(name)


def _check_entry(
    entry: shape.Limit, resources: Mapping[str, int], at: Path, reporter: Reporter
) -> None:
    if not entry.users and not entry.groups:
        reporter.error(at, "names neither users nor groups")
    if entry.maxresources and resources and not any(resources.values()):
        reporter.error(
            (*at, "maxresources"), "forbids everything: at least one quantity must be above 0"
        )
    elif not entry.maxresources and not entry.maxapplications:
        reporter.error(at, "limits nothing: set maxresources or maxapplications")


def _check_queue(
    draft: Draft, entry: shape.Limit, resources: Mapping[str, int], at: Path, reporter: Reporter
) -> None:
    """Report a limit that exceeds the amounts or the applications that the queue itself may have."""
    for kind, amount in resources.items():
        if amount > draft.maximum.get(kind, amount):
            message = f"{_text(kind, amount)} is more than the queue's max of {_text(kind, draft.maximum[kind])}"
            reporter.error((*at, "maxresources", kind), message, advice=LOWER)
    bound = draft.shape.maxapplications
    if 0 < bound < entry.maxapplications:
        message = f"{entry.maxapplications} is more than the queue's {bound}"
        reporter.error((*at, "maxapplications"), message, advice=LOWER)


def _check_path(draft: Draft, above: Bounds, reporter: Reporter) -> None:
    """Check that a queue's limit for a user or group is at most the limit for the same name, or for `*`, in the queues above.

    The function changes ``above`` for the queues below, and restores it afterwards. A separate copy for each queue would need
    too much memory, because the copies would have as many entries as the product of queues and names.
    """
    own: Bounds = {}
    for number, entry in enumerate(draft.limits):
        at = (*draft.limits_where, number)
        for kind, names in (("user", entry.users), ("group", entry.groups)):
            for name in names:
                bound = above.get((kind, name)) or above.get((kind, WILDCARD))
                if bound:
                    _check_bound(entry, f"{kind} {name!r}", bound, at, reporter)
                own[kind, name] = _narrowed(entry, bound, draft.path)
    outer = {bounded: above[bounded] for bounded in own if bounded in above}
    above.update(own)
    for child in draft.children:
        _check_path(child, above, reporter)
    for bounded in own:
        del above[bounded]
    above.update(outer)


def _check_bound(entry: UserLimit, who: str, bound: _Bound, at: Path, reporter: Reporter) -> None:
    for kind, amount in entry.max_resources:
        if amount > bound.resources.get(kind, amount):
            allowed = _text(kind, bound.resources[kind])
            message = (
                f"{_text(kind, amount)} is more than {allowed}, the limit of {who} in {bound.owner}"
            )
            reporter.error((*at, "maxresources", kind), message, advice=LOWER)
    if 0 < bound.applications < entry.max_applications:
        message = f"{entry.max_applications} is more than {bound.applications}, the limit of {who} in {bound.owner}"
        reporter.error((*at, "maxapplications"), message, advice=LOWER)


def _narrowed(entry: UserLimit, bound: _Bound | None, owner: str) -> _Bound:
    own = dict(entry.max_resources)
    if bound is None:
        return _Bound(own, entry.max_applications, owner)
    applications = entry.max_applications or bound.applications
    return _Bound({**bound.resources, **own}, applications, owner)


def _text(kind: str, amount: int) -> str:
    return f"{kind} {quantity_text(kind, amount)}"
