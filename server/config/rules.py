"""The placement rules (`placementrules`) as model values, and checks of their fixed parts against the queues of the file.

A rule and its parent rules form a chain, which is read from the outermost parent on. Each rule gives a queue below the queue of
its parent rule. A rule of kind `fixed` names its queue in the file. The queue of any other rule depends on the application. The
checks therefore begin with the outermost rule and end before the first rule that is not `fixed`. The queue of the innermost
rule must be a leaf, and the queues of its parent rules must be parent queues. A queue that does not exist is an error in
two cases: its rule has no `create: true`, or an existing queue above it is a leaf.
"""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial
from typing import Final

from server.config import shape
from server.config.names import group_name, is_pattern, pattern, user_name
from server.config.partial import tree_is_known
from server.config.problems import Path, Reporter
from server.config.tree import Draft
from server.model.quota import QUEUE_NAME, ROOT, PlacementRule, RuleFilter

Queues = Mapping[str, Draft]

KINDS: Final = ("provided", "user", "fixed", "tag")
_REFUSED: Final = {
    "test": "the rule 'test' exists for tests of another scheduler only",
    "recovery": "the rule 'recovery' is always the last one by itself; remove it",
}
_NEEDS_VALUE: Final = {"fixed": "the name of a queue", "tag": "the name of a tag"}


def rules(
    written: list[shape.Rule], root: Draft, where: Path, reporter: Reporter
) -> tuple[PlacementRule, ...]:
    """Return the rules of a partition in the order of the file, and report problems.

    If the names of the queues are unknown because of a fault, the rules are not compared with the queues.
    """
    queues = _by_path(root) if tree_is_known((*where, "queues"), reporter) else None
    read = []
    for number, rule in enumerate(written):
        at = (*where, "placementrules", number)
        before = len(reporter.problems) + reporter.unsaid
        read.append(_rule(rule, at, reporter))
        if queues and len(reporter.problems) + reporter.unsaid == before:
            _check_chain(read[-1], queues, at, reporter)
    return tuple(read)


def _by_path(root: Draft) -> Queues:
    """Return the queues by path. If two queues have the same path, the result has the first of the two queues."""
    queues: dict[str, Draft] = {}
    for draft in root.walk():
        queues.setdefault(draft.path, draft)
    return queues


def _rule(written: shape.Rule, at: Path, reporter: Reporter) -> PlacementRule:
    kind, value = written.name, written.value.strip().lower()
    if kind not in KINDS:
        reporter.error((*at, "name"), partial(_unknown, kind))
    elif kind in _NEEDS_VALUE and not value:
        reporter.error((*at, "value"), f"the rule {kind!r} needs a value: {_NEEDS_VALUE[kind]}")
    elif kind == "fixed":
        _check_fixed(written, at, reporter)
    elif kind not in _NEEDS_VALUE and value:
        reporter.warning(
            (*at, "value"),
            "value-ignored",
            f"the rule {kind!r} takes no value",
            "the value is ignored",
        )
    return PlacementRule(
        kind=kind,
        value=value if kind in _NEEDS_VALUE else "",
        create=written.create,
        filter=_filter(written.filter, (*at, "filter"), reporter) if written.filter else None,
        parent=_rule(written.parent, (*at, "parent"), reporter) if written.parent else None,
    )


def _unknown(kind: str) -> str:
    if kind in _REFUSED:
        return _REFUSED[kind]
    close = get_close_matches(kind.lower(), KINDS, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(KINDS)}"
    return f"unknown placement rule {kind!r}, {hint}"


def _check_fixed(written: shape.Rule, at: Path, reporter: Reporter) -> None:
    value = written.value.strip().lower()
    for name in value.split("."):
        if not QUEUE_NAME.fullmatch(name):
            reporter.error((*at, "value"), f"{name!r} is not a queue name")
    if written.parent and _is_qualified(value):
        reporter.error(
            (*at, "parent"), f"is never used, because the value {value!r} begins at root"
        )


