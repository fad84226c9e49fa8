"""Every error in the structure of a text: the text is refused with file, line and path (design 1.11).

Each text marks the line of its error with `# <-`.
"""

import pytest

from server.config import load
from tests.config.texts import assert_problem, below, cases, partition, problems, tops

NAMES = cases(
    ("dotted queue", tops("- name: a.b  # <-"), "queues[0].name", "a dot separates levels"),
    ("queue of bad characters", tops("- name: a b  # <-"), "queues[0].name", "is not a queue name"),
    ("queue without letters", tops("- name: ''  # <-"), "queues[0].name", "is not a queue name"),
    ("queue too long", tops(f"- name: {'q' * 65}  # <-"), "queues[0].name", "1 to 64"),
    ("queue read as a boolean", tops("- name: on  # <-"), "queues[0].name", "put it in quotes"),
    ("queue without a name", tops("- parent: true  # <-"), "queues[0].name", "is missing"),
    ("recovery queue", tops("- name: '@recovery@'  # <-"), "queues[0].name", "is reserved"),
    (
        "same queue twice",
        below("- name: a\n- name: b\n- name: A  # <-"),
        "queues[0].queues[2].name",
        "there is a queue 'a' at this level already, in line 7",
    ),
    (
        "root beside others",
        tops("- name: a\n- name: root  # <-"),
        "queues[1].name",
        "must be the only queue",
    ),
    (
        "name with the manager",
        "partitions:\n- name: '[rm]default'  # <-\n  queues: []",
        "partitions[0].name",
        "without its",
    ),
    (
        "bad partition",
        "partitions:\n- name: a/b  # <-\n  queues: []",
        "partitions[0].name",
        "is not a partition name",
    ),
    (
        "same partition twice",
        "partitions:\n- {name: gpu, queues: []}\n- name: GPU  # <-\n  queues: []",
        "partitions[1].name",
        "already, in line 2",
    ),
    (
        "default twice",
        "partitions:\n- {queues: []}\n- name: Default  # <-\n  queues: []",
        "partitions[1].name",
        "there is a partition 'default' already",
    ),
)
KEYS = cases(
    ("unknown at the top", "partitions: []\nqueues: []  # <-", "queues", "it belongs under"),
    (
        "unknown in a partition",
        partition("queues: []\nstatedumpfilepath: x  # <-"),
        "statedumpfilepath",
        "unknown key",
    ),
    (
        "typing error",
        tops("- name: a\n  maxaplications: 1  # <-"),
        "maxaplications",
        "did you mean 'maxapplications'?",
    ),
    (
        "wrong case",
        tops("- name: a\n  maxApplications: 1  # <-"),
        "maxApplications",
        "did you mean 'maxapplications'?",
    ),
    (
        "key of another section",
        tops("- name: a\n  guaranteed: {}  # <-"),
        "guaranteed",
        "it belongs under `resources`",
    ),
    ("unknown without a value", tops("- name: a\n  nothing:  # <-"), "nothing", "unknown key"),
    (
        "partition without queues",
        "partitions:\n- name: default  # <-",
        "partitions[0].queues",
        "is missing",
    ),
    (
        "queues without a value",
        "partitions:\n- name: default\n  queues:  # <-",
        "partitions[0].queues",
        "is missing",
    ),
    ("queues as a mapping", partition("queues: {name: a}  # <-"), "queues", "must be a list"),
    ("a queue as text", tops("- a  # <-"), "queues[0]", "must be a mapping"),
    (
        "resources as a list",
        tops("- name: a\n  resources: []  # <-"),
        "resources",
        "must be a mapping",
    ),
    (
        "parent in quotes",
        tops("- name: a\n  parent: 'true'  # <-"),
        "parent",
        "must be true or false",
    ),
    (
        "count in quotes",
        tops("- name: a\n  maxapplications: x  # <-"),
        "maxapplications",
        "is not a whole number",
    ),
    (
        "count below 0",
        tops("- name: a\n  maxapplications: -1  # <-"),
        "maxapplications",
        "is out of range",
    ),
    (
        "count with decimals",
        tops("- name: a\n  maxapplications: 1.5  # <-"),
        "maxapplications",
        "is not a whole number",
    ),
    (
        "count in octal",
        tops("- name: a\n  maxapplications: 010  # <-"),
        "maxapplications",
        "is not a whole number",
    ),
    (
        "count too large",
        tops("- name: a\n  maxapplications: 4294967296  # <-"),
        "maxapplications",
        "is out of range",
    ),
    (
        "count as a list",
        tops("- name: a\n  maxapplications: [1]  # <-"),
        "maxapplications",
        "must be a number",
    ),
    ("weight of 0", tops("- name: a\n  weight: 0  # <-"), "weight", "is out of range"),
    (
        "weight with decimals",
        tops("- name: a\n  weight: 1.5  # <-"),
        "weight",
        "is not a whole number",
    ),
    (
        "user group resolver",
        partition("queues: []\nusergroupresolver: {type: os}  # <-"),
        "usergroupresolver",
        "come with each application",
    ),
)
RESOURCES = cases(
    (
        "root with max",
        tops("- name: root\n  resources:\n    max: {vcore: 1}  # <-"),
        "resources.max",
        "root takes no",
    ),
    (
        "root with a guarantee",
        tops("- name: root\n  resources:\n    guaranteed: {vcore: 1}  # <-"),
        "resources.guaranteed",
        "root takes no resources",
    ),
    (
        "bad quantity",
        tops("- name: a\n  resources: {max: {memory: 1.5}}  # <-"),
        "resources.max.memory",
        "not a quantity",
    ),
    (
        "no quantity",
        tops("- name: a\n  resources: {max: {memory: }}  # <-"),
        "resources.max.memory",
        "must be text",
    ),
    (
        "a list as quantity",
        tops("- name: a\n  resources: {max: {memory: [1]}}  # <-"),
        "max.memory",
        "must be text",
    ),
    (
        "bad type",
        tops("- name: a\n  resources: {max: {'a b': 1}}  # <-"),
        "max.a b",
        "is not the name of a resource",
    ),
    (
        "max below guaranteed",
        tops(
            "- name: a\n  resources:\n    guaranteed: {memory: 2Gi}  # <-\n    max: {memory: 1Gi}"
        ),
        "queues[0].resources.guaranteed.memory",
        "memory 2Gi is more than the queue's max of memory 1Gi",
    ),
    (
        "a child's max above its parent's",
        tops(
            "- name: a\n  resources: {max: {vcore: 1}}\n  queues:\n"
            "  - name: b\n    resources: {max: {vcore: 2}}  # <-"
        ),
        "queues[0].queues[0].resources.max.vcore",
        "vcore 2 is more than the max of root.a, vcore 1",
    ),
    (
        "a grandchild's max above it",
        tops(
            "- name: a\n  resources: {max: {vcore: 1}}\n  queues:\n  - name: b\n    queues:\n"
            "    - name: c\n      resources: {max: {vcore: 1001m}}  # <-"
        ),
        "queues[0].queues[0].queues[0].resources.max.vcore",
        "vcore 1001m is more than the max of root.a",
    ),
    (
        "children over the guarantee",
        tops(
            "- name: a\n  resources:\n    guaranteed: {memory: 10}  # <-\n  queues:\n"
            "  - {name: b, resources: {guaranteed: {memory: 6}}}\n"
            "  - {name: c, resources: {guaranteed: {memory: 5}}}"
        ),
        "queues[0].resources.guaranteed.memory",
        "the queues below are guaranteed memory 11, more than memory 10",
    ),
    (
        "grandchildren over the max",
        tops(
            "- name: a\n  resources:\n    max: {memory: 10}  # <-\n  queues:\n  - name: b\n    queues:\n"
            "    - {name: c, resources: {guaranteed: {memory: 6}}}\n"
            "    - {name: d, resources: {guaranteed: {memory: 5}}}"
        ),
        "queues[0].resources.max.memory",
        "the queues below are guaranteed memory 11, more than memory 10",
    ),
    (
        "guarantees beyond all bounds",
        tops(
            "- name: a  # <-\n  queues:\n"
            "  - {name: b, resources: {guaranteed: {memory: 3Ei}}}\n"
            "  - {name: c, resources: {guaranteed: {memory: 3Ei}}}"
        ),
        "queues[0]",
        "more memory than 2^62",
    ),
    (
        "template with max below guaranteed",
        tops(
            "- name: a\n  parent: true\n  childtemplate:\n    resources:\n"
            "      guaranteed: {vcore: 2}  # <-\n      max: {vcore: 1}"
        ),
        "childtemplate.resources.guaranteed.vcore",
        "is more than the queue's max",
    ),
    (
        "a child without maxapplications",
        tops("- name: a\n  maxapplications: 5\n  queues:\n  - name: b  # <-"),
        "queues[0].queues[0].maxapplications",
        "must be set, because root.a allows 5",
    ),
    (
        "a child with more applications",
        tops(
            "- name: a\n  maxapplications: 5\n  queues:\n  - name: b\n    maxapplications: 6  # <-"
        ),
        "queues[0].queues[0].maxapplications",
        "6 is more than the 5 of root.a",
    ),
)
ACCESS = cases(
    ("three fields", tops("- name: a\n  submitacl: a b c  # <-"), "submitacl", "has 3 fields"),
    (
        "a star among users",
        tops("- name: a\n  adminacl: 'a,*'  # <-"),
        "adminacl",
        "allows no name beside it",
    ),
    (
        "a star and a group",
        tops("- name: a\n  adminacl: '* dev'  # <-"),
        "adminacl",
        "allows no name beside it",
    ),
    (
        "a bad user",
        tops("- name: a\n  submitacl: 'a,5b'  # <-"),
        "submitacl",
        "'5b' is not a user name",
    ),
    (
        "a bad group",
        tops("- name: a\n  submitacl: 'a de$v'  # <-"),
        "submitacl",
        "'de$v' is not a group name",
    ),
    (
        "an empty name",
        tops("- name: a\n  submitacl: 'a,,b'  # <-"),
        "submitacl",
        "an empty name between commas",
    ),
    ("a list", tops("- name: a\n  submitacl: [a]  # <-"), "submitacl", "must be text"),
)


