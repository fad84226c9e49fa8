"""The meaning of a correct configuration text: the values that the core receives."""

import hashlib
import re
from pathlib import Path

import pytest

from server.config import load
from server.model.quota import (
    NOBODY,
    Acl,
    NodeSort,
    PlacementRule,
    PreemptionPolicy,
    PreemptionSettings,
    PriorityPolicy,
    QueueProperties,
    RuleFilter,
    SortPolicy,
    UserLimit,
)
from tests.config.texts import accepted, below, cases, only_partition, partition, queue, tops

SPECIFICATION = Path(__file__).parents[3] / "shared" / "spec" / "preemption.md"
ACLS = cases(
    ("nobody", "", NOBODY),
    ("spaces alone", "  ", NOBODY),
    ("everybody", "*", Acl(everyone=True)),
    ("all groups", " *", Acl(everyone=True)),
    ("users", "anna,bob", Acl(users=frozenset({"anna", "bob"}))),
    (
        "users and groups",
        "anna dev,ops",
        Acl(users=frozenset({"anna"}), groups=frozenset({"dev", "ops"})),
    ),
    ("groups alone", " dev", Acl(groups=frozenset({"dev"}))),
    ("padded", "anna   dev  ", Acl(users=frozenset({"anna"}), groups=frozenset({"dev"}))),
    (
        "service account",
        "system:serviceaccount:a:b",
        Acl(users=frozenset({"system:serviceaccount:a:b"})),
    ),
    ("machine account", "host$", Acl(users=frozenset({"host$"}))),
)


@pytest.mark.parametrize(("written", "expected"), ACLS)
def test_access_lists(written: str, expected: Acl) -> None:
    spec = queue(tops(f"- name: a\n  submitacl: '{written}'\n  adminacl: '{written}'"))
    assert (spec.submit_acl, spec.admin_acl) == (expected, expected)


def test_root_is_inserted_where_it_is_missing() -> None:
    root = only_partition(tops("- name: A\n- name: b\n  queues: [{name: c}]")).root
    assert (root.name, root.parent, root.submit_acl) == ("root", True, NOBODY)
    assert [(child.name, child.parent) for child in root.children] == [("a", False), ("b", True)]


def test_root_in_any_case_is_root() -> None:
    root = only_partition(tops("- {name: ROOT, submitacl: '*'}")).root
    assert (root.name, root.parent, root.children) == ("root", True, ())


def test_several_partitions_keep_their_names_and_order() -> None:
    text = "partitions:\n- {name: Gpu, queues: []}\n- {name: '', queues: []}"
    assert [one.name for one in accepted(text).partitions] == ["Gpu", "default"]


def test_a_configuration_carries_its_text_and_digest() -> None:
    text = tops("- name: a")
    configuration = accepted(text)
    assert (configuration.text, configuration.digest) == (
        text,
        hashlib.sha256(text.encode()).hexdigest(),
    )


def test_amounts_zeros_and_missing_types() -> None:
    spec = queue(
        tops("- name: a\n  resources: {guaranteed: {vcore: 500m, gpu: 0}, max: {vcore: 2, gpu: 0}}")
    )
    assert spec.guaranteed == (("vcore", 500),)
    assert spec.max == (("gpu", 0), ("vcore", 2_000))


@pytest.mark.parametrize(
    "resources", ["", "resources:", "resources: {}", "resources: {max: {}}", "resources: {max: }"]
)
def test_no_max_is_no_limit(resources: str) -> None:
    assert queue(tops(f"- name: a\n  {resources}")).max is None


def test_guarantees_compare_only_in_types_that_both_name() -> None:
    text = tops(
        """
        - name: a
          resources: {guaranteed: {memory: 10, gpu: 0}}
          queues:
          - {name: b, resources: {guaranteed: {memory: 10, vcore: 5, gpu: 3}, max: {memory: 10}}}
        """
    )
    assert queue(text, "root.a.b").guaranteed == (("gpu", 3), ("memory", 10), ("vcore", 5_000))


def test_limits_keep_their_order() -> None:
    text = below(
        """
        - name: a
          limits:
          - {limit: some people, users: [u, v], groups: [g], maxresources: {vcore: 1, gpu: 0}}
          - {users: ["*"], maxapplications: 3}
          - {groups: ["*"], maxapplications: 4}
        """
    )
    assert queue(text).limits == (
        UserLimit(("u", "v"), ("g",), (("gpu", 0), ("vcore", 1_000))),
        UserLimit(("*",), (), (), 3),
        UserLimit((), ("*",), (), 4),
    )


