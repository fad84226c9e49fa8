"""The choice of an application's queue: the partition's placement rules are tried in order, and read queues through `Lookup`.

A rule is skipped if it gives no queue. A rule is also skipped in four other cases: its queue is missing and may not be created,
is a parent queue, takes no applications, or does not let the user submit. For each skipped rule, the reason is recorded. After
the last rule, `root.default` is tried if it exists. For applications that are recovered by force, the recovery queue is tried
last. If no queue is found, the application is refused with all recorded reasons.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from server.model.events import ApplicationAdded
from server.model.quota import (
    DEFAULT_QUEUE,
    QUEUE_NAME,
    RECOVERY_QUEUE,
    ROOT,
    PlacementRule,
    RuleFilter,
    is_below,
)

DEPTH_MAX: Final = 32
"""The largest number of levels in the path of a queue that a rule may create."""
MATCHED_MAX: Final = 256
"""The largest number of characters of a user's or group's name to which a filter's regular expression is applied."""
FORCE_TAG: Final = "application.create.force"
NO_RULES: Final = (PlacementRule(kind="provided"),)
"""The rules of a partition for which no rules are configured: the client has to name an existing queue."""


@dataclass(frozen=True, slots=True)
class PlacementFacts:
    """The facts of a queue that the rules need. ``accepting`` is false while the queue drains or is stopped."""

    leaf: bool
    accepting: bool


@dataclass(frozen=True, slots=True)
class FoundQueue:
    """The leaf for an application, at ``path``. If ``create`` is true, the leaf has to be created first."""

    path: str
    create: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """The ``reason`` why an application gets no queue, or why one rule gives no queue."""

    reason: str


class Lookup(Protocol):
    """The interface through which the rules read the queues."""

    def find(self, path: str) -> PlacementFacts | None:
        """Return the facts of the queue at a path, or None if there is no such queue."""

    def may_submit(self, path: str, user: str, groups: tuple[str, ...]) -> bool:
        """Return whether the user may submit to an existing queue. An access list of that queue or of an ancestor must allow it."""


def place_application(
    rules: Iterable[PlacementRule], application: ApplicationAdded, lookup: Lookup
) -> FoundQueue | Refused:
    """Return the queue of a new application from the first rule that gives a queue, or the reasons why there is none."""
    reasons: list[str] = []
    for label, outcome in _attempts(tuple(rules) or NO_RULES, application, lookup):
        if isinstance(outcome, FoundQueue):
            return outcome
        reasons.append(f"{label}: {outcome.reason}")
    if application.tags.get(FORCE_TAG) == "true":
        return FoundQueue(RECOVERY_QUEUE, create=lookup.find(RECOVERY_QUEUE) is None)
    return Refused(f"no placement rule matched ({'; '.join(reasons)})")


def deciding_rule(
    rules: Iterable[PlacementRule], application: ApplicationAdded, lookup: Lookup
) -> str:
    """Return the rule that gives an application its queue, as text such as `provided` or `tag namespace`.

    The text is `default` for `root.default`, which is tried after the rules. The text is "" if no rule gives a queue.
    """
    for label, outcome in _attempts(tuple(rules) or NO_RULES, application, lookup):
        if isinstance(outcome, FoundQueue):
            return label
    return ""


def _attempts(
    rules: tuple[PlacementRule, ...], application: ApplicationAdded, lookup: Lookup
) -> Iterator[tuple[str, FoundQueue | Refused]]:
    for rule in rules:
        path = _queue_of(rule, application, lookup)
        outcome = path if isinstance(path, Refused) else _admit(path, rule, application, lookup)
        yield f"{rule.kind} {rule.value}".rstrip(), outcome
    if lookup.find(DEFAULT_QUEUE):
        yield "default", _admit(DEFAULT_QUEUE, NO_RULES[0], application, lookup)


# From a rule to a path ------------------------------------------------------------------------------------------


def _queue_of(rule: PlacementRule, application: ApplicationAdded, lookup: Lookup) -> str | Refused:
    """Return the path that a rule gives. The queue at the path need not exist."""
    name = _name(rule, application)
    if isinstance(name, Refused):
        return name
    if rule.filter and not _passes(rule.filter, application):
        return Refused(f"the filter keeps user {application.user!r} out")
    if name == ROOT or name.startswith(f"{ROOT}."):
        return name
    above = _parent_of(rule, application, lookup)
    return above if isinstance(above, Refused) else f"{above}.{name}"


