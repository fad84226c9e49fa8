"""Jobs at the shim (J1): which pods are members, how many there are, and what is reported while that is unknown."""

from typing import Any

import pytest

from shim_client.cluster import Action, Bind, ClusterError, ConflictError, ReadOwner, RecordEvent
from shim_client.config import BadSettingError, Settings, settings_from
from shim_client.messages import Placed, PodReport
from shim_client.translate.fields import BadObjectError
from shim_client.translate.jobs import pods_wanted
from tests.shim.objects import Item, node, pod
from tests.shim.story import Story

JOB = "pod-group.scheduling.sigs.k8s.io"
SIZE = "pod-group.scheduling.sigs.k8s.io/min-available"


def member(name: str, *, size: str = "", owner: str = "", **more: Any) -> Item:
    """Return a pod of job j; `owner` is the name of the Job that created it."""
    marks = {JOB: "j", **({SIZE: size} if size else {}), **more.pop("labels", {})}
    if owner:
        made_by = {"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": f"uid-{owner}"}
        more["metadata"] = {"ownerReferences": [made_by]}
    return pod(name, labels=marks, **more)


def started(*items: Item, settings: Settings | None = None) -> Story:
    return Story(settings=settings).start(node("n1"), *items).forget()


def sizes(story: Story) -> dict[str, int]:
    """Name and size of the pods that the core was told, as it knows them by now."""
    known = story.mirror.state.pods.values()
    return {one.facts.ref.name: one.sent.job_members for one in known if one.sent}


def readings(story: Story) -> list[ReadOwner]:
    return [one for one in story.actions if isinstance(one, ReadOwner)]


def answer(story: Story, wanted: int | None, error: ClusterError | None = None) -> None:
    """Answer the reads of owners with the number of pods they want, or with an error."""
    asked: list[Action] = [ReadOwner(one.owner, one.about, wanted) for one in readings(story)]
    story.actions.clear()
    for one in asked:
        story.outcome(one, error)


def said(story: Story, reason: str) -> list[str]:
    return [
        one.message
        for one in story.actions
        if isinstance(one, RecordEvent) and one.reason == reason
    ]


# A label says the size.


def test_j1_a_labelled_size_is_told_at_once() -> None:
    story = started()
    story.see(member("a", size="3", owner="train"))
    assert (sizes(story), readings(story)) == ({"a": 3}, [])


def test_j1_members_without_the_label_are_of_the_size_that_others_say() -> None:
    story = started()
    story.see(member("a", size="3"), member("b"))
    assert sizes(story) == {"a": 3, "b": 3}


def test_j1_of_several_sizes_the_largest_counts_for_all() -> None:
    story = started()
    story.see(member("a", size="3"), member("b", size="4"))
    assert sizes(story) == {"a": 4, "b": 4}
    story.gone(member("b", size="4"))
    assert sizes(story) == {"a": 3}


def test_j1_a_pod_without_a_job_waits_for_nobody() -> None:
    story = started()
    story.see(pod("a"), pod("b", labels={SIZE: "3"}))
    assert sizes(story) == {"a": 0, "b": 0}


# The owner says it.


def test_j1_an_owner_is_asked_once_and_its_answer_is_the_size() -> None:
    story = started()
    story.see(member("a", owner="train"), member("b", owner="train"))
    assert [(one.owner.kind, one.owner.name) for one in readings(story)] == [("Job", "train")]
    assert sizes(story) == {}, "one alone would be placed alone"
    assert (
        said(story, "JobGathering")
        == [
            "the size of gang 'j' is not known yet: the shim has asked its owner for the number of pods"
        ]
        * 2
    )
    answer(story, 3)
    assert sizes(story) == {"a": 3, "b": 3}
    story.see(member("c", owner="train"))
    assert sizes(story)["c"] == 3


def test_j1_what_several_owners_want_counts_together() -> None:
    story = started()
    story.see(member("a", owner="launcher"), member("b", owner="workers"))
    answer(story, 4)
    assert sizes(story) == {"a": 8, "b": 8}


