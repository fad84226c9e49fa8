"""Hostile annotations and settings: no number or letter in them causes errors in reports or orders."""

import json
from typing import Any

import pytest

from shim_client.cluster import CreatePod
from shim_client.config import Settings
from shim_client.messages import ApplicationReport, PodReport
from shim_client.quantity import AMOUNT_MAX
from shim_client.state_machine import jobs
from shim_client.translate.applications import read_namespace
from shim_client.translate.pod import read_pod
from shim_client.translate.task_groups import read_gang
from tests.shim.objects import Item, named, node, pod
from tests.shim.story import Story
from tests.shim.test_garbage import serialise

GROUPS = "yunikorn.apache.org/task-groups"
PARAMETERS = "yunikorn.apache.org/schedulingPolicyParameters"
SIZE = "evenhand.io/gang-size"
PLACEHOLDER = "internal.yunikorn.apache.org/placeholder"
USER = "yunikorn.apache.org/user.info"
WORKERS = {"name": "workers", "minMember": 2, "minResource": {"cpu": "1"}}
HALF = "\ud800"
"""Half a letter, as JSON can write it and UTF-8 cannot."""


def played(*items: Item) -> Story:
    """Return a story, after a check that its reports and actions can be serialised."""
    story = Story().start(node("n1"), *items)
    serialise(story)
    for action in story.actions:
        json.dumps(getattr(action, "item", ""), ensure_ascii=False, allow_nan=False).encode()
        getattr(action, "message", "").encode()
    return story


def declaring(groups: Any, **more: str) -> Item:
    return pod("first", annotations={GROUPS: json.dumps(groups), **more})


# Numbers ----------------------------------------------------------------------------------------------------------

LARGE = ["000000001" + "9" * 20, "000000001" + "9" * 5000, "9" * 5000, str(10**7 + 1)]
LARGE_NAMES = ["zeros before it", "too long to read", "long", "one more"]


@pytest.mark.parametrize("written", LARGE, ids=LARGE_NAMES)
def test_1_9_a_timeout_out_of_bounds_is_said_and_does_not_count(written: str) -> None:
    story = played(declaring([WORKERS], **{PARAMETERS: f"placeholderTimeoutInSeconds={written}"}))
    [report] = [one for one in story.reports if isinstance(one, ApplicationReport)]
    assert report.timeout_ms == 0
    assert "event Pod/first PodNotClear" in story.did()


def test_1_9_many_words_that_mean_nothing_are_said_at_once() -> None:
    """An annotation can hold a hundred thousand: as many events would drown all others, at each change."""
    item = declaring([WORKERS], **{PARAMETERS: "a b " * 20_000})
    story = played(item)
    assert story.did().count("event Pod/first PodNotClear") == 1
    story.see(item)
    assert story.did() == []
    [problem] = read_pod(item, Settings()).problems
    assert problem.endswith("it does not count, nor do 39999 others")


def test_1_9_zeros_before_a_timeout_are_nothing() -> None:
    found = read_gang(
        {GROUPS: json.dumps([WORKERS]), PARAMETERS: "placeholderTimeoutInSeconds=00000000060"}, []
    )
    assert found is not None
    assert found.timeout_seconds == 60


