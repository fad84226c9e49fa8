"""Placeholders in the shim: declared, created once, recorded on the pod, deleted with their application."""

import json
from typing import Any

import pytest

from shim_client.cluster import (
    ClusterError,
    ConflictError,
    CreatePod,
    DeletePod,
    MissingError,
    PatchPod,
)
from shim_client.config import BadSettingError, Settings, settings_from
from shim_client.messages import (
    ApplicationReport,
    ApplicationState,
    Placed,
    PodReport,
    Released,
    TerminationType,
)
from shim_client.translate.pod import read_pod
from shim_client.translate.task_groups import read_gang
from tests.shim.objects import Item, node, pod
from tests.shim.story import Story, changed

GROUPS = "yunikorn.apache.org/task-groups"
GROUP = "yunikorn.apache.org/task-group-name"
PARAMETERS = "yunikorn.apache.org/schedulingPolicyParameters"
MADE = "evenhand.io/placeholders-made"
DRIVER = {"name": "driver", "minMember": 1, "minResource": {"cpu": "1"}}
WORKERS = {"name": "workers", "minMember": 2, "minResource": {"cpu": "500m", "memory": "1Gi"}}


def notes(*groups: Any, **more: str) -> dict[str, str]:
    return {GROUPS: json.dumps([*groups]), **more}


def gang(name: str = "first", *groups: Any, spec: Any = None, **more: str) -> Item:
    """Return a pod that declares task groups and belongs to the first of them."""
    found = groups or (DRIVER, WORKERS)
    written = {**notes(*found), GROUP: found[0]["name"], **more}
    return pod(name, annotations=written, spec=spec or {})


def creations(story: Story) -> list[CreatePod]:
    return [action for action in story.actions if isinstance(action, CreatePod)]


def applications(story: Story) -> list[ApplicationReport]:
    return [report for report in story.reports if isinstance(report, ApplicationReport)]


def born(story: Story, order: CreatePod, **more: Any) -> Item:
    """Return the pod that an order creates, as the cluster shows it."""
    item: Item = json.loads(json.dumps(order.item))
    uid = f"uid-{order.pod.name}"
    item["metadata"] |= {"uid": uid, "creationTimestamp": "2026-01-01T00:00:01Z"}
    item["status"] = {"phase": "Pending"}
    item["spec"] |= more
    del story
    return item


# Declared ---------------------------------------------------------------------------------------------------------


def test_1_9_task_groups_are_declared_and_made() -> None:
    story = Story().start(node("n1"), gang(**{PARAMETERS: "placeholderTimeoutInSeconds=30"}))
    (report,) = applications(story)
    assert (report.gang_style, report.timeout_ms) == ("Soft", 30_000)
    assert report.placeholder_ask == {"memory": 2 << 30, "pods": 3, "vcore": 2000}
    assert [line for line in story.did() if "create" in line] == [
        "create driver 0",
        "create workers 0",
        "create workers 1",
    ]


