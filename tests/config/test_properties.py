"""Properties of queues and templates: values, errors, and what child queues inherit."""

from typing import Any

import pytest

from server.model.quota import (
    PreemptionPolicy,
    PriorityPolicy,
    QueueProperties,
    SortPolicy,
    inherited,
)
from tests.config.texts import assert_problem, cases, problems, queue, tops

VALUES = cases(
    ("fifo", "application.sort.policy: fifo", {}),
    ("fair", "application.sort.policy: fair", {"sort_policy": SortPolicy.FAIR}),
    ("stateaware", "application.sort.policy: stateaware", {"sort_policy": SortPolicy.FIFO}),
    ("enabled", "application.sort.priority: enabled", {}),
    ("disabled", "application.sort.priority: disabled", {"priority_sort": False}),
    ("priority fence", "priority.policy: fence", {"priority_policy": PriorityPolicy.FENCE}),
    ("offset", "priority.offset: -2147483648", {"priority_offset": -(1 << 31)}),
    ("offset in quotes", "priority.offset: '5'", {"priority_offset": 5}),
    ("fence", "preemption.policy: fence", {"preemption_policy": PreemptionPolicy.FENCE}),
    (
        "no preemption",
        "preemption.policy: disabled",
        {"preemption_policy": PreemptionPolicy.DISABLED},
    ),
    ("delay", "preemption.delay: 1m", {"preemption_delay_ms": 60_000}),
    ("delay of 0", "preemption.delay: 0s", {"preemption_delay_ms": 30_000}),
    ("delay below 0", "preemption.delay: -5s", {"preemption_delay_ms": 30_000}),
    ("delay without unit", "preemption.delay: 60", {"preemption_delay_ms": 30_000}),
    ("delay of words", "preemption.delay: soon", {"preemption_delay_ms": 30_000}),
    ("minimum run time", "preemption.minruntime: 2m", {"preemption_minruntime_ms": 120_000}),
    ("quota delay", "quota.preemption.delay: 5m", {"quota_delay_ms": 300_000}),
    ("no quota delay", "quota.preemption.delay: 0", {}),
    ("miss", "quota.preemption.miss: 2.5%", {"quota_miss_permyriad": 250}),
    ("overshoot", "quota.preemption.overshoot: none", {"quota_overshoot": "none"}),
    ("timer", "quota.preemption.timer: keep-earliest", {"quota_timer": "keep-earliest"}),
    ("shortfall", "quota.preemption.shortfall: abstain", {"quota_shortfall": "abstain"}),
)
BAD = cases(
    ("sort policy", "application.sort.policy: lifo", "expected 'fifo' or 'fair'"),
    ("sort policy in capitals", "application.sort.policy: Fair", "is not allowed here"),
    ("sort priority", "application.sort.priority: true", "put it in quotes"),
    ("priority policy", "priority.policy: disabled", "expected 'default' or 'fence'"),
    ("offset beyond int32", "priority.offset: 2147483648", "is out of range"),
    ("offset of words", "priority.offset: high", "is not a whole number"),
    ("preemption policy", "preemption.policy: none", "expected 'default', 'fence' or 'disabled'"),
    ("delay without a value", "preemption.delay: ", "must be text"),
    ("minimum run time", "preemption.minruntime: -1s", "is negative"),
    ("quota delay without unit", "quota.preemption.delay: 300", "a number needs a unit"),
    ("quota delay below 0", "quota.preemption.delay: -1m", "is negative"),
    ("miss without percent", "quota.preemption.miss: 10", "is not a share"),
    ("overshoot", "quota.preemption.overshoot: first", "expected 'last' or 'none'"),
    ("timer", "quota.preemption.timer: stop", "expected 'restart' or 'keep-earliest'"),
    ("shortfall", "quota.preemption.shortfall: wait", "expected 'proceed' or 'abstain'"),
    ("typing error", "preemption.polcy: fence", "did you mean 'preemption.policy'?"),
    ("wrong case", "Preemption.Policy: fence", "did you mean 'preemption.policy'?"),
    ("unknown", "colour: red", "unknown property 'colour': known are"),
)


@pytest.mark.parametrize(("line", "expected"), VALUES)
def test_a_property_is_read(line: str, expected: dict[str, Any]) -> None:
    assert queue(tops(f"- name: a\n  properties:\n    {line}")).properties == QueueProperties(
        **expected
    )


