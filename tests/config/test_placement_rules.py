"""The queue of an application, rule by rule, and the refusal when no rule applies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.model.events import ApplicationAdded
from server.model.quota import RECOVERY_QUEUE, PlacementRule, RuleFilter
from server.state.placement_rules import (
    DEPTH_MAX,
    MATCHED_MAX,
    FoundQueue,
    PlacementFacts,
    Refused,
    place_application,
)

LEAF = PlacementFacts(leaf=True, accepting=True)
PARENT = PlacementFacts(leaf=False, accepting=True)
DRAINING = PlacementFacts(leaf=True, accepting=False)
QUEUES = {
    "root": PARENT,
    "root.a": LEAF,
    "root.drains": DRAINING,
    "root.people": PARENT,
    "root.people.anna": LEAF,
    "root.private": LEAF,
    "root.closed": PlacementFacts(leaf=False, accepting=False),
}
PROVIDED = PlacementRule("provided")
FIXED = PlacementRule("fixed", "a")


@dataclass
class Tree:
    """Queues by path; `root.private` and all below it are for `boss` alone."""

    queues: Mapping[str, PlacementFacts] = field(default_factory=lambda: QUEUES)
    asked: list[str] = field(default_factory=list)

    def find(self, path: str) -> PlacementFacts | None:
        return self.queues.get(path)

    def may_submit(self, path: str, user: str, groups: tuple[str, ...]) -> bool:
        assert path in self.queues
        self.asked.append(path)
        return not path.startswith("root.private") or user == "boss" or "bosses" in groups


def app(queue: str = "", user: str = "anna", **more: object) -> ApplicationAdded:
    return ApplicationAdded("rm", "app-1", queue=queue, user=user)._replace(**more)  # type: ignore[arg-type]


def rule(kind: str, value: str = "", *, create: bool = False, **more: object) -> PlacementRule:
    return PlacementRule(kind, value, create, **more)  # type: ignore[arg-type]


UNDER_PEOPLE = rule("fixed", "people")
UNDER_NEW = rule("fixed", "new", create=True)
ALLOW_ANNA = RuleFilter(users=frozenset({"anna"}))

PLACED = [
    (
        "a qualified name",
        [PROVIDED],
        app("root.people.anna"),
        FoundQueue("root.people.anna", create=False),
    ),
    ("an unqualified name", [PROVIDED], app("a"), FoundQueue("root.a", create=False)),
    (
        "case does not count",
        [PROVIDED],
        app("Root.People.ANNA"),
        FoundQueue("root.people.anna", create=False),
    ),
    ("no rules: like provided", [], app("a"), FoundQueue("root.a", create=False)),
    (
        "provided with create",
        [rule("provided", create=True)],
        app("b"),
        FoundQueue("root.b", create=True),
    ),
    (
        "created with its parents",
        [rule("provided", create=True)],
        app("root.x.y"),
        FoundQueue("root.x.y", create=True),
    ),
    (
        "dots of a plain name",
        [rule("provided", create=True)],
        app("x.y"),
        FoundQueue("root.x_dot_y", create=True),
    ),
    (
        "user",
        [rule("user", create=True)],
        app(user="bob.s"),
        FoundQueue("root.bob_dot_s", create=True),
    ),
    (
        "user below",
        [rule("user", parent=UNDER_PEOPLE)],
        app(),
        FoundQueue("root.people.anna", create=False),
    ),
    (
        "parents may be made",
        [rule("user", create=True, parent=UNDER_NEW)],
        app(),
        FoundQueue("root.new.anna", create=True),
    ),
    (
        "a qualified name skips the parent",
        [rule("provided", parent=UNDER_NEW)],
        app("root.a"),
        FoundQueue("root.a", create=False),
    ),
    ("fixed", [FIXED], app(), FoundQueue("root.a", create=False)),
    (
        "fixed path",
        [rule("fixed", "people.anna")],
        app(),
        FoundQueue("root.people.anna", create=False),
    ),
    (
        "fixed from root",
        [rule("fixed", "root.people.anna")],
        app(),
        FoundQueue("root.people.anna", create=False),
    ),
    (
        "tag",
        [rule("tag", "namespace", create=True)],
        app(tags={"namespace": "Team"}),
        FoundQueue("root.team", create=True),
    ),
    (
        "a tag's name in another case",
        [rule("tag", "namespace")],
        app(tags={"NameSpace": "a"}),
        FoundQueue("root.a", create=False),
    ),
    (
        "a qualified tag",
        [rule("tag", "q", parent=UNDER_PEOPLE)],
        app(tags={"q": "root.a"}),
        FoundQueue("root.a", create=False),
    ),
    (
        "access by group",
        [PROVIDED],
        app("private", groups=("bosses",)),
        FoundQueue("root.private", create=False),
    ),
    (
        "the filter lets in",
        [rule("fixed", "a", filter=ALLOW_ANNA)],
        app(),
        FoundQueue("root.a", create=False),
    ),
    (
        "the filter lets a group in",
        [rule("fixed", "a", filter=RuleFilter(groups=frozenset({"dev"})))],
        app(groups=("ops", "dev")),
        FoundQueue("root.a", create=False),
    ),
    (
        "a pattern is searched for anywhere",
        [rule("fixed", "a", filter=RuleFilter(user_pattern="n+"))],
        app(),
        FoundQueue("root.a", create=False),
    ),
    (
        "deny concerns only those named",
        [rule("fixed", "a", filter=RuleFilter(allow=False, users=frozenset({"bob"})))],
        app(),
        FoundQueue("root.a", create=False),
    ),
    (
        "an empty filter allows",
        [rule("fixed", "a", filter=RuleFilter())],
        app(),
        FoundQueue("root.a", create=False),
    ),
    (
        "past a missing tag",
        [rule("tag", "namespace", create=True), FIXED],
        app(),
        FoundQueue("root.a", create=False),
    ),
    ("past a parent queue", [PROVIDED, FIXED], app("people"), FoundQueue("root.a", create=False)),
    ("past a draining queue", [PROVIDED, FIXED], app("drains"), FoundQueue("root.a", create=False)),
    (
        "past a queue of others",
        [PROVIDED, FIXED],
        app("private"),
        FoundQueue("root.a", create=False),
    ),
    ("past a missing queue", [PROVIDED, FIXED], app("nowhere"), FoundQueue("root.a", create=False)),
]

PASSED_OVER = [
    ("no name", [PROVIDED], app(), "the application names no queue"),
    ("no user", [rule("user")], app(user=""), "the application has no user"),
    ("no tag", [rule("tag", "namespace")], app(), "tag namespace: the tag is not set"),
    (
        "missing",
        [PROVIDED],
        app("x"),
        "queue root.x does not exist, and the rule may not create it",
    ),
    ("parent", [PROVIDED], app("people"), "root.people is a parent queue"),
    ("root itself", [PROVIDED], app("root"), "root is a parent queue"),
    ("draining", [PROVIDED], app("drains"), "root.drains takes no new applications"),
    ("access", [PROVIDED], app("private"), "user 'anna' may not submit to root.private"),
    (
        "below a leaf",
        [rule("provided", create=True)],
        app("root.a.b"),
        "below root.a, which is a leaf",
    ),
    ("bad name", [rule("provided", create=True)], app("x y"), "'x y' is not a queue name"),
    ("empty level", [rule("provided", create=True)], app("root..x"), "'' is not a queue name"),
    ("long name", [rule("user", create=True)], app(user="u" * 65), "is not a queue name"),
    (
        "closed parent",
        [rule("provided", create=True)],
        app("root.closed.x"),
        "root.closed takes no new queues",
    ),
    (
        "too deep",
        [rule("provided", create=True)],
        app("root" + ".x" * DEPTH_MAX),
        "levels is not created",
    ),
    (
        "missing parent",
        [rule("user", create=True, parent=rule("fixed", "new"))],
        app(),
        "parent queue root.new does not exist",
    ),
    (
        "parent is a leaf",
        [rule("user", create=True, parent=FIXED)],
        app(),
        "parent queue root.a is a leaf",
    ),
    (
        "parent yields nothing",
        [rule("user", create=True, parent=rule("tag", "t", create=True))],
        app(),
        "parent tag: the tag is not set",
    ),
    (
        "filtered",
        [rule("fixed", "a", filter=ALLOW_ANNA)],
        app(user="bob"),
        "the filter keeps user 'bob' out",
    ),
    (
        "denied",
        [rule("fixed", "a", filter=RuleFilter(allow=False, user_pattern="^an"))],
        app(),
        "the filter keeps user 'anna' out",
    ),
    ("denies all", [rule("fixed", "a", filter=RuleFilter(allow=False))], app(), "the filter keeps"),
    (
        "a name too long for a pattern",
        [rule("fixed", "a", filter=RuleFilter(user_pattern="u"))],
        app(user="u" * (MATCHED_MAX + 1)),
        "the filter keeps",
    ),
    (
        "recovery by name",
        [rule("provided", create=True)],
        app(RECOVERY_QUEUE),
        "only for applications recovered",
    ),
    (
        "below recovery",
        [rule("provided", create=True)],
        app(f"{RECOVERY_QUEUE}.x"),
        "only for applications recovered",
    ),
]


def cases(table: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Return the rows of a table, each named by its first column."""
    return [pytest.param(*row, id=title) for title, *row in table]