def test_limits_of_the_partition_go_to_root() -> None:
    text = partition("queues: [{name: root}]\nlimits: [{users: [u], maxapplications: 1}]")
    assert only_partition(text).root.limits == (UserLimit(("u",), (), (), 1),)


def test_limits_within_those_above_are_accepted() -> None:
    text = below(
        """
        - name: a
          limits: [{users: ["*"], maxresources: {memory: 5}, maxapplications: 5}, {groups: [g], maxapplications: 1}]
          queues:
          - name: b
            limits: [{users: [u], maxresources: {memory: 5, vcore: 9}}, {groups: [h], maxapplications: 9}]
        """
    )
    assert len(queue(text, "root.a.b").limits) == 2


def test_placement_rules() -> None:
    text = partition(
        """
        queues: [{name: a}, {name: p, parent: true}]
        placementrules:
        - name: tag
          value: Namespace
          create: true
          filter: {type: deny, users: [bob, anna], groups: ["^ops"]}
          parent: {name: user, parent: {name: fixed, value: Root.P}}
        - {name: fixed, value: root.x.y, create: true}
        - {name: user, filter: {users: ["host$"]}}
        - {name: provided, value: ignored}
        """
    )
    people = PlacementRule("user", parent=PlacementRule("fixed", "root.p"))
    denied = RuleFilter(allow=False, users=frozenset({"bob", "anna"}), group_pattern="^ops")
    assert only_partition(text).rules == (
        PlacementRule("tag", "namespace", create=True, filter=denied, parent=people),
        PlacementRule("fixed", "root.x.y", create=True),
        PlacementRule("user", filter=RuleFilter(users=frozenset({"host$"}))),
        PlacementRule("provided"),
    )


@pytest.mark.parametrize(
    ("section", "sort", "weights"),
    [
        ("", NodeSort.FAIR, (("memory", 1_000), ("vcore", 1_000))),
        (
            "nodesortpolicy: {type: binpacking}",
            NodeSort.BINPACKING,
            (("memory", 1_000), ("vcore", 1_000)),
        ),
        (
            "nodesortpolicy: {resourceweights: {vcore: 1.5, gpu: 2, memory: 0}}",
            NodeSort.FAIR,
            (("gpu", 2_000), ("vcore", 1_500)),
        ),
    ],
)
def test_node_sort_policy(
    section: str, sort: NodeSort, weights: tuple[tuple[str, int], ...]
) -> None:
    spec = only_partition(partition(f"queues: []\n{section}"))
    assert (spec.node_sort, spec.node_weights) == (sort, weights)


def test_a_queues_own_numbers() -> None:
    spec = queue(
        """
partitions:
- preemption: {entitlement: proportional}
  queues: [{name: a, weight: 3, maxapplications: 7, parent: true, properties: {priority.offset: +5}}]
"""
    )
    assert (spec.weight, spec.max_applications, spec.parent) == (3, 7, True)
    assert spec.raw_properties == {"priority.offset": "+5"}


def _examples() -> list[str]:
    if not SPECIFICATION.exists():
        pytest.skip(f"{SPECIFICATION.name} is not here")
    return [
        text
        for text in re.findall(r"```yaml\n(.*?)```", SPECIFICATION.read_text(), re.DOTALL)
        if text.startswith("partitions:")
    ]


def test_the_example_of_the_specification_reads_as_it_says() -> None:
    (text,) = _examples()
    configuration, found = load(text)
    assert configuration is not None
    assert {problem.severity for problem in found} <= {"warning"}
    (one,) = configuration.partitions
    assert one.preemption == PreemptionSettings(
        quota_enabled=True,
        policies=("required-node", "guaranteed", "job", "in-queue"),
        pace_permyriad=1_000,
        job_delete=True,
        shadow={"entitlement": "proportional"},
    )
    (tenant,) = one.root.children
    assert tenant.guaranteed == (("memory", 100 << 30), ("vcore", 50_000))
    assert tenant.max == (("memory", 200 << 30), ("vcore", 100_000))
    assert tenant.properties == QueueProperties(
        preemption_policy=PreemptionPolicy.FENCE,
        preemption_delay_ms=30_000,
        preemption_minruntime_ms=120_000,
        quota_delay_ms=300_000,
        quota_miss_permyriad=1_000,
        priority_policy=PriorityPolicy.DEFAULT,
        sort_policy=SortPolicy.FIFO,
    )