@pytest.mark.parametrize(("line", "words"), BAD)
def test_a_bad_property_is_refused(line: str, words: str) -> None:
    name = line.partition(":")[0]
    text = tops(f"- name: a\n  properties:\n    {line}  # <-")
    assert_problem(text, "error", f"partitions[0].queues[0].properties.{name}", words)


@pytest.mark.parametrize(("line", "words"), BAD)
def test_a_bad_property_of_a_template_is_refused(line: str, words: str) -> None:
    name = line.partition(":")[0]
    text = tops(f"- name: a\n  parent: true\n  childtemplate:\n    properties:\n      {line}  # <-")
    assert_problem(text, "error", f"childtemplate.properties.{name}", words)


@pytest.mark.parametrize("written", ["60", "0s", "-1s", "soon"])
def test_a_bad_preemption_delay_is_the_default_with_a_warning(written: str) -> None:
    text = tops(
        f"- name: a\n  submitacl: '*'\n  properties:\n    preemption.delay: {written}  # <-"
    )
    assert_problem(text, "warning", "properties.preemption.delay", "is not a positive duration")


def test_a_bad_delay_does_not_fall_back_to_the_parents() -> None:
    text = tops(
        "- name: a\n  properties: {preemption.delay: 5m}\n  queues:\n"
        "  - {name: b, properties: {preemption.delay: 0s}}"
    )
    assert queue(text, "root.a.b").properties.preemption_delay_ms == 30_000


@pytest.mark.parametrize(
    "name", ["application.unschedasks.backoff", "application.unschedasks.backoff.delay"]
)
def test_backoff_is_accepted_and_said_to_have_no_effect(name: str) -> None:
    text = tops(f"- name: a\n  submitacl: '*'\n  properties:\n    {name}: 5  # <-")
    assert_problem(text, "warning", f"properties.{name}", "has no effect")


def test_stateaware_is_said_to_be_fifo() -> None:
    text = tops(
        "- name: a\n  submitacl: '*'\n  properties:\n    application.sort.policy: stateaware  # <-"
    )
    assert_problem(text, "warning", "application.sort.policy", "read as 'fifo'")


# The quota delay in its two spellings ----------------------------------------------------------------------------


def test_seconds_under_resources() -> None:
    text = tops("- name: a\n  resources: {max: {memory: 1}, quota.preemption.delay: 7200}")
    assert queue(text).properties.quota_delay_ms == 7_200_000


@pytest.mark.parametrize(
    ("written", "words"),
    [("5m", "is not a whole number"), ("-1", "is out of range"), ("1.5", "whole")],
)
def test_other_than_seconds_under_resources_is_refused(written: str, words: str) -> None:
    text = tops(f"- name: a\n  resources:\n    quota.preemption.delay: {written}  # <-")
    assert_problem(text, "error", "resources.quota.preemption.delay", words)


def test_both_spellings_on_one_queue_are_refused() -> None:
    text = tops(
        "- name: a\n  properties: {quota.preemption.delay: 5m}\n  resources:\n    quota.preemption.delay: 300  # <-"
    )
    assert_problem(text, "error", "resources.quota.preemption.delay", "under properties too")


@pytest.mark.parametrize(
    "upper", ["properties: {quota.preemption.delay: 1m}", "resources: {quota.preemption.delay: 60}"]
)
@pytest.mark.parametrize(
    ("lower", "expected"),
    [
        ("weight: 1", 60_000),
        ("properties: {quota.preemption.delay: 0}", 0),
        ("properties: {quota.preemption.delay: 0s}", 0),
        ("resources: {quota.preemption.delay: 0}", 0),
        ("resources: {quota.preemption.delay: 90}", 90_000),
    ],
)
def test_a_quota_delay_is_inherited_in_either_spelling_until_a_zero(
    upper: str, lower: str, expected: int
) -> None:
    text = tops(
        f"- name: a\n  {upper}\n  queues:\n  - name: b\n    {lower}\n    queues: [{{name: c}}]"
    )
    assert queue(text, "root.a.b").properties.quota_delay_ms == expected
    assert queue(text, "root.a.b.c").properties.quota_delay_ms == expected


# Inheritance ----------------------------------------------------------------------------------------------------

