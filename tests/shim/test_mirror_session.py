"""Stories of sessions: order at the start, restart, repeated sync, pods on unknown nodes, late answers."""

from typing import Any

from shim_client.messages import ApplicationAnswer, NodeAnswer, Placed, PodRefused
from tests.shim.objects import Item, foreign, named, node, pod
from tests.shim.story import Story, changed


def made(name: str, second: int, **more: Any) -> Item:
    stamp = {"creationTimestamp": f"2026-01-01T00:00:{second:02}Z"}
    return pod(name, metadata=stamp, **more)


def test_1_7_everything_is_told_in_order_and_nothing_is_enabled_before() -> None:
    story = Story().start(
        node("n1"), node("n2", unschedulable=True),
        made("late", 9), made("early", 3), made("runs", 5, node="n1"), foreign("f", "n2"),
    )  # fmt: skip
    assert story.told() == [
        "node n1 CREATE_DRAIN", "node n2 CREATE_DRAIN", "app app in root.a forced",
        "alloc f@n2", "alloc runs@n1", "ask early", "ask late",
        "node n1 DRAIN_TO_SCHEDULABLE", "node n2 DRAIN_NODE", "sync nodes=2 apps=1 allocs=2 asks=2",
    ]  # fmt: skip


def test_1_7_nothing_is_told_before_the_cluster_was_listed() -> None:
    story = Story()
    story.connect()
    assert story.told() == []
    story.lists(node("n1"))
    assert story.told()[0] == "node n1 CREATE_DRAIN"


def test_1_7_asks_wait_for_their_application_and_allocations_for_their_node() -> None:
    story = Story(core="silent").start(node("n1"), pod("a"), pod("b", node="n1"))
    assert story.told() == ["node n1 CREATE_DRAIN", "app app in root.a forced"]
    story.hear(NodeAnswer("n1", accepted=True))
    assert story.told() == []
    story.hear(ApplicationAnswer("app", accepted=True))
    assert story.told() == ["alloc b@n1", "ask a"]
    assert not story.mirror.is_live()


def test_1_7_the_core_may_begin_only_when_the_barrier_was_passed() -> None:
    story = Story(core="silent").start(node("n1"), pod("a"))
    story.hear(NodeAnswer("n1", accepted=True), ApplicationAnswer("app", accepted=True))
    barrier = story.last_pod().key
    story.told()
    story.core = "accept all"
    story.hear(Placed("nobody", "n1"))
    assert story.mirror.is_live() is False
    story.hear(PodRefused(barrier, "no such application"))
    assert story.mirror.is_live()
    assert story.told()[-2:] == [
        "node n1 DRAIN_TO_SCHEDULABLE", "sync nodes=1 apps=1 allocs=0 asks=1",
    ]  # fmt: skip


def test_1_3_the_first_pod_that_runs_already_forces_its_application() -> None:
    story = Story().start(node("n1"), pod("a", node="n1"))
    assert "app app in root.a forced" in story.told()


def test_1_3_an_application_with_any_running_pod_is_forced() -> None:
    story = Story().start(node("n1"), made("waits", 1), made("runs", 2, node="n1"))
    assert "app app in root.a forced" in story.told()


def test_1_3_the_queue_is_that_of_the_first_pod() -> None:
    story = Story().start(node("n1"), made("x", 1, labels={"queue": "root.x"}),
                          made("y", 2, labels={"queue": "root.y"}))  # fmt: skip
    assert [line for line in story.told() if line.startswith("app")] == ["app app in root.x"]


def test_a_lost_session_is_told_anew_with_the_same_originator() -> None:
    story = Story().start(node("n1"), made("first", 1), made("second", 2)).forget()
    story.hear(Placed("uid-first", "n1"))
    story.lose()
    story.see(changed(made("first", 1), "spec", nodeName="n1"))
    assert story.told() == []
    story.connect()
    told = story.told()
    assert told[:3] == ["node n1 CREATE_DRAIN", "app app in root.a forced", "alloc first@n1"]
    assert told[-1] == "sync nodes=1 apps=1 allocs=1 asks=1"


def test_a_pod_being_bound_is_an_allocation_for_the_next_session() -> None:
    story = Story().start(node("n1"), pod("a")).forget()
    story.hear(Placed("uid-a", "n1"))
    story.lose()
    story.forget()
    story.connect()
    assert "alloc a@n1" in story.told()


def test_a_pod_that_went_while_there_was_no_session_is_not_spoken_of() -> None:
    story = Story().start(node("n1"), pod("a"), pod("b")).forget()
    story.lose()
    story.gone(pod("a"))
    story.connect()
    assert [line for line in story.told() if line.endswith(" a")] == []


def test_what_the_core_said_before_the_session_was_lost_counts_for_nothing() -> None:
    story = Story().start(node("n1"), pod("a")).forget()
    story.lose()
    story.hear(Placed("uid-a", "n1"))
    assert story.did() == []


def test_1_1_an_orphan_is_adopted_when_its_node_appears() -> None:
    story = Story().start(node("n1"), pod("a", node="n9"), foreign("f", "n9"))
    assert [line for line in story.told() if line.startswith("alloc")] == []
    story.see(node("n9"))
    assert story.told() == [
        "node n9 CREATE_DRAIN", "alloc a@n9", "alloc f@n9", "node n9 DRAIN_TO_SCHEDULABLE",
    ]  # fmt: skip


def test_1_7_a_new_list_takes_what_is_missing_for_deleted() -> None:
    items = [node("n1"), node("n2"), pod("a"), pod("b"), named("Namespace", "work")]
    story = Story().start(*items).forget()
    story.lists(node("n1"), pod("b"), pod("c"))
    assert story.told() == ["node n2 DECOMISSION", "release a STOPPED_BY_RM", "ask c"]


def test_a_pod_of_the_same_name_with_another_uid_is_another_pod() -> None:
    story = Story().start(node("n1"), pod("a")).forget()
    story.lists(node("n1"), changed(pod("a"), "metadata", uid="uid-a2"))
    assert story.told() == [
        "release a STOPPED_BY_RM", "remove app app", "app app in root.a", "ask a2",
    ]  # fmt: skip


def test_two_applications_of_one_id_are_announced_one_after_the_other() -> None:
    gpu = {"evenhand.io/partition": "gpu"}
    story = Story(core="silent").start(made("a", 1), made("b", 2, labels=gpu))
    assert story.told() == ["app app in root.a"]
    story.hear(ApplicationAnswer("app", accepted=False, reason="no queue"))
    assert story.told() == ["app app in root.a"]
    story.hear(ApplicationAnswer("app", accepted=True))
    assert story.told() == ["ask b"]
    assert "phase a Failed ApplicationRejected" in story.did()


def test_an_empty_cluster_is_synced_at_once() -> None:
    assert Story().start().told() == ["sync nodes=0 apps=0 allocs=0 asks=0"]


def test_a_rejected_node_is_said_on_the_node_and_its_pods_stay_orphans() -> None:
    story = Story(core="silent").start(node("n1"), foreign("f", "n1"))
    story.hear(NodeAnswer("n1", accepted=False, reason="partition 'x' is not configured"))
    assert "event Node/n1 NodeRejected" in story.did()
    assert [line for line in story.told() if line.startswith("alloc")] == []
    story.see(node("n1", cpu="9"))
    assert story.told() == ["node n1 CREATE_DRAIN"]