def limits(text: str, queue: str = "") -> str:
    """Return a text with a queue `a` that has these limits."""
    entries = "\n".join(f"    {line}" for line in text.strip("\n").splitlines())
    return below(f"- name: a\n{queue}  limits:\n{entries}")


MAX = "  resources: {max: {memory: 10}}\n  maxapplications: 5\n"
LIMITS = cases(
    ("nobody", limits("- maxapplications: 1  # <-"), "limits[0]", "names neither users nor groups"),
    ("nothing", limits("- users: [u]  # <-"), "limits[0]", "limits nothing"),
    (
        "no applications",
        limits("- users: [u]  # <-\n  maxapplications: 0"),
        "limits[0]",
        "limits nothing",
    ),
    (
        "only zeros",
        limits("- users: [u]\n  maxresources: {memory: 0}  # <-"),
        "maxresources",
        "forbids everything",
    ),
    (
        "bad user",
        limits("- users: [5u]  # <-\n  maxapplications: 1"),
        "users[0]",
        "is not a user name",
    ),
    (
        "bad group",
        limits("- groups: ['a b']  # <-\n  maxapplications: 1"),
        "groups[0]",
        "is not a group name",
    ),
    ("users as text", limits("- users: u  # <-\n  maxapplications: 1"), "users", "must be a list"),
    (
        "bad quantity",
        limits("- users: [u]\n  maxresources: {memory: x}  # <-"),
        "maxresources.memory",
        "not a quantity",
    ),
    (
        "a user twice",
        limits("- users: [u, u]  # <-\n  maxapplications: 1"),
        "users[1]",
        "has a limit in this queue",
    ),
    (
        "a user in two entries",
        limits("- {users: [u], maxapplications: 1}\n- {users: [u], maxapplications: 2}  # <-"),
        "limits[1].users[0]",
        "has a limit in this queue already",
    ),
    (
        "a user after the star",
        limits("- {users: ['*'], maxapplications: 1}\n- {users: [u], maxapplications: 1}  # <-"),
        "limits[1].users[0]",
        "comes after `*`",
    ),
    (
        "all groups alone",
        limits("- groups: ['*']  # <-\n  maxapplications: 1"),
        "groups[0]",
        "needs a limit for a named",
    ),
    (
        "more than the queue",
        limits("- users: [u]\n  maxresources: {memory: 11}  # <-", MAX),
        "limits[0].maxresources.memory",
        "memory 11 is more than the queue's max of memory 10",
    ),
    (
        "more applications than the queue",
        limits("- users: [u]\n  maxapplications: 6  # <-", MAX),
        "limits[0].maxapplications",
        "6 is more than the queue's 5",
    ),
)


