"""Soft evictions (J11): the shim marks, another operator deletes the pod, and the core is told when it has ended."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from shim_client.cluster import ClusterError, PatchPod, RecordEvent, ReleasePod
from shim_client.embedded.cluster import EmbeddedCluster
from shim_client.messages import PodReport, Released, TerminationType, Veto, Withdrawn
from shim_client.translate import wire
from tests.shim.objects import Item, node, pod
from tests.shim.polling import until
from tests.shim.rig import ShimTask, core_here
from tests.shim.story import Story, changed
from tests.shim.test_preemption import (
    at_work,
    full,
    preempted,
    queues,
    running,
    scale,
    settings,
    stays,
    told,
)

SOFT = "scheduling.koordinator.sh/soft-eviction"
MARK = "evenhand.io/released-for"
DELIVERY = "evenhand.io/delivery"
JOB = "pod-group.scheduling.sigs.k8s.io"
GOING = {"deletionTimestamp": "2026-01-01T00:05:00Z"}
PREEMPTED = TerminationType.PREEMPTED_BY_SCHEDULER


def order(by: str = "j-1-2", *, message: str = "", nodes: tuple[str, ...] = ("n1",)) -> Released:
    """Return the core's order to mark a pod: for `uid-w` with nodes, or as a repetition without them."""
    return Released(
        "uid-a",
        PREEMPTED,
        message=message,
        decision=by,
        beneficiary="uid-w" if nodes else "",
        nodes=nodes,
        delivery="soft",
    )


def marked(decision: str = "j-1-2", **labels: str) -> Item:
    """Return the victim as it is once marked."""
    notes = {MARK: f"{decision}/uid-w/n1", DELIVERY: "soft", SOFT: "{}"}
    return pod("a", node="n1", labels={SOFT: "true", **labels}, annotations=notes)


def started(*items: Item) -> Story:
    return Story().start(node("n1"), pod("a", node="n1"), *items).forget()


def note_of(story: Story) -> PatchPod:
    [release] = [one for one in story.actions if isinstance(one, ReleasePod)]
    assert release.end is None, "another operator has it go"
    assert release.note is not None
    return release.note


def test_j11_a_victim_is_marked_and_nothing_else() -> None:
    story = started(pod("w"))
    story.hear(order(message="preempted in queue root.a by decision j-1-2"))
    note = note_of(story)
    assert note.labels == {SOFT: "true"}
    assert set(note.annotations) == {SOFT, MARK, DELIVERY}
    assert (note.annotations[MARK], note.annotations[DELIVERY]) == ("j-1-2/uid-w/n1", "soft")
    [said] = [one for one in story.actions if isinstance(one, RecordEvent) if one.about.name == "a"]
    assert (said.reason, said.message) == (
        "Preempted",
        "preempted in queue root.a by decision j-1-2",
    )
    assert story.told() == []
    assert [line for line in story.did() if line.startswith(("delete", "evict"))] == []


def test_j11_its_usage_counts_until_it_is_really_gone() -> None:
    story = started(pod("w"))
    story.hear(order())
    story.forget()
    assert (story.mirror.tally().leaving, story.mirror.tally().marked) == (1, 0)
    story.see(marked())
    assert story.told() == [], "the core knows that it goes"
    assert (story.mirror.tally().leaving, story.mirror.tally().marked) == (0, 1), "not our turn"
    story.see(changed(marked(), "metadata", **GOING))
    assert story.told() == [], "and it still runs"
    assert (story.mirror.tally().leaving, story.mirror.tally().marked) == (1, 0)
    story.gone(marked())
    assert story.told() == ["release a PREEMPTED_BY_SCHEDULER j-1-2"]


@pytest.mark.parametrize(
    ("waiting", "named"),
    [
        pytest.param(pod("w", labels={JOB: "train"}), "train", id="a job of its own namespace"),
        pytest.param(pod("w", ns="b", labels={JOB: "train"}), "j-1-2", id="of another tenant"),
        pytest.param(pod("w"), "j-1-2", id="no job"),
        pytest.param(pod("v"), "j-1-2", id="nobody that is known"),
    ],
)
def test_9_the_annotation_names_no_job_of_another_tenant(waiting: Item, named: str) -> None:
    story = started(waiting)
    story.hear(order())
    written = json.loads(str(note_of(story).annotations[SOFT]))
    assert written == {"preemptJob": named, "decision": "j-1-2"}


def test_an_order_that_expired_reminds_of_the_mark_and_keeps_for_whom() -> None:
    story = started(pod("w"))
    story.hear(order())
    story.see(marked())
    story.forget()
    story.hear(order(nodes=(), message="its release is not confirmed yet"))
    assert note_of(story).annotations[MARK] == "j-1-2/uid-w/n1"
    assert story.did().count("event Pod/a Preempted") == 1
    story.gone(marked())
    assert story.told() == ["release a PREEMPTED_BY_SCHEDULER j-1-2"]