def _is_qualified(value: str) -> bool:
    return value == ROOT or value.startswith(f"{ROOT}.")


# Filters --------------------------------------------------------------------------------------------------------


def _filter(written: shape.Filter, at: Path, reporter: Reporter) -> RuleFilter:
    """Return a filter. A list of several entries has names only. A single entry may also be a regular expression."""
    users, user_pattern = _entries(written.users, (*at, "users"), reporter)
    groups, group_pattern = _entries(written.groups, (*at, "groups"), reporter)
    return RuleFilter(
        allow=written.type == "allow",
        users=users,
        groups=groups,
        user_pattern=user_pattern,
        group_pattern=group_pattern,
    )


def _entries(listed: list[str], at: Path, reporter: Reporter) -> tuple[frozenset[str], str]:
    check = user_name if at[-1] == "users" else group_name
    if len(listed) == 1 and is_pattern(listed[0]):
        return frozenset(), _checked(pattern, listed[0], (*at, 0), reporter)
    return frozenset(
        _checked(check, name, (*at, number), reporter) for number, name in enumerate(listed)
    ), ""


def _checked(check: Callable[[str], str], written: str, at: Path, reporter: Reporter) -> str:
    try:
        check(written)
    except ValueError as fault:
        reporter.error(at, str(fault))
    return written


# Fixed parts ----------------------------------------------------------------------------------------------------


def _check_chain(
    rule: PlacementRule, queues: Queues, at: Path, reporter: Reporter, *, is_parent: bool = False
) -> None:
    """Check the queues that fixed rules of a chain give.

    The rule itself must give a leaf, and its parent rules must give parent queues.
    """
    queue = _known_queue(rule)
    if rule.parent:
        _check_chain(rule.parent, queues, (*at, "parent"), reporter, is_parent=True)
    if queue is None:
        return
    found = queues.get(queue)
    if found is None:
        _check_missing(rule, queue, queues, at, reporter)
    elif is_parent and found.leaf:
        reporter.error(
            (*at, "value"),
            f"{queue} is a leaf; no queue can be below it",
            advice=f"name a parent queue, or write `parent: true` at {queue}",
        )
    elif not (is_parent or found.leaf):
        reporter.error(
            (*at, "value"),
            f"{queue} is a parent queue; applications go to leaves",
            advice=f"name a leaf below {queue}",
        )


def _check_missing(
    rule: PlacementRule, queue: str, queues: Queues, at: Path, reporter: Reporter
) -> None:
    if not rule.create:
        reporter.error(
            (*at, "value"),
            lambda: (
                f"the queue {queue} does not exist, and create is not set{_near(queue, queues, reporter)}"
            ),
            advice="add the queue, correct its name, or write `create: true`",
        )
    nearest = _nearest(queue, queues)
    if nearest.leaf:
        reporter.error(
            (*at, "value"),
            f"{queue} cannot be created: {nearest.path} is a leaf",
            advice=f"write `parent: true` at {nearest.path}, or name a queue below another parent",
        )


def _near(queue: str, queues: Queues, reporter: Reporter) -> str:
    """Return the last part of a message, which names the queue that was probably meant. Return "" if no name is similar."""
    close = reporter.may_compare(len(queues)) and get_close_matches(queue, queues, n=1, cutoff=0.7)
    return f", did you mean {close[0]!r}?" if close else ""


def _nearest(queue: str, queues: Queues) -> Draft:
    """Return the lowest existing queue above a queue that does not exist."""
    nearest, end = queues[ROOT], len(ROOT)
    while (end := queue.find(".", end + 1)) != -1 and (found := queues.get(queue[:end])):
        nearest = found
    return nearest


def _known_queue(rule: PlacementRule) -> str | None:
    """Return the path of the queue that the rule gives. Return None if the queue depends on the application."""
    if rule.kind != "fixed":
        return None
    if _is_qualified(rule.value):
        return rule.value
    above = _known_queue(rule.parent) if rule.parent else ROOT
    return f"{above}.{rule.value}" if above else None