def test_j1_owners_are_asked_again_once_members_came_or_went() -> None:
    story = started()
    story.see(member("a", owner="train"), member("b", owner="train"))
    answer(story, 2)
    story.seconds(1)
    answer(story, 2)
    story.seconds(5)
    assert readings(story) == [], "nothing has happened"
    story.see(member("c", owner="train"))
    assert sizes(story)["c"] == 2
    story.seconds(1)
    answer(story, 3)
    assert sizes(story) == {"a": 3, "b": 3, "c": 3}
    story.gone(member("c", owner="train"))
    story.seconds(1)
    answer(story, 2)
    assert sizes(story) == {"a": 2, "b": 2}


def test_j1_an_owner_of_a_job_that_waits_is_asked_again_every_while() -> None:
    story = started()
    story.see(member("a", owner="train"))
    answer(story, 4)
    story.seconds(1)
    answer(story, 4)
    story.seconds(28)
    assert readings(story) == []
    story.seconds(1)
    answer(story, 1)
    assert sizes(story) == {"a": 1}


def test_j1_the_owner_of_a_job_that_runs_is_left_alone() -> None:
    story = started(member("a", owner="train", node="n1"))
    answer(story, 1)
    story.seconds(60)
    assert readings(story) == []


@pytest.mark.parametrize("error", [ClusterError("403 forbidden"), ConflictError("no number")])
def test_j1_an_owner_that_cannot_be_read_leaves_it_to_patience(error: ClusterError) -> None:
    story = started()
    story.see(member("a", owner="train"), member("b", owner="train"))
    answer(story, None, error)
    assert sizes(story) == {}
    story.seconds(1)
    answer(story, None, error)
    story.seconds(2)
    assert sizes(story) == {"a": 2, "b": 2}


# Nobody says it.


def test_j1_without_any_word_it_is_whole_when_nobody_came_for_a_while() -> None:
    story = started()
    story.see(member("a"))
    assert said(story, "JobGathering") == [
        "the size of gang 'j' is not known yet: it counts as complete when no further member arrives for 2 s"
    ]
    story.seconds(2)
    assert sizes(story) == {}, "the first second may have been a short one"
    story.see(member("b"))
    story.seconds(2)
    assert sizes(story) == {}
    story.seconds(1)
    assert sizes(story) == {"a": 2, "b": 2}
    assert len(said(story, "JobGathering")) == 2


def test_j1_who_comes_later_makes_it_larger_and_who_goes_smaller() -> None:
    story = started()
    story.see(member("a"), member("b"))
    story.seconds(3)
    story.see(member("c"))
    assert sizes(story) == {"a": 2, "b": 2, "c": 2}
    story.seconds(3)
    assert sizes(story) == {"a": 3, "b": 3, "c": 3}
    story.gone(member("c"))
    story.seconds(1)
    assert sizes(story) == {"a": 2, "b": 2}, "else the two would wait for a third for ever"


def test_j1_of_a_job_that_runs_nobody_is_told_again_when_members_end() -> None:
    """A job of ten thousand would be told ten thousand times, ten thousand pods each."""
    story = started(*(member(name, node="n1") for name in "abc"))
    story.seconds(3)
    story.forget()
    story.gone(member("c", node="n1"))
    story.seconds(60)
    assert story.told() == ["release c STOPPED_BY_RM"]
    story.see(member("d"))
    story.seconds(3)
    assert sizes(story) == {"a": 3, "b": 3, "d": 3}, "somebody waits: now it counts"


def test_j1_whose_binding_fails_waits_for_no_more_than_are_left() -> None:
    story = started(member("a"), member("b"), member("c"))
    story.seconds(3)
    story.hear(*(Placed(f"uid-{name}", "n1") for name in "abc"))
    failed = next(one for one in story.binds() if one.pod.name == "b")
    story.gone(member("c", node="n1"))
    story.seconds(5)
    assert sizes(story) == {"a": 3, "b": 3}
    story.outcome(failed, ConflictError("409"))
    story.seconds(1)
    assert sizes(story) == {"a": 2, "b": 2}


def test_j1_how_long_is_a_setting() -> None:
    story = started(settings=Settings(gathering_s=0))
    story.see(member("a"))
    assert sizes(story) == {}
    story.seconds(1)
    assert sizes(story) == {"a": 1}


@pytest.mark.parametrize(
    ("written", "seconds"), [("2s", 2), ("1m", 60), (" 0s ", 0), ("60m", 3600)]
)
def test_the_setting_is_a_duration(written: str, seconds: int) -> None:
    assert settings_from({"service.jobGathering": written}).gathering_s == seconds