def test_1_9_a_placeholder_is_what_its_task_group_says() -> None:
    group = {
        **WORKERS,
        "nodeSelector": {"zone": "a"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "labels": {"team": "x"},
        "annotations": {"note": "y"},
        "minResource": {"cpu": "1", "nvidia.com/gpu": "1"},
    }
    spec = {"priorityClassName": "high", "priority": 9, "imagePullSecrets": [{"name": "s"}]}
    settings = Settings(placeholder_image="pause:1", placeholder_run_as_user=1000)
    story = Story(settings=settings).start(node("n1"), gang("first", group, spec=spec))
    order = creations(story)[0]
    metadata, made = order.item["metadata"], order.item["spec"]
    assert metadata["labels"] == {
        "team": "x",
        "yunikorn.apache.org/app-id": "app",
        "yunikorn.apache.org/queue": "root.a",
    }
    assert metadata["annotations"]["note"] == "y"
    assert metadata["annotations"]["internal.yunikorn.apache.org/placeholder"] == "true"
    assert metadata["annotations"][GROUP] == "workers"
    (owner,) = metadata["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Pod", "first", "uid-first")
    assert (made["nodeSelector"], made["tolerations"]) == (
        group["nodeSelector"],
        group["tolerations"],
    )
    assert (made["terminationGracePeriodSeconds"], made["priorityClassName"]) == (0, "high")
    assert made["imagePullSecrets"] == [{"name": "s"}]
    assert made["securityContext"] == {"runAsUser": 1000}
    (container,) = made["containers"]
    assert container["image"] == "pause:1"
    assert container["resources"] == {
        "requests": {"cpu": "1", "nvidia.com/gpu": "1"},
        "limits": {"nvidia.com/gpu": "1"},
    }


def test_1_9_a_placeholder_is_told_with_its_group_and_the_size_of_its_gang() -> None:
    story = Story().start(node("n1"), gang())
    orders = creations(story)
    story.forget()
    story.see(*(born(story, order) for order in orders))
    told = [report for report in story.reports if isinstance(report, PodReport)]
    assert [(one.placeholder, one.originator) for one in told] == [(True, False)] * 3
    assert [one.task_group for one in told] == ["driver", "workers", "workers"]
    assert {(one.application, one.job_key, one.job_members) for one in told} == {
        ("app", "placeholders/uid-first", 3)
    }


def test_1_9_only_the_pod_that_creates_the_application_counts() -> None:
    story = Story().start(node("n1"), gang("first"), gang("second", WORKERS))
    assert len(applications(story)) == 1
    assert {order.origin for order in creations(story)} == {"uid-first"}
    assert len(creations(story)) == 3


def test_1_9_task_groups_of_a_later_pod_do_not_count_where_the_first_pod_has_none() -> None:
    """The pod that creates the application declares its gang, or the application has none (docs/gang-placeholders.md)."""
    story = Story().start(node("n1"), pod("first"), gang("second", WORKERS))
    assert creations(story) == []
    assert [one.placeholder_ask for one in applications(story)] == [{}]


def test_1_9_gang_scheduling_can_be_switched_off() -> None:
    story = Story(settings=Settings(gangs=False)).start(node("n1"), gang())
    assert creations(story) == []
    assert applications(story)[0].placeholder_ask == {}


# Neighbours -------------------------------------------------------------------------------------------------------


def apart(name: str) -> Any:
    """No two pods with this label on one node."""
    term = {
        "labelSelector": {"matchLabels": {"team": name}},
        "topologyKey": "kubernetes.io/hostname",
    }
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def hosts(*names: str) -> list[Item]:
    return [node(name, labels={"kubernetes.io/hostname": name}) for name in names]


def spread_gang(name: str) -> Item:
    """Return a gang's pod with anti-affinity to its own label, which its placeholders have, too."""
    group = {**WORKERS, "labels": {"team": "x"}, "affinity": apart("x")}
    item = gang(name, group, spec={"affinity": apart("x")})
    item["metadata"]["labels"]["team"] = "x"
    return item


def told_of(story: Story, key: str) -> PodReport:
    return [one for one in story.reports if isinstance(one, PodReport) and one.key == key][-1]


def test_1_9_a_placeholder_does_not_keep_away_the_pod_that_comes_in_its_place() -> None:
    story = Story().start(*hosts("n1", "n2", "n3"), spread_gang("first"))
    held = [born(story, order) for order in creations(story)]
    story.see(*held)
    uids = [item["metadata"]["uid"] for item in held]
    story.hear(Placed(uids[0], "n1", "app"), Placed(uids[1], "n2", "app"))
    story.see(spread_gang("second"))
    constraints = told_of(story, "uid-second").constraints
    assert constraints is None or constraints.excluded_nodes == ()


def test_1_9_a_placeholder_of_another_group_keeps_it_away() -> None:
    story = Story().start(*hosts("n1", "n2", "n3"), spread_gang("first"))
    held = [born(story, order) for order in creations(story)]
    story.see(*held)
    story.hear(Placed(held[0]["metadata"]["uid"], "n1", "app"))
    other = spread_gang("second")
    other["metadata"]["annotations"][GROUP] = "others"
    story.see(other)
    constraints = told_of(story, "uid-second").constraints
    assert constraints is not None
    assert constraints.excluded_nodes == ("n1",)


def test_1_9_a_real_pod_keeps_it_away_beside_a_placeholder() -> None:
    story = Story().start(*hosts("n1", "n2", "n3"), spread_gang("first"))
    held = [born(story, order) for order in creations(story)]
    story.see(*held)
    story.hear(Placed(held[0]["metadata"]["uid"], "n1", "app"), Placed("uid-first", "n2", "app"))
    story.see(spread_gang("second"))
    constraints = told_of(story, "uid-second").constraints
    assert constraints is not None
    assert constraints.excluded_nodes == ("n2",)


# Faults -----------------------------------------------------------------------------------------------------------

BAD = [
    ("{", "is no JSON"),
    ("{}", "is not a list"),
    ("[]", "is not a list"),
    ("[1]", "[0]: is not an object"),
    ('[{"minMember": 1, "minResource": {"cpu": 1}}]', "[0].name"),
    ('[{"name": "a b", "minMember": 1, "minResource": {"cpu": 1}}]', "[0].name"),
    ('[{"name": "a", "minResource": {"cpu": 1}}]', "[0].minMember"),
    ('[{"name": "a", "minMember": 0, "minResource": {"cpu": 1}}]', "[0].minMember"),
    ('[{"name": "a", "minMember": true, "minResource": {"cpu": 1}}]', "[0].minMember"),
    ('[{"name": "a", "minMember": 1}]', "[0].minResource"),
    ('[{"name": "a", "minMember": 1, "minResource": {"cpu": "x"}}]', "[0].minResource.cpu"),
    ('[{"name": "a", "minMember": 1, "minResource": {"cpu": -1}}]', "[0].minResource.cpu"),
    (json.dumps([WORKERS, WORKERS]), "[1].name: 'workers' stands twice"),
    (json.dumps([{**WORKERS, "minMembers": 2}]), "[0].minMembers"),
    (json.dumps([{**WORKERS, "labels": {"a": 1}}]), "[0].labels"),
    (json.dumps([{**WORKERS, "nodeSelector": []}]), "nodeSelector"),
    (json.dumps([{**WORKERS, "tolerations": {}}]), "tolerations"),
    (json.dumps([{**WORKERS, "affinity": {"podAffinity": []}}]), "podAffinity"),
    (json.dumps([{**WORKERS, "minMember": 10_001}]), "minMember"),
]


@pytest.mark.parametrize(("written", "why"), BAD, ids=[why for _, why in BAD])
def test_1_9_task_groups_that_cannot_be_read_are_said_and_make_nothing(
    written: str, why: str
) -> None:
    problems: list[str] = []
    assert read_gang({GROUPS: written}, problems) is None
    assert len(problems) == 1
    assert why in problems[0]
    story = Story().start(node("n1"), pod("a", annotations={GROUPS: written}))
    assert "ask a" in story.told()
    assert "event Pod/a PodNotClear" in story.did()


@pytest.mark.parametrize(
    ("written", "style", "seconds", "problems"),
    [
        ("", "Soft", 0, 0),
        ("gangSchedulingStyle=Hard placeholderTimeoutInSeconds=60", "Hard", 60, 0),
        ("gangSchedulingStyle=Firm", "Soft", 0, 1),
        ("placeholderTimeoutInSeconds=-1 gangSchedulingStyle=Hard", "Hard", 0, 1),
        ("placeholderTimeoutInSeconds=0", "Soft", 0, 1),
        ("timeout=5", "Soft", 0, 1),
    ],
)
def test_1_9_policy_parameters(written: str, style: str, seconds: int, problems: int) -> None:
    said: list[str] = []
    found = read_gang({**notes(WORKERS), PARAMETERS: written}, said)
    assert found is not None
    assert (found.style, found.timeout_seconds, len(said)) == (style, seconds, problems)


def test_1_9_a_name_of_a_group_that_is_not_declared_is_said() -> None:
    facts = read_pod(pod("a", annotations={**notes(WORKERS), GROUP: "other"}), Settings())
    assert any("there is no task group 'other'" in problem for problem in facts.problems)


@pytest.mark.parametrize(
    "flat",
    [
        {"service.placeholderImage": ""},
        {"service.placeholderImage": "two words"},
        {"service.placeholderRunAsUser": "root"},
        {"service.placeholderFsGroup": "-2"},
        {"service.disableGangScheduling": "yes"},
    ],
)
def test_settings_of_placeholders_are_checked(flat: dict[str, str]) -> None:
    with pytest.raises(BadSettingError):
        settings_from(flat)


def test_settings_of_placeholders() -> None:
    found = settings_from(
        {"service.placeholderRunAsUser": "0", "service.placeholderRunAsGroup": "-1"}
    )
    assert (found.placeholder_run_as_user, found.placeholder_run_as_group) == (0, None)
    assert found.gangs


# Once -------------------------------------------------------------------------------------------------------------


def test_1_9_when_all_are_made_it_is_written_down() -> None:
    story = Story().start(node("n1"), gang())
    orders = creations(story)
    story.forget()
    for order in orders[:-1]:
        story.outcome(order)
    assert story.did() == []
    story.outcome(orders[-1])
    assert story.did() == [f"annotate first {{'{MADE}': 'true'}}"]


def test_1_9_one_that_cannot_be_made_is_said_and_nothing_is_written_down() -> None:
    story = Story().start(node("n1"), gang())
    orders = creations(story)
    story.forget()
    story.outcome(orders[0], ConflictError("exceeded quota"))
    for order in orders[1:]:
        story.outcome(order)
    assert story.did() == ["event Pod/first PlaceholderNotMade"]


@pytest.mark.parametrize("error", [None, ConflictError("exceeded quota")], ids=["made", "not made"])
def test_1_9_placeholders_whose_maker_ended_meanwhile_are_awaited_no_longer(
    error: ClusterError | None,
) -> None:
    """Else an application that restarts would ask for places of which some are never taken."""
    story = Story().start(node("n1"), gang("first"), gang("second"))
    orders = creations(story)
    story.gone(gang("first"))
    story.forget()
    for order in orders[:-1]:
        story.outcome(order)
    story.outcome(orders[-1], error)
    assert story.did() == []
    story.see(born(story, orders[1]))
    story.lose()
    story.connect()
    assert applications(story)[-1].placeholder_ask == {"memory": 1 << 30, "pods": 1, "vcore": 500}


def test_1_9_an_answer_about_placeholders_of_an_application_that_is_over_changes_nothing() -> None:
    story = Story().start(node("n1"), gang())
    orders = creations(story)
    story.gone(gang())
    story.see(gang())
    story.forget()
    story.outcome(orders[0])
    for order in orders:
        story.outcome(order)
    assert story.did() == [f"annotate first {{'{MADE}': 'true'}}"]


def test_1_9_the_names_are_the_same_after_a_restart() -> None:
    before = creations(Story().start(node("n1"), gang()))
    after = creations(Story().start(node("n1"), gang()))
    assert [order.pod.name for order in before] == [order.pod.name for order in after]
    assert len({order.pod.name for order in before}) == 3
    assert all(len(order.pod.name) <= 63 for order in before)


def test_1_9_they_are_made_once_however_often_the_core_restarts() -> None:
    story = Story().start(node("n1"), gang())
    orders = creations(story)
    for order in orders:
        story.outcome(order)
    story.see(*(born(story, order) for order in orders))
    story.gone(born(story, orders[0]))
    story.forget()
    story.lose()
    story.connect()
    assert creations(story) == []
    assert applications(story)[-1].placeholder_ask == {"memory": 2 << 30, "pods": 2, "vcore": 1000}


def test_1_9_after_a_restart_of_the_shim_what_was_made_is_not_made_again() -> None:
    orders = creations(Story().start(node("n1"), gang()))
    marked = gang("first", DRIVER, WORKERS, **{MADE: "true"})
    story = Story()
    story.start(node("n1"), marked, born(story, orders[1]))
    assert creations(story) == []
    (report,) = applications(story)
    assert report.placeholder_ask == {"memory": 1 << 30, "pods": 1, "vcore": 500}


def test_1_9_an_application_that_runs_gets_no_placeholders() -> None:
    running = changed(gang(), "spec", nodeName="n1")
    story = Story().start(node("n1"), running, pod("second"))
    assert creations(story) == []
    (report,) = applications(story)
    assert (report.placeholder_ask, report.gang_style) == ({}, "Soft")


# Replaced and gone ------------------------------------------------------------------------------------------------


def placed(story: Story) -> list[Item]:
    """Create the placeholders of a gang, place and bind each on n1, and return them."""
    items = [born(story, order) for order in creations(story)]
    story.see(*items)
    story.hear(*(Placed(item["metadata"]["uid"], "n1", "app") for item in items))
    bound = [changed(item, "spec", nodeName="n1") for item in items]
    story.see(*bound)
    return bound


def test_1_9_a_placeholder_that_is_replaced_is_marked_deleted_and_confirmed() -> None:
    story = Story().start(node("n1"), gang())
    first = placed(story)[0]
    story.forget()
    uid, name = first["metadata"]["uid"], first["metadata"]["name"]
    replaced = TerminationType.PLACEHOLDER_REPLACED
    story.hear(Released(uid, replaced, "app", "", "why", "p-1-1", "uid-first", ("n1",)))
    mark = {"evenhand.io/released-for": "p-1-1/uid-first/n1"}
    assert story.did() == [
        f"event Pod/{name} PlaceholderReplaced",
        f"annotate {name} {mark}",
        f"delete {name}",
    ]
    story.gone(first)
    assert story.told() == [f"release {name} PLACEHOLDER_REPLACED p-1-1"]
    story.hear(Placed("uid-first", "n1", "app"))
    assert "bind first@n1" in story.did()


def test_1_7_a_replacement_goes_on_after_a_restart() -> None:
    before = Story().start(node("n1"), gang())
    first = placed(before)[0]
    notes_of = {
        **first["metadata"]["annotations"],
        "evenhand.io/released-for": "p-1-1/uid-first/n1",
    }
    going = changed(first, "metadata", annotations=notes_of)
    story = Story().start(node("n1"), gang(**{MADE: "true"}), going)
    name = first["metadata"]["name"]
    sent = next(one for one in story.reports if isinstance(one, PodReport) and one.node)
    assert sent.releasing is not None
    assert sent.releasing.termination is TerminationType.PLACEHOLDER_REPLACED
    assert (sent.releasing.decision, sent.releasing.beneficiary) == ("p-1-1", "uid-first")
    assert f"delete {name}" in story.did()


def test_1_9_an_application_without_real_pods_loses_its_placeholders() -> None:
    story = Story().start(node("n1"), gang())
    held = placed(story)
    story.forget()
    story.gone(gang())
    assert story.did() == [f"delete {one['metadata']['name']}" for one in held]


def test_1_9_each_of_them_is_ordered_away_once_and_again_only_when_that_failed() -> None:
    story = Story().start(node("n1"), gang())
    held = placed(story)
    story.forget()
    story.gone(gang())
    deletions = [action for action in story.actions if isinstance(action, DeletePod)]
    story.forget()
    story.see(held[1])
    story.gone(held[0])
    assert story.did() == []
    story.outcome(deletions[1], MissingError("it is gone"))
    story.outcome(deletions[2], ClusterError("no answer"))
    name = held[2]["metadata"]["name"]
    assert story.did() == [f"event Pod/{name} FailedDeletion"]
    story.gone(held[1])
    assert story.did() == [f"delete {name}"]


def test_1_9_of_a_failing_application_each_is_ordered_away_once() -> None:
    story = Story().start(node("n1"), gang())
    held = placed(story)
    story.forget()
    for state in ("Failing", "Failed"):
        story.hear(ApplicationState("app", state, "not in time"))
    deletions = [line for line in story.did() if line.startswith("delete")]
    assert deletions == [f"delete {one['metadata']['name']}" for one in held]
    story.see(*(changed(one, "metadata", deletionTimestamp="2026-01-01T00:01:00Z") for one in held))
    story.forget()
    story.gone(*held)
    assert story.did() == []
    assert [line.split()[0] for line in story.told()] == ["release"] * 3


def test_1_9_placeholders_stay_while_another_real_pod_is_there() -> None:
    story = Story().start(node("n1"), gang(), pod("second"))
    placed(story)
    story.forget()
    story.gone(gang())
    assert [line for line in story.did() if line.startswith("delete")] == []


def test_1_9_a_gang_that_failed_takes_its_pods_along_and_may_begin_anew() -> None:
    story = Story().start(node("n1"), gang())
    held = placed(story)
    story.forget()
    story.hear(ApplicationState("app", "Failing", "ResourceReservationTimeout"))
    did = story.did()
    assert "phase first Failed ResourceReservationTimeout" in did
    assert [line for line in did if line.startswith("delete")] == [
        f"delete {one['metadata']['name']}" for one in held
    ]
    story.gone(*held)
    story.hear(ApplicationState("app", "Failed"))
    story.forget()
    story.see(gang())  # Changed before its phase was written: it begins nothing.
    assert story.told() == []
    story.see(changed(gang(), "status", phase="Failed"))
    story.see(gang("again"))
    assert [line for line in story.told() if line.startswith("app")] == [
        "app app in root.a gang Soft memory=2147483648 pods=3 vcore=2000"
    ]
    assert len([line for line in story.did() if line.startswith("create")]) == 3


def test_1_9_a_waiting_placeholder_that_timed_out_is_deleted() -> None:
    story = Story().start(node("n1"), gang())
    items = [born(story, order) for order in creations(story)]
    story.see(*items)
    story.forget()
    uid, name = items[0]["metadata"]["uid"], items[0]["metadata"]["name"]
    story.hear(Released(uid, TerminationType.TIMEOUT, "app"))
    assert f"delete {name}" in story.did()


def test_outcomes_of_other_things_are_not_taken_for_creations() -> None:
    story = Story().start(node("n1"), gang())
    order = creations(story)[0]
    story.gone(gang())
    story.forget()
    story.outcome(order, MissingError("gone"))
    assert story.did() == []
    assert not any(isinstance(action, PatchPod | DeletePod) for action in story.actions)
