"""A changed annotation of a namespace reaches the applications that the core knows, and their waiting pods."""

from typing import Any

from shim_client.config import Settings
from shim_client.messages import ApplicationAnswer, ApplicationTags, TagsRefused
from tests.shim.objects import Item, named, node, pod
from tests.shim.polling import until
from tests.shim.rig import WatchedCluster, core_here, core_process, free_port, kill, shim_at_work
from tests.shim.rig import waiting as waiting_pods
from tests.shim.story import Story

QUOTA = "yunikorn.apache.org/namespace.quota"
GUARANTEE = "yunikorn.apache.org/namespace.guaranteed"
TAG = "namespace.resourcequota"


def space(**quotas: str) -> Item:
    """Return the namespace `work` with annotations."""
    keys = {"quota": QUOTA, "guaranteed": GUARANTEE}
    notes = {keys[key]: value for key, value in quotas.items()}
    return named("Namespace", "work", annotations=notes)


def cpu(amount: int) -> str:
    return f'{{"resources":{{"vcore":{{"value":{amount}}}}}}}'


def told(story: Story) -> list[tuple[str, Any]]:
    """Return the applications whose tags were sent since the last call, with their quota."""
    found = [one for one in story.reports if isinstance(one, ApplicationTags)]
    story.told()
    return [(one.application, one.tags.get(TAG)) for one in found]


def app(name: str, application: str, **more: Any) -> Item:
    return pod(name, labels={"applicationId": application}, **more)


def test_each_known_application_of_the_namespace_gets_the_new_quota() -> None:
    other = app("c", "three", ns="home")
    story = Story().start(
        node("n1"), space(quota='{"cpu": 1}'), app("a", "one"), app("b", "two"), other
    )
    story.forget()
    story.see(space(quota='{"cpu": 2}'))
    assert told(story) == [("one", cpu(2000)), ("two", cpu(2000))]
    story.see(space(quota='{"cpu": "2000m"}'), named("Namespace", "home"))
    assert told(story) == []
    story.see(space())
    assert told(story) == [("one", None), ("two", None)]


def test_a_namespace_that_is_seen_after_its_pods_is_sent() -> None:
    story = Story().start(node("n1"), app("a", "one")).forget()
    story.see(space(quota='{"cpu": 2}'))
    assert told(story) == [("one", cpu(2000))]


def test_a_change_that_a_watch_missed_is_sent_after_the_next_list() -> None:
    story = Story().start(node("n1"), space(quota='{"cpu": 1}'), app("a", "one")).forget()
    story.lists(space(quota='{"cpu": 2}'), kinds=["Namespace"])
    assert told(story) == [("one", cpu(2000))]


def test_a_change_without_a_session_is_a_part_of_the_next_sync() -> None:
    story = Story().start(node("n1"), space(quota='{"cpu": 1}'), app("a", "one")).forget()
    story.lose()
    story.see(space(quota='{"cpu": 2}'))
    assert story.told() == []
    story.connect()
    [new] = [one for one in story.reports if hasattr(one, "tags") and hasattr(one, "queue")]
    assert dict(new.tags)[TAG] == cpu(2000)
    assert told(story) == []


def test_an_application_without_an_answer_gets_the_quota_behind_its_announcement() -> None:
    story = Story(core="silent").start(space(quota='{"cpu": 1}'), app("a", "one"))
    story.see(space(quota='{"cpu": 2}'))
    assert [type(one).__name__ for one in story.reports] == ["ApplicationReport", "ApplicationTags"]


def test_an_application_that_waits_for_one_of_its_id_is_announced_with_the_new_quota() -> None:
    gpu = app(
        "b", "one", metadata={"labels": {"applicationId": "one", "evenhand.io/partition": "gpu"}}
    )
    story = Story(core="silent").start(space(quota='{"cpu": 1}'), app("a", "one"), gpu)
    story.see(space(quota='{"cpu": 2}'))
    sent = [one.partition for one in story.reports if isinstance(one, ApplicationTags)]
    assert sent == ["default"]
    story.hear(ApplicationAnswer("one", accepted=True))
    announced = story.reports[-1]
    assert (announced.partition, dict(announced.tags)[TAG]) == ("gpu", cpu(2000))  # type: ignore[union-attr]


def test_an_annotation_that_cannot_be_read_leaves_the_quota_in_force() -> None:
    story = Story().start(node("n1"), space(quota='{"cpu": 1}'), app("a", "one")).forget()
    story.see(space(quota='{"cpu" 2}'))
    assert "event Namespace/work AnnotationNotClear" in story.did()
    assert told(story) == []
    story.see(space())
    assert told(story) == [("one", None)]


def test_a_refused_quota_is_one_event_on_the_namespace() -> None:
    story = Story().start(node("n1"), space(quota='{"cpu": 1}'), app("a", "one"), app("b", "two"))
    story.forget()
    refused = [TagsRefused("one", "tag is too long"), TagsRefused("two", "tag is too long")]
    story.hear(*refused)
    assert story.did() == ["event Namespace/work QuotaRefused"]
    story.hear(TagsRefused("gone", "application 'gone' is not known"))
    assert story.did() == []
    story.see(space(quota='{"cpu": 2}'))
    story.hear(*refused)
    assert story.did() == ["event Namespace/work QuotaRefused"]


# With a real core ---------------------------------------------------------------------------------------------------


def put(cluster: WatchedCluster, item: Item) -> None:
    """Write the namespace, as a user does."""
    (cluster.replace if cluster.store.get("Namespace", ("", "work")) else cluster.create)(item)


def four(cluster: WatchedCluster) -> None:
    """Create a node with room for all, and four pods of 400 millicores of a namespace that may use one CPU."""
    cluster.create(node("n0"))
    put(cluster, space(quota='{"cpu": "1"}'))
    for number in range(4):
        made = pod(f"p{number}", cpu="400m")
        made["metadata"]["labels"] = {}
        cluster.create(made)


async def test_a_raised_quota_reaches_waiting_pods_at_once() -> None:
    cluster = WatchedCluster()
    four(cluster)
    async with core_here() as address, shim_at_work(cluster, address, Settings()) as shim:
        await until(lambda: shim.progress().is_settled)
        assert len(waiting_pods(cluster)) == 2
        put(cluster, space(quota='{"cpu": "2"}'))
        await until(lambda: not waiting_pods(cluster))
        put(cluster, space(quota='{"cpu": "1"}'))
        cluster.create(pod("p4", cpu="400m", metadata={"labels": {}}))
        await until(lambda: shim.progress().is_settled)
        assert [one["metadata"]["name"] for one in waiting_pods(cluster)] == ["p4"]
        put(cluster, space())
        await until(lambda: not waiting_pods(cluster))


async def test_a_quota_that_was_raised_without_a_core_counts_when_it_is_back() -> None:
    cluster, port = WatchedCluster(), free_port()
    four(cluster)
    core = await core_process(port)
    async with shim_at_work(cluster, f"127.0.0.1:{port}", Settings()) as shim:
        await until(lambda: len(waiting_pods(cluster)) == 2 and shim.progress().is_settled)
        await kill(core)
        put(cluster, space(quota='{"cpu": "2"}'))
        core = await core_process(port)
        await until(lambda: not waiting_pods(cluster))
    await kill(core)