@pytest.mark.parametrize(("rules", "application", "expected"), cases(PLACED))
def test_an_application_is_placed(
    rules: list[PlacementRule], application: ApplicationAdded, expected: FoundQueue
) -> None:
    assert place_application(rules, application, Tree()) == expected


@pytest.mark.parametrize(("rules", "application", "reason"), cases(PASSED_OVER))
def test_a_rule_is_passed_over_and_says_why(
    rules: list[PlacementRule], application: ApplicationAdded, reason: str
) -> None:
    refused = place_application(rules, application, Tree())
    assert isinstance(refused, Refused)
    assert refused.reason.startswith("no placement rule matched (")
    assert reason in refused.reason


def test_the_default_queue_takes_what_no_rule_places() -> None:
    tree = Tree({**QUEUES, "root.default": LEAF})
    assert place_application([PROVIDED], app("nowhere"), tree) == FoundQueue(
        "root.default", create=False
    )
    assert place_application([FIXED], app(), tree) == FoundQueue("root.a", create=False)


def test_a_default_queue_that_drains_does_not_help() -> None:
    refused = place_application([PROVIDED], app(), Tree({**QUEUES, "root.default": DRAINING}))
    assert isinstance(refused, Refused)
    assert "default: root.default takes no new applications" in refused.reason