def _name(rule: PlacementRule, application: ApplicationAdded) -> str | Refused:
    """Return the name of the queue that the rule gives. Dots in the name are replaced, except in fixed values and in qualified names."""
    if rule.kind == "fixed":
        return rule.value
    if rule.kind == "user":
        return _undotted(application.user) or Refused("the application has no user")
    if rule.kind == "provided":
        return _unless_qualified(application.queue) or Refused("the application names no queue")
    return _unless_qualified(_tag(rule.value, application)) or Refused("the tag is not set")


def _tag(name: str, application: ApplicationAdded) -> str:
    """Return the value of a tag. Tag names are compared without regard to case."""
    tags = application.tags
    return tags.get(name) or next((tags[key] for key in tags if key.lower() == name.lower()), "")


def _unless_qualified(written: str) -> str:
    return written.lower() if written.lower().startswith(f"{ROOT}.") else _undotted(written)


def _undotted(written: str) -> str:
    return written.strip().lower().replace(".", "_dot_")


def _parent_of(rule: PlacementRule, application: ApplicationAdded, lookup: Lookup) -> str | Refused:
    """Return the queue that the parent rule gives.

    The queue must not be a leaf. The queue must exist, unless the parent rule may create it.
    """
    if rule.parent is None:
        return ROOT
    path = _queue_of(rule.parent, application, lookup)
    if isinstance(path, Refused):
        return Refused(f"parent {rule.parent.kind}: {path.reason}")
    facts = lookup.find(path)
    if facts is None and not rule.parent.create:
        return Refused(f"parent queue {path} does not exist, and its rule may not create it")
    if facts and facts.leaf:
        return Refused(f"parent queue {path} is a leaf")
    return path


def _passes(one: RuleFilter, application: ApplicationAdded) -> bool:
    """Return whether the filter allows the application's user. A filter without names applies to all users."""
    if not (one.users or one.groups or one.user_pattern or one.group_pattern):
        return one.allow
    named = _matches(application.user, one.users, one.user_pattern) or any(
        _matches(group, one.groups, one.group_pattern) for group in application.groups
    )
    return named == one.allow


def _matches(name: str, names: frozenset[str], pattern: str) -> bool:
    if pattern:
        return len(name) <= MATCHED_MAX and re.search(pattern, name) is not None
    return name in names


# From a path to a queue -----------------------------------------------------------------------------------------


def _admit(
    path: str, rule: PlacementRule, application: ApplicationAdded, lookup: Lookup
) -> FoundQueue | Refused:
    """Return the queue at ``path`` if it takes the application, or if the rule may create it for the application. Otherwise return the reason."""
    if is_below(path, RECOVERY_QUEUE):
        return Refused(f"{path} is only for applications recovered by force")
    facts = lookup.find(path)
    if facts is None:
        return _create(path, rule, application, lookup)
    if not facts.leaf:
        return Refused(f"{path} is a parent queue")
    if not facts.accepting:
        return Refused(f"{path} takes no new applications")
    if not lookup.may_submit(path, application.user, application.groups):
        return Refused(f"user {application.user!r} may not submit to {path}")
    return FoundQueue(path, create=False)


def _create(
    path: str, rule: PlacementRule, application: ApplicationAdded, lookup: Lookup
) -> FoundQueue | Refused:
    """Return the queue at ``path`` as a queue to create, if its names are valid and its nearest existing ancestor takes new queues.

    Otherwise return the reason.
    """
    if not rule.create:
        return Refused(f"queue {path} does not exist, and the rule may not create it")
    if path.count(".") >= DEPTH_MAX:
        return Refused(f"a queue of more than {DEPTH_MAX} levels is not created")
    if wrong := [name for name in path.split(".") if not QUEUE_NAME.fullmatch(name)]:
        return Refused(f"{wrong[0]!r} is not a queue name")
    above = path.rpartition(".")[0]
    while above and lookup.find(above) is None:
        above = above.rpartition(".")[0]
    return _create_below(above or ROOT, path, application, lookup)


def _create_below(
    above: str, path: str, application: ApplicationAdded, lookup: Lookup
) -> FoundQueue | Refused:
    facts = lookup.find(above)
    if facts is None or facts.leaf:
        return Refused(f"{path} cannot be created below {above}, which is a leaf")
    if not facts.accepting:
        return Refused(f"{above} takes no new queues")
    if not lookup.may_submit(above, application.user, application.groups):
        return Refused(f"user {application.user!r} may not submit to {above}")
    return FoundQueue(path, create=True)