def nested(upper: str, lower: str) -> str:
    """Return a text with a limit of queue `a` and one of queue `c`, two levels below it."""
    return below(
        f"- name: a\n  limits: [{upper}]\n  queues:\n  - name: b\n    queues:\n"
        f"    - name: c\n      limits: [{lower}]  # <-"
    )


NESTED = cases(
    (
        "a user's resources",
        nested(
            "{users: [u], maxresources: {memory: 5}}", "{users: [u], maxresources: {memory: 6}}"
        ),
        "maxresources.memory",
        "memory 6 is more than memory 5, the limit of user 'u' in root.a",
    ),
    (
        "a user's applications",
        nested("{users: [u], maxapplications: 2}", "{users: [u], maxapplications: 3}"),
        "maxapplications",
        "3 is more than 2, the limit of user 'u' in root.a",
    ),
    (
        "a user under the star",
        nested("{users: ['*'], maxapplications: 2}", "{users: [u], maxapplications: 3}"),
        "maxapplications",
        "3 is more than 2",
    ),
    (
        "a group's resources",
        nested(
            "{groups: [g], maxresources: {vcore: 5}}", "{groups: [g], maxresources: {vcore: 6}}"
        ),
        "maxresources.vcore",
        "the limit of group 'g' in root.a",
    ),
)
THREE = below(
    """
    - name: a
      limits: [{users: [u], maxresources: {memory: 5}, maxapplications: 2}]
      queues:
      - name: b
        limits: [{users: [u], maxresources: {vcore: 3}}]
        queues:
        - name: c
          limits: [{users: [u], LIMIT}]  # <-
    """
)
RULES = cases(
    ("test", "- name: test  # <-", "name", "exists for tests"),
    ("recovery", "- name: recovery  # <-", "name", "is always the last one by itself"),
    ("unknown", "- name: users  # <-", "name", "did you mean 'user'?"),
    ("nonsense", "- name: xyz  # <-", "name", "known are provided, user, fixed, tag"),
    ("fixed without value", "- name: fixed  # <-", "value", "needs a value: the name of a queue"),
    (
        "tag without value",
        "- name: tag\n  value: ' '  # <-",
        "value",
        "needs a value: the name of a tag",
    ),
    ("unknown key", "- name: user\n  queue: x  # <-", "queue", "unknown key"),
    (
        "bad filter type",
        "- name: user\n  filter: {type: none}  # <-",
        "filter.type",
        "expected 'allow' or 'deny'",
    ),
    (
        "bad user in a list",
        "- name: user\n  filter:\n    users: [a, 'b+']  # <-",
        "users[1]",
        "is not a user name",
    ),
    (
        "bad group in a list",
        "- name: user\n  filter:\n    groups: [a, '1']  # <-",
        "groups[1]",
        "is not a group",
    ),
    (
        "bad single name",
        "- name: user\n  filter:\n    users: ['5']  # <-",
        "users[0]",
        "is not a user name",
    ),
    (
        "bad expression",
        "- name: user\n  filter:\n    users: ['(a']  # <-",
        "users[0]",
        "is not a regular expression",
    ),
    (
        "slow expression",
        "- name: user\n  filter:\n    users: ['(a+)+$']  # <-",
        "users[0]",
        "repeats a repetition",
    ),
    (
        "long expression",
        f"- name: user\n  filter:\n    users: ['{'a*' * 200}']  # <-",
        "users[0]",
        "allowed are 256",
    ),
    (
        "bad parent",
        "- name: user\n  parent:\n    name: test  # <-",
        "parent.name",
        "exists for tests",
    ),
    ("bad fixed name", "- name: fixed\n  value: a..b  # <-", "value", "'' is not a queue name"),
    (
        "missing queue",
        "- name: fixed\n  value: x  # <-",
        "value",
        "the queue root.x does not exist, and create",
    ),
    ("a parent queue", "- name: fixed\n  value: p  # <-", "value", "root.p is a parent queue"),
    ("root", "- name: fixed\n  value: root  # <-", "value", "root is a parent queue"),
    (
        "below a leaf",
        "- name: fixed\n  create: true\n  value: a.b  # <-",
        "value",
        "root.a is a leaf",
    ),
    (
        "a leaf as parent",
        "- name: user\n  create: true\n  parent:\n    name: fixed\n    value: a  # <-",
        "parent.value",
        "root.a is a leaf; no queue can be below it",
    ),
    (
        "a missing parent",
        "- name: user\n  create: true\n  parent:\n    name: fixed\n    value: x  # <-",
        "parent.value",
        "the queue root.x does not exist",
    ),
    (
        "a chain of fixed names",
        "- name: fixed\n  value: x  # <-\n  parent: {name: fixed, value: p}",
        "[0].value",
        "the queue root.p.x does not exist",
    ),
    (
        "a parent that is never used",
        "- name: fixed\n  value: root.a\n  parent:  # <-\n    name: user",
        "[0].parent",
        "is never used",
    ),
)