EVERYTHING = """
    application.sort.policy: fair
    application.sort.priority: disabled
    priority.policy: fence
    priority.offset: 7
    preemption.policy: {policy}
    preemption.delay: 1m
    preemption.minruntime: 2m
    quota.preemption.delay: 3m
    quota.preemption.miss: 4%
    quota.preemption.overshoot: none
    quota.preemption.timer: keep-earliest
    quota.preemption.shortfall: abstain
"""


@pytest.mark.parametrize(
    ("policy", "handed_down"),
    [
        ("default", PreemptionPolicy.DEFAULT),
        ("fence", PreemptionPolicy.DEFAULT),
        ("disabled", PreemptionPolicy.DISABLED),
    ],
)
def test_priority_fences_and_the_preemption_delay_stay_behind_all_else_is_inherited(
    policy: str, handed_down: PreemptionPolicy
) -> None:
    text = tops(
        f"- name: a\n  properties:{EVERYTHING.format(policy=policy)}\n  queues:\n  - name: b\n    queues: [{{name: c}}]"
    )
    expected = QueueProperties(
        sort_policy=SortPolicy.FAIR,
        priority_sort=False,
        preemption_policy=handed_down,
        preemption_minruntime_ms=120_000,
        quota_delay_ms=180_000,
        quota_miss_permyriad=400,
        quota_overshoot="none",
        quota_timer="keep-earliest",
        quota_shortfall="abstain",
    )
    assert queue(text, "root.a.b").properties == expected
    assert queue(text, "root.a.b.c").properties == expected
    assert inherited(queue(text).properties) == expected
    assert queue(text).properties.priority_offset == 7


def test_a_child_may_override_disabled() -> None:
    text = tops(
        "- name: a\n  properties: {preemption.policy: disabled}\n  queues:\n"
        "  - {name: b, properties: {preemption.policy: default}}"
    )
    assert queue(text, "root.a.b").properties.preemption_policy is PreemptionPolicy.DEFAULT


@pytest.mark.parametrize("policy", ["fence", "disabled"])
def test_a_preemption_policy_on_root_has_no_effect_and_no_message(policy: str) -> None:
    text = tops(
        f"- name: root\n  submitacl: '*'\n  properties: {{preemption.policy: {policy}}}\n  queues: [{{name: a}}]"
    )
    assert problems(text) == []
    assert queue(text).properties == QueueProperties()
    assert queue(text, "root").properties == QueueProperties()


def test_a_preemption_delay_on_a_parent_gives_no_message() -> None:
    text = tops(
        "- name: a\n  submitacl: '*'\n  properties: {preemption.delay: 1m}\n  queues: [{name: b}]"
    )
    assert problems(text) == []


# Templates ------------------------------------------------------------------------------------------------------


def test_a_templates_properties_win_over_those_of_the_queue_above() -> None:
    text = tops(
        """
        - name: a
          parent: true
          properties: {preemption.delay: 1m, application.sort.policy: fair, priority.offset: 3}
          childtemplate:
            maxapplications: 4
            resources: {guaranteed: {vcore: 1}, max: {vcore: 2}}
            properties: {preemption.delay: 2m}
        """
    )
    template = queue(text).template
    assert template is not None
    assert (template.guaranteed, template.max, template.max_applications) == (
        (("vcore", 1_000),),
        (("vcore", 2_000),),
        4,
    )
    assert template.properties == QueueProperties(
        sort_policy=SortPolicy.FAIR, preemption_delay_ms=120_000
    )


def test_a_template_is_inherited_by_parents_and_resolved_anew_in_each() -> None:
    text = tops(
        """
        - name: a
          childtemplate: {properties: {priority.offset: 5}}
          properties: {preemption.minruntime: 1m}
          queues:
          - name: b
            parent: true
            properties: {preemption.minruntime: 2m}
          - name: own
            parent: true
            childtemplate: {maxapplications: 1}
          - name: leaf
        """
    )
    upper, lower, own = (
        queue(text, path).template for path in ("root.a", "root.a.b", "root.a.own")
    )
    assert upper is not None
    assert lower is not None
    assert own is not None
    assert upper.properties == QueueProperties(priority_offset=5, preemption_minruntime_ms=60_000)
    assert lower.properties == QueueProperties(priority_offset=5, preemption_minruntime_ms=120_000)
    assert own.properties == QueueProperties(preemption_minruntime_ms=60_000)
    assert queue(text, "root.a.leaf").template is None
    assert queue(text, "root").template is None
