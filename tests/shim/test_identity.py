"""Which user the core gets for a pod: the one of its annotation, or that of its namespace (service.trustUserInfo)."""

import json
from typing import Any

import pytest

from shim_client.cluster import CreatePod, Listing, RecordEvent
from shim_client.config import BadSettingError, Settings, settings_from
from shim_client.messages import ApplicationReport, PodReport
from shim_client.state_machine.identity import SETTLE_MS
from shim_client.translate import labels
from tests.shim.objects import Item, node, pod
from tests.shim.story import Story

ENFORCED = Settings(namespace="evenhand", trust_user_info=False)
POLICY, BINDING = "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"
ALICE, BOB = (
    {labels.USER_INFO: f'{{"user":"{name}","groups":["dev"]}}'} for name in ("alice", "bob")
)
BEFORE, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"
WORK = {"kubernetes.io/metadata.name": "work"}
NOT_SYSTEM = [
    {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"]}
]
APPLICATIONS = {
    "alice": "app-2bd806c97f0e00af",
    "bob": "app-81b637d8fcd2c6da",
    "system:namespace:work": "app-5bd00f8397901f52",
}


def policy(**spec: Any) -> Item:
    full = {"failurePolicy": "Fail", "validations": [{"expression": "false"}], **spec}
    metadata = {"name": "evenhand-user", "creationTimestamp": BEFORE}
    return {"kind": POLICY, "metadata": metadata, "spec": full}


def binding(of: str = "evenhand-user", created: str = BEFORE, **given: Any) -> Item:
    matched = {"namespaceSelector": {"matchExpressions": NOT_SYSTEM}, **given.pop("matched", {})}
    spec = {"policyName": of, "validationActions": ["Deny"], "matchResources": matched, **given}
    metadata = {"name": given.pop("name", "bound"), "creationTimestamp": created}
    return {"kind": BINDING, "metadata": metadata, "spec": spec}


def space(name: str = "work") -> Item:
    metadata = {"name": name, "labels": {"kubernetes.io/metadata.name": name}}
    return {"kind": "Namespace", "metadata": metadata}


def written(name: str, notes: dict[str, str], created: str = LATER, **more: Any) -> Item:
    return pod(name, annotations=notes, metadata={"creationTimestamp": created}, **more)


def users(story: Story) -> dict[str, str]:
    """Return the user of each application that the core was told."""
    found = [one for one in story.reports if isinstance(one, ApplicationReport)]
    return {one.application: one.user for one in found}


def events(story: Story, reason: str) -> list[str]:
    return [
        one.message
        for one in story.actions
        if isinstance(one, RecordEvent) and one.reason == reason and one.about.kind == "ConfigMap"
    ]


def test_by_default_every_annotation_counts_and_nothing_is_said() -> None:
    story = Story(settings=Settings(namespace="evenhand"))
    story.start(node("n1"), space(), written("a", ALICE))
    assert users(story) == {"app": "alice"}
    assert story.mirror.identity_said() is None
    assert not any("UserInfo" in line for line in story.did())


def test_where_the_guard_is_in_force_the_annotation_counts() -> None:
    story = Story(settings=ENFORCED).start(
        node("n1"), space(), policy(), binding(), written("a", ALICE)
    )
    assert list(users(story).values()) == ["alice"]
    [report] = [one for one in story.reports if isinstance(one, ApplicationReport)]
    assert report.groups == ("dev",)
    assert story.mirror.identity_said() == ""
    assert len(events(story, "UserInfoTrusted")) == 1
    assert not any("Pod/a UserInfoNotTrusted" in line for line in story.did())


@pytest.mark.parametrize(
    "items",
    [
        [],
        [policy()],
        [binding()],
        [policy(failurePolicy="Ignore"), binding()],
        [policy(validations=[]), binding()],
        [policy(matchConditions=[{"name": "a", "expression": "false"}]), binding()],
        [policy(), binding(of="another")],
        [policy(), binding(validationActions=["Audit", "Warn"])],
        [policy(), binding(matched={"objectSelector": {"matchLabels": {"a": "b"}}})],
        [policy(), binding(matched={"resourceRules": [{"resources": ["jobs"]}]})],
        [policy(), binding(matched={"excludeResourceRules": [{"resources": ["pods"]}]})],
        [policy(), binding(matched={"namespaceSelector": {"matchLabels": {"a": "b"}}})],
        [policy(), binding(matched={"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Odd"}]}})],
        [{**policy(), "spec": {"failurePolicy": 7}}, binding()],
    ],
    ids=[
        "nothing", "no binding", "no policy", "ignored", "empty", "conditions", "of another", "warns", "some objects",
        "some resources", "not pods", "other namespaces", "unreadable binding", "unreadable policy",
    ],
)  # fmt: skip
def test_without_the_guard_the_core_gets_the_namespace(items: list[Item]) -> None:
    story = Story(settings=ENFORCED).start(node("n1"), space(), *items, written("a", ALICE))
    assert list(users(story).values()) == ["system:namespace:work"]
    [report] = [one for one in story.reports if isinstance(one, ApplicationReport)]
    assert report.groups == ()
    assert "event Pod/a UserInfoNotTrusted" in story.did()