def with_rules(text: str) -> str:
    """Return a text of queues `a`, a leaf, and `p`, a parent, under these placement rules."""
    return partition(f"queues: [{{name: a}}, {{name: p, parent: true}}]\nplacementrules:\n{text}")


NODE_SORT = cases(
    ("unknown type", "{type: random}", "type", "expected 'fair' or 'binpacking'"),
    ("negative weight", "{resourceweights: {vcore: -1}}", "resourceweights.vcore", "is negative"),
    (
        "fine weight",
        "{resourceweights: {vcore: 0.0001}}",
        "resourceweights.vcore",
        "finer than a thousandth",
    ),
    (
        "weight in quotes",
        "{resourceweights: {vcore: many}}",
        "resourceweights.vcore",
        "is not a weight",
    ),
    ("unknown key", "{kind: fair}", "kind", "unknown key"),
)


@pytest.mark.parametrize(
    ("text", "path", "words"), [*NAMES, *KEYS, *RESOURCES, *ACCESS, *LIMITS, *NESTED]
)
def test_an_error_names_its_line_and_path(text: str, path: str, words: str) -> None:
    assert_problem(text, "error", path, words)


@pytest.mark.parametrize(("rule", "path", "words"), RULES)
def test_a_bad_placement_rule_is_refused(rule: str, path: str, words: str) -> None:
    assert_problem(with_rules(rule), "error", path, words)