@pytest.mark.parametrize("written", ["", "2", "s", "-1s", "61m", "1h", "1.5s", "٢s", "999999s"])
def test_a_duration_that_is_none_is_named(written: str) -> None:
    with pytest.raises(BadSettingError, match=r"service\.jobGathering"):
        settings_from({"service.jobGathering": written})


# Restarts, and who belongs together.


def test_j1_a_new_shim_tells_who_runs_and_gathers_who_waits() -> None:
    story = started(member("a", node="n1"), member("b", node="n1"), member("c"))
    assert sizes(story) == {"a": 3, "b": 3}
    assert story.mirror.is_live()
    story.seconds(3)
    assert sizes(story) == {"a": 3, "b": 3, "c": 3}


def test_j1_a_session_that_begins_anew_knows_the_size_still() -> None:
    story = started()
    story.see(member("a", owner="train"))
    answer(story, 3)
    story.lose()
    story.see(member("b", owner="train"))
    story.connect()
    assert sizes(story) == {"a": 3, "b": 3}


def test_j1_a_job_is_of_one_application() -> None:
    story = started()
    story.see(member("a", size="2"), member("b", size="2", labels={"applicationId": "other"}))
    [message] = said(story, "JobIsSplit")
    assert "another application than 'other'" in message
    story.see(member("c", size="2", ns="elsewhere", labels={"applicationId": "third"}))
    assert len(said(story, "JobIsSplit")) == 1, "of another namespace: another job"


def test_j1_pods_that_get_an_application_each_get_one_for_their_job() -> None:
    story = started(settings=Settings(generate_unique_app_id=True))
    for name in "ab":
        item = member(name, size="2")
        del item["metadata"]["labels"]["applicationId"]
        story.see(item)
    told = {one.application for one in story.reports if isinstance(one, PodReport)}
    assert told == {"work-j"}


def test_a_pod_that_changes_its_label_changes_its_job() -> None:
    story = started()
    story.see(member("a", size="2"), member("b", size="2"))
    story.see(member("b", size="5", labels={JOB: "k"}))
    state = story.mirror.state
    assert {job.key: len(job.members) for job in state.jobs.values()} == {"j": 1, "k": 1}
    assert sizes(story) == {"a": 2, "b": 5}
    story.gone(member("a"), member("b"))
    assert (state.jobs, state.jobs_called) == ({}, {})


def test_gated_members_are_not_there_yet() -> None:
    story = started()
    story.see(member("a"), member("b", spec={"schedulingGates": [{"name": "wait"}]}))
    story.seconds(3)
    assert sizes(story) == {"a": 1}


# Binding.


def test_all_members_that_the_core_places_are_bound_and_one_that_fails_waits_again() -> None:
    story = started(*(member(name, size="3") for name in "abc"))
    story.hear(*(Placed(f"uid-{name}", "n1") for name in "abc"))
    orders = story.binds()
    assert sorted(one.pod.name for one in orders) == ["a", "b", "c"]
    story.forget()
    failed: Bind = next(one for one in orders if one.pod.name == "b")
    story.outcome(failed, ConflictError("409"))
    assert story.told() == ["release b SCHEDULING_FAILED_ON_RM"]
    assert sizes(story) == {"a": 3, "b": 3, "c": 3}


# What an owner wants.


@pytest.mark.parametrize(
    ("owner", "wanted"),
    [
        ({"kind": "Job", "spec": {}}, 1),
        ({"kind": "Job", "spec": {"parallelism": 4}}, 4),
        ({"kind": "Job", "spec": {"parallelism": 4, "completions": 6}}, 4),
        (
            {
                "kind": "Job",
                "spec": {"parallelism": 4, "completions": 6},
                "status": {"succeeded": 4},
            },
            2,
        ),
        ({"kind": "Job", "spec": {"parallelism": 0}}, 0),
        ({"kind": "ReplicaSet", "spec": {"replicas": 8}}, 8),
        ({"kind": "StatefulSet", "spec": {}}, 1),
    ],
)
def test_j1_how_many_pods_an_owner_wants(owner: Item, wanted: int) -> None:
    assert pods_wanted(owner) == wanted


def test_an_owner_without_a_number_cannot_be_read() -> None:
    with pytest.raises(BadObjectError, match=r"spec\.replicas"):
        pods_wanted({"kind": "ReplicaSet", "spec": {"replicas": "many"}})