def test_who_takes_the_mark_away_keeps_the_pod_and_the_core_hears_a_veto() -> None:
    story = started(pod("w"))
    story.hear(order())
    story.see(pod("a", node="n1"))
    assert story.told() == [], "the mark is on its way"
    story.see(marked())
    story.forget()
    kept = pod("a", node="n1", annotations={MARK: "j-1-2/uid-w/n1", DELIVERY: "soft", SOFT: "{}"})
    story.see(kept)
    [veto] = [one for one in story.reports if isinstance(one, Veto)]
    assert SOFT in veto.reason
    assert story.told() == ["veto a j-1-2"]
    gone = {MARK: None, DELIVERY: None, SOFT: None}
    assert f"annotate a {gone}" in story.did()
    story.see(kept)
    assert (story.told(), story.did()) == ([], [])
    story.gone(kept)
    assert story.told() == ["release a STOPPED_BY_RM"]


def test_a_mark_that_vanishes_while_the_pod_is_deleted_is_no_veto() -> None:
    story = started(pod("w"))
    story.hear(order())
    story.see(marked())
    story.see(changed(pod("a", node="n1"), "metadata", **GOING))
    story.gone(pod("a", node="n1"))
    assert story.told() == ["release a PREEMPTED_BY_SCHEDULER j-1-2"]


def test_a_victim_that_cannot_be_marked_is_a_veto() -> None:
    story = started(pod("w"))
    story.hear(order())
    [release] = [one for one in story.actions if isinstance(one, ReleasePod)]
    story.forget()
    story.outcome(release, ClusterError("500"))
    assert story.told() == ["veto a j-1-2"]
    assert f"label a { ({SOFT: None}) }" in story.did()


def test_1_7_a_new_shim_knows_whom_it_marked_and_marks_nobody_anew() -> None:
    story = Story().start(node("n1"), marked(), pod("w"))
    assert "alloc a@n1 going j-1-2" in story.told()
    assert story.did() == ["event Node/n1 NodeAccepted"]
    story.gone(marked())
    assert story.told() == ["release a PREEMPTED_BY_SCHEDULER j-1-2"]


@pytest.mark.parametrize(
    ("victim", "others"),
    [
        pytest.param(marked(), [], id="nobody waits any more"),
        pytest.param(marked(**{SOFT: "false"}), [pod("w")], id="it was kept meanwhile"),
    ],
)
def test_1_7_a_new_shim_takes_a_mark_away_that_counts_no_more(
    victim: Item, others: list[Item]
) -> None:
    story = Story().start(node("n1"), victim, *others)
    assert "alloc a@n1" in story.told()
    did = story.did()
    assert f"label a { ({SOFT: None}) }" in did
    assert "condition a PreemptionWithdrawn" in did


def test_a_mark_of_somebody_else_is_left_alone() -> None:
    story = started()
    story.see(pod("a", node="n1", labels={SOFT: "true"}, annotations={SOFT: "{}"}))
    assert (story.told(), story.did()) == ([], [])


# Nobody waits any more, as the core says it.

NOBODY = "no pod waits for its capacity any more"


def stays_after_all(by: str = "j-1-2") -> Withdrawn:
    return Withdrawn("uid-a", by, NOBODY)


def test_j11_a_mark_that_the_core_withdraws_is_taken_away_and_is_no_veto() -> None:
    story = started(pod("w"))
    story.hear(order())
    story.see(marked())
    story.forget()
    story.hear(stays_after_all())
    [patch] = [one for one in story.actions if isinstance(one, PatchPod)]
    assert patch.labels == {SOFT: None}
    assert patch.annotations == {MARK: None, DELIVERY: None, SOFT: None}
    assert patch.condition == ("DisruptionTarget", "False", "PreemptionWithdrawn", NOBODY)
    [said] = [one for one in story.actions if isinstance(one, RecordEvent)]
    assert (said.reason, said.message, said.warning) == ("PreemptionWithdrawn", NOBODY, False)
    assert story.forget().mirror.tally().marked == 0
    story.see(marked(), pod("a", node="n1"))
    assert (story.told(), story.did()) == ([], []), "the mark goes, and the core knows it"
    story.gone(pod("a", node="n1"))
    assert story.told() == ["release a STOPPED_BY_RM"]


@pytest.mark.parametrize(
    ("orders", "withdrawn"),
    [
        pytest.param(["j-1-1"], "j-1-2", id="of which nobody heard"),
        pytest.param(["j-1-1", "j-1-2"], "j-1-1", id="that another one followed"),
    ],
)
def test_a_withdrawal_for_another_decision_changes_nothing(
    orders: list[str], withdrawn: str
) -> None:
    story = started(pod("w"))
    story.hear(*map(order, orders))
    story.see(marked(orders[-1]))
    story.forget()
    story.hear(stays_after_all(withdrawn))
    assert (story.told(), story.did(), story.mirror.tally().marked) == ([], [], 1)