@pytest.mark.parametrize(("section", "path", "words"), NODE_SORT)
def test_a_bad_node_sort_policy_is_refused(section: str, path: str, words: str) -> None:
    text = partition(f"queues: []\nnodesortpolicy: {section}  # <-")
    assert_problem(text, "error", f"nodesortpolicy.{path}", words)


def test_limits_of_the_partition_are_those_of_root() -> None:
    own = "limits: [{users: [u], maxapplications: 1}]"
    other = "limits: [{users: [u], maxapplications: 2}]  # <-"
    text = partition(f"queues: [{{name: root, {own}}}]\n{other}")
    assert_problem(
        text, "error", "partitions[0].limits", "differs from the limits of root in line 3"
    )


@pytest.mark.parametrize(
    ("limit", "path"),
    [
        ("maxapplications: 3", "maxapplications"),
        ("maxresources: {memory: 6}", "maxresources.memory"),
        ("maxresources: {vcore: 4}", "maxresources.vcore"),
    ],
)
def test_a_limit_stays_within_those_of_all_queues_above(limit: str, path: str) -> None:
    assert_problem(THREE.replace("LIMIT", limit), "error", path, "the limit of user 'u' in root.a")


def test_problems_come_in_the_order_of_their_lines() -> None:
    text = below(
        """
        - name: a
          limits: [{users: [u]}]
          resources: {guaranteed: {x: 2}, max: {x: 1}}
          properties: {preemption.delay: never, priority.offset: x}
        """
    )
    assert [(one.line, one.severity) for one in problems(text)] == [
        (8, "error"),
        (9, "error"),
        (10, "error"),
        (10, "warning"),
    ]


def test_all_errors_of_a_text_are_reported_at_once() -> None:
    text = tops("- name: a b\n  weight: x\n- nam: c")
    assert [(one.line, one.path) for one in problems(text)] == [
        (4, "partitions[0].queues[0].name"),
        (5, "partitions[0].queues[0].weight"),
        (6, "partitions[0].queues[1].name"),
        (6, "partitions[0].queues[1].nam"),
    ]


def test_errors_between_queues_of_all_partitions_are_reported_at_once() -> None:
    one = "queues: [{name: a, resources: {guaranteed: {x: 2}, max: {x: 1}}}]"
    found = problems(f"partitions:\n- {{name: a, {one}}}\n- {{name: b, {one}}}")
    assert [problem.line for problem in found if problem.severity == "error"] == [2, 3]


def test_a_problem_reads_like_a_compilers() -> None:
    _, (problem,) = load(tops("- name: a\n  weight: 0"), "conf/queues.yaml")
    assert str(problem) == (
        "conf/queues.yaml:5: error: partitions[0].queues[0].weight: 0 is out of range: allowed are 1 to 1000000"
    )


def test_what_is_quoted_from_the_text_is_kept_short() -> None:
    (problem,) = problems(tops(f"- name: {'x' * 5_000}"))
    assert len(problem.message) <= 600
