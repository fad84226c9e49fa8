"""PodGroups of scheduling.k8s.io at the shim: the gang of a pod, its size, and what holds a pod whose group is not known."""

from typing import Any

import pytest

from shim_client.cluster import KINDS, Listing, RecordEvent
from shim_client.config import Settings
from shim_client.translate.fields import BadObjectError
from shim_client.translate.pod_groups import PodGroupFacts, read_pod_group
from tests.shim.objects import Item, node, pod
from tests.shim.polling import until
from tests.shim.rig import WatchedCluster, core_here, shim_at_work, waiting
from tests.shim.story import Story

JOB = "pod-group.scheduling.sigs.k8s.io"
SIZE = "pod-group.scheduling.sigs.k8s.io/min-available"
API = "scheduling.k8s.io/v1beta1"


def group(name: str, members: int = 0, ns: str = "work", **more: Any) -> Item:
    """Return a PodGroup: a gang with this minimum of members or, without a number, a group whose pods are placed one by one."""
    policy: Item = {"gang": {"minCount": members}} if members else {"basic": {}}
    metadata = {"name": name, "namespace": ns, "uid": f"uid-{name}"}
    spec = {"schedulingPolicy": policy, **more}
    return {"apiVersion": API, "kind": "PodGroup", "metadata": metadata, "spec": spec}


def member(name: str, of: str = "pg", **more: Any) -> Item:
    spec = {"schedulingGroup": {"podGroupName": of}, **more.pop("spec", {})}
    return pod(name, spec=spec, **more)


def started(*items: Item, settings: Settings | None = None) -> Story:
    return Story(settings=settings).start(node("n1"), *items).forget()


def told(story: Story) -> dict[str, tuple[str, int]]:
    """Return key and size of the gang of each pod that the core knows."""
    known = story.mirror.state.pods.values()
    return {
        one.facts.ref.name: (one.sent.job_key, one.sent.job_members) for one in known if one.sent
    }


def said(story: Story, reason: str) -> list[str]:
    """Return the messages of events with a reason, and forget all actions."""
    actions = list(story.actions)
    story.actions.clear()
    events = [one for one in actions if isinstance(one, RecordEvent)]
    return [one.message for one in events if one.reason == reason]


GANG = ("podgroup/work/pg", 3)


def test_the_group_is_the_gang_and_min_count_its_size() -> None:
    story = started(group("pg", 3), member("a"), member("b"), member("r", node="n1"))
    assert told(story) == {"a": GANG, "b": GANG, "r": GANG}


def test_groups_of_one_name_in_two_namespaces_are_two_gangs() -> None:
    other = member("b", ns="home")
    story = started(group("pg", 3), group("pg", 2, ns="home"), member("a"), other)
    assert told(story) == {"a": GANG, "b": ("podgroup/home/pg", 2)}


def test_pods_of_a_basic_group_are_placed_one_by_one() -> None:
    story = started(group("pg"), member("a"), member("b"))
    assert told(story) == {"a": ("", 0), "b": ("", 0)}


def test_a_pod_waits_for_its_group_and_says_so() -> None:
    story = started(member("a"), member("b", of="other"))
    assert told(story) == {}
    assert story.mirror.tally().held == 2
    story = Story().start(node("n1"), member("a"))
    assert "condition a SchedulingSkipped" in story.did()
    story.see(group("pg", 3))
    assert told(story) == {"a": GANG}
    assert story.mirror.tally().held == 0


def test_a_group_that_is_deleted_leaves_its_gang_and_lets_no_further_pod_in() -> None:
    story = started(group("pg", 3), member("a"), member("r", node="n1"))
    story.gone(group("pg", 3))
    story.see(
        member("a", labels={"x": "y"}), member("r", node="n1", labels={"x": "y"}), member("b")
    )
    assert told(story) == {"a": GANG, "r": GANG}
    assert said(story, "FailedScheduling") == ["podgroup 'pg' is not there"]


def test_a_group_that_is_made_anew_gives_its_new_size_and_policy() -> None:
    story = started(group("pg", 3), member("a"))
    story.gone(group("pg", 3))
    story.see(group("pg", 5))
    assert told(story) == {"a": ("podgroup/work/pg", 5)}
    story.lists(kinds=["PodGroup"])
    story.see(group("pg"))
    assert told(story) == {"a": ("", 0)}


def test_labels_of_a_job_win_over_the_group() -> None:
    named = member("a", labels={JOB: "j", SIZE: "2"})
    story = Story().start(node("n1"), named)
    assert told(story) == {"a": ("j", 2)}
    [message] = said(story, "PodNotClear")
    assert "'pg'" in message
    assert "'j'" in message


def test_a_pod_of_another_scheduler_is_foreign_whatever_its_group() -> None:
    other = member("f", spec={"schedulerName": "default-scheduler"}, node="n1")
    assert told(started(other)) == {"f": ("", 0)}