def test_a_forced_application_ends_in_the_recovery_queue_only_when_all_else_fails() -> None:
    forced = app("nowhere", tags={"application.create.force": "true"})
    assert place_application([PROVIDED], forced, Tree()) == FoundQueue(RECOVERY_QUEUE, create=True)
    there = Tree({**QUEUES, RECOVERY_QUEUE: LEAF})
    assert place_application([PROVIDED], forced, there) == FoundQueue(RECOVERY_QUEUE, create=False)
    assert place_application([PROVIDED, FIXED], forced, Tree()) == FoundQueue(
        "root.a", create=False
    )
    assert isinstance(
        place_application([PROVIDED], app("x", tags={"application.create.force": "1"}), Tree()),
        Refused,
    )


def test_access_to_a_queue_that_is_made_is_that_of_the_nearest_queue_above() -> None:
    tree = Tree()
    place_application([rule("provided", create=True)], app("root.people.x.y"), tree)
    assert tree.asked == ["root.people"]


RULES: st.SearchStrategy[PlacementRule] = st.deferred(
    lambda: st.builds(
        PlacementRule,
        kind=st.sampled_from(["provided", "user", "fixed", "tag"]),
        value=st.sampled_from(["a", "people", "root.people.anna", "namespace"]),
        create=st.booleans(),
        parent=st.none() | RULES,
    )
)
NAMES = st.text(alphabet="ab.@R ootpeopleanna_", max_size=20)


@given(rules=st.lists(RULES, max_size=3), queue=NAMES, user=NAMES, tag=NAMES)
@settings(deadline=None, print_blob=True)
def test_whatever_comes_an_application_lands_in_a_leaf_or_nowhere(
    rules: list[PlacementRule], queue: str, user: str, tag: str
) -> None:
    found = place_application(rules, app(queue, user, tags={"namespace": tag}), Tree())
    if isinstance(found, Refused):
        return
    if not found.create:
        assert QUEUES[found.path] == LEAF
        return
    above = found.path.rpartition(".")[0]
    while above not in QUEUES:
        above = above.rpartition(".")[0]
    assert found.path not in QUEUES
    assert QUEUES[above] == PARENT