def test_a_pod_that_is_older_than_policy_and_binding_does_not_count() -> None:
    """Nobody guarded its annotation when it was written; the binding is the newer of both here."""
    story = Story(settings=ENFORCED)
    minute = "2026-01-01T00:00:30Z"
    at = {
        "old": "2026-01-01T00:00:29Z",
        "same": "2026-01-01T00:00:35Z",
        "new": "2026-01-01T00:00:36Z",
    }
    assert SETTLE_MS == 5_000
    items = [
        written(name, ALICE, created, labels={"applicationId": name})
        for name, created in at.items()
    ]
    story.start(node("n1"), space(), policy(), binding(created=minute), *items)
    assert [users(story)[one] for one in sorted(users(story))] == [
        "alice",
        *["system:namespace:work"] * 2,
    ]


def test_an_application_is_of_one_user() -> None:
    """Bob names Alice's application, and gets one of his own; the digests do not depend on who comes first."""
    for names in (("a", "b"), ("b", "a")):
        notes = {"a": ALICE, "b": BOB}
        story = Story(settings=ENFORCED).start(node("n1"), space(), policy(), binding())
        for name in names:
            story.see(written(name, notes[name]))
        story.see(written("none", {}))
        assert users(story) == {id_: user for user, id_ in APPLICATIONS.items()}
        pods = [one for one in story.reports if isinstance(one, PodReport) and one.pod_name]
        told = {one.pod_name: one.application for one in pods}
        assert told == {
            "a": APPLICATIONS["alice"],
            "b": APPLICATIONS["bob"],
            "none": APPLICATIONS["system:namespace:work"],
        }


def test_when_the_guard_goes_and_comes_new_applications_notice() -> None:
    story = Story(settings=ENFORCED).start(node("n1"), space(), policy(), binding())
    assert story.mirror.identity_said() == ""
    for item in (binding(), policy()):
        story.gone(item)
        assert story.mirror.identity_said()
        name = f"without-{item['kind']}"
        story.see(written(name, ALICE, labels={"applicationId": name}))
        assert [*users(story).values()][-1] == "system:namespace:work"
        story.see(item)
        story.see(written(name + "-again", ALICE, labels={"applicationId": name}))
        assert [*users(story).values()][-1] == "alice"
    assert len(events(story, "UserInfoNotTrusted")) == 2
    assert len(events(story, "UserInfoTrusted")) == 3
    story.lists(kinds=[BINDING])  # Deleted without a watch event.
    assert "no ValidatingAdmissionPolicyBinding" in (story.mirror.identity_said() or "")
    story.mirror.handle(Listing(POLICY, [], 0, served=False))
    assert "deploy/rbac.yaml" in (story.mirror.identity_said() or "")


def test_a_placeholder_keeps_application_and_user_over_a_restart_of_the_shim() -> None:
    groups = json.dumps([{"name": "w", "minMember": 1, "minResource": {"cpu": "1"}}])
    origin = written("first", {**ALICE, labels.TASK_GROUPS: groups})
    story = Story(settings=ENFORCED).start(node("n1"), space(), policy(), binding(), origin)
    [order] = [one for one in story.actions if isinstance(one, CreatePod)]
    made = {**order.item, "kind": "Pod"}
    made["metadata"] = {**made["metadata"], "uid": "uid-held", "creationTimestamp": LATER}
    again = Story(settings=ENFORCED).start(node("n1"), space(), policy(), binding(), origin, made)
    assert users(again) == {APPLICATIONS["alice"]: "alice"}


def test_a_task_group_does_not_write_what_the_shim_writes() -> None:
    """The shim creates the placeholder, and no policy refuses an annotation that the shim writes."""
    marks = dict.fromkeys((*labels.OWN_ANNOTATIONS, labels.USER_INFO), "x")
    group = {
        "name": "w",
        "minMember": 1,
        "minResource": {"cpu": "1"},
        "annotations": marks | {"a": "b"},
    }
    group["labels"] = {labels.SOFT_EVICTION: "true", "c": "d"}
    story = Story().start(node("n1"), written("first", {labels.TASK_GROUPS: json.dumps([group])}))
    [order] = [one for one in story.actions if isinstance(one, CreatePod)]
    metadata = order.item["metadata"]
    assert "x" not in metadata["annotations"].values()
    assert metadata["annotations"]["a"] == "b"
    assert metadata["labels"]["c"] == "d"
    assert labels.SOFT_EVICTION not in metadata["labels"]


def test_the_setting_has_two_values() -> None:
    assert settings_from({}).trust_user_info
    assert settings_from({"service.trustUserInfo": "always"}).trust_user_info
    assert not settings_from({"service.trustUserInfo": "enforced"}).trust_user_info
    with pytest.raises(BadSettingError, match=r"service\.trustUserInfo"):
        settings_from({"service.trustUserInfo": "never"})