def test_one_that_is_marked_again_at_once_is_not_taken_for_kept() -> None:
    story = started(pod("w"))
    story.hear(order("j-1-1"))
    story.see(marked("j-1-1"))
    story.hear(stays_after_all("j-1-1"), order("j-1-2"))
    story.forget()
    story.see(marked("j-1-1"), pod("a", node="n1"))
    assert story.told() == [], "the first mark goes, the second one comes"
    story.see(marked("j-1-2"))
    assert story.mirror.tally().marked == 1
    story.see(pod("a", node="n1"))
    assert story.told() == ["veto a j-1-2"]


def test_one_that_is_being_deleted_goes_on_going_and_the_core_is_told() -> None:
    story = started(pod("w"))
    story.hear(order())
    going = changed(marked(), "metadata", **GOING)
    story.see(going)
    story.forget()
    story.hear(stays_after_all())
    [told_again] = [one for one in story.reports if isinstance(one, PodReport)]
    assert told_again.releasing is not None
    assert told_again.releasing.decision == ""
    story.told()
    assert story.did() == []
    story.see(going)
    story.gone(going)
    assert story.told() == ["release a STOPPED_BY_RM"]


def test_1_7_the_core_hears_how_a_marked_pod_goes() -> None:
    story = Story().start(node("n1"), marked(), pod("w"))
    [report] = [one for one in story.reports if isinstance(one, PodReport) and one.key == "uid-a"]
    assert wire.allocation(report).releasing.delivery == "soft"


# With everything that is there. The test plays the other operator.


@pytest.fixture
async def softly() -> AsyncIterator[EmbeddedCluster]:
    """Provide a cluster on which prod's ask has had one pod of test marked."""
    cluster = full()
    async with at_work(cluster, queues(partition=", delivery: soft")):
        scale(cluster, "prod", 3)
        await until(lambda: len(soft_marked(cluster)) == 1)
        yield cluster


def soft_marked(cluster: EmbeddedCluster) -> list[Any]:
    return [one for one in cluster.pods() if one["metadata"]["labels"].get(SOFT) == "true"]


def delete(cluster: EmbeddedCluster, item: Any) -> None:
    cluster.delete("Pod", (item["metadata"]["namespace"], item["metadata"]["name"]))


async def test_j11_nobody_is_deleted_until_the_other_operator_does(
    softly: EmbeddedCluster,
) -> None:
    await stays(lambda: running(softly) == {"prod": 2, "test": 3} and len(soft_marked(softly)) == 1)
    [victim] = soft_marked(softly)
    written = json.loads(victim["metadata"]["annotations"][SOFT])
    assert written["preemptJob"] == written["decision"]
    assert preempted(softly) == [victim["metadata"]["name"]]
    delete(softly, victim)
    await until(lambda: running(softly)["prod"] == 3)
    assert running(softly)["test"] == 2


async def test_j11_an_operator_that_takes_the_mark_away_keeps_its_pod(
    softly: EmbeddedCluster,
) -> None:
    [victim] = soft_marked(softly)
    name = victim["metadata"]["name"]
    labels = {k: v for k, v in victim["metadata"]["labels"].items() if k != SOFT}
    softly.replace({**victim, "metadata": {**victim["metadata"], "labels": labels}})
    await until(lambda: bool(told(softly, "PreemptionWithdrawn")))
    await until(lambda: len(soft_marked(softly)) == 1)
    assert soft_marked(softly)[0]["metadata"]["name"] != name, "another one is asked to go"
    kept = softly.store.get("Pod", ("work", name))
    assert kept is not None
    assert SOFT not in kept["metadata"]["annotations"]


async def test_1_7_a_restart_of_both_asks_nobody_else_to_go() -> None:
    cluster = full()
    text = queues(partition=", delivery: soft")
    async with at_work(cluster, text):
        scale(cluster, "prod", 3)
        await until(lambda: len(soft_marked(cluster)) == 1)
    [victim] = soft_marked(cluster)
    async with core_here() as address:
        shim = ShimTask(cluster, address, settings(text))
        await until(lambda: shim.shim.progress().tally.live)
        await stays(lambda: soft_marked(cluster) == [victim])
        delete(cluster, victim)
        cluster.step()
        await until(lambda: running(cluster)["prod"] == 3)
        await shim.kill()


async def test_j11_the_mark_goes_when_whoever_waited_is_gone(softly: EmbeddedCluster) -> None:
    [victim] = soft_marked(softly)
    name = victim["metadata"]["name"]
    scale(softly, "prod", 2)
    await until(lambda: soft_marked(softly) == [])
    await until(lambda: bool(told(softly, "PreemptionWithdrawn")))
    assert [kept.about.name for kept in told(softly, "PreemptionWithdrawn")] == [name]
    await stays(lambda: running(softly) == {"prod": 2, "test": 3} and soft_marked(softly) == [])
    scale(softly, "prod", 3)
    await until(lambda: len(soft_marked(softly)) == 1)
    delete(softly, soft_marked(softly)[0])
    await until(lambda: running(softly)["prod"] == 3)