def test_members_share_an_application_where_each_pod_gets_one_of_its_own() -> None:
    settings = Settings(generate_unique_app_id=True)
    pods = [member(name, metadata={"labels": {}}) for name in "ab"]
    story = started(group("pg", 2), *pods, pod("c", metadata={"labels": {}}), settings=settings)
    assert sorted(story.mirror.state.applications) == ["work-pg", "work-uid-c"]
    assert told(story)["a"] == told(story)["b"] == ("podgroup/work/pg", 2)


def unserved(story: Story) -> None:
    story.mirror.handle(Listing("PodGroup", [], 0, served=False))


def test_a_group_is_not_honoured_where_the_api_is_not_served_and_the_pod_says_so() -> None:
    story = Story()
    unserved(story)
    items = [node("n1"), member("a"), pod("b")]
    story.lists(*items, kinds=[kind for kind in KINDS if kind != "PodGroup"])
    story.connect()
    assert told(story) == {"b": ("", 0)}
    [message] = said(story, "FailedScheduling")
    assert "scheduling.k8s.io" in message
    assert JOB in message
    story.lists(kinds=["PodGroup"])
    assert said(story, "FailedScheduling") == ["podgroup 'pg' is not there"]
    story.see(group("pg", 1))
    assert told(story) == {"a": ("podgroup/work/pg", 1), "b": ("", 0)}


def test_a_group_that_cannot_be_read_is_an_event_on_it() -> None:
    story = Story().start(
        node("n1"), group("pg", 3) | {"spec": {"schedulingPolicy": {}}}, member("a")
    )
    assert "event PodGroup/pg PodGroupNotReadable" in story.did()
    assert told(story) == {}


def test_fields_without_effect_are_an_event_on_the_group_once() -> None:
    one = group(
        "pg", 3, disruptionMode="PodGroup", schedulingConstraints={"topology": [{"key": "zone"}]}
    )
    story = Story().start(node("n1"), one)
    story.see(one)
    [message] = said(story, "PodGroupNotClear")
    assert message.startswith("disruptionMode, schedulingConstraints ")


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({"schedulingPolicy": {"gang": {"minCount": 4}}}, PodGroupFacts(4)),
        ({"schedulingPolicy": {"basic": {}}}, PodGroupFacts(0)),
    ],
)
def test_a_group_is_read(spec: Item, found: PodGroupFacts) -> None:
    assert read_pod_group({"spec": spec}) == found


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"disruptionMode": "Pod"}, ()),
        ({"disruptionMode": {"single": {}}}, ()),
        ({"disruptionMode": {"all": {}}}, ("disruptionMode",)),
        ({"resourceClaims": [], "priorityClassName": "gold"}, ("priorityClassName",)),
    ],
)
def test_fields_without_effect_are_named(fields: Item, named: tuple[str, ...]) -> None:
    spec = {"schedulingPolicy": {"basic": {}}, **fields}
    assert read_pod_group({"spec": spec}).without_effect == named


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({}, "spec.schedulingPolicy"),
        ({"schedulingPolicy": {}}, "spec.schedulingPolicy"),
        ({"schedulingPolicy": {"gang": {}}}, "spec.schedulingPolicy.gang.minCount"),
        ({"schedulingPolicy": {"gang": {"minCount": 0}}}, "spec.schedulingPolicy.gang.minCount"),
        ({"schedulingPolicy": {"gang": {"minCount": "4"}}}, "spec.schedulingPolicy.gang.minCount"),
        (
            {"schedulingPolicy": {"gang": {"minCount": 10**6}}},
            "spec.schedulingPolicy.gang.minCount",
        ),
        ({"schedulingPolicy": {"gang": {"minCount": 1}, "basic": {}}}, "spec.schedulingPolicy"),
    ],
)
def test_a_group_that_is_wrong_names_the_field(spec: Item, path: str) -> None:
    with pytest.raises(BadObjectError) as bad:
        read_pod_group({"spec": spec})
    assert bad.value.path == path


# With a real core ---------------------------------------------------------------------------------------------------


async def test_a_gang_of_nine_runs_whole_or_not_at_all() -> None:
    cluster = WatchedCluster()
    for number in range(5):
        cluster.create(node(f"n{number}"))
    for number in range(9):
        cluster.create(member(f"p{number}", cpu="6"))
    async with core_here() as address, shim_at_work(cluster, address, Settings()) as shim:
        await until(lambda: shim.progress().tally.held == 9)
        cluster.create(group("pg", 9))
        await until(lambda: shim.progress().is_settled and not shim.progress().tally.held)
        assert len(waiting(cluster)) == 9
        for number in range(5, 9):
            cluster.create(node(f"n{number}"))
        await until(lambda: not waiting(cluster))