def test_1_9_what_placeholders_take_together_has_a_limit() -> None:
    half = {"name": "a", "minMember": 1, "minResource": {"memory": str(AMOUNT_MAX // 2)}}
    for groups in (
        [{**half, "minMember": 10_000}],
        [{**half, "name": name} for name in "abc"],
    ):
        story = played(declaring(groups))
        assert not any(isinstance(action, CreatePod) for action in story.actions)
        [why] = [getattr(a, "message", "") for a in story.actions if "memory" in repr(a)]
        assert f"memory: more than {AMOUNT_MAX} in all; no placeholders are made" in why


def test_1_9_what_is_left_of_placeholders_is_told_as_far_as_a_message_holds_it() -> None:
    """Placeholders that users write by hand may be as large as a pod may be."""
    made = {"evenhand.io/placeholders-made": "true"}
    large = {"containers": [{"name": "c", "resources": {"requests": {"memory": str(AMOUNT_MAX)}}}]}
    held = [
        pod(name, annotations={PLACEHOLDER: "true"}, spec={"schedulerName": "evenhand", **large})
        for name in ("held-a", "held-b", "held-c")
    ]
    story = played(declaring([WORKERS], **made), *held)
    [report] = [one for one in story.reports if isinstance(one, ApplicationReport)]
    assert report.placeholder_ask["memory"] == AMOUNT_MAX


@pytest.mark.parametrize(
    ("written", "members"),
    [
        ("1", 1),
        ("0000000019999", 19_999),
        ("100000", 100_000),
        ("100001", None),
        ("000000001" + "9" * 5000, None),
    ],
    ids=["one", "zeros", "most", "more", "unread"],
)
def test_1_9_the_size_of_a_gang_is_the_number_that_is_written(
    written: str, members: int | None
) -> None:
    item = pod("held", annotations={PLACEHOLDER: "true", SIZE: written})
    if members is None:
        assert "event Pod/held PodNotReadable" in played(item).did()
    else:
        assert read_pod(item, Settings()).report.job_members == members


def test_1_3_a_number_of_applications_that_the_core_could_not_read_does_not_count() -> None:
    """The core would refuse every application of the namespace."""
    key = "yunikorn.apache.org/namespace.maxApps"
    facts = read_namespace(named("Namespace", "team", annotations={key: "1" * 20}))
    assert facts.tags == {"namespace": "team"}
    assert len(facts.problems) == 1


def test_j1_a_job_that_has_more_members_than_a_job_may_need_is_as_large_as_one_may_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jobs, "MEMBERS_MAX", 2)
    members = [pod(name, labels={"evenhand.io/job": "j"}) for name in "abc"]
    story = Story().start(
        node("n1"), *members, pod("d", labels={"evenhand.io/job": "j"}, node="n1")
    )
    story.seconds(4)
    sizes = {one.key: one.job_members for one in story.reports if isinstance(one, PodReport)}
    assert {sizes[f"uid-{name}"] for name in "abcd"} == {2}


# Letters ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "info",
    [{"user": HALF}, {"user": "ann", "groups": [HALF]}, {"user": "ann", "more": {HALF: 1}}],
    ids=["user", "group", "unread"],
)
def test_1_3_half_a_letter_is_no_user(info: Any) -> None:
    story = played(pod("first", annotations={USER: json.dumps(info)}))
    [report] = [one for one in story.reports if isinstance(one, ApplicationReport)]
    assert report.user == "nobody"
    assert "event Pod/first PodNotClear" in story.did()


@pytest.mark.parametrize(
    "group",
    [
        {**WORKERS, HALF: 1},
        {**WORKERS, "name": HALF},
        {**WORKERS, "labels": {"a": HALF}},
        {**WORKERS, "tolerations": [{"key": "a", "unread": HALF}]},
        {**WORKERS, "affinity": {"nodeAffinity": {HALF: []}}},
        {**WORKERS, "tolerations": [{"key": "a", "tolerationSeconds": float("nan")}]},
    ],
    ids=["field", "name", "label", "toleration", "affinity", "no number"],
)
def test_1_9_task_groups_that_no_api_server_takes_are_said_and_make_nothing(group: Any) -> None:
    story = played(declaring([group]))
    assert not any(isinstance(action, CreatePod) for action in story.actions)
    assert "ask first" in story.told()
    assert "event Pod/first PodNotClear" in story.did()


def test_1_3_half_a_letter_is_no_resource_of_a_quota() -> None:
    key = "yunikorn.apache.org/namespace.quota"
    item = named("Namespace", "team", annotations={key: json.dumps({HALF: 1})})
    facts = read_namespace(item)
    assert facts.tags == {"namespace": "team"}
    assert len(facts.problems) == 1
